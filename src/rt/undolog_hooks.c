/* SPDX-License-Identifier: MIT */
/*
 * The undo log's half of the hooks. The code that the pass inserts appends short entries itself.
 * This file has long entries, and what to do when the log is full.
 */
#include "rt/rt.h"
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/memory.h"
#include "rt/program_maps.h"

const char __cairn_abi_undolog __attribute__((visibility("default"))) = 1;
const struct crn_rt_shape __cairn_shape = {
	.kind = CRN_RT_UNDOLOG,
	.state = &__cairn_rt,
	.save = crn_rt_range,
	.save_old = crn_rt_save_old,
	.one_thread = crn_rt_one_thread,
	.has_hooks = crn_rt_has_hooks,
	.stack = crn_rt_stack,
	.saves = crn_rt_saves,
	.guarded = crn_rt_guarded,
	.hybrid = crn_rt_hybrid,
	.maps = &crn_program_maps,
};

static __attribute__((section(".preinit_array"), used)) void (*start)(int, char **, char **) =
	crn_rt_start;

/* Where hooks write while there is no session. Nobody reads it. */
static uint64_t nowhere[512];

#define STORE_MAX 32ul /* of one hook without a length */

/* Where the log ends. In page mode the hooks' own cursor has no log behind it. */
static uintptr_t *cursor_of(struct crn_rt *rt)
{
	bool paged = *(const struct crn_range *const volatile *)&rt->paged;

	return paged ? &rt->log_paged : &rt->log_cur;
}

/*
 * SAFETY: as crn_rt_slow of the shadow; the line of the log is formatted on the stack. An interval
 * that does not fit cannot be undone; the program itself goes on, over the log's old entries.
 */
static void full(struct crn_rt *rt, uintptr_t addr)
{
	if (!rt->told) {
		rt->lost(rt->env, addr, CAIRN_EMEMORY);
		crn_error("undo log: its limit of %zu bytes is reached, this interval cannot be "
			  "restored (raise memory_max, or take checkpoints more often)",
			(size_t)(rt->log_limit - rt->log_base));
	}
	rt->told = true;
	*cursor_of(rt) = rt->log_base;
}

/* In page mode hooks find no room, and do not tell the size of their store: 32 at most. */
static void slow_paged(struct crn_rt *rt, uintptr_t addr)
{
	uintptr_t page_end = crn_page_up(addr + 1);
	size_t len = CRN_MIN(STORE_MAX, page_end - addr);

	if (len < STORE_MAX && crn_memory_readable(&page_end, 1))
		len = STORE_MAX;
	crn_rt_range(addr, len);
}

void crn_rt_slow(uintptr_t addr)
{
	struct crn_rt *rt = &__cairn_rt;

	if (rt->paged) {
		slow_paged(rt, addr);
	} else if (rt->active) {
		full(rt, addr);
	} else {
		rt->log_cur = (uintptr_t)nowhere;
		rt->log_end = (uintptr_t)(nowhere + CRN_ARRAY_SIZE(nowhere));
	}
}

/*
 * Room is taken for the bytes before they are read. If a handler's entries follow, it may have
 * changed some of them: those entries have the old content, and what was read stays void.
 */
static bool fill_long(struct crn_rt *rt, uintptr_t cur, uintptr_t addr, size_t len)
{
	uintptr_t next = cur + crn_log_need(len);
	volatile struct crn_log_entry *entry = (volatile struct crn_log_entry *)next - 1;

	entry->word = len;
	crn_rt_fill(&entry->where, addr | CRN_LOG_VOID << 56);
	crn_copy((void *)cur, (const void *)addr, len);
	if (crn_unlikely(*(volatile uintptr_t *)cursor_of(rt) != next))
		return false;
	crn_rt_fill(&entry->where, addr | CRN_LOG_LONG << 56);
	return true;
}

static void fill_short(uintptr_t cur, uintptr_t addr, size_t len, uint64_t old)
{
	volatile struct crn_log_entry *entry = (volatile struct crn_log_entry *)cur;

	entry->word = old;
	crn_rt_fill(&entry->where, addr | (uint64_t)len << 56);
}

/* True: room was taken from `cur` on, where no other hook comes. False: full, which is told. */
static bool has_room(struct crn_rt *rt, uintptr_t cur, size_t need, uintptr_t addr)
{
	if (need <= rt->log_limit - rt->log_base && cur + need <= rt->log_limit)
		return true;
	full(rt, addr);
	return false;
}

static void log_range(struct crn_rt *rt, uintptr_t addr, size_t len)
{
	size_t need = crn_log_need(len);
	uintptr_t cur;
	uint64_t old;

	for (;;) {
		uintptr_t *cursor = cursor_of(rt);

		cur = *(volatile uintptr_t *)cursor;
		if (!has_room(rt, cur, need, addr))
			return;
		if (len > 8) {
			if (crn_rt_take(cursor, cur, cur + need) && fill_long(rt, cur, addr, len))
				return;
			continue;
		}
		old = 0;
		crn_copy(&old, (const void *)addr, len);
		if (crn_rt_take(cursor, cur, cur + need)) {
			fill_short(cur, addr, len, old);
			return;
		}
	}
}

void crn_rt_range(uintptr_t addr, size_t len)
{
	struct crn_rt *rt = &__cairn_rt;
	uintptr_t end = addr + len;

	if (!rt->active || !len)
		return;
	if (crn_unlikely(!crn_rt_harmless(addr) || crn_rt_strays(addr, len)))
		crn_rt_stray(addr);
	if (crn_likely(!rt->paged)) {
		log_range(rt, addr, len);
		return;
	}
	for (uintptr_t next; addr < end; addr = next) {
		next = CRN_MIN(crn_page_up(addr + 1), end);
		if (!crn_rt_paged(rt, addr))
			log_range(rt, addr, next - addr);
	}
}

/* Nothing is logged meanwhile: the entry is as if it had been taken first. */
void crn_rt_save_old(uintptr_t addr, size_t len, const void *old)
{
	struct crn_rt *rt = &__cairn_rt;
	uintptr_t cur = rt->log_paged;
	size_t need = crn_log_need(len);
	struct crn_log_entry *entry = (struct crn_log_entry *)(cur + need) - 1;

	if (!has_room(rt, cur, need, addr))
		return;
	if (old)
		crn_copy((void *)cur, old, len);
	else
		crn_fill((void *)cur, 0, len);
	entry->word = len;
	crn_rt_fill(&entry->where, addr | CRN_LOG_LONG << 56);
	rt->log_paged = cur + need;
}

/* A log has no tags: what is stored to is in it. */
void crn_rt_blank(uintptr_t begin, uintptr_t end)
{
}
