/* SPDX-License-Identifier: MIT */
#include "rt/heap.h"
#include "base/bits.h"
#include "base/log.h"
#include "os/memory.h"
#include "rt/owned_lock.h"
#include "rt/program_maps.h"
#include "rt/recent_blocks.h"
#include "rt/rt.h"

#define UNIT_SHIFT 16
#define UNIT       (1ul << UNIT_SHIFT)
#define ORDERS     (sizeof(long) == 8 ? 23u : 13u) /* of runs: 1 to 2^22 units, or 2^12 */
#define WORD_BITS  (8 * sizeof(long))
#define CLASSES    40
#define SMALL_MAX  32768ul
#define ALIGN_MIN  (2ul << 20) /* of a large block there may always be so much */
#define ALIGN_MAX  (1ul << 30)
#define NONE       0u /* unit 0 is never used */
#define GROW       16u /* units */
#define TRIM_ORDER 6u  /* free runs from 4 MiB on go back to the kernel */
#define TRIM_EVERY 256u /* checkpoints between two looks; a run must have been free for as many */

enum kind { FREE_RUN = 1, RUN, SLAB };

/*
 * A unit: the first of a run, or a slab. used + (blocks in the list) == fresh <= capacity.
 *
 * What was freed before the oldest kept checkpoint holds nothing that a restore has to bring back:
 * whoever gets it may store at once (crn_rt_blank). So free memory has the interval that freed it,
 * the number of that interval's checkpoint: runs here, blocks of slabs behind their link.
 */
struct unit {
	uint8_t kind;  /* 0: inside of a run, or never used */
	uint8_t order; /* of a run */
	uint8_t class;
	uint32_t prev, next; /* of the same order, or with free blocks of the same class */
	uint32_t used;       /* blocks of a slab that are allocated */
	uint32_t fresh;      /* blocks that have been given out once: the rest is in no list */
	uint32_t freed;      /* the first in the list of free ones: its number + 1, or 0 */
	uint64_t since; /* of a free run; of others: what the run that they were made of had */
};

/* At the begin of a free block; the link is the number + 1 of the next one, or 0. */
struct free_block {
	uint32_t link;
	uint64_t since;
};

struct heap {
	uint32_t units;     /* that there is address space for */
	uint32_t top;       /* units from here on have never been used */
	uint32_t committed;
	uint32_t runs[ORDERS];
	uint32_t slabs[CLASSES];
};

/* Not turned back: a page of its own. */
static struct {
	struct heap *heap;
	struct unit *table;
	uintptr_t base; /* of unit 0 */
	size_t align; /* of the base: the most that blocks can have */
	struct crn_owned_lock lock;
	uint32_t touched; /* units below have held something, if only in an undone interval */
	bool forks;       /* who has the lock is in fork(2) */
	bool failed;
	uint64_t look_at; /* the checkpoint from which on free runs are looked at again */
	char rest[4096 - 5 * sizeof(void *) - 16];
} place CRN_RT_LASTING;

_Noreturn void abort(void);

extern const char __cairn_fresh_on __attribute__((weak)); /* -fcairn-fresh=on */

#define KEEP(object) crn_rt_keep((uintptr_t)(object), sizeof(*(object)))

/* Nothing is half done in the heap then, so handlers of pthread_atfork may allocate. */
static bool forks(void)
{
	return place.forks && crn_owned(&place.lock);
}

/* After a restore: no call of this thread's is in the heap, of which all else has been put back. */
static void let_go(void)
{
	if (!crn_owned(&place.lock))
		return;
	place.forks = false;
	crn_owned_unlock(&place.lock);
}

void crn_heap_lock(void)
{
	if (forks())
		return;
	__cairn_rt.let_go = let_go;
	crn_owned_lock(&place.lock);
}

void crn_heap_unlock(void)
{
	if (!forks())
		crn_owned_unlock(&place.lock);
}

void crn_heap_fork_begin(void)
{
	crn_heap_lock();
	place.forks = crn_owned(&place.lock);
}

void crn_heap_fork_end(void)
{
	place.forks = false;
	crn_heap_unlock();
}

/* ---- Sizes: four classes to each doubling, every 16 bytes below 128 -------------------------- */

static unsigned class_of(size_t size)
{
	unsigned log;

	if (size <= 128)
		return size <= 16 ? 0 : (unsigned)((size - 1) / 16);
	log = WORD_BITS - 1 - (unsigned)__builtin_clzl(size - 1);
	return 8 + (log - 7) * 4 + (unsigned)(((size - 1) >> (log - 2)) & 3);
}

static size_t class_size(unsigned class)
{
	if (class < 8)
		return (class + 1) * 16ul;
	return (5 + (class & 3)) << (5 + (class - 8) / 4);
}

static uintptr_t address_of(uint32_t unit)
{
	return place.base + ((uintptr_t)unit << UNIT_SHIFT);
}

/* ---- Lists of units -------------------------------------------------------------------------- */

static void link_unit(uint32_t *list, uint32_t i)
{
	struct unit *u = &place.table[i], *after = &place.table[*list];

	KEEP(u);
	KEEP(list);
	u->prev = NONE;
	u->next = *list;
	if (*list) {
		KEEP(after);
		after->prev = i;
	}
	*list = i;
}

static void unlink_unit(uint32_t *list, uint32_t i)
{
	struct unit *u = &place.table[i];

	if (u->next) {
		KEEP(&place.table[u->next]);
		place.table[u->next].prev = u->prev;
	}
	if (u->prev) {
		KEEP(&place.table[u->prev]);
		place.table[u->prev].next = u->next;
	} else {
		KEEP(list);
		*list = u->next;
	}
}

/* ---- Runs ------------------------------------------------------------------------------------ */

static void mark_run(uint32_t i, enum kind kind, unsigned order, uint64_t since)
{
	struct unit *u = &place.table[i];

	KEEP(u);
	*u = (struct unit){ .kind = (uint8_t)kind, .order = (uint8_t)order, .since = since };
}

/* Units below `end`, and their lines of the table, become memory. */
static bool commit(uint32_t end)
{
	struct heap *h = place.heap;
	uintptr_t table_from = (uintptr_t)&place.table[h->committed] & ~(CRN_PAGE_SIZE - 1);
	uint32_t step = CRN_MAX(GROW, h->committed / 8);
	uint32_t to = CRN_MIN(CRN_MAX(end, h->committed + step), h->units);
	size_t len = crn_page_up((uintptr_t)&place.table[to]) - table_from;

	if (end <= h->committed)
		return true;
	if (end > h->units || crn_memory_commit((void *)table_from, len) < 0 ||
		crn_memory_commit((void *)address_of(h->committed),
			(size_t)(to - h->committed) << UNIT_SHIFT) < 0)
		return false;
	KEEP(&h->committed);
	h->committed = to;
	return true;
}

static void free_run(uint32_t i, unsigned order, uint64_t since)
{
	struct heap *h = place.heap;

	for (; order + 1 < ORDERS; order++) {
		uint32_t buddy = i ^ 1u << order;
		struct unit *b = &place.table[buddy];

		if (buddy >= h->top || b->kind != FREE_RUN || b->order != order)
			break;
		unlink_unit(&h->runs[order], buddy);
		since = CRN_MAX(since, b->since);
		mark_run(CRN_MAX(i, buddy), 0, 0, 0);
		i = CRN_MIN(i, buddy);
	}
	mark_run(i, FREE_RUN, order, since);
	link_unit(&h->runs[order], i);
}

/* From what has never been used; what is skipped for alignment is free from then on. */
static uint32_t new_run(unsigned order)
{
	struct heap *h = place.heap;
	uint64_t at = ((uint64_t)h->top + (1u << order) - 1) >> order << order;
	uint32_t from = h->top;

	if (at + (1u << order) > h->units || !commit((uint32_t)at + (1u << order)))
		return NONE;
	KEEP(&h->top);
	h->top = (uint32_t)at + (1u << order);
	while (from < at) {
		unsigned fits = (unsigned)__builtin_ctz(from);

		free_run(from, fits, __cairn_rt.open);
		from += 1u << fits;
	}
	return from;
}

static uint32_t take_run(unsigned order, enum kind kind)
{
	struct heap *h = place.heap;
	unsigned from = order;
	uint64_t since = 0;
	uint32_t i;

	while (from < ORDERS && !h->runs[from])
		from++;
	if (from < ORDERS) {
		i = h->runs[from];
		since = place.table[i].since;
		unlink_unit(&h->runs[from], i);
		while (from-- > order) {
			mark_run(i + (1u << from), FREE_RUN, from, since);
			link_unit(&h->runs[from], i + (1u << from));
		}
	} else {
		i = new_run(order);
	}
	if (i)
		mark_run(i, kind, order, since);
	return i;
}

/* ---- Slabs ----------------------------------------------------------------------------------- */

static struct free_block *block_of(uint32_t slab, size_t size, uint32_t number)
{
	return (struct free_block *)(address_of(slab) + number * size);
}

static bool has_region(uintptr_t begin, uintptr_t end)
{
	uintptr_t region = 1ul << __cairn_shape.shift;

	return ((begin + region - 1) & -region) + region <= end;
}

/*
 * A block of so many bytes is being given out, whose first `kept` are what they were at the
 * checkpoint, or are saved.
 */
static inline void give_out(uintptr_t block, size_t size, size_t kept, uint64_t since)
{
	struct crn_rt *rt = &__cairn_rt;

	if (!&__cairn_fresh_on)
		return;
	crn_recent_add(block, since);
	rt->fresh = 0;
	if (since >= rt->oldest || !rt->active || rt->ending)
		return;
	if (has_region(block + kept, block + size))
		crn_rt_blank(block + kept, block + size);
#ifdef __x86_64__
	rt->fresh = block | CRN_MIN(size >> CRN_RT_FRESH_UNIT, 0xfffful) << CRN_RT_FRESH_SHIFT;
#endif
}

static void *take_block(unsigned class)
{
	struct heap *h = place.heap;
	size_t size = class_size(class);
	uint32_t i = h->slabs[class];
	struct free_block *block;
	struct unit *u;
	uint64_t since;

	if (!i) {
		i = take_run(0, SLAB);
		if (!i)
			return NULL;
		place.table[i].class = (uint8_t)class;
		link_unit(&h->slabs[class], i);
	}
	u = &place.table[i];
	KEEP(u);
	if (u->freed) {
		block = block_of(i, size, u->freed - 1);
		/* Code without hooks may write there first; a restore puts it back in the list. */
		KEEP(block);
		u->freed = block->link;
		since = block->since;
	} else {
		block = block_of(i, size, u->fresh++);
		since = u->since;
	}
	u->used++;
	if (!u->freed && (u->fresh + 1) * size > UNIT)
		unlink_unit(&h->slabs[class], i);
	/* Its head comes back: it may be in the list of free ones. */
	give_out((uintptr_t)block, size, sizeof(*block), since);
	return block;
}

static _Noreturn void refuse(const void *block, const char *why)
{
	crn_error("free of %p, which %s", block, why);
	abort();
}

static void free_block(uint32_t i, uintptr_t addr)
{
	struct heap *h = place.heap;
	struct unit *u = &place.table[i];
	uint32_t size = (uint32_t)class_size(u->class); /* divisions of words take twice as long */
	uint32_t offset = (uint32_t)(addr - address_of(i));
	struct free_block *block = (struct free_block *)addr;
	bool full = !u->freed && (u->fresh + 1) * size > UNIT;

	if (offset % size || offset / size >= u->fresh || !u->used)
		refuse(block, "is no block");
	KEEP(u);
	u->used--;
	/* One slab of each class stays, or a single block would come and go with it. */
	if (!u->used && !full && (u->prev || u->next)) {
		unlink_unit(&h->slabs[u->class], i);
		free_run(i, 0, __cairn_rt.open);
		return;
	}
	KEEP(block);
	*block = (struct free_block){ u->freed, crn_recent_since(addr) };
	u->freed = offset / size + 1;
	if (full)
		link_unit(&h->slabs[u->class], i);
}

/* ---- Giving back -------------------------------------------------------------------------- */

/*
 * At a checkpoint. What no kept checkpoint needs has no content, and neither has its shadow. Not
 * with a mirror of pages, which would have to be made anew; not where an oracle compares what is
 * free (-fcairn-fresh=off). All runs each time: a restore may have filled one again. Not while
 * another thread, whose hooks may be waiting, takes one.
 */
static void trim(uint64_t oldest)
{
	const struct heap *h = place.heap;
	bool shadow = __cairn_shape.kind == CRN_RT_SHADOW;

	if (oldest < place.look_at && oldest + TRIM_EVERY >= place.look_at)
		return;
	if (!crn_owned_try(&place.lock))
		return;
	place.look_at = oldest + TRIM_EVERY;
	for (unsigned order = TRIM_ORDER; order < ORDERS; order++)
		for (uint32_t i = h->runs[order]; i; i = place.table[i].next) {
			if (place.table[i].since + TRIM_EVERY >= oldest)
				continue;
			(void)crn_memory_advise((void *)address_of(i), UNIT << order,
				MADV_DONTNEED);
			if (shadow)
				(void)crn_memory_advise(crn_rt_shadow(address_of(i)), UNIT << order,
					MADV_DONTNEED);
		}
	crn_owned_unlock(&place.lock);
}

/* ---- Opening --------------------------------------------------------------------------------- */

/* Units have the alignment of runs of up to this, whatever the base; it costs that much space. */
static size_t base_align(size_t size)
{
	size_t align = ALIGN_MAX;

	while (align > ALIGN_MIN && align > size / 64)
		align /= 2;
	return align;
}

static bool open_heap(void)
{
	struct heap *h;
	void *at;
	size_t size, table;

	if (place.failed || crn_memory_hold(&at, &size) < 0) {
		place.failed = true;
		return false;
	}
	table = crn_page_up((size >> UNIT_SHIFT) * sizeof(struct unit));
	if (crn_memory_commit(at, CRN_PAGE_SIZE) < 0) {
		place.failed = true;
		return false;
	}
	crn_program_maps_add((uintptr_t)at, (uintptr_t)at + size);
	place.table = (struct unit *)((uintptr_t)at + CRN_PAGE_SIZE);
	place.align = base_align(size);
	place.base = ((uintptr_t)place.table + table + place.align - 1) & ~(place.align - 1);
	h = at;
	/* Unit 0 is skipped by beginning at 1. */
	h->units = (uint32_t)(((uintptr_t)at + size - place.base) >> UNIT_SHIFT);
	h->top = 1;
	place.touched = 1;
	if (&__cairn_fresh_on && !crn_rt_hybrid())
		__cairn_rt.trim = trim;
	/* Last: a restore may interrupt it. */
	__atomic_store_n(&place.heap, h, __ATOMIC_RELEASE);
	return true;
}

/* ---- The interface --------------------------------------------------------------------------- */

static unsigned order_of(size_t size)
{
	size_t units = (size + UNIT - 1) >> UNIT_SHIFT;

	return units <= 1 ? 0 : WORD_BITS - (unsigned)__builtin_clzl(units - 1);
}

static void *alloc(size_t size, size_t align)
{
	size_t most = CRN_MAX(size, align);
	uint32_t i;

	if (most > (1ul << (ORDERS - 1)) << UNIT_SHIFT || (!place.heap && !open_heap()))
		return NULL;
	if (align > place.align)
		return NULL;
	if (most <= SMALL_MAX) {
		unsigned class = class_of(most);

		while (class < CLASSES && class_size(class) & (align - 1))
			class++;
		return take_block(class);
	}
	i = take_run(order_of(most), RUN);
	if (!i)
		return NULL;
	give_out(address_of(i), size, 0, place.table[i].since);
	return (void *)address_of(i);
}

/* *touched: as it was just before. */
static void *alloc_locked(size_t size, size_t align, uint32_t *touched)
{
	void *block;

	crn_heap_lock();
	*touched = place.touched;
	block = alloc(size, align);
	if (block)
		place.touched = CRN_MAX(place.touched, place.heap->top);
	crn_heap_unlock();
	return block;
}

void *crn_heap_alloc(size_t size, size_t align)
{
	uint32_t touched;

	return alloc_locked(size, align, &touched);
}

void *crn_heap_zeros(size_t size)
{
	uint32_t touched;
	void *block = alloc_locked(size, 16, &touched);

	/* What has never been given out is zeros still. */
	if (block && (size <= SMALL_MAX || (uintptr_t)block < address_of(touched))) {
		if (!crn_rt_is_fresh((uintptr_t)block, size))
			crn_rt_range((uintptr_t)block, size);
		__builtin_memset(block, 0, size);
	}
	return block;
}

bool crn_heap_holds(const void *block)
{
	return place.heap && (uintptr_t)block - place.base <
		(uintptr_t)place.heap->units << UNIT_SHIFT;
}

bool crn_heap_spans(const void *at, size_t len)
{
	return crn_heap_holds(at) && len <= address_of(place.heap->committed) - (uintptr_t)at &&
		(uintptr_t)at < address_of(place.heap->committed);
}

static uint32_t unit_of(const void *block)
{
	return (uint32_t)(((uintptr_t)block - place.base) >> UNIT_SHIFT);
}

size_t crn_heap_room(const void *block)
{
	const struct unit *u = &place.table[unit_of(block)];

	return u->kind == SLAB ? class_size(u->class) : UNIT << u->order;
}

/* What trim() looks at has the time since when it is free. */
static uint64_t since_of_run(uint32_t i)
{
	return place.table[i].order < TRIM_ORDER ? crn_recent_since(address_of(i))
						 : __cairn_rt.open;
}

void crn_heap_free(void *block)
{
	uint32_t i = unit_of(block);

	crn_heap_lock();
	if (i < place.heap->top && place.table[i].kind == SLAB)
		free_block(i, (uintptr_t)block);
	else if (i < place.heap->top && place.table[i].kind == RUN &&
		(uintptr_t)block == address_of(i))
		free_run(i, place.table[i].order, since_of_run(i));
	else
		refuse(block, "is no block");
	crn_heap_unlock();
}

/* ---- For oracles ----------------------------------------------------------------------------- */

/* The run that the unit lies in, by its first unit; NONE: it was never used. */
static uint32_t head_of(uint32_t i)
{
	for (unsigned order = 0; order < ORDERS; order++) {
		const struct unit *u = &place.table[i >> order << order];

		if (u->kind && u->order >= order)
			return i >> order << order;
	}
	return NONE;
}

uintptr_t crn_heap_free_until(const void *at)
{
	const struct unit *u;
	uintptr_t begin, end;
	uint32_t i, number;
	size_t size;

	if (!crn_heap_holds(at))
		return 0;
	i = head_of(unit_of(at));
	u = &place.table[i];
	if (unit_of(at) >= place.heap->top)
		return address_of(place.heap->units);
	if (u->kind != SLAB)
		return u->kind == FREE_RUN ? address_of(i) + (UNIT << u->order) : 0;
	size = class_size(u->class);
	number = (uint32_t)(((uintptr_t)at - address_of(i)) / size);
	begin = (uintptr_t)block_of(i, size, number);
	end = begin + size;
	if (number >= u->fresh)
		return address_of(i) + UNIT;
	for (uint32_t n = u->freed; n; n = block_of(i, size, n - 1)->link)
		if (n - 1 == number && (uintptr_t)at >= begin + sizeof(struct free_block))
			return end;
	return 0;
}
