/* SPDX-License-Identifier: MIT */
/*
 * Files whose shared memory is in the surface. Old content must go back to the very file it came
 * from, but a mapping identifies its file only by a number, which a new file may get once the old
 * one is deleted and nobody holds it. So each such file is mapped once more, one page without
 * access, while the surface has memory of it. Until then the number is its own, and no look has to
 * ask for more.
 */
#include <errno.h>
#include "session/engine.h"
#include "base/copy.h"
#include "os/second_mapping.h"

static bool is_of(const struct crn_held *h, uint64_t inode, uint64_t device)
{
	return h->inode == inode && h->device == device;
}

/* Segments of System V have numbers that are not given again soon, and count who has them. */
static bool is_counted(const struct crn_mapping *m)
{
	return crn_starts_with(m->name, "/SYSV");
}

/* Another thread may have mapped something else there. */
static bool shows(const struct crn_maps *maps, const struct crn_held *h)
{
	struct crn_mapping m;
	int got = crn_maps_ask(maps, h->at, &m);

	return got < 0 || (got > 0 && is_of(h, m.inode, crn_mapping_device(&m)));
}

static int take(cairn_t *c, uintptr_t addr, uint64_t inode, uint64_t device)
{
	struct crn_held h = { .inode = inode, .device = device };
	struct crn_mapping m;
	void *at;
	int err;

	CRN_TRY(crn_grow(c, (void **)&c->held.at, &c->held.capacity, c->held.count + 1,
		sizeof(*c->held.at)));
	if (crn_maps_find(&c->maps, addr, &m) <= 0 || is_counted(&m))
		return 0;
	err = crn_second_mapping(&at, m.begin);
	/*
	 * What cannot be mapped once more (memory of a device) is no file with a number to lose.
	 * Locked memory (-EAGAIN: RLIMIT_MEMLOCK) is not refused for a page of ours.
	 */
	if (err < 0)
		return err == -ENOMEM ? CAIRN_EMEMORY : 0;
	h.at = (uintptr_t)at;
	if (shows(&c->maps, &h))
		c->held.at[c->held.count++] = h;
	else
		crn_second_mapping_end(at);
	return 0;
}

int crn_held_file_take(cairn_t *c, uintptr_t addr, uint64_t inode, uint64_t device)
{
	int err;

	for (size_t i = 0; i < c->held.count; i++)
		if (is_of(&c->held.at[i], inode, device))
			return 0;
	crn_own_calls(c, true);
	err = take(c, addr, inode, device);
	crn_own_calls(c, false);
	return err;
}

int crn_held_files_take(cairn_t *c, const struct crn_pieces *l)
{
	for (size_t i = 0; i < l->count; i++) {
		const struct crn_piece *p = &l->at[i];

		if (p->flags & CRN_AREA_SHARED)
			CRN_TRY(crn_held_file_take(c, p->begin, p->inode, p->device));
	}
	return 0;
}

static bool is_wanted(const cairn_t *c, const struct crn_held *h)
{
	for (size_t i = 0; i < c->layout.count; i++) {
		const struct crn_piece *p = &c->layout.at[i];

		if (p->flags & CRN_AREA_SHARED && is_of(h, p->inode, p->device))
			return true;
	}
	for (size_t i = 0; i < c->named_count; i++) {
		const struct crn_named *n = &c->named[i];

		if (!n->pages &&
			is_of(h, n->inode, (uint64_t)n->dev_major << 32 | n->dev_minor))
			return true;
	}
	return false;
}

void crn_held_files_drop(cairn_t *c)
{
	size_t left = 0;

	if (!c->held.count)
		return;
	crn_own_calls(c, true);
	for (size_t i = 0; i < c->held.count; i++) {
		struct crn_held *h = &c->held.at[i];

		if (is_wanted(c, h))
			c->held.at[left++] = *h;
		else
			crn_second_mapping_end((void *)h->at);
	}
	crn_own_calls(c, false);
	c->held.count = left;
}

/* The tracker is gone. */
void crn_held_files_close(cairn_t *c)
{
	for (size_t i = 0; i < c->held.count; i++)
		crn_second_mapping_end((void *)c->held.at[i].at);
	c->held.count = 0;
}
