/* SPDX-License-Identifier: MIT */
/*
 * An engine in little for the tests of undo pages: an arena, an environment, one area, a sink that
 * checks.
 */
#ifndef UNDO_RIG_H
#define UNDO_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <cmocka.h>
#include "base/arena.h"
#include "base/status.h"
#include "os/host.h"
#include "os/keeper.h"
#include "os/memory.h"
#include "track/track.h"

#define PAGES 64
#define BYTES (PAGES * CRN_PAGE_SIZE)

static struct crn_host host;
static uint64_t seed = 1;

static uint32_t rnd(uint32_t below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return (uint32_t)(seed >> 20) % below;
}

struct rig {
	const struct crn_tracker_ops *ops;
	void *t, *reserve;
	size_t reserved;
	struct crn_arena *arena;
	struct crn_track_env env;
	struct crn_area area;
	uint8_t *live;
	uint8_t begin[BYTES];  /* the model: content at interval_begin */
	uint8_t before[BYTES]; /* and one interval earlier, as handed to the sink */
	int lost;
	/* the sink */
	struct crn_sink sink;
	uint8_t seen[PAGES];
	int taken, absorbed, exchanged, rewind;
	size_t prepared;
};

static struct rig *rig_of_sink(struct crn_sink *s)
{
	return (struct rig *)((char *)s - offsetof(struct rig, sink));
}

static int env_load(struct crn_track_env *env, void *dst, uintptr_t addr, size_t len)
{
	(void)env;
	memcpy(dst, (const void *)addr, len);
	return 0;
}

static void env_lost(struct crn_track_env *env, uintptr_t addr, int why)
{
	((struct rig *)((char *)env - offsetof(struct rig, env)))->lost++;
}

static int sink_prepare(struct crn_sink *s, size_t count, size_t bare)
{
	assert_true(bare <= count);
	rig_of_sink(s)->prepared = count;
	return crn_frame_reserve(rig_of_sink(s)->arena, count);
}

static int sink_take(struct crn_sink *s, uintptr_t addr, size_t len, void *old, bool owned)
{
	static const uint8_t zeros[CRN_PAGE_SIZE];
	struct rig *r = rig_of_sink(s);
	size_t page = (addr - (uintptr_t)r->live) / CRN_PAGE_SIZE;
	const void *content = old ? old : zeros;

	assert_int_equal(len, CRN_PAGE_SIZE);
	assert_true(page < PAGES);
	assert_int_equal(r->seen[page], 0);
	r->seen[page] = 1;
	r->taken++;
	/* Whatever is handed over is the content at interval_begin. */
	assert_memory_equal(content, r->begin + page * CRN_PAGE_SIZE, CRN_PAGE_SIZE);
	if (r->rewind)
		memcpy((void *)addr, content, CRN_PAGE_SIZE);
	if (owned)
		crn_frame_free(r->arena, old);
	return 0;
}

static int sink_absorb(struct crn_sink *s, uintptr_t addr, void *frame, const void *live)
{
	struct rig *r = rig_of_sink(s);
	size_t page = (addr - (uintptr_t)r->live) / CRN_PAGE_SIZE;

	assert_int_equal(r->seen[page], 0);
	assert_memory_equal(frame, r->begin + page * CRN_PAGE_SIZE, CRN_PAGE_SIZE);
	r->seen[page] = 1;
	if (page & 1) { /* as whole page */
		crn_frame_free(r->arena, frame);
		return 0;
	}
	r->absorbed++;
	memcpy(frame, live, CRN_PAGE_SIZE);
	return 1;
}

/* Every seventh page vanishes for a moment. */
static int sink_absorb_most(struct crn_sink *s, uintptr_t addr, void *frame, const void *live)
{
	return addr / CRN_PAGE_SIZE % 7 ? sink_absorb(s, addr, frame, live) : -EFAULT;
}

static size_t sink_absorb_pages(
	struct crn_sink *s, struct crn_page_copy *pages, size_t count, bool down)
{
	for (size_t i = 1; i < count; i++)
		assert_true(pages[i - 1].from < pages[i].from);
	return crn_absorb_each(s, sink_absorb_most, pages, count, down);
}

static inline void sink_absorbs(struct crn_sink *s)
{
	s->absorb = sink_absorb;
	s->absorb_pages = sink_absorb_pages;
}

/* Three at most, the others are left to take(); all, for who relies on what prepare() promises. */
static size_t sink_exchange(struct crn_sink *s, struct crn_page_copy *pages, size_t count)
{
	struct rig *r = rig_of_sink(s);

	if (!(r->ops->caps & CRN_TRACK_MIRROR))
		count = CRN_MIN(count, (size_t)3);
	for (size_t i = 0; i < count; i++) {
		void *fresh = crn_frame_alloc(r->arena);

		assert_non_null(fresh);
		assert_int_equal(sink_take(s, (uintptr_t)pages[i].from, CRN_PAGE_SIZE, pages[i].to,
					 true), 0);
		memset(fresh, 0xa5, CRN_PAGE_SIZE);
		pages[i].to = fresh;
		r->exchanged++;
	}
	return count;
}

/* K = 1: nothing is kept, and what is in the frames is not needed any more. */
static size_t sink_exchange_last(struct crn_sink *s, struct crn_page_copy *pages, size_t count)
{
	struct rig *r = rig_of_sink(s);

	for (size_t i = 0; i < count; i++) {
		assert_int_equal(sink_take(s, (uintptr_t)pages[i].from, CRN_PAGE_SIZE, pages[i].to,
					 false), 0);
		memset(pages[i].to, 0xa5, CRN_PAGE_SIZE);
		r->exchanged++;
	}
	return count;
}

static struct rig *rig_new(const struct crn_tracker_ops *ops, uint32_t flags, uint64_t memory_max)
{
	struct rig *r = calloc(1, sizeof(*r));

	r->ops = ops;
	assert_int_equal(crn_memory_reserve(&r->reserve, &r->reserved), 0);
	assert_int_equal(crn_arena_init(&r->arena, r->reserve, r->reserved, memory_max, true,
				 crn_memory_commit),
		0);
	r->env = (struct crn_track_env){
		.arena = r->arena, .host = &host, .keep = 1, .lost = env_lost,
		.load = env_load
	};
	r->sink = (struct crn_sink){ .prepare = sink_prepare, .take = sink_take };
	if (ops->probe(&host) < 0)
		skip();
	assert_int_equal(crn_keeper_open(&r->env.keeper), 0);
	assert_int_equal(ops->open(&r->t, &r->env), 0);
	(void)crn_keeper_start(r->env.keeper);
	/* Between guard pages, or the kernel may merge it with a neighbour when it is read-only. */
	r->live = mmap(
		NULL, BYTES + 2 * CRN_PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(r->live, MAP_FAILED);
	r->live += CRN_PAGE_SIZE;
	assert_int_equal(mprotect(r->live, BYTES, PROT_READ | PROT_WRITE), 0);
	for (size_t i = 0; i < BYTES / 2; i++) /* the other half stays unpopulated */
		r->live[i] = (uint8_t)rnd(256);
	r->area =
		(struct crn_area){ (uintptr_t)r->live, (uintptr_t)r->live + BYTES, flags, 0, NULL };
	memcpy(r->begin, r->live, BYTES);
	assert_int_equal(ops->area_add(r->t, &r->area), 0);
	assert_int_equal(ops->interval_begin(r->t), 0);
	return r;
}

static void rig_free(struct rig *r)
{
	memcpy(r->begin, r->live, BYTES);
	r->ops->close(r->t);
	crn_keeper_close(r->env.keeper);
	assert_memory_equal(r->begin, r->live, BYTES);
	memset(r->live, 0xee, BYTES); /* writable, with no handler about */
	munmap(r->live - CRN_PAGE_SIZE, BYTES + 2 * CRN_PAGE_SIZE);
	crn_memory_unmap(r->reserve, r->reserved);
	free(r);
}

#endif
