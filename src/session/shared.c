/* SPDX-License-Identifier: MIT */
/*
 * Memory that is shared with other processes, under a tracker to which the program reports its
 * stores. Others may have written beside the program's stores, so a restore leaves such memory as
 * it is, as under page trackers, unless cairn_area_add has named it. Hooks save its old content
 * like any other. What is shared is only asked when it is needed: one system call for each such
 * mapping, and one more.
 *
 * Private memory is restored as far as hooks see the stores to it. If it is named, it is an area of
 * the tracker.
 */
#include "session/engine.h"
#include "base/bits.h"

static bool same_object(const struct crn_named *n, const struct crn_mapping *m)
{
	return n->inode == m->inode && n->dev_major == m->dev_major && n->dev_minor == m->dev_minor;
}

/* Add what of the mapping has not been named. A name is worth nothing for another object there. */
static int leave(cairn_t *c, const struct crn_mapping *m)
{
	uintptr_t at = m->begin;

	for (size_t i = 0; i < c->named_count; i++) {
		const struct crn_named *n = &c->named[i];

		if (n->range.end <= at || n->range.begin >= m->end || n->pages ||
			!same_object(n, m))
			continue;
		if (n->range.begin > at)
			CRN_TRY(crn_ranges_add(c, &c->shared, at, n->range.begin));
		at = CRN_MIN(n->range.end, m->end);
	}
	return at < m->end ? crn_ranges_add(c, &c->shared, at, m->end) : 0;
}

int crn_shared_find(cairn_t *c)
{
	struct crn_mapping m;
	int more;

	c->shared.count = 0;
	CRN_TRY(crn_maps_begin(&c->maps, 0, CRN_MAPS_SHARED | CRN_MAPS_NO_NAMES));
	while ((more = crn_maps_next(&c->maps, &m)) > 0)
		CRN_TRY(leave(c, &m));
	return more;
}

/*
 * The object that all of [begin, end) is mapped from, shared, readable and writable; or all of it
 * is private.
 */
static int inspect(cairn_t *c, uintptr_t begin, uintptr_t end, struct crn_named *out)
{
	const int rw = PROT_READ | PROT_WRITE;
	uintptr_t at = begin;
	struct crn_mapping m;
	int more = 0;

	CRN_TRY(crn_maps_begin(&c->maps, begin, CRN_MAPS_NO_NAMES));
	for (; at < end && (more = crn_maps_next(&c->maps, &m)) > 0; at = m.end) {
		if (m.begin > at || (m.prot & rw) != rw)
			return CAIRN_EUNMAPPED;
		if (at > begin && (m.shared == out->pages || (m.shared && !same_object(out, &m))))
			return CAIRN_EUNSUPPORTED;
		out->pages = !m.shared;
		out->inode = m.inode;
		out->dev_major = m.dev_major;
		out->dev_minor = m.dev_minor;
	}
	if (at < end)
		return more < 0 ? more : CAIRN_EUNMAPPED;
	out->range = (struct crn_range){ begin, end };
	return 0;
}

int crn_shared_name(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	struct crn_area area;
	struct crn_named n;
	size_t i, k;

	for (i = 0; i < c->named_count && c->named[i].range.end <= begin;)
		i++;
	if (i < c->named_count && c->named[i].range.begin < end)
		return CAIRN_EOVERLAP;
	CRN_TRY(inspect(c, begin, end, &n));
	CRN_TRY(crn_grow(c, (void **)&c->named, &c->named_capacity, c->named_count + 1,
		sizeof(*c->named)));
	area = (struct crn_area){ .begin = begin, .end = end, .born = c->last_id + 1 };
	if (n.pages)
		CRN_TRY(c->ops->area_add(c->tracker, &area));
	else
		CRN_TRY(crn_held_file_take(c, begin, n.inode,
			(uint64_t)n.dev_major << 32 | n.dev_minor));
	for (k = c->named_count++; k > i; k--)
		c->named[k] = c->named[k - 1];
	c->named[i] = n;
	return 0;
}

int crn_shared_forget(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	struct crn_area area = { .begin = begin, .end = end };
	size_t i;

	for (i = 0; i < c->named_count; i++)
		if (c->named[i].range.begin == begin && c->named[i].range.end == end)
			break;
	if (i == c->named_count)
		return CAIRN_ENOTAREA;
	if (c->named[i].pages)
		c->ops->area_drop(c->tracker, &area);
	c->named_count--;
	for (; i < c->named_count; i++)
		c->named[i] = c->named[i + 1];
	crn_held_files_drop(c);
	return 0;
}
