/* SPDX-License-Identifier: MIT */
/*
 * The undo log's half of the hooks: the code that the pass inserts appends short entries itself;
 * here are long ones, and what to do when the log is full.
 */
#include "rt/rt.h"
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"

const char __cairn_abi_undolog __attribute__((visibility("default"))) = 1;
const struct crn_rt_shape __cairn_shape = {
	.kind = CRN_RT_UNDOLOG,
	.state = &__cairn_rt,
	.save = crn_rt_range,
	.one_thread = crn_rt_one_thread,
	.saves = crn_rt_saves,
	.guarded = crn_rt_guarded,
};

static __attribute__((section(".preinit_array"), used)) void (*start)(int, char **, char **) =
	crn_rt_start;

/* Where hooks write while there is no session. Nobody reads it. */
static uint64_t nowhere[512];

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
			(size_t)(rt->log_end - rt->log_base));
	}
	rt->told = true;
	rt->log_cur = rt->log_base;
}

void crn_rt_slow(uintptr_t addr)
{
	struct crn_rt *rt = &__cairn_rt;

	if (rt->active) {
		full(rt, addr);
	} else {
		rt->log_cur = (uintptr_t)nowhere;
		rt->log_end = (uintptr_t)(nowhere + CRN_ARRAY_SIZE(nowhere));
	}
}

static bool take(struct crn_rt *rt, uintptr_t cur, size_t need)
{
	return crn_rt_take(&rt->log_cur, cur, cur + need);
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
	if (crn_unlikely(*(volatile uintptr_t *)&rt->log_cur != next))
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

void crn_rt_range(uintptr_t addr, size_t len)
{
	struct crn_rt *rt = &__cairn_rt;
	size_t need = crn_log_need(len);
	uintptr_t cur;
	uint64_t old;

	if (!rt->active || !len)
		return;
	if (crn_unlikely(!crn_rt_harmless(addr) || crn_rt_strays(addr, len)))
		crn_rt_stray(addr);
	for (;;) {
		cur = *(volatile uintptr_t *)&rt->log_cur;
		if (need > rt->log_end - rt->log_base || cur + need > rt->log_end) {
			full(rt, addr);
			return;
		}
		if (len > 8) {
			if (take(rt, cur, need) && fill_long(rt, cur, addr, len))
				return;
			continue;
		}
		old = 0;
		crn_copy(&old, (const void *)addr, len);
		if (take(rt, cur, need)) {
			fill_short(cur, addr, len, old);
			return;
		}
	}
}

/* A log has no tags: what is stored to is in it. */
void crn_rt_blank(uintptr_t begin, uintptr_t end)
{
}
