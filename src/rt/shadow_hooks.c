/* SPDX-License-Identifier: MIT */
/*
 * The shadow's half of the hooks: the first store to a region of 1 << CRN_SHIFT bytes since the
 * checkpoint saves it (LMC, sections II and III). Compiled for each region size, and with
 * CRN_THREADS for programs with several threads (section IV-D). A program links the version that
 * its code was instrumented for, or does not link.
 *
 * Threads need no lock, and no smaller region. (There are regions of one byte, too: then only the
 * bytes that are stored to are saved, word by word.) A thread that stores to a region has seen its
 * tag say "saved", or has saved it itself. So several threads may copy it at once: what one of them
 * reads before it sees the tag clean is old content, and writing that once more does no harm. On
 * x86-64 loads and stores are in the program's order. Only the lists are shared, and there a locked
 * instruction takes room.
 *
 * A tag of a clean region is one that differs from saved(). tags.c resets all tags at the
 * checkpoint.
 */
#include <errno.h>
#include "rt/rt.h"
#include "base/bits.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/thread.h"
#include "rt/program_maps.h"

#ifndef CRN_SHIFT /* for readers' tools alone */
#define CRN_SHIFT   7
#define CRN_NAME    128
#define CRN_THREADS 0
#endif
#define REGION    (1ul << CRN_SHIFT)
#define WORD      sizeof(word)
#define EACH_BYTE ((word)0x0101010101010101ull)
#define BLANK_MAX 4096ul /* regions: most of a large block may not be written at all */

/*
 * What an interval saves beyond this has no room beside its source in a second-level cache, and is
 * written past the caches from there on, where several regions follow each other.
 */
#define STREAM_AFTER (512ul << 10)
#define STREAM_RUN   (1ul << 10)
#define NAMED_(n) __cairn_abi_shadow_##n
#define NAMED(n)  NAMED_(n)

typedef uintptr_t word __attribute__((may_alias));

/* Instrumented code refers to this by its region's size, and whether it has threads. */
const char NAMED(CRN_NAME) __attribute__((visibility("default"))) = 1;
const struct crn_rt_shape __cairn_shape = {
	.kind = CRN_RT_SHADOW,
	.shift = CRN_SHIFT,
	.tags = &__cairn_tags,
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
	.threads = CRN_THREADS,
	.waits = crn_rt_waits,
	.births = crn_rt_births,
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

static bool take(uint64_t **cursor, uintptr_t from, uintptr_t to)
{
	return CRN_THREADS ? crn_rt_take_shared(cursor, from, to) : crn_rt_take(cursor, from, to);
}

/* Room for an entry of one of the lists, which is 0. NULL: it is full. */
static uint64_t *make_room(uint64_t **cursor, uint64_t *const *end)
{
	uint64_t *at;

	do {
		at = *(uint64_t *volatile *)cursor;
		if (crn_unlikely(at >= *end))
			return NULL;
	} while (!take(cursor, (uintptr_t)at, (uintptr_t)(at + 1)));
	return at;
}

/* Before the first tag of its page becomes other than 0. */
static bool list_tag_page(struct crn_rt *rt, uintptr_t tag)
{
	volatile uint8_t *listed = crn_rt_tag_page_listed(tag);
	uint64_t *at;

	if (crn_likely(*listed))
		return true;
	at = make_room(&rt->tag_pages_cur, &rt->tag_pages_end);
	if (!at)
		return false;
	*(volatile uint64_t *)at = tag & ~(CRN_PAGE_SIZE - 1);
	*listed = 1;
	return true;
}

#define WAITS_MAX 1000000u

/*
 * Who comes to a barrier, or for a lock, while another thread takes a checkpoint stores behind it:
 * all is to be looked at again, and saved for the next interval. False: there is none, or it does
 * not end.
 */
static __attribute__((noinline)) bool outlasts(struct crn_rt *rt)
{
	if (!rt->active || !rt->ender || rt->ender == (uintptr_t)__builtin_thread_pointer() ||
		rt->pid != crn_getpid())
		return false;
	for (unsigned i = 0; i < WAITS_MAX; i++) {
		if (!*(volatile bool *)&rt->ending)
			return true;
		crn_yield();
	}
	return false;
}

#define SEARCHES_MAX     (1u << 24)
#define SIGNAL_FRAME_MIN 512 /* bytes: a handler's hooks are further down than that */

extern char crn_musl_one_thread __attribute__((weak)); /* with -fcairn-complete */

/* Such a libc has hooks of its own before there is a thread pointer. */
static bool early(void)
{
	return &crn_musl_one_thread && crn_musl_one_thread;
}

static uintptr_t own_saver(void)
{
	return crn_rt_saver((uintptr_t)__builtin_thread_pointer());
}

/* A hook that is counted. `stopped`: of an interval that cannot be undone. */
struct saver {
	uintptr_t *at; /* NULL: it is not, for there are no other threads */
	bool stopped;
};

/*
 * May a hook count in that word, and as what? It is free, or the thread's own: it has interrupted a
 * hook, or left one. One that checkpoints do not wait for any more was left if this one is not
 * further down the stack.
 */
static bool count_in(const struct crn_rt *rt, size_t i, uintptr_t n, uintptr_t here,
	uintptr_t *more)
{
	uintptr_t own = own_saver();
	bool mine = (n & ~CRN_RT_SAVES) == own;

	*more = own + 1;
	if (!(n & CRN_RT_SAVES) ||
		(mine && n & CRN_RT_STOPPED && here + SIGNAL_FRAME_MIN > rt->saving_at[i]))
		return true;
	*more = n + 1;
	return mine && ~n & (CRN_RT_SAVES & ~CRN_RT_STOPPED);
}

static struct saver count_hook(struct crn_rt *rt)
{
	uintptr_t own, here = (uintptr_t)__builtin_frame_address(0), n, more;

	if (crn_unlikely(early()))
		return (struct saver){ 0 };
	own = own_saver();
	for (unsigned i = (uint32_t)(own >> 22) * 0x9e3779b1u >> 24, tries = 0;; i++, tries++) {
		uintptr_t *at = &rt->saving[i % CRN_RT_SAVERS];

		n = __atomic_load_n(at, __ATOMIC_RELAXED);
		if (tries % CRN_RT_SAVERS == CRN_RT_SAVERS - 1)
			crn_yield();
		if (!count_in(rt, i % CRN_RT_SAVERS, n, here, &more)) {
			if (crn_likely(tries < SEARCHES_MAX))
				continue;
			more = own + 1; /* all were left by jumps: forget one */
		}
		if (!__atomic_compare_exchange_n(at, &n, more, false, __ATOMIC_SEQ_CST,
			    __ATOMIC_RELAXED))
			continue;
		if (more == own + 1)
			rt->saving_at[i % CRN_RT_SAVERS] = here;
		return (struct saver){ at, more & CRN_RT_STOPPED };
	}
}

/* False: a checkpoint has been taken meanwhile. */
static bool uncount_hook(struct crn_rt *rt, struct saver s)
{
	uintptr_t own = own_saver(), n = __atomic_load_n(s.at, __ATOMIC_RELAXED), less;

	while (n & CRN_RT_SAVES && (n & ~CRN_RT_SAVES) == own) {
		less = n - 1;
		if ((less & CRN_RT_SAVES) == CRN_RT_STOPPED)
			less = own;
		if (__atomic_compare_exchange_n(s.at, &n, less, false, __ATOMIC_SEQ_CST,
			    __ATOMIC_RELAXED))
			return s.stopped || !(n & CRN_RT_STOPPED);
	}
	/* It was taken for one that was left. */
	rt->stale = true;
	if (rt->active)
		lost(rt, 0, -EINTR);
	return false;
}

/*
 * The checkpoint waits for those who save: *s is for end_save. False: one has been taken
 * meanwhile. *late: one is being taken, and nothing is saved.
 */
static inline __attribute__((always_inline)) bool begin_save(struct crn_rt *rt, bool *late,
	struct saver *s)
{
	*s = CRN_THREADS ? count_hook(rt) : (struct saver){ 0 };
	*late = *(volatile bool *)&rt->ending;
	if (!CRN_THREADS || crn_likely(!*late))
		return true;
	if (s->at)
		(void)uncount_hook(rt, *s);
	if (outlasts(rt))
		return false;
	*s = count_hook(rt);
	return true;
}

/*
 * False: a checkpoint has waited too long for this hook, and been taken meanwhile: save once more.
 * Tags and lists may be wrong then, until the next checkpoint makes all of them anew
 * (crn_tags_renew); no interval before that can be undone.
 */
static inline __attribute__((always_inline)) bool end_save(struct crn_rt *rt, struct saver s)
{
	return !CRN_THREADS || !s.at || crn_likely(uncount_hook(rt, s));
}

/* True if nothing is to be saved now. In page mode of one region, or word, at a time. */
static inline __attribute__((always_inline)) bool rests(struct crn_rt *rt, uintptr_t at, size_t len,
	bool late)
{
	if (crn_unlikely(crn_rt_strays(at, len)))
		crn_rt_stray(CRN_MAX(at, (uintptr_t)rt));
	if (crn_unlikely(late))
		rt->late = true;
	return late || crn_unlikely(crn_rt_paged(rt, at));
}

/* More regions than one are saved. False: so many are too many. */
static inline bool hold(struct crn_rt *rt, size_t more)
{
	if (crn_unlikely(rt->dirty_end - rt->dirty_cur <= (ptrdiff_t)more))
		return false;
	if (CRN_THREADS)
		(void)__atomic_fetch_sub((uintptr_t *)&rt->dirty_end, more * sizeof(*rt->dirty),
			__ATOMIC_SEQ_CST);
	else
		crn_rt_lower(&rt->dirty_end, more * sizeof(*rt->dirty));
	return true;
}

/* An entry, before the `count` tags of what it names are set. False: a list is full. */
static inline bool list(struct crn_rt *rt, uint64_t entry, uintptr_t tag, size_t count)
{
	uint64_t *at;

	if (rt->tag_pages && crn_unlikely(!list_tag_page(rt, tag) ||
				     !list_tag_page(rt, tag + count - 1)))
		return false;
	at = make_room(&rt->dirty_cur, &rt->dirty_end);
	if (crn_unlikely(!at))
		return false;
	crn_rt_fill(at, entry);
	return true;
}

#if CRN_SHIFT
/* The part of an entry that says how many regions it names. */
static inline uint64_t run_of(size_t count)
{
	return (uint64_t)(count - 1) << CRN_LIST_MASK;
}

/*
 * Copy regions that were clean. A signal handler or another thread may save one meanwhile: its
 * stores come after that, so what was read before the tag was seen clean is old content, and may be
 * written even if that has been done already.
 */
static void copy(uintptr_t region, size_t count, uintptr_t tag, uint8_t saved)
{
	const volatile word *from = (const volatile word *)region;
	volatile word *to = crn_rt_shadow(region);

	if (REGION >= 64) {
		if (count * REGION >= STREAM_RUN &&
			crn_rt_listed(&__cairn_rt) * REGION >= STREAM_AFTER)
			crn_rt_stream_clean(region, count, tag, saved, REGION);
		else
			crn_rt_copy_clean(region, count, tag, saved, REGION);
		return;
	}
	for (size_t i = 0; i < count * REGION / WORD; i += 2) {
		word a = from[i], b = from[i + 1];

		if (crn_unlikely(*(volatile uint8_t *)(tag + i * WORD / REGION) == saved))
			continue;
		to[i] = a;
		to[i + 1] = b;
	}
}

static void save_each(uintptr_t region, size_t count);

/*
 * SAFETY: runs anywhere in the program, in its signal handlers too, also where they interrupt it:
 * touches its own page, shadow, tags and lists, and no lock. Copy, list, tag: until the last step
 * a region counts as clean, and whoever is first saves it whole. If a handler has begun page mode
 * meanwhile, it may have stored there since, and what was read is worth nothing.
 */
static inline __attribute__((always_inline)) void save_now(uintptr_t region, size_t count,
	bool late)
{
	struct crn_rt *rt = &__cairn_rt;
	uintptr_t tag = (uintptr_t)crn_rt_tag(region, CRN_SHIFT);
	uint8_t value = saved(rt);

	if (rests(rt, region, count * REGION, late))
		return;
	if (crn_likely(rt->active)) {
		copy(region, count, tag, value);
		if (crn_unlikely(rt->paged)) {
			if (count > 1)
				save_each(region, count);
			if (count > 1 || crn_rt_paged(rt, region))
				return;
		}
		if (crn_unlikely((count > 1 && !hold(rt, count - 1)) ||
			    !list(rt, region | run_of(count), tag, count))) {
			lost(rt, region, CAIRN_EMEMORY);
			return;
		}
	}
	crn_tags_set((void *)tag, count, value);
}

/* False: a checkpoint has been taken meanwhile. */
static inline __attribute__((always_inline)) bool save(uintptr_t region, size_t count)
{
	struct saver s;
	bool late;

	if (!begin_save(&__cairn_rt, &late, &s))
		return false;
	save_now(region, count, late);
	return end_save(&__cairn_rt, s);
}

static __attribute__((noinline)) void save_each(uintptr_t region, size_t count)
{
	for (uintptr_t end = region + count * REGION; region < end; region += REGION)
		if (*crn_rt_tag(region, CRN_SHIFT) != saved(&__cairn_rt))
			save_now(region, 1, false);
}

/* What was read before counts: the region is saved, if it was not, with this content. */
static void save_old(uintptr_t region, const void *old)
{
	struct crn_rt *rt = &__cairn_rt;
	uint8_t *tag = crn_rt_tag(region, CRN_SHIFT), value = saved(rt);

	if (*tag == value)
		return;
	if (old)
		crn_copy(crn_rt_shadow(region), old, REGION);
	else
		crn_fill(crn_rt_shadow(region), 0, REGION);
	if (list(rt, region, (uintptr_t)tag, 1))
		*tag = value;
	else
		lost(rt, region, CAIRN_EMEMORY);
}

void crn_rt_save_old(uintptr_t addr, size_t len, const void *old)
{
	for (size_t at = 0; at < len; at += REGION)
		save_old(addr + at, old ? (const char *)old + at : NULL);
}

void crn_rt_slow(uintptr_t addr)
{
	while (!save(addr & ~(REGION - 1), 1))
		;
}

/* Tags from `at` on, as many as there are, that say "saved" (or that do not). A word at a time. */
static size_t same_tags(const volatile uint8_t *at, size_t count, uint8_t value, bool saved)
{
	word all = (saved ? value : !value) * EACH_BYTE;
	size_t n = 0;

	while (n < count) {
		if (count - n >= WORD && *(const volatile word *)(at + n) == all)
			n += WORD;
		else if ((at[n] == value) == saved)
			n++;
		else
			break;
	}
	return n;
}

void crn_rt_range(uintptr_t addr, size_t len)
{
	const volatile uint8_t *tag = crn_rt_tag(addr, CRN_SHIFT);
	uint8_t value = saved(&__cairn_rt);
	size_t most = __cairn_rt.paged ? 1 : CRN_RUN_MAX, left, n;

	if (!len)
		return;
	left = ((addr + len - 1) >> CRN_SHIFT) - (addr >> CRN_SHIFT) + 1;
	for (; left; tag += n, left -= n) {
		n = same_tags(tag, left, value, true);
		if (n)
			continue;
		n = same_tags(tag, CRN_MIN(left, most), value, false);
		/* Not if a signal handler has saved it meanwhile. */
		if (crn_unlikely(n && !save((uintptr_t)tag << CRN_SHIFT, n))) {
			crn_rt_range(addr, len);
			return;
		}
	}
}

void crn_rt_blank(uintptr_t begin, uintptr_t end)
{
	struct crn_rt *rt = &__cairn_rt;
	uintptr_t at = (begin + REGION - 1) & ~(REGION - 1);
	size_t left = at < end ? (end - at) >> CRN_SHIFT : 0, n;

	if (!rt->active || rt->ending)
		return;
	for (left = CRN_MIN(left, BLANK_MAX); left; left -= n, at += n * REGION) {
		uintptr_t tag = at >> CRN_SHIFT;

		/* It was given out in this interval before. */
		n = same_tags((void *)tag, left, saved(rt), true);
		if (n)
			continue;
		n = same_tags((void *)tag, CRN_MIN(left, CRN_RUN_MAX), saved(rt), false);
		if (!list(rt, at | CRN_LIST_BLANK | run_of(n), tag, n))
			return;
		rt->blanks++;
		crn_tags_set((void *)tag, n, saved(rt));
	}
}
#else

/* Bytes of `tags` that do not say "saved", as 1 in each; of those that `wanted` has all bits of. */
static uint64_t clean_bytes(uint64_t tags, uint64_t saved, uint64_t wanted)
{
	uint64_t other = (tags ^ saved) & wanted;

	other |= other >> 4;
	other |= other >> 2;
	other |= other >> 1;
	return other & EACH_BYTE;
}

/* Byte by byte, for other threads may set the rest; all eight at once if it is all. */
static void put(uintptr_t at, uint64_t content, uint64_t which)
{
	if (which == EACH_BYTE) {
		*(volatile word *)at = content;
		return;
	}
	for (size_t i = 0; i < WORD; i++)
		if (which >> 8 * i & 1)
			*(volatile uint8_t *)(at + i) = (uint8_t)(content >> 8 * i);
}

/*
 * SAFETY: as save() of larger regions. What was read before a byte's tag is seen clean is old
 * content. `wanted` has all bits of the bytes that are stored to.
 */
static void save_bytes_now(uintptr_t at, uint64_t wanted, bool late)
{
	struct crn_rt *rt = &__cairn_rt;
	uintptr_t tag = (uintptr_t)crn_rt_tag(at, CRN_SHIFT);
	uint64_t value = saved(rt) * EACH_BYTE, content, clean;

	if (rests(rt, at, WORD, late))
		return;
	content = *(const volatile word *)at;
	clean = clean_bytes(*(const volatile word *)tag, value, wanted);
	if (!clean)
		return;
	if (crn_likely(rt->active)) {
		put((uintptr_t)crn_rt_shadow(at), content, clean);
		if (crn_unlikely(crn_rt_paged(rt, at)))
			return;
		/* The product gathers the lowest bits of all bytes in the top one. */
		if (!list(rt, at | clean * 0x0102040810204080ul >> 56 << CRN_LIST_MASK, tag,
			    WORD)) {
			lost(rt, at, CAIRN_EMEMORY);
			return;
		}
	}
	put(tag, value, clean);
}

/* False: a checkpoint has been taken meanwhile. */
static bool save_bytes(uintptr_t at, uint64_t wanted)
{
	struct saver s;
	bool late;

	if (!begin_save(&__cairn_rt, &late, &s))
		return false;
	save_bytes_now(at, wanted, late);
	return end_save(&__cairn_rt, s);
}

/* As of larger regions, word by word. */
void crn_rt_save_old(uintptr_t addr, size_t len, const void *old)
{
	struct crn_rt *rt = &__cairn_rt;
	uint64_t value = saved(rt) * EACH_BYTE;

	for (size_t i = 0; i < len; i += WORD) {
		uintptr_t at = addr + i, tag = (uintptr_t)crn_rt_tag(at, CRN_SHIFT);
		uint64_t clean = clean_bytes(*(const volatile word *)tag, value, ~0ul);

		if (!clean)
			continue;
		put((uintptr_t)crn_rt_shadow(at), old ? *(const word *)((const char *)old + i) : 0,
			clean);
		if (list(rt, at | clean * 0x0102040810204080ul >> 56 << CRN_LIST_MASK, tag, WORD))
			put(tag, value, clean);
		else
			lost(rt, at, CAIRN_EMEMORY);
	}
}

/* Hooks of this kind call the other one. */
void crn_rt_slow(uintptr_t addr)
{
	crn_rt_range(addr, 1);
}

void crn_rt_range(uintptr_t addr, size_t len)
{
	uintptr_t end = addr + len;
	uint64_t value = saved(&__cairn_rt) * EACH_BYTE;

	for (uintptr_t w = addr & ~(WORD - 1); len && w < end; w += WORD) {
		uint64_t wanted = ~0ul;

		if (w < addr)
			wanted &= ~0ul << 8 * (addr - w);
		if (w + WORD > end)
			wanted &= ~0ul >> 8 * (w + WORD - end);
		if (!((*(const volatile word *)crn_rt_tag(w, CRN_SHIFT) ^ value) & wanted))
			continue;
		if (crn_unlikely(!save_bytes(w, wanted))) {
			crn_rt_range(addr, len);
			return;
		}
	}
}

/* A tag for each byte costs as much as the byte. */
void crn_rt_blank(uintptr_t begin, uintptr_t end)
{
}

#endif
