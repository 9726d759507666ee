/* SPDX-License-Identifier: MIT */
#include "track/mirror.h"
#include <errno.h>
#include "base/arena.h"
#include "base/check.h"
#include "base/copy.h"
#include "os/guarded.h"

#define FANOUT     512
#define LEVELS     4
#define LEAF_BYTES (CRN_PAGE_SIZE * FANOUT)

struct crn_mirror_node {
	void *slot[FANOUT]; /* nodes; in a leaf, page frames */
};

/* Level 3 is the root, level 0 the leaf. */
static unsigned slot_index(uintptr_t addr, unsigned level)
{
	return (addr >> (CRN_PAGE_SHIFT + 9 * level)) & (FANOUT - 1);
}

static uintptr_t span_of(unsigned level)
{
	return CRN_PAGE_SIZE << (9 * level);
}

static struct crn_mirror_node *node_alloc(struct crn_mirror *m)
{
	struct crn_mirror_node *n = crn_frame_alloc(m->env->arena);

	if (n) {
		crn_fill(n, 0, sizeof(*n));
		m->node_count++;
	}
	return n;
}

int crn_mirror_open(struct crn_mirror *m, struct crn_track_env *env)
{
	crn_fill(m, 0, sizeof(*m));
	m->env = env;
	crn_range_list_open(&m->replaced, env->arena);
	m->root = node_alloc(m);
	m->scratch = crn_block_alloc(env->arena, CRN_PAGE_SIZE);
	if (!m->root || !m->scratch) {
		crn_mirror_close(m);
		return CAIRN_EMEMORY;
	}
	return 0;
}

static struct crn_mirror_node *leaf_of(struct crn_mirror *m, uintptr_t addr)
{
	uintptr_t begin = addr & ~(LEAF_BYTES - 1);
	struct crn_mirror_node *n = m->root;

	if (crn_likely(m->leaf && m->leaf_begin == begin))
		return m->leaf;
	for (unsigned level = LEVELS - 1; n && level > 0; level--)
		n = n->slot[slot_index(addr, level)];
	if (n) {
		m->leaf = n;
		m->leaf_begin = begin;
	}
	return n;
}

/* All writing to nodes: under CAIRN_PROTECT each is closed, as all frames are. */
void crn_mirror_slot_set(struct crn_mirror *m, void **slot, void *to)
{
	crn_frame_open(m->env->arena, (void *)crn_page_down((uintptr_t)slot));
	*slot = to;
}

static int cover_leaf(struct crn_mirror *m, uintptr_t addr)
{
	struct crn_mirror_node *n = m->root;

	for (unsigned level = LEVELS - 1; level > 0; level--) {
		void **slot = &n->slot[slot_index(addr, level)];

		if (!*slot)
			crn_mirror_slot_set(m, slot, node_alloc(m));
		if (!*slot)
			return CAIRN_EMEMORY; /* empty nodes are found again by the next cover */
		n = *slot;
	}
	return 0;
}

int crn_mirror_cover(struct crn_mirror *m, uintptr_t begin, uintptr_t end)
{
	for (uintptr_t a = begin & ~(LEAF_BYTES - 1); a < end; a += LEAF_BYTES)
		CRN_TRY(cover_leaf(m, a));
	return 0;
}

void **crn_mirror_slot(struct crn_mirror *m, uintptr_t page)
{
	struct crn_mirror_node *leaf = leaf_of(m, page);

	return leaf ? &leaf->slot[slot_index(page, 0)] : NULL;
}

/*
 * The live page, or a copy of it if the program itself may not read it now, or if its address is 0.
 * NULL if there is none. What is not doubtful may vanish all the same, so it is read by guarded
 * functions. Negative: it cannot be read at present.
 */
static int live_page(struct crn_mirror *m, uintptr_t page, bool doubtful, const void **live)
{
	int err;

	*live = (const void *)page;
	if (crn_likely(page && !doubtful && !crn_page_closed(m->env, page)))
		return 0;
	err = m->env->load(m->env, m->scratch, page, CRN_PAGE_SIZE);
	*live = err < 0 ? NULL : m->scratch;
	return err < 0 && !crn_is_bare(err) ? err : 0;
}

/*
 * A page that nobody can read any more (unmapped, cut off its file) has no content: zeros. Another
 * thread may have closed it just now.
 */
static void load(struct crn_mirror *m, void **slot, const void *live)
{
	int err;

	crn_frame_open(m->env->arena, *slot);
	if (crn_likely(crn_guarded_copy(*slot, live, CRN_PAGE_SIZE) >= 0))
		return;
	err = m->env->load(m->env, *slot, (uintptr_t)live, CRN_PAGE_SIZE);
	if (err >= 0)
		return;
	if (!crn_is_bare(err))
		m->env->lost(m->env, (uintptr_t)live, err);
	crn_frame_free(m->env->arena, *slot);
	crn_mirror_slot_set(m, slot, NULL);
	m->page_count--;
}

int crn_mirror_fill(struct crn_mirror *m, uintptr_t begin, uintptr_t end, bool doubtful)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE) {
		void **slot = crn_mirror_slot(m, page);
		const void *live;

		CRN_ASSERT(slot);
		CRN_TRY(live_page(m, page, doubtful, &live));
		if (!live)
			continue;
		if (!*slot) {
			crn_mirror_slot_set(m, slot, crn_frame_alloc(m->env->arena));
			if (!*slot)
				return CAIRN_EMEMORY;
			m->page_count++;
		}
		load(m, slot, live);
	}
	return 0;
}

static void renew(struct crn_mirror *m, void **slot, const void *live)
{
	crn_mirror_slot_set(m, slot, live ? crn_frame_alloc(m->env->arena) : NULL);
	if (!live)
		return;
	CRN_ASSERT(*slot); /* the sink's prepare() promised it */
	m->page_count++;
	load(m, slot, live);
}

static void exchange(
	struct crn_mirror *m, void **slot, void *old, uintptr_t page, struct crn_sink *sink)
{
	struct crn_page_copy copy = { .to = old, .from = (const void *)page };
	size_t done = sink->exchange(sink, &copy, 1);

	CRN_ASSERT(done); /* the sink's prepare() promised it */
	crn_mirror_slot_set(m, slot, copy.to);
}

/* The sink has taken the frame. */
static void replace(struct crn_mirror *m, void **slot, const void *live)
{
	m->page_count--;
	renew(m, slot, live);
}

void crn_mirror_taken(struct crn_mirror *m, void **slot, uintptr_t page)
{
	const void *live;
	int err = live_page(m, page, false, &live);

	if (crn_unlikely(err < 0))
		m->env->lost(m->env, page, err);
	replace(m, slot, live);
}

/* 1: the frame has stayed where it is. */
static int turn_page(struct crn_mirror *m, void **slot, void *old, uintptr_t page, bool doubtful,
	struct crn_sink *sink)
{
	const void *live;
	int r = live_page(m, page, doubtful, &live);

	if (crn_unlikely(r < 0))
		m->env->lost(m->env, page, r);
	r = -EFAULT;
	if (!old) {
		CRN_TRY(sink->take(sink, page, CRN_PAGE_SIZE, NULL, false));
		renew(m, slot, live);
		return 0;
	}
	if (sink->exchange && live) {
		exchange(m, slot, old, page, sink);
		load(m, slot, live);
		return 0;
	}
	if (sink->absorb && live)
		r = sink->absorb(sink, page, old, live);
	if (r == -EFAULT) /* nothing was absorbed */
		r = sink->take(sink, page, CRN_PAGE_SIZE, old, true);
	if (!r)
		replace(m, slot, live);
	return r;
}

int crn_mirror_replaced(struct crn_mirror *m, uintptr_t begin, uintptr_t end)
{
	return crn_range_list_add(&m->replaced, begin, end);
}

static int turn_range(
	struct crn_mirror *m, uintptr_t begin, uintptr_t end, bool doubtful, struct crn_sink *sink)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE) {
		void **slot = crn_mirror_slot(m, page);

		CRN_ASSERT(slot);
		CRN_TRY(turn_page(m, slot, *slot, page, doubtful, sink));
	}
	return 0;
}

int crn_mirror_turn(
	struct crn_mirror *m, uintptr_t begin, uintptr_t end, bool doubtful, struct crn_sink *sink)
{
	int (*absorb)(struct crn_sink *, uintptr_t, void *, const void *) = sink->absorb;
	int err;

	if (crn_likely(!m->replaced.count) || !crn_range_list_meets(&m->replaced, begin, end))
		return turn_range(m, begin, end, doubtful, sink);
	sink->absorb = NULL;
	err = turn_range(m, begin, end, doubtful, sink);
	sink->absorb = absorb;
	return err;
}

int crn_mirror_turn_slot(struct crn_mirror *m, void **slot, void **old, uintptr_t page,
	bool doubtful, struct crn_sink *sink)
{
	int kept = 0;

	if (crn_likely(!m->replaced.count))
		CRN_TRY(kept = turn_page(m, slot, *old, page, doubtful, sink));
	else
		CRN_TRY(crn_mirror_turn(m, page, page + CRN_PAGE_SIZE, doubtful, sink));
	if (!kept)
		*old = *slot;
	return 0;
}

void crn_mirror_load(struct crn_mirror *m, void **slot, uintptr_t page)
{
	load(m, slot, (const void *)page);
}

int crn_mirror_show(struct crn_mirror *m, uintptr_t begin, uintptr_t end, struct crn_sink *sink)
{
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE) {
		void **slot = crn_mirror_slot(m, page);

		CRN_TRY(sink->take(sink, page, CRN_PAGE_SIZE, slot ? *slot : NULL, false));
	}
	return 0;
}

/* The first address >= addr that a leaf covers, or `end`. */
static uintptr_t skip_uncovered(struct crn_mirror *m, uintptr_t addr, uintptr_t end)
{
	while (addr < end) {
		struct crn_mirror_node *n = m->root;
		unsigned level = LEVELS - 1;

		for (; level > 0; level--) {
			n = n->slot[slot_index(addr, level)];
			if (!n)
				break;
		}
		if (n)
			return addr;
		addr = (addr & ~(span_of(level) - 1)) + span_of(level);
	}
	return end;
}

bool crn_mirror_next(struct crn_mirror *m, uintptr_t *begin, uintptr_t *end)
{
	uintptr_t a = *begin, limit = *end, b;
	void **slot;

	for (;; a += CRN_PAGE_SIZE) {
		a = skip_uncovered(m, a, limit);
		if (a >= limit)
			return false;
		slot = crn_mirror_slot(m, a);
		if (*slot)
			break;
	}
	for (b = a + CRN_PAGE_SIZE; b < limit; b += CRN_PAGE_SIZE) {
		slot = crn_mirror_slot(m, b);
		if (!slot || !*slot)
			break;
	}
	*begin = a;
	*end = b;
	return true;
}

static int give_range(struct crn_mirror *m, uintptr_t begin, uintptr_t end, struct crn_sink *sink)
{
	uintptr_t a = begin, b = end;

	for (; crn_mirror_next(m, &a, &b); a = b, b = end) {
		for (uintptr_t page = a; page < b; page += CRN_PAGE_SIZE) {
			void **slot = crn_mirror_slot(m, page);

			CRN_TRY(sink->take(sink, page, CRN_PAGE_SIZE, *slot, true));
			crn_mirror_slot_set(m, slot, NULL);
			m->page_count--;
		}
	}
	crn_mirror_drop(m, begin, end);
	return 0;
}

int crn_mirror_give(struct crn_mirror *m, struct crn_range_list *gone, struct crn_sink *sink)
{
	for (size_t i = 0; i < gone->count; i++)
		CRN_TRY(give_range(m, gone->at[i].begin, gone->at[i].end, sink));
	crn_range_list_shrink(gone, 0);
	crn_range_list_shrink(&m->replaced, 0); /* the interval's last step */
	return 0;
}

/* Pages to hand over; those of them that have no frame yet are added to *bare. */
static size_t count_dirty(struct crn_mirror *m, const struct crn_range_list *dirty, size_t *bare)
{
	size_t count = 0;

	for (size_t i = 0; i < dirty->count; i++) {
		for (uintptr_t p = dirty->at[i].begin; p < dirty->at[i].end; p += CRN_PAGE_SIZE) {
			*bare += !*crn_mirror_slot(m, p);
			count++;
		}
	}
	return count;
}

static size_t count_gone(struct crn_mirror *m, const struct crn_range_list *gone)
{
	size_t count = 0;

	for (size_t i = 0; i < gone->count; i++) {
		uintptr_t a = gone->at[i].begin, b = gone->at[i].end;

		for (; crn_mirror_next(m, &a, &b); a = b, b = gone->at[i].end)
			count += crn_pages(b - a);
	}
	return count;
}

int crn_mirror_try(struct crn_mirror *m, uintptr_t page)
{
	uint8_t byte;
	int err = m->env->load(m->env, &byte, page, 1);

	return err < 0 && !crn_is_bare(err) ? err : 0;
}

/* The first page that the program has closed tells for all. */
static int try_closed(struct crn_mirror *m, const struct crn_range_list *dirty)
{
	for (size_t i = 0; i < dirty->count; i++)
		for (uintptr_t p = dirty->at[i].begin; p < dirty->at[i].end; p += CRN_PAGE_SIZE)
			if (crn_page_closed(m->env, p))
				return crn_mirror_try(m, p);
	return 0;
}

int crn_mirror_prepare(struct crn_mirror *m, const struct crn_range_list *dirty,
	const struct crn_range_list *gone, size_t count, size_t bare, struct crn_sink *sink)
{
	if (m->env->closed)
		CRN_TRY(try_closed(m, dirty));
	if (!sink->prepare)
		return 0;
	count += count_dirty(m, dirty, &bare) + count_gone(m, gone);
	return sink->prepare(sink, count, bare);
}

/*
 * Free what lies in [begin, end) under node n, which covers [base, base + FANOUT spans). True if n
 * is empty now.
 */
static bool drop_under(struct crn_mirror *m, struct crn_mirror_node *n, unsigned level,
	uintptr_t base, uintptr_t begin, uintptr_t end)
{
	bool empty = true;

	for (unsigned i = 0; i < FANOUT; i++) {
		uintptr_t at = base + i * span_of(level);
		void *child = n->slot[i];

		if (!child)
			continue;
		if (at >= end || at + span_of(level) <= begin) {
			empty = false;
			continue;
		}
		if (level == 0)
			m->page_count--;
		else if (drop_under(m, child, level - 1, at, begin, end))
			m->node_count--;
		else {
			empty = false;
			continue;
		}
		crn_frame_free(m->env->arena, child);
		crn_mirror_slot_set(m, &n->slot[i], NULL);
	}
	return empty;
}

/*
 * Nodes become free when their last page does. A leaf that a neighbouring area has covered but not
 * filled would go too, so it is only freed when the range spans it whole.
 */
static bool drop_tree(struct crn_mirror *m, uintptr_t begin, uintptr_t end)
{
	return drop_under(m, m->root, LEVELS - 1, 0, begin, end);
}

void crn_mirror_drop(struct crn_mirror *m, uintptr_t begin, uintptr_t end)
{
	uintptr_t inner_begin = (begin + LEAF_BYTES - 1) & ~(LEAF_BYTES - 1);
	uintptr_t inner_end = end & ~(LEAF_BYTES - 1);
	uintptr_t a = begin, b = end;

	for (; crn_mirror_next(m, &a, &b); a = b, b = end) {
		for (uintptr_t page = a; page < b; page += CRN_PAGE_SIZE) {
			void **slot = crn_mirror_slot(m, page);

			crn_frame_free(m->env->arena, *slot);
			crn_mirror_slot_set(m, slot, NULL);
			m->page_count--;
		}
	}
	m->leaf = NULL;
	if (inner_begin < inner_end)
		drop_tree(m, inner_begin, inner_end);
}

void crn_mirror_close(struct crn_mirror *m)
{
	if (m->root) {
		drop_tree(m, 0, UINTPTR_MAX);
		crn_frame_free(m->env->arena, m->root);
	}
	crn_block_free(m->env->arena, m->scratch, CRN_PAGE_SIZE);
	crn_range_list_close(&m->replaced);
	crn_fill(m, 0, sizeof(*m));
}

int crn_mirror_put(struct crn_mirror *m, uintptr_t page, const void *content)
{
	void **slot = crn_mirror_slot(m, page);

	if (!slot) {
		CRN_TRY(cover_leaf(m, page));
		slot = crn_mirror_slot(m, page);
	}
	if (!content) {
		if (*slot) {
			crn_frame_free(m->env->arena, *slot);
			m->page_count--;
		}
		crn_mirror_slot_set(m, slot, NULL);
		return 0;
	}
	if (!*slot) {
		crn_mirror_slot_set(m, slot, crn_frame_alloc(m->env->arena));
		if (!*slot)
			return CAIRN_EMEMORY;
		m->page_count++;
	}
	if (*slot == content)
		return 0;
	crn_frame_open(m->env->arena, *slot);
	crn_copy_page(*slot, content);
	return 0;
}

uint64_t crn_mirror_bytes(const struct crn_mirror *m)
{
	return (uint64_t)(m->page_count + m->node_count) << CRN_PAGE_SHIFT;
}

static void count_under(const struct crn_mirror *m, const struct crn_mirror_node *n, unsigned level,
	size_t *nodes, size_t *pages)
{
	++*nodes;
	for (unsigned i = 0; i < FANOUT; i++) {
		if (!n->slot[i])
			continue;
		CRN_ASSERT(crn_arena_owns(m->env->arena, (uintptr_t)n->slot[i]));
		if (level == 0)
			++*pages;
		else
			count_under(m, n->slot[i], level - 1, nodes, pages);
	}
}

void crn_mirror_check(const struct crn_mirror *m)
{
	size_t nodes = 0, pages = 0;

	count_under(m, m->root, LEVELS - 1, &nodes, &pages);
	CRN_ASSERT(nodes == m->node_count && pages == m->page_count);
}
