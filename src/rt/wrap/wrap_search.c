/* SPDX-License-Identifier: MIT */
/*
 * Tables that libc keeps for the program: tsearch, hsearch. libc's own would change unnoticed, and
 * lie where no restore reaches. These lie in the program's heap and keep what they overwrite. Trees
 * are balanced by height (AVL). A hash table has at least twice as many slots as entries.
 */
#include <search.h>
#include <stdlib.h>
#include "rt/heap.h"
#include "rt/wrap/wrap.h"

#define ALIGN     16
#define DEPTH_MAX 64 /* more nodes than fit into memory */

/* ---- Trees ----------------------------------------------------------------------------------- */

typedef int compare_fn(const void *, const void *);

struct node {
	const void *key; /* first: programs read it through what tsearch returns */
	struct node *child[2];
	long height; /* 1: a leaf */
};

/* The way to a node: where each is linked, from the root on. */
struct way {
	struct node **link[DEPTH_MAX];
	size_t depth;
};

static long height(const struct node *n)
{
	return n ? n->height : 0;
}

static void measure(struct node *n)
{
	long height_new = CRN_MAX(height(n->child[0]), height(n->child[1])) + 1;

	if (n->height == height_new)
		return;
	OBJECT(n)
	n->height = height_new;
}

/* The child on the other side comes up. */
static void rotate(struct node **link, int side)
{
	struct node *down = *link, *up = down->child[!side];

	OBJECT(link)
	OBJECT(down)
	OBJECT(up)
	down->child[!side] = up->child[side];
	up->child[side] = down;
	*link = up;
	measure(down);
	measure(up);
}

static void balance(struct node **link)
{
	struct node *n = *link;
	long more = height(n->child[1]) - height(n->child[0]);
	int side = more > 0;

	if (more >= -1 && more <= 1) {
		measure(n);
		return;
	}
	if (height(n->child[side]->child[!side]) > height(n->child[side]->child[side]))
		rotate(&n->child[side], side);
	rotate(link, !side);
}

static void balance_way(const struct way *w)
{
	for (size_t i = w->depth; i-- > 0;)
		balance(w->link[i]);
}

/* Where the node is linked, or would be; all above it are the way. */
static struct node **find(const void *key, struct node **link, compare_fn *compare, struct way *w)
{
	int order;

	w->depth = 0;
	while (*link) {
		order = compare(key, (*link)->key);
		if (!order)
			break;
		w->link[w->depth++] = link;
		link = &(*link)->child[order > 0];
	}
	return link;
}

WRAPPER(void *, tfind, const void *key, void *const *root, compare_fn *compare)
{
	struct way w;

	return root ? *find(key, (struct node **)root, compare, &w) : NULL;
}

WRAPPER(void *, tsearch, const void *key, void **root, compare_fn *compare)
{
	struct node **link, *n;
	struct way w;

	if (!root)
		return NULL;
	link = find(key, (struct node **)root, compare, &w);
	if (*link)
		return *link;
	n = crn_heap_alloc(sizeof(*n), ALIGN);
	if (!n)
		return NULL;
	place(n, &(struct node){ .key = key, .height = 1 }, sizeof(*n));
	OBJECT(link)
	*link = n;
	balance_way(&w);
	return n;
}

WRAPPER(void *, tdelete, const void *key, void **root, compare_fn *compare)
{
	struct node **link, *gone, *parent;
	struct way w;

	if (!root || !*root)
		return NULL;
	link = find(key, (struct node **)root, compare, &w);
	if (!*link)
		return NULL;
	parent = w.depth ? *w.link[w.depth - 1] : (struct node *)root;
	gone = *link;
	if (gone->child[0] && gone->child[1]) {
		struct node *n = gone;

		/* The next one's key comes here, and its node goes. */
		w.link[w.depth++] = link;
		for (link = &n->child[1]; (*link)->child[0]; link = &(*link)->child[0])
			w.link[w.depth++] = link;
		gone = *link;
		OBJECT(n)
		n->key = gone->key;
	}
	OBJECT(link)
	*link = gone->child[0] ? gone->child[0] : gone->child[1];
	crn_heap_free(gone);
	balance_way(&w);
	return parent;
}

typedef void visit_fn(const struct node *n, VISIT which, long depth, void *ctx);

static void walk(const struct node *n, visit_fn *visit, long depth, void *ctx)
{
	if (!n->child[0] && !n->child[1]) {
		visit(n, leaf, depth, ctx);
		return;
	}
	visit(n, preorder, depth, ctx);
	if (n->child[0])
		walk(n->child[0], visit, depth + 1, ctx);
	visit(n, postorder, depth, ctx);
	if (n->child[1])
		walk(n->child[1], visit, depth + 1, ctx);
	visit(n, endorder, depth, ctx);
}

static void visit_depth(const struct node *n, VISIT which, long depth, void *ctx)
{
	void (*const *action)(const void *, VISIT, int) = ctx;

	(*action)(n, which, (int)depth);
}

WRAPPER(void, twalk, const void *root, void (*action)(const void *, VISIT, int))
{
	if (root && action)
		walk(root, visit_depth, 0, &action);
}

struct closure {
	void (*action)(const void *, VISIT, void *);
	void *ctx;
};

static void visit_closure(const struct node *n, VISIT which, long depth, void *ctx)
{
	const struct closure *c = ctx;

	c->action(n, which, c->ctx);
}

WRAPPER(void, twalk_r, const void *root, void (*action)(const void *, VISIT, void *), void *ctx)
{
	struct closure c = { action, ctx };

	if (root && action)
		walk(root, visit_closure, 0, &c);
}

WRAPPER(void, tdestroy, void *root, void (*free_key)(void *))
{
	struct node *n = root;

	if (!n)
		return;
	__cairn_wrap_tdestroy(n->child[0], free_key);
	__cairn_wrap_tdestroy(n->child[1], free_key);
	free_key((void *)n->key);
	crn_heap_free(n);
}

/* ---- Tables ---------------------------------------------------------------------------------- */

/* Of hsearch, in pages of its own: a region of it has nothing else of the run-time's. */
static union {
	struct hsearch_data table;
	char pages[4096];
} common __attribute__((aligned(4096)));

static size_t places(size_t entries)
{
	size_t n = 8;

	while (n < 2 * entries)
		n *= 2;
	return n;
}

static ENTRY *first_place(const struct hsearch_data *t)
{
	return (ENTRY *)t->table;
}

/* Where the key is, or would be. */
static ENTRY *look_up(const struct hsearch_data *t, const char *key)
{
	size_t mask = places(t->size) - 1, at = 5381;

	for (const char *c = key; *c; c++)
		at = at * 33 ^ (unsigned char)*c;
	for (;; at++) {
		ENTRY *e = &first_place(t)[at & mask];

		if (!e->key || !strcmp(e->key, key))
			return e;
	}
}

/* So many entries, of which programs rely on the last: as glibc has it, the next prime number. */
static size_t room_for(size_t entries)
{
	for (entries = CRN_MAX(entries, 3ul) | 1;; entries += 2) {
		size_t d = 3;

		while (d * d <= entries && entries % d)
			d += 2;
		if (d * d > entries)
			return entries;
	}
}

WRAPPER(int, hcreate_r, size_t entries, struct hsearch_data *t)
{
	ENTRY *at;

	if (!t || entries > 1u << 28) {
		errno = t ? ENOMEM : EINVAL;
		return 0;
	}
	if (t->table)
		return 0;
	entries = room_for(entries);
	at = crn_heap_zeros(places(entries) * sizeof(*at));
	if (!at) {
		errno = ENOMEM;
		return 0;
	}
	place(t, &(struct hsearch_data){ (struct _ENTRY *)at, (unsigned)entries, 0 }, sizeof(*t));
	return 1;
}

WRAPPER(void, hdestroy_r, struct hsearch_data *t)
{
	if (!t) {
		errno = EINVAL;
		return;
	}
	if (t->table)
		crn_heap_free(t->table);
	OBJECT(t)
	t->table = NULL;
}

WRAPPER(int, hsearch_r, ENTRY item, ACTION action, ENTRY **found, struct hsearch_data *t)
{
	ENTRY *e = t->table ? look_up(t, item.key) : NULL;

	OBJECT(found)
	*found = NULL;
	if (!e || (!e->key && (action == FIND || t->filled == t->size))) {
		errno = action == FIND || !e ? ESRCH : ENOMEM;
		return 0;
	}
	if (!e->key) {
		OBJECT(e)
		OBJECT(t)
		*e = item;
		t->filled++;
	}
	*found = e;
	return 1;
}

WRAPPER(void, insque, void *element, void *before)
{
	struct link { struct link *next, *prev; } *e = element, *p = before;

	OBJECT(e)
	OBJECT(p)
	if (p)
		OBJECT(p->next)
	insque(element, before);
}

WRAPPER(void, remque, void *element)
{
	struct link { struct link *next, *prev; } *e = element;

	OBJECT(e->next)
	OBJECT(e->prev)
	remque(element);
}

WRAPPER(int, hcreate, size_t entries)
{
	return __cairn_wrap_hcreate_r(entries, &common.table);
}

WRAPPER(void, hdestroy, void)
{
	__cairn_wrap_hdestroy_r(&common.table);
}

WRAPPER(ENTRY *, hsearch, ENTRY item, ACTION action)
{
	ENTRY *found;

	(void)__cairn_wrap_hsearch_r(item, action, &found, &common.table);
	return found;
}
