/* SPDX-License-Identifier: MIT */
/*
 * The shadow's half of the hooks: the first store to a region of 1 << CRN_SHIFT bytes since the
 * checkpoint saves it (LMC, sections II and III). Compiled for each size of region, and with
 * CRN_THREADS for programs of several threads (section IV-D); a program links what its code was
 * instrumented for, or does not link.
 *
 * Threads need no lock, and no smaller region. Whoever stores to a region has seen its tag say
 * "saved", or has saved it himself. So several may copy it at once: what one reads before it sees
 * the tag clean is old content, and writing that once more does no harm. Loads and stores are in
 * the program's order on x86-64. Only lists are shared: there a locked instruction takes the room.
 *
 * A tag of a clean region is not what saved() says. How all become clean at the checkpoint is
 * track/tags.c.
 */
#include "rt/rt.h"
#include "base/bits.h"
#include "base/status.h"

#ifndef CRN_SHIFT /* for readers' tools alone */
#define CRN_SHIFT   7
#define CRN_NAME    128
#define CRN_THREADS 0
#endif
#define REGION    (1ul << CRN_SHIFT)
#define NAMED_(n) __cairn_abi_shadow_##n
#define NAMED(n)  NAMED_(n)

typedef uint64_t word __attribute__((may_alias));

/* Instrumented code refers to this by its region's size, and whether it has threads. */
const char NAMED(CRN_NAME) __attribute__((visibility("default"))) = 1;
const struct crn_rt_shape __cairn_shape = {
	.kind = CRN_RT_SHADOW,
	.shift = CRN_SHIFT,
	.tags = &__cairn_tags,
	.state = &__cairn_rt,
	.save = crn_rt_range,
	.one_thread = crn_rt_one_thread,
	.saves = crn_rt_saves,
	.guarded = crn_rt_guarded,
	.threads = CRN_THREADS,
};

static __attribute__((section(".preinit_array"), used)) void (*start)(int, char **, char **) =
	crn_rt_start;

static void lost(struct crn_rt *rt, uintptr_t region, int why)
{
	if (!rt->told)
		rt->lost(rt->env, region, why);
	rt->told = true;
}

/* The tag of a region that is saved in this interval. */
static uint8_t saved(const struct crn_rt *rt)
{
	return __cairn_tags == CRN_TAGS_EPOCH ? (uint8_t)rt->epoch : 1;
}

static bool take(uint64_t **cursor, uint64_t from, uint64_t to)
{
	return CRN_THREADS ? crn_rt_take_shared(cursor, from, to) : crn_rt_take(cursor, from, to);
}

/* Append to one of the lists. False: it is full. */
static bool append(uint64_t **cursor, uint64_t *const *end, uint64_t entry)
{
	uint64_t *at;

	do {
		at = *(uint64_t *volatile *)cursor;
		if (crn_unlikely(at == *end))
			return false;
	} while (!take(cursor, (uint64_t)at, (uint64_t)(at + 1)));
	*(volatile uint64_t *)at = entry;
	return true;
}

/* Before the first tag of its page becomes other than 0. */
static bool list_tag_page(struct crn_rt *rt, uintptr_t tag)
{
	volatile uint8_t *listed = crn_rt_tag_page_listed(tag);

	if (crn_likely(*listed))
		return true;
	if (!append(&rt->tag_pages_cur, &rt->tag_pages_end, tag & ~(CRN_PAGE_SIZE - 1)))
		return false;
	*listed = 1;
	return true;
}

/*
 * Copy the region, unless a signal handler or another thread saves it meanwhile: its stores come
 * after that, so what was read before the tag was seen clean is old content, and may be written
 * even if that has been done already. False: somebody else did all.
 */
static bool copy_region(uintptr_t region, const volatile uint8_t *tag, uint8_t saved)
{
	const volatile word *from = (const volatile word *)region;
	volatile word *to = crn_rt_shadow(region);

	for (size_t i = 0; i < REGION / sizeof(word); i += 2) {
		word a = from[i], b = from[i + 1];

		if (crn_unlikely(*tag == saved))
			return false;
		to[i] = a;
		to[i + 1] = b;
	}
	return true;
}

/*
 * SAFETY: runs anywhere in the program, in its signal handlers too, also where they interrupt it:
 * touches its own page, shadow, tags and lists, and no lock. Copy, list, tag: until the last step
 * the region counts as clean, and whoever is first saves it whole.
 */
static void save(uintptr_t region)
{
	struct crn_rt *rt = &__cairn_rt;
	volatile uint8_t *tag = crn_rt_tag(region, CRN_SHIFT);
	uint8_t value = saved(rt);

	if (crn_unlikely(crn_rt_strays(region, REGION)))
		crn_rt_stray(region);
	if (crn_unlikely(rt->ending)) {
		rt->late = true;
		return;
	}
	if (crn_unlikely(!rt->active)) {
		*tag = value;
		return;
	}
	if (!copy_region(region, tag, value))
		return;
	if (rt->tag_pages && crn_unlikely(!list_tag_page(rt, (uintptr_t)tag))) {
		lost(rt, region, CAIRN_EMEMORY);
		return;
	}
	if (crn_unlikely(!append(&rt->dirty_cur, &rt->dirty_end, region))) {
		lost(rt, region, CAIRN_EMEMORY);
		return;
	}
	*tag = value;
}

void crn_rt_slow(uintptr_t addr)
{
	save(addr & ~(REGION - 1));
}

void crn_rt_range(uintptr_t addr, size_t len)
{
	uintptr_t end = addr + len;
	uint8_t value = saved(&__cairn_rt);

	for (uintptr_t r = addr & ~(REGION - 1); len && r < end; r += REGION) {
		if (*(volatile uint8_t *)crn_rt_tag(r, CRN_SHIFT) != value)
			save(r);
	}
}
