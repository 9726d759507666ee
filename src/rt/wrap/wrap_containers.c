/* SPDX-License-Identifier: MIT */
/*
 * Functions of libstdc++ behind std::map, std::set and std::list: the nodes that they link anew are
 * the program's. Kept are those that a call may touch. Their layout is part of the C++ ABI.
 */
#include "rt/wrap/wrap.h"

struct tree_node {
	int colour; /* 0: red */
	struct tree_node *parent, *left, *right;
};

struct list_node {
	struct list_node *next, *prev;
};

static void keep_tree_node(const struct tree_node *n)
{
	keep(n, sizeof(*n));
}

static bool is_black(const struct tree_node *n)
{
	return !n || n->colour;
}

/* A node and what is below it, so many levels. */
static void keep_below(const struct tree_node *n, int levels)
{
	if (!n)
		return;
	keep_tree_node(n);
	if (levels) {
		keep_below(n->left, levels - 1);
		keep_below(n->right, levels - 1);
	}
}

static struct tree_node *other_child(const struct tree_node *parent, const struct tree_node *child)
{
	return parent->left == child ? parent->right : parent->left;
}

/* ---- Trees: up as the rebalancing goes, by colours that it has not changed yet --------------- */

/*
 * A red node is hung below `parent`. Above a red parent whose sibling is red, too, these and the
 * grandparent change colour, and that one is next; else one rotation or two end it.
 */
static void keep_for_insert(const struct tree_node *parent, const struct tree_node *header)
{
	const struct tree_node *above;

	keep_tree_node(header);
	keep_tree_node(parent);
	while (parent != header && !parent->colour && parent != header->parent) {
		above = parent->parent;
		keep_tree_node(above->parent);
		if (is_black(other_child(above, parent))) {
			keep_below(above, 3);
			return;
		}
		keep_below(above, 1);
		parent = above->parent;
	}
}

void _ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_(_Bool left,
	struct tree_node *node, struct tree_node *parent, struct tree_node *header);

WRAPPER(void, _ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_, _Bool left,
	struct tree_node *node, struct tree_node *parent, struct tree_node *header)
{
	keep_tree_node(node);
	keep_for_insert(parent, header);
	_ZSt29_Rb_tree_insert_and_rebalancebPSt18_Rb_tree_node_baseS0_RS_(left, node, parent,
		header);
}

/*
 * The place of `gone` is taken by `child`, or nothing, and one black node is missing there. While
 * the other side can turn red for it, it is missing one level higher; else rotations end it.
 */
static void keep_for_erase(const struct tree_node *gone, const struct tree_node *child,
	const struct tree_node *header)
{
	const struct tree_node *parent = gone->parent, *other;

	if (!gone->colour)
		return;
	while (gone != header->parent && is_black(child)) {
		parent = gone->parent;
		other = other_child(parent, gone);
		keep_tree_node(parent);
		if (!other)
			return;
		if (!other->colour || !is_black(other->left) || !is_black(other->right)) {
			keep_tree_node(parent->parent);
			keep_below(parent, 4);
			return;
		}
		keep_tree_node(other);
		gone = child = parent;
	}
	keep_tree_node(child);
}

struct tree_node *_ZSt28_Rb_tree_rebalance_for_erasePSt18_Rb_tree_node_baseRS_(
	struct tree_node *node, struct tree_node *header);

WRAPPER(struct tree_node *, _ZSt28_Rb_tree_rebalance_for_erasePSt18_Rb_tree_node_baseRS_,
	struct tree_node *node, struct tree_node *header)
{
	struct tree_node *gone = node; /* or its successor, which comes to its place */

	if (node->left && node->right)
		for (gone = node->right; gone->left;)
			gone = gone->left;
	keep_tree_node(header);
	keep_below(node, 1);
	keep_tree_node(node->parent);
	keep_below(gone, 1);
	keep_tree_node(gone->parent);
	keep_for_erase(gone, gone->left ? gone->left : gone->right, header);
	return _ZSt28_Rb_tree_rebalance_for_erasePSt18_Rb_tree_node_baseRS_(node, header);
}

/* ---- Lists ----------------------------------------------------------------------------------- */

static void keep_list_node(const struct list_node *n)
{
	keep(n, sizeof(*n));
}

static void keep_with_neighbours(const struct list_node *n)
{
	keep_list_node(n);
	keep_list_node(n->next);
	keep_list_node(n->prev);
}

void _ZNSt8__detail15_List_node_base7_M_hookEPS0_(struct list_node *n, struct list_node *before);
void _ZNSt8__detail15_List_node_base9_M_unhookEv(struct list_node *n);
void _ZNSt8__detail15_List_node_base11_M_transferEPS0_S1_(struct list_node *before,
	struct list_node *first, struct list_node *last);
void _ZNSt8__detail15_List_node_base10_M_reverseEv(struct list_node *n);
void _ZNSt8__detail15_List_node_base4swapERS0_S1_(struct list_node *a, struct list_node *b);

WRAPPER(void, _ZNSt8__detail15_List_node_base7_M_hookEPS0_, struct list_node *n,
	struct list_node *before)
{
	keep_list_node(n);
	keep_with_neighbours(before);
	_ZNSt8__detail15_List_node_base7_M_hookEPS0_(n, before);
}

WRAPPER(void, _ZNSt8__detail15_List_node_base9_M_unhookEv, struct list_node *n)
{
	keep_with_neighbours(n);
	_ZNSt8__detail15_List_node_base9_M_unhookEv(n);
}

WRAPPER(void, _ZNSt8__detail15_List_node_base11_M_transferEPS0_S1_, struct list_node *before,
	struct list_node *first, struct list_node *last)
{
	keep_with_neighbours(before);
	keep_with_neighbours(first);
	keep_with_neighbours(last);
	_ZNSt8__detail15_List_node_base11_M_transferEPS0_S1_(before, first, last);
}

WRAPPER(void, _ZNSt8__detail15_List_node_base10_M_reverseEv, struct list_node *n)
{
	struct list_node *at = n;

	do {
		keep_list_node(at);
		at = at->next;
	} while (at != n);
	_ZNSt8__detail15_List_node_base10_M_reverseEv(n);
}

WRAPPER(void, _ZNSt8__detail15_List_node_base4swapERS0_S1_, struct list_node *a,
	struct list_node *b)
{
	keep_with_neighbours(a);
	keep_with_neighbours(b);
	_ZNSt8__detail15_List_node_base4swapERS0_S1_(a, b);
}

/* ---- Tables: when to grow -------------------------------------------------------------------- */

struct rehash_policy {
	float load_max;
	size_t next_resize;
};

struct rehash {
	_Bool wanted;
	size_t buckets;
};

size_t _ZNKSt8__detail20_Prime_rehash_policy11_M_next_bktEm(struct rehash_policy *p, size_t n);
struct rehash _ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm(struct rehash_policy *p,
	size_t buckets, size_t count, size_t more);

WRAPPER(size_t, _ZNKSt8__detail20_Prime_rehash_policy11_M_next_bktEm, struct rehash_policy *p,
	size_t n)
{
	OBJECT(p)
	return _ZNKSt8__detail20_Prime_rehash_policy11_M_next_bktEm(p, n);
}

WRAPPER(struct rehash, _ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm,
	struct rehash_policy *p, size_t buckets, size_t count, size_t more)
{
	OBJECT(p)
	return _ZNKSt8__detail20_Prime_rehash_policy14_M_need_rehashEmmm(p, buckets, count, more);
}
