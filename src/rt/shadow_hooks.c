/* SPDX-License-Identifier: MIT */
/*
 * The shadow's half of the hooks: the first store to a region of 1 << CRN_SHIFT bytes since the
 * checkpoint saves it (LMC, sections II and III). Compiled once for each size of region; a program
 * links the one that its code was instrumented for, or does not link.
 *
 * Tags are of the kind "zero": 0 until saved, 1 after it; the list of saved regions says which to
 * reset at the checkpoint.
 */
#include "rt/rt.h"
#include "base/bits.h"
#include "base/status.h"

#ifndef CRN_SHIFT /* for readers' tools alone */
#define CRN_SHIFT  7
#define CRN_REGION 128
#endif
#define REGION    (1ul << CRN_SHIFT)
#define NAMED_(n) __cairn_abi_shadow_##n
#define NAMED(n)  NAMED_(n)

typedef uint64_t word __attribute__((may_alias));

/* Instrumented code refers to this by its region's size. */
const char NAMED(CRN_REGION) __attribute__((visibility("default"))) = 1;
const struct crn_rt_shape __cairn_shape = {
	.kind = CRN_RT_SHADOW,
	.shift = CRN_SHIFT,
	.state = &__cairn_rt,
	.save = crn_rt_range,
	.one_thread = crn_rt_one_thread,
	.saves = crn_rt_saves,
};

static __attribute__((section(".preinit_array"), used)) void (*start)(int, char **, char **) =
	crn_rt_start;

static void lost(struct crn_rt *rt, uintptr_t region, int why)
{
	if (!rt->told)
		rt->lost(rt->env, region, why);
	rt->told = true;
}

/*
 * SAFETY: runs anywhere in the program, in its signal handlers too: touches its own page, shadow,
 * tags and list, and no lock. A handler that interrupts a save and comes here itself cannot list
 * its region, so the interval is given up (and says so), and the tag stays 0.
 */
static void save(uintptr_t region)
{
	struct crn_rt *rt = &__cairn_rt;
	const volatile word *from = (const volatile word *)region;
	word *to = crn_rt_shadow(region);

	if (crn_unlikely(!rt->active)) {
		*crn_rt_tag(region, CRN_SHIFT) = 1;
		return;
	}
	if (crn_unlikely(rt->busy || rt->dirty_cur == rt->dirty_end)) {
		lost(rt, region, rt->busy ? -EINTR : CAIRN_EMEMORY);
		return;
	}
	rt->busy = true;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	for (size_t i = 0; i < REGION / sizeof(word); i += 2) {
		word a = from[i], b = from[i + 1];

		to[i] = a;
		to[i + 1] = b;
	}
	*rt->dirty_cur++ = region;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	*crn_rt_tag(region, CRN_SHIFT) = 1;
	rt->busy = false;
}

void crn_rt_slow(uintptr_t addr)
{
	save(addr & ~(REGION - 1));
}

void crn_rt_range(uintptr_t addr, size_t len)
{
	uintptr_t end = addr + len;

	for (uintptr_t r = addr & ~(REGION - 1); len && r < end; r += REGION) {
		if (!*crn_rt_tag(r, CRN_SHIFT))
			save(r);
	}
}
