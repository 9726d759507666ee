/* SPDX-License-Identifier: MIT */
/*
 * Recording a trace: a sink in front of the journal's, which notes every page that an interval
 * hands over. It does not change what a checkpoint holds. If a trace can no longer be written (the
 * disk is full, no memory for the list), it is given up with one line in the log. It then lacks its
 * trailer, so no reader takes it for complete.
 */
#include "session/engine.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/guarded.h"
#include "session/run_identity.h"
#include "speculate/trace.h"

/* About a tenth of a second: the intervals of so long may be lost when the program is killed. */
#define FLUSH_TICKS (1ull << 28)

struct crn_tracing {
	struct crn_sink sink; /* first: the sink's functions find us by it */
	struct crn_sink *inner;
	cairn_t *c;
	int fd;
	struct crn_fd_identity file;
	/*
	 * Pages of an area that is always copied, and hot pages that are evicted or taken for
	 * changed, are handed over unwritten: compare.
	 */
	bool compare;
	bool lost; /* a page of this interval could not be noted */
	uintptr_t *pages;
	size_t count, capacity;
	uint64_t flushed; /* when */
	struct crn_trace_writer writer;
};

static int write_bytes(void *owner, const void *bytes, size_t len)
{
	struct crn_tracing *t = owner;

	/* The program may have closed it, and opened a file of its own under its number. */
	if (!crn_fd_is(t->fd, &t->file))
		return -EBADF;
	return crn_fd_write(t->fd, bytes, len);
}

static void add(struct crn_tracing *t, uintptr_t page)
{
	if (t->count == t->capacity &&
		crn_grow(t->c, (void **)&t->pages, &t->capacity, t->count + 1,
			sizeof(*t->pages)) < 0)
		t->lost = true;
	else
		t->pages[t->count++] = page;
}

static void note(struct crn_tracing *t, uintptr_t addr, size_t len, const void *old)
{
	if (t->compare && len == CRN_PAGE_SIZE && crn_guarded_same(old, (const void *)addr))
		return;
	for (uintptr_t page = crn_page_down(addr); page < addr + len && !t->lost;
		page += CRN_PAGE_SIZE)
		add(t, page);
}

static int trace_take(struct crn_sink *self, uintptr_t addr, size_t len, void *old, bool owned)
{
	struct crn_tracing *t = (struct crn_tracing *)self;

	note(t, addr, len, old);
	return t->inner->take(t->inner, addr, len, old, owned);
}

static int trace_absorb(struct crn_sink *self, uintptr_t addr, void *frame, const void *live)
{
	struct crn_tracing *t = (struct crn_tracing *)self;
	bool differs = !t->compare || !crn_guarded_same(frame, live);
	int got = t->inner->absorb(t->inner, addr, frame, live);

	if (differs && got != -EFAULT) /* else it comes again, by take */
		add(t, addr);
	return got;
}

/* Never down: the order of a trace is the same at every checkpoint. */
static size_t trace_absorb_pages(
	struct crn_sink *self, struct crn_page_copy *pages, size_t count, bool down)
{
	(void)down;
	return crn_absorb_each(self, trace_absorb, pages, count, false);
}

static size_t trace_exchange(struct crn_sink *self, struct crn_page_copy *pages, size_t count)
{
	struct crn_tracing *t = (struct crn_tracing *)self;
	size_t done = 0;

	for (; done < count; done++) {
		void *old = pages[done].to; /* it stays as it is until the copies are made */

		if (!t->inner->exchange(t->inner, &pages[done], 1))
			break;
		note(t, (uintptr_t)pages[done].from, CRN_PAGE_SIZE, old);
	}
	return done;
}

/* As the inner sink wants pages: prepare() may change that. */
static void follow_inner(struct crn_tracing *t)
{
	t->sink.absorb = t->inner->absorb ? trace_absorb : NULL;
	t->sink.absorb_pages = t->inner->absorb ? trace_absorb_pages : NULL;
	t->sink.exchange = t->inner->exchange ? trace_exchange : NULL;
}

static int trace_prepare(struct crn_sink *self, size_t count, size_t bare)
{
	struct crn_tracing *t = (struct crn_tracing *)self;
	int err;

	t->inner->differences = t->sink.differences;
	err = t->inner->prepare(t->inner, count, bare);
	follow_inner(t);
	return err;
}

struct crn_sink *crn_tracing_wrap(struct crn_tracing *t, struct crn_sink *inner)
{
	if (!t)
		return inner;
	t->inner = inner;
	t->count = 0;
	t->lost = false;
	t->sink = (struct crn_sink){
		.prepare = inner->prepare ? trace_prepare : NULL,
		.take = trace_take,
		.keeps = inner->keeps,
	};
	follow_inner(t);
	return &t->sink;
}

static void give_up(struct crn_tracing *t, const char *why)
{
	crn_error("the trace ends at interval %" CRN_64 "u: %s", t->writer.intervals, why);
	crn_fd_close(t->fd);
	t->c->tracing = NULL;
}

void crn_tracing_interval(struct crn_tracing *t, uint64_t key)
{
	int err;

	if (!t)
		return;
	if (t->lost) {
		give_up(t, cairn_strerror(CAIRN_EMEMORY));
		return;
	}
	err = crn_trace_interval(&t->writer, key, t->pages, t->count);
	if (err >= 0 && crn_clock_ticks() - t->flushed > FLUSH_TICKS) {
		err = crn_trace_flush(&t->writer);
		t->flushed = crn_clock_ticks();
	}
	if (err < 0)
		give_up(t, cairn_strerror(err));
}

int crn_trace_start(cairn_t *c, const char *path)
{
	char identity[CRN_IDENTITY_MAX];
	struct crn_tracing *t;
	int err;

	if (c->tracing)
		return -EBUSY;
	if (c->ops->caps & (CRN_TRACK_KEEPS | CRN_TRACK_NOTHING))
		return CAIRN_ENOTRACK;
	CRN_TRY(crn_lock(c));
	t = crn_block_alloc(c->arena, sizeof(*t));
	err = CAIRN_EMEMORY;
	if (!t)
		goto err_alloc;
	t->c = c;
	t->compare = !(c->ops->caps & CRN_TRACK_SEES_KERNEL) ||
		(c->speculation &&
			!(crn_speculation_flags(c->speculation) & CRN_STRATEGY_COLD));
	err = t->fd = crn_fd_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOCTTY);
	if (err < 0)
		goto err_open;
	err = crn_fd_identify(t->fd, &t->file);
	if (err < 0)
		goto err_write;
	crn_identity_here(c, identity);
	err = crn_trace_begin(&t->writer, write_bytes, t, identity);
	if (err < 0)
		goto err_write;
	c->tracing = t;
	crn_unlock(c);
	return 0;

err_write:
	crn_fd_close(t->fd);
err_open:
	crn_block_free(c->arena, t, sizeof(*t));
err_alloc:
	crn_unlock(c);
	return err;
}

/* The open interval is not over, and stays out. */
int crn_tracing_close(cairn_t *c)
{
	struct crn_tracing *t = c->tracing;
	int err;

	if (!t)
		return 0;
	err = crn_trace_end(&t->writer);
	crn_fd_close(t->fd);
	c->tracing = NULL;
	return err;
}

int crn_trace_finish(cairn_t *c)
{
	int err;

	CRN_TRY(crn_lock(c));
	err = crn_tracing_close(c);
	crn_unlock(c);
	return err;
}
