/* SPDX-License-Identifier: MIT */
/*
 * The profile of an earlier run, for the oracle strategies: a whole trace (speculate/trace.h), read
 * and checked when the session opens, and kept as plain arrays, because a restore jumps back in it.
 * For `oracle` it must be of the same program, surface and sites. oracle-count takes any.
 */
#include "session/engine.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/descriptor.h"
#include "session/run_identity.h"
#include "speculate/trace.h"

struct crn_profile {
	uintptr_t *pages;
	size_t *ends; /* of each interval's pages */
	size_t page_count, page_room, count, room;
	uint64_t open; /* the interval that was asked for last: the open one */
	bool closed;   /* that it goes on has been said */
};

static int read_file(cairn_t *c, const char *path, uint8_t **bytes, size_t *size, size_t *room)
{
	int fd = crn_fd_open(path, O_RDONLY | O_NOCTTY);
	long got = 1;
	int err = 0;

	if (fd < 0)
		return fd;
	while (got > 0 && err >= 0) {
		err = crn_grow(c, (void **)bytes, room, *size + (64ul << 10), 1);
		if (err < 0)
			break;
		got = crn_fd_read(fd, *bytes + *size, *room - *size);
		if (got > 0)
			*size += (size_t)got;
	}
	crn_fd_close(fd);
	return err < 0 ? err : got < 0 ? (int)got : 0;
}

/* 1: an interval was added, 0: that was all. */
static int add_interval(cairn_t *c, struct crn_profile *p, struct crn_trace_reader *r)
{
	size_t count = 0;
	uint64_t key;
	int got;

	CRN_TRY(crn_grow(c, (void **)&p->ends, &p->room, p->count + 1, sizeof(*p->ends)));
	got = crn_trace_next(
		r, &key, p->pages + p->page_count, p->page_room - p->page_count, &count);
	if (got == CRN_TRACE_ROOM) {
		CRN_TRY(crn_grow(c, (void **)&p->pages, &p->page_room, p->page_count + count,
			sizeof(*p->pages)));
		got = crn_trace_next(r, &key, p->pages + p->page_count,
			p->page_room - p->page_count, &count);
	}
	if (got != CRN_TRACE_INTERVAL)
		return got;
	p->page_count += count;
	p->ends[p->count++] = p->page_count;
	return 1;
}

/* `exact`: of this very run. */
static int read_trace(cairn_t *c, struct crn_profile *p, const char *path, const uint8_t *bytes,
	size_t size, bool exact)
{
	char here[CRN_IDENTITY_MAX], why[CRN_PROFILE_WHY];
	struct crn_trace_reader r;
	int got = crn_trace_open(&r, bytes, size);

	if (got == 0 && exact) {
		crn_identity_here(c, here);
		if (!crn_identity_same(r.identity, r.identity_size, here, why, sizeof(why))) {
			crn_error("profile %s: byte %d: %s", path, CRN_TRACE_HEADER, why);
			return CAIRN_ESTRATEGY;
		}
	}
	if (got == 0)
		do
			got = add_interval(c, p, &r);
		while (got == 1);
	if (got == CRN_PORT_EINVAL && r.error) {
		crn_error("profile %s: byte %zu: %s", path, r.offset, r.error);
		return CAIRN_ESTRATEGY;
	}
	return got;
}

int crn_profile_check(const void *bytes, size_t size, const char *surface, const char *sites,
	char why[CRN_PROFILE_WHY])
{
	char planned[CRN_IDENTITY_MAX], differs[CRN_PROFILE_WHY - 32];
	struct crn_trace_reader r;
	int got = crn_trace_open(&r, bytes, size);
	size_t count;
	uint64_t key;

	if (got >= 0)
		do
			got = crn_trace_next(&r, &key, NULL, SIZE_MAX, &count);
		while (got == CRN_TRACE_INTERVAL);
	if (got != CRN_TRACE_END) {
		(void)crn_format(why, CRN_PROFILE_WHY, "byte %zu: %s", r.offset, r.error);
		return -EINVAL;
	}
	if (!surface)
		return 0;
	crn_identity_planned(surface, sites, planned);
	if (crn_identity_same(r.identity, r.identity_size, planned, differs, sizeof(differs)))
		return 0;
	(void)crn_format(why, CRN_PROFILE_WHY, "byte %d: %s", CRN_TRACE_HEADER, differs);
	return -EINVAL;
}

static int profile_interval(
	const struct crn_port *port, uint64_t index, struct crn_profile_interval *out)
{
	struct crn_profile *p = ((cairn_t *)port->owner)->profile;
	size_t first = index && index <= p->count ? p->ends[index - 1] : 0;

	p->open = index;
	/* The interval that was open when the recording ended: nobody knows what it wrote. */
	if (index > p->count)
		return CRN_PORT_EINVAL;
	*out = (struct crn_profile_interval){ p->pages + first, 0 };
	if (index < p->count)
		out->count = p->ends[index] - first;
	return 0;
}

int crn_profile_open(cairn_t *c, const char *spec)
{
	char path[CRN_STRATEGY_MAX];
	struct crn_profile *p;
	uint8_t *bytes = NULL;
	size_t size = 0, room = 0;
	int err;

	if (!crn_speculation_profile(spec, path, sizeof(path)))
		return 0;
	p = crn_block_alloc(c->arena, sizeof(*p));
	if (!p)
		return CAIRN_EMEMORY;
	err = read_file(c, path, &bytes, &size, &room);
	if (err < 0 && err != CAIRN_EMEMORY) {
		crn_error("profile %s: %s", path, cairn_strerror(err));
		err = CAIRN_ESTRATEGY;
	}
	if (err >= 0)
		err = read_trace(c, p, path, bytes, size, crn_starts_with(spec, "oracle:"));
	crn_block_free(c->arena, bytes, room);
	if (err < 0)
		return err;
	c->profile = p;
	c->port.profile = profile_interval;
	return 0;
}

void crn_profile_close(cairn_t *c)
{
	struct crn_profile *p = c->profile;

	/*
	 * One that has given up has said so; oracle-count begins again as often as it likes. A
	 * restore takes the open interval back, but not those of the recorded run.
	 */
	if (!p || p->closed || !p->open || p->open >= p->count || c->figures.restores ||
		crn_speculation_trouble(c->speculation) ||
		crn_speculation_flags(c->speculation) & CRN_STRATEGY_BOUND)
		return;
	p->closed = true;
	crn_warn("strategy oracle: interval %" CRN_64 "u: the run ends in it, but the profile has "
		 "%zu", p->open, p->count);
	c->strategy_why = "named: the profile goes on after the run";
}

void crn_profile_finish(cairn_t *c)
{
	if (crn_lock(c) < 0)
		return;
	crn_profile_close(c);
	crn_unlock(c);
}
