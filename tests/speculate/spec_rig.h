/* SPDX-License-Identifier: MIT */
/*
 * A port for tests of src/speculate/: seeded randomness, memory that is counted and that can be
 * made to fail, and a plain model of which pages the tracker would hold hot.
 */
#ifndef SPEC_RIG_H
#define SPEC_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "speculate/speculate.h"
#include "speculate/strategy.h"

#define RIG_PAGES 512
#define RIG_BASE  0x10000000ul

struct rig {
	struct crn_port port;
	struct crn_speculation *s;
	uint64_t seed;
	size_t bytes;		/* allocated now */
	long allocs, fail_at;	/* the fail_at-th allocation fails (and those after); 0: none */
	bool fail_once;
	char log[256];
	/* The tracker's view: slot + 1 of each hot page, 0 for cold ones. */
	uint32_t slot[RIG_PAGES];
	size_t hot;
};

static inline uintptr_t rig_page(unsigned n)
{
	return RIG_BASE + (uintptr_t)n * CRN_PORT_PAGE;
}

static inline unsigned rig_number(uintptr_t page)
{
	return (unsigned)((page - RIG_BASE) / CRN_PORT_PAGE);
}

static inline uint64_t rig_mix(uint64_t *seed)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static inline uint64_t rig_random(const struct crn_port *port)
{
	return rig_mix(&((struct rig *)port->owner)->seed);
}

static inline void *rig_alloc(const struct crn_port *port, size_t size)
{
	struct rig *r = port->owner;

	r->allocs++;
	if (r->fail_at && (r->fail_once ? r->allocs == r->fail_at : r->allocs >= r->fail_at))
		return NULL;
	r->bytes += size;
	return calloc(1, size);
}

static inline void rig_free(const struct crn_port *port, void *block, size_t size)
{
	struct rig *r = port->owner;

	assert_true(r->bytes >= size);
	r->bytes -= size;
	/* Whoever still reads it shall notice. */
	memset(block, 0xa5, size);
	free(block);
}

static inline void rig_log(const struct crn_port *port, const char *text)
{
	struct rig *r = port->owner;

	snprintf(r->log, sizeof(r->log), "%s", text);
}

/* Without opening a strategy. */
static inline void rig_init(struct rig *r)
{
	*r = (struct rig){ .seed = 1 };
	r->port = (struct crn_port){
		.owner = r,
		.costs = { .fault = 800, .copy = 100, .protect = 100, .open = 400 },
		.at_fault = true,
		.alloc = rig_alloc,
		.free = rig_free,
		.random = rig_random,
		.log = rig_log,
	};
}

static inline void rig_open(struct rig *r, const char *spec)
{
	char why[160];

	if (crn_speculation_open(&r->s, &r->port, spec, why, sizeof(why)) < 0)
		fail_msg("%s: %s", spec, why);
}

/* Everything that was allocated must be given back. */
static inline void rig_close(struct rig *r)
{
	crn_speculation_close(r->s);
	assert_int_equal(r->bytes, 0);
}

/* Do what a tracker does with the decisions, and complain where they make no sense. */
static inline void rig_apply(struct rig *r)
{
	const struct crn_hot_page *promoted;
	const struct crn_hot_run *evicted;
	uintptr_t before = 0;
	size_t count;

	evicted = crn_speculation_evicted(r->s, &count);
	for (size_t i = 0; i < count; i++) {
		assert_true(i == 0 ? evicted[i].begin > 0 : evicted[i].begin > before);
		assert_true(evicted[i].end > evicted[i].begin);
		before = evicted[i].end;
		for (uintptr_t at = evicted[i].begin; at < evicted[i].end; at += CRN_PORT_PAGE) {
			assert_int_not_equal(r->slot[rig_number(at)], 0);
			r->slot[rig_number(at)] = 0;
			r->hot--;
		}
	}
	before = 0;
	promoted = crn_speculation_promoted(r->s, &count);
	for (size_t i = 0; i < count; i++) {
		assert_true(promoted[i].page > before);
		before = promoted[i].page;
		assert_int_equal(r->slot[rig_number(before)], 0);
		for (unsigned n = 0; n < RIG_PAGES; n++)
			assert_int_not_equal(r->slot[n], promoted[i].slot + 1);
		r->slot[rig_number(before)] = promoted[i].slot + 1;
		r->hot++;
	}
	assert_int_equal(crn_speculation_hot(r->s), r->hot);
	for (unsigned n = 0; n < RIG_PAGES; n++)
		assert_int_equal(crn_speculation_is_hot(r->s, rig_page(n)), r->slot[n] != 0);
	for (struct crn_working_set *ws = r->s->contexts; ws; ws = ws->next)
		assert_true(crn_ws_sound(ws));
}

/* Which pages are open because the fault hook named them when page n was written. */
static inline void rig_near(struct rig *r, unsigned n, const bool *open, bool *near)
{
	uintptr_t begin, end;

	if (!r->port.at_fault || !crn_speculation_near(r->s, rig_page(n), &begin, &end))
		return;
	for (unsigned k = 0; k < RIG_PAGES; k++)
		if (rig_page(k) >= begin && rig_page(k) < end && !open[k] && !r->slot[k])
			near[k] = true;
}

/* One interval as a tracker drives it: `written[n]` says whether page n is. */
static inline void rig_interval(struct rig *r, const bool *written)
{
	bool open[RIG_PAGES] = { false }, near[RIG_PAGES] = { false };
	uint64_t *changed = crn_speculation_changed(r->s);

	for (unsigned n = 0; n < RIG_PAGES; n++) {
		if (!written[n] || near[n])
			continue;
		open[n] = true;
		if (r->slot[n])
			changed[(r->slot[n] - 1) / 64] |= 1ull << (r->slot[n] - 1) % 64;
		else
			rig_near(r, n, open, near);
	}
	for (unsigned n = 0; n < RIG_PAGES; n++) {
		if (near[n])
			crn_speculation_granted(r->s, rig_page(n), written[n]);
		else if (open[n] && !r->slot[n])
			crn_speculation_written(r->s, rig_page(n));
	}
	crn_speculation_checkpoint(r->s);
	rig_apply(r);
}

#endif
