/* SPDX-License-Identifier: MIT */
/*
 * The arena: a bump allocator with two ends. arena.h has the picture.
 *
 * Frames are allocated from write-fault handlers of any thread, so that half is lock-free: the free
 * list is a stack of frame numbers whose head carries a tag against ABA, and growing is idempotent
 * (making a range usable twice is harmless), so that a handler never waits for what it interrupted.
 */
#include "base/arena_inside.h"
#include "base/check.h"
#include "base/copy.h"

#define CRN_COMMIT_STEP (2ul << 20)
#define CRN_COMMIT_MIN  (64ul << 10)
#define CRN_STEPS_LEAST 32 /* in which memory_max is committed */
#define CRN_BLOCK_ALIGN 64ul
/* What open blocks may take of the reserve: a tracker 24 bytes a page, the agent megabytes. */
#define CRN_OPEN_SHARE 4
/* Sealed frames: how many are opened one by one, and as which share of all of them. */
#define CRN_OPENED_MAX   2048u
#define CRN_OPENED_SHARE 8
#define CRN_OPENED_LAST  32 /* among so many it is looked whether a frame has been opened */

/* ---- Committing ----------------------------------------------------------------- */

/* Take `len` bytes out of memory_max; false if there are not so many. */
static bool account(struct crn_arena *a, uint64_t len)
{
	uint64_t now = atomic_load(&a->committed), max;

	do {
		if ((len > a->memory_max || now > a->memory_max - len) && !a->overdraws)
			return false;
	} while (!atomic_compare_exchange_weak(&a->committed, &now, now + len));

	now += len;
	max = atomic_load(&a->committed_max);
	while (max < now && !atomic_compare_exchange_weak(&a->committed_max, &max, now))
		;
	return true;
}

int crn_arena_charge(struct crn_arena *a, uint64_t len)
{
	if (len > a->memory_max / 4 || !account(a, len))
		return CAIRN_EMEMORY;
	a->charged += len;
	return 0;
}

void crn_arena_overdraw(struct crn_arena *a, bool begin)
{
	a->overdraws = begin;
}

void crn_arena_discharge(struct crn_arena *a, uint64_t len)
{
	atomic_fetch_sub(&a->committed, len);
	a->charged -= len;
}

/*
 * How far to go in one step when at least `need` bytes are wanted and at most `room` are there; 0
 * if it cannot be.
 */
static size_t step_size(struct crn_arena *a, size_t need, size_t room, size_t unit)
{
	uint64_t used = atomic_load(&a->committed);
	uint64_t left = used < a->memory_max ? a->memory_max - used : 0;
	size_t step;

	/* What one end takes too much of, the other misses. */
	while (unit > CRN_COMMIT_MIN && unit > a->memory_max / CRN_STEPS_LEAST)
		unit /= 2;
	step = (need + unit - 1) & ~(unit - 1);
	left = crn_page_down(CRN_MIN(left, room));
	need = crn_page_up(need);
	if (need > left) /* if at all, then no more than that */
		return a->overdraws && need <= room ? need : 0;
	/* Near the limit: small steps, so that neither end starves the other. */
	if (step > left)
		step = CRN_MIN(left, crn_page_up(CRN_MAX(need, CRN_COMMIT_MIN)));
	return step;
}

static bool grow_blocks(struct crn_arena *a, struct crn_blocks *b, uintptr_t new_end)
{
	uintptr_t limit = b->limit ? b->limit : atomic_load(&a->frames_committed);
	size_t need, step;

	if (new_end <= b->committed)
		return true;
	need = new_end - b->committed;
	step = step_size(a, need, limit - b->committed, b->step);
	if (!step || !account(a, step))
		return false;
	if (a->commit((void *)b->committed, step) < 0) {
		atomic_fetch_sub(&a->committed, step);
		return false;
	}
	b->committed += step;
	return true;
}

/*
 * SAFETY: several threads, or a handler and what it interrupted, may be here at once; the last one
 * to publish wins.
 */
static bool grow_frames(struct crn_arena *a, uintptr_t wanted)
{
	uintptr_t old = atomic_load(&a->frames_committed);
	size_t step;

	while (wanted < old) {
		step = step_size(
			a, old - wanted, old - a->blocks.committed, CRN_COMMIT_STEP);
		if (!step || !account(a, step))
			return false;
		if (a->commit((void *)(old - step), step) < 0) {
			atomic_fetch_sub(&a->committed, step);
			return false;
		}
		if (!atomic_compare_exchange_strong(&a->frames_committed, &old, old - step)) {
			atomic_fetch_sub(&a->committed, step); /* somebody else has done it */
			continue;
		}
		if (a->seal && !a->fresh_end)
			a->fresh_end = old;
		old -= step;
	}
	return true;
}

int crn_arena_init(struct crn_arena **out, void *base, size_t reserved, uint64_t memory_max,
	bool apart, crn_commit_fn commit)
{
	struct crn_arena *a = (struct crn_arena *)((char *)base + CRN_ARENA_LEADING);
	size_t first = CRN_ARENA_LEADING + CRN_COMMIT_MIN, open;

	CRN_ASSERT(((uintptr_t)base & (CRN_PAGE_SIZE - 1)) == 0 &&
		(reserved & (CRN_PAGE_SIZE - 1)) == 0);
	if (memory_max < 2 * first || reserved < 4 * first)
		return CAIRN_EMEMORY;
	CRN_TRY(commit(base, first));

	a->base = (uintptr_t)base;
	a->end = a->base + CRN_MIN(reserved, (size_t)UINT32_MAX << CRN_PAGE_SHIFT);
	a->commit = commit;
	a->apart = apart;
	a->memory_max = memory_max;
	atomic_store(&a->committed, first);
	atomic_store(&a->committed_max, first);
	open = apart ? CRN_MAX(crn_page_down((a->end - a->base) / CRN_OPEN_SHARE), first) : first;
	a->open.begin = (uintptr_t)a;
	a->open.end = ((uintptr_t)(a + 1) + CRN_BLOCK_ALIGN - 1) & ~(CRN_BLOCK_ALIGN - 1);
	a->open.committed = a->base + first;
	a->open.limit = a->base + open;
	a->open.step = CRN_COMMIT_MIN;
	a->blocks.begin = a->blocks.end = a->blocks.committed = a->open.limit;
	a->blocks.step = CRN_COMMIT_STEP;
	atomic_store(&a->frames_begin, a->end);
	atomic_store(&a->frames_committed, a->end);
	*out = a;
	return 0;
}

void *crn_arena_fault_pages(const struct crn_arena *a)
{
	return (void *)(a->base + CRN_PAGE_SIZE);
}

/* ---- Blocks --------------------------------------------------------------------- */

/*
 * Sizes are powers of two up to a page and whole pages' powers of two beyond: tables double anyway.
 */
static unsigned size_class(size_t size)
{
	unsigned c = CRN_CLASS_MIN;

	while (((size_t)1 << c) < size)
		c++;
	return c;
}

static void *blocks_take(struct crn_arena *a, struct crn_blocks *from, size_t size)
{
	unsigned class;
	struct crn_free_block *b;
	uintptr_t at;

	if (!size || size > CRN_BLOCK_MAX)
		return NULL;
	class = size_class(size);
	size = (size_t)1 << class;
	b = from->free[class];
	if (b) {
		from->free[class] = b->next;
		crn_fill(b, 0, size);
		return b;
	}
	at = from->end;
	if (!grow_blocks(a, from, at + size)) {
		a->refused = from == &a->blocks ? class : a->refused;
		return NULL;
	}
	from->end = at + size;
	return (void *)at; /* fresh pages are zeros */
}

void *crn_block_alloc(struct crn_arena *a, size_t size)
{
	return blocks_take(a, &a->blocks, size);
}

void *crn_block_alloc_open(struct crn_arena *a, size_t size)
{
	return blocks_take(a, a->apart ? &a->open : &a->blocks, size);
}

void crn_block_free(struct crn_arena *a, void *block, size_t size)
{
	struct crn_free_block *b = block;
	struct crn_blocks *to = (uintptr_t)block < a->open.limit ? &a->open : &a->blocks;
	unsigned class;

	if (!block)
		return;
	CRN_ASSERT((uintptr_t)block >= to->begin &&
		((uintptr_t)block < to->end || crn_is_frame(a, (uintptr_t)block)));
	class = size_class(size);
	b->next = to->free[class];
	to->free[class] = b;
}

/* ---- Frames --------------------------------------------------------------------- */

static int open_all(struct crn_arena *a)
{
	uintptr_t from = a->fresh_end ? a->fresh_end : atomic_load(&a->frames_committed);

	if (from < a->end)
		CRN_TRY(a->seal(a->seal_arg, (void *)from, a->end - from, false));
	a->all_open = true;
	return 0;
}

__attribute__((noinline)) static void open_sealed(struct crn_arena *a, uintptr_t frame)
{
	size_t all = crn_pages(a->end - atomic_load(&a->frames_committed));
	size_t last = CRN_MIN(a->opened_count, (size_t)CRN_OPENED_LAST);

	if (a->all_open || frame < a->fresh_end)
		return;
	for (size_t i = 1; i <= last; i++)
		if (a->opened[a->opened_count - i] == frame)
			return;
	if (a->opened_count < CRN_MIN(CRN_OPENED_MAX, all / CRN_OPENED_SHARE) &&
		a->seal(a->seal_arg, (void *)frame, CRN_PAGE_SIZE, false) >= 0) {
		a->opened[a->opened_count++] = frame;
		return;
	}
	CRN_ASSERT(open_all(a) >= 0);
}

bool crn_frames_sealed(const struct crn_arena *a)
{
	return a->seal;
}

void crn_frame_open(struct crn_arena *a, void *frame)
{
	if (crn_unlikely(a->seal))
		open_sealed(a, (uintptr_t)frame);
}

/* Neighbours among the opened ones, in either order, by one call. */
static void close_opened(struct crn_arena *a)
{
	for (size_t i = 0; i < a->opened_count;) {
		uintptr_t begin = a->opened[i], end = begin + CRN_PAGE_SIZE;

		while (++i < a->opened_count) {
			if (a->opened[i] == end)
				end += CRN_PAGE_SIZE;
			else if (a->opened[i] + CRN_PAGE_SIZE == begin)
				begin -= CRN_PAGE_SIZE;
			else
				break;
		}
		(void)a->seal(a->seal_arg, (void *)begin, end - begin, true);
	}
}

void crn_frames_close(struct crn_arena *a)
{
	uintptr_t from = atomic_load(&a->frames_committed);
	uintptr_t to = a->all_open ? a->end : a->fresh_end;

	if (!a->seal)
		return;
	if (!a->all_open)
		close_opened(a);
	if (from < to)
		(void)a->seal(a->seal_arg, (void *)from, to - from, true);
	a->all_open = false;
	a->fresh_end = 0;
	a->opened_count = 0;
}

int crn_frames_seal(struct crn_arena *a, crn_seal_fn seal, void *arg)
{
	a->opened = crn_block_alloc(a, CRN_OPENED_MAX * sizeof(*a->opened));
	if (!a->opened)
		return CAIRN_EMEMORY;
	a->seal = seal;
	a->seal_arg = arg;
	a->all_open = true;
	return 0;
}

void crn_frames_unseal(struct crn_arena *a)
{
	if (a->seal && !a->all_open)
		(void)open_all(a);
	a->seal = NULL;
}

void *crn_frame_take_free(struct crn_arena *a)
{
	uint64_t head = atomic_load_explicit(&a->free_head, memory_order_acquire);

	if (!(uint32_t)head)
		return NULL;
	atomic_fetch_sub_explicit(&a->free_count, 1, memory_order_relaxed);
	while ((uint32_t)head) {
		struct crn_free_frame *f = crn_frame_at(a, (uint32_t)head);
		/*
		 * May read a page that somebody else just took: the tag then makes the exchange
		 * fail.
		 */
		uint32_t next = atomic_load_explicit(&f->next, memory_order_relaxed);
		uint64_t with = ((head >> 32) + 1) << 32 | next;

		if (atomic_compare_exchange_weak(&a->free_head, &head, with))
			return f;
	}
	atomic_fetch_add_explicit(&a->free_count, 1, memory_order_relaxed);
	return NULL;
}

void *crn_frame_alloc(struct crn_arena *a)
{
	void *frame = crn_frame_take_free(a);
	uintptr_t begin;

	if (frame) {
		crn_frame_open(a, frame);
		return frame;
	}
	begin = atomic_load(&a->frames_begin);
	do {
		if (!grow_frames(a, begin - CRN_PAGE_SIZE))
			return NULL;
	} while (!atomic_compare_exchange_weak(&a->frames_begin, &begin, begin - CRN_PAGE_SIZE));
	crn_frame_open(a, (void *)(begin - CRN_PAGE_SIZE));
	return (void *)(begin - CRN_PAGE_SIZE);
}

void crn_frame_free(struct crn_arena *a, void *frame)
{
	struct crn_free_frame *f = frame;
	uint64_t head = atomic_load(&a->free_head), with;

	CRN_ASSERT(((uintptr_t)frame & (CRN_PAGE_SIZE - 1)) == 0 &&
		crn_is_frame(a, (uintptr_t)frame));
	crn_frame_open(a, frame);
	do {
		atomic_store_explicit(&f->next, (uint32_t)head, memory_order_relaxed);
		with = ((head >> 32) + 1) << 32 | crn_frame_number(a, frame);
	} while (!atomic_compare_exchange_weak_explicit(
		&a->free_head, &head, with, memory_order_release, memory_order_acquire));
	atomic_fetch_add_explicit(&a->free_count, 1, memory_order_relaxed);
}

int crn_frame_reserve(struct crn_arena *a, size_t count)
{
	int64_t counted = atomic_load(&a->free_count);
	uintptr_t begin = atomic_load(&a->frames_begin);
	size_t more, free = (size_t)CRN_MAX(counted, (int64_t)0);

	if (crn_likely(count <= free))
		return 0;
	more = count - free;
	if (more > crn_pages(begin - a->blocks.committed))
		return CAIRN_EMEMORY;
	return grow_frames(a, begin - (more << CRN_PAGE_SHIFT)) ? 0 : CAIRN_EMEMORY;
}

bool crn_frames_plenty(const struct crn_arena *a)
{
	struct crn_arena *w = (struct crn_arena *)a;
	uintptr_t committed = atomic_load(&w->frames_committed);
	int64_t fresh = (int64_t)(atomic_load(&w->frames_begin) - committed);
	int64_t free = fresh + atomic_load(&w->free_count) * (int64_t)CRN_PAGE_SIZE;

	return (int64_t)atomic_load(&w->committed) - free <= (int64_t)(a->memory_max / 2);
}

/* ---- Figures -------------------------------------------------------------------- */

bool crn_arena_owns(const struct crn_arena *a, uintptr_t addr)
{
	return addr >= a->base && addr < a->end;
}

uint64_t crn_arena_bytes(const struct crn_arena *a)
{
	return atomic_load(&((struct crn_arena *)a)->committed);
}

uint64_t crn_arena_bytes_max(const struct crn_arena *a)
{
	return atomic_load(&((struct crn_arena *)a)->committed_max);
}

void crn_arena_range(const struct crn_arena *a, uintptr_t *begin, uintptr_t *end)
{
	*begin = a->base;
	*end = a->end;
}

void crn_arena_check(const struct crn_arena *a)
{
	uintptr_t begin = atomic_load(&((struct crn_arena *)a)->frames_begin);
	uintptr_t committed = atomic_load(&((struct crn_arena *)a)->frames_committed);
	uint64_t free = 0;

	CRN_ASSERT(a->open.end <= a->open.committed && a->open.committed <= a->open.limit);
	CRN_ASSERT(a->blocks.end <= a->blocks.committed && a->blocks.committed <= committed);
	CRN_ASSERT(committed <= begin && begin <= a->end);
	CRN_ASSERT(crn_arena_bytes(a) == a->charged + (a->open.committed - a->base) +
			(a->blocks.committed - a->blocks.begin) + (a->end - committed));
	CRN_ASSERT(crn_arena_bytes(a) <= a->memory_max);
	for (uint32_t n = (uint32_t)atomic_load(&((struct crn_arena *)a)->free_head); n; free++) {
		struct crn_free_frame *f = crn_frame_at(a, n);

		CRN_ASSERT((uintptr_t)f >= begin && (uintptr_t)f < a->end);
		n = atomic_load(&f->next);
	}
	CRN_ASSERT((uint64_t)CRN_MAX(atomic_load(&((struct crn_arena *)a)->free_count),
			   (int64_t)0) <= free);
	CRN_ASSERT(free <= crn_pages(a->end - begin));
}

uint64_t crn_arena_frames_used(const struct crn_arena *a)
{
	struct crn_arena *w = (struct crn_arena *)a;

	return crn_pages(a->end - atomic_load(&w->frames_begin)) -
		(uint64_t)atomic_load(&w->free_count);
}

void crn_arena_part(
	const struct crn_arena *a, enum crn_arena_part part, uintptr_t *begin, uintptr_t *end)
{
	const struct crn_blocks *b = part == CRN_ARENA_OPEN ? &a->open : &a->blocks;

	*begin = b->begin;
	*end = b->committed;
	if (part == CRN_ARENA_FRAMES) {
		*begin = atomic_load(&((struct crn_arena *)a)->frames_committed);
		*end = a->end;
	}
}
