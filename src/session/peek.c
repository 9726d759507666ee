/* SPDX-License-Identifier: MIT */
/* Looking into the past: nothing changes. */
#include "session/engine.h"
#include "base/check.h"
#include "base/copy.h"
#include "os/guarded.h"

/* The live page. NULL: there is none; or it could not be read, and the call has to fail. */
static const void *load_live(cairn_t *c, uintptr_t page)
{
	int err = c->env.load(&c->env, c->scratch, page, CRN_PAGE_SIZE);

	if (err < 0 && !crn_is_bare(err))
		c->unread = err;
	return err < 0 ? NULL : c->scratch;
}

/*
 * The content of a page at the newest checkpoint, NULL for zeros: a frame, or the live page itself
 * (which other threads write), or c->scratch.
 */
static const void *newest_content(cairn_t *c, uintptr_t page)
{
	const void *old = NULL;

	if (c->ops->look(c->tracker, page, &old))
		return NULL;
	if (old)
		return old;
	/* Not written since, so the live page has it. */
	if (!c->env.closed && !crn_page_cuttable(c, page))
		return (const void *)page;
	if (!load_live(c, page))
		return NULL;
	/* Stored to while we read it, it has a copy from before the store by now. */
	if (c->ops->look(c->tracker, page, &old))
		return NULL;
	return old ? old : c->scratch;
}

const void *crn_newest_copy(cairn_t *c, uintptr_t page)
{
	const void *content = newest_content(c, page);

	if (content != (const void *)page)
		return content;
	/* Where no mappings are followed nobody has told that the program has closed it. */
	if (crn_guarded_copy(c->scratch, content, CRN_PAGE_SIZE) < 0 && !load_live(c, page))
		return NULL; /* vanished just now */
	/* Stored to while we read it, it has a copy from before the store by now. */
	content = newest_content(c, page);
	return content == (const void *)page ? c->scratch : content;
}

/* ---- Peek ------------------------------------------------------------------------------------ */

static int peek_page(cairn_t *c, uint64_t id, uintptr_t addr, uint8_t *buf, size_t len)
{
	uintptr_t page = crn_page_down(addr);
	const void *content;

	if (c->ops->caps & CRN_TRACK_KEEPS)
		return c->ops->kept_peek(c->tracker, id, addr, buf, len);
	content = crn_newest_copy(c, page);
	if (id != crn_mark_newest(c)->id)
		CRN_TRY(crn_journal_look(c->journal, id, page, content, &content));
	if (content)
		crn_copy(buf, (const uint8_t *)content + (addr - page), len);
	else
		crn_fill(buf, 0, len);
	return 0;
}

/* Every byte in areas that the checkpoint covers? */
static int check_range(cairn_t *c, uint64_t id, uintptr_t addr, size_t len)
{
	size_t i;

	if (addr + len < addr)
		return CAIRN_ENOTAREA;
	if (c->ops->caps & CRN_TRACK_STORES) {
		/* What cannot be read is found when it is read. */
		CRN_TRY(crn_shared_find(c));
		i = crn_ranges_from(&c->shared, addr);
		return i < c->shared.count && c->shared.at[i].begin < addr + len ? CAIRN_ENOTAREA
										 : 0;
	}
	for (uintptr_t at = addr; at < addr + len;) {
		const struct crn_area *area = crn_area_at(c, at);

		if (!area || !crn_layout_held(c, id, crn_page_down(at)))
			return CAIRN_ENOTAREA;
		at = area->born <= id ? area->end : crn_page_down(at) + CRN_PAGE_SIZE;
	}
	return 0;
}

static int peek_locked(cairn_t *c, uint64_t id, uintptr_t addr, uint8_t *buf, size_t len)
{
	while (len) {
		size_t n = CRN_MIN(len, CRN_PAGE_SIZE - (addr & (CRN_PAGE_SIZE - 1)));

		CRN_TRY(peek_page(c, id, addr, buf, n));
		addr += n;
		buf += n;
		len -= n;
	}
	return 0;
}

/* What a tracker without a mirror has not copied is read from live memory: is it still there? */
static bool reads_live(const cairn_t *c)
{
	const uint32_t others = CRN_TRACK_MIRROR | CRN_TRACK_KEEPS | CRN_TRACK_STORES;

	return !(c->ops->caps & others) && !c->ops->whole;
}

static int usable(cairn_t *c, uint64_t id)
{
	CRN_TRY(crn_settle(c));
	if (reads_live(c))
		CRN_TRY(crn_layout_follow(c, CRN_FOLLOW_NOTE));
	return crn_mark_usable(c, id);
}

int cairn_peekv(cairn_t *c, uint64_t id, const struct iovec *local, const struct iovec *remote,
	size_t count)
{
	int err;

	CRN_TRY(crn_lock(c));
	c->unread = 0;
	err = usable(c, id);
	if (!(c->ops->caps & (CRN_TRACK_MIRROR | CRN_TRACK_KEEPS)))
		crn_cut_look(c); /* the live page will be read if nobody wrote it */
	for (size_t i = 0; i < count && err >= 0; i++) {
		if (local[i].iov_len != remote[i].iov_len)
			err = -EINVAL;
		else
			err = check_range(c, id, (uintptr_t)remote[i].iov_base, remote[i].iov_len);
	}
	for (size_t i = 0; i < count && err >= 0; i++)
		err = crn_mappings_check(c, (uintptr_t)remote[i].iov_base,
			(uintptr_t)remote[i].iov_base + remote[i].iov_len);
	for (size_t i = 0; i < count && err >= 0; i++)
		crn_result(c, local[i].iov_base, local[i].iov_len);
	for (size_t i = 0; i < count && err >= 0; i++)
		err = peek_locked(
			c, id, (uintptr_t)remote[i].iov_base, local[i].iov_base, local[i].iov_len);
	if (err >= 0)
		err = c->unread;
	if (err >= 0)
		err = usable(c, id); /* somebody may have written meanwhile, unseen */
	crn_unlock(c);
	return err < 0 ? err : 0;
}

int cairn_peek(cairn_t *c, uint64_t id, const void *addr, void *buf, size_t len)
{
	struct iovec local = { buf, len }, remote = { (void *)addr, len };

	return cairn_peekv(c, id, &local, &remote, 1);
}

/* ---- Changes --------------------------------------------------------------------------------- */

struct change_walk {
	struct crn_walk walk;
	cairn_t *c;
	uint64_t from, to;
	bool now;
	cairn_change_fn fn;
	void *ctx;
};

/*
 * Is it a page of an area that was there at `from`, and at the other end? A part of an explicit
 * area that was mapped anew is younger than that; one that has gone is tracked no more.
 */
static bool is_compared(const struct change_walk *w, uintptr_t page)
{
	cairn_t *c = w->c;

	if (!crn_area_at(c, page) &&
		(w->now || !(c->ops->caps & CRN_TRACK_MIRROR) ||
			!crn_added_meets(c, page, page + CRN_PAGE_SIZE)))
		return false;
	return crn_layout_held(c, w->from, page) && (w->now || crn_layout_held(c, w->to, page));
}

/*
 * What the open interval had not written when it was staged is as at the newest checkpoint, whoever
 * writes meanwhile.
 */
static const void *change_present(struct crn_walk *self, uintptr_t page)
{
	struct change_walk *w = (struct change_walk *)self;
	cairn_t *c = w->c;

	if (!is_compared(w, page))
		return NULL;
	if (!w->now || !crn_journal_staged(c->journal, page))
		return crn_newest_copy(c, page);
	/* one content, whoever writes meanwhile */
	if (!c->env.closed && !crn_page_cuttable(c, page) &&
		crn_guarded_copy(c->scratch, (const void *)page, CRN_PAGE_SIZE) >= 0)
		return c->scratch;
	return load_live(c, page);
}

/* Report maximal runs of differing words. */
static int change_page(
	struct crn_walk *self, uintptr_t page, const void *at_from, const void *at_to)
{
	static const uint64_t zeros[CRN_PAGE_SIZE / 8];
	struct change_walk *w = (struct change_walk *)self;
	const uint64_t *a = at_from ? at_from : zeros, *b = at_to ? at_to : zeros;
	size_t words = CRN_PAGE_SIZE / 8;

	if (!is_compared(w, page))
		return 0; /* it was none yet, or is none any more */
	for (size_t i = 0; i < words; i++) {
		size_t first = i;
		int r;

		while (i < words && a[i] != b[i])
			i++;
		if (i == first)
			continue;
		r = w->fn(
			w->ctx, (void *)(page + first * 8), (i - first) * 8, a + first, b + first);
		if (r)
			return r > 0 ? r : 1;
	}
	return 0;
}

/* The page as it was at `to`, or is. Negative if it is not tracked then. */
static int load_kept(cairn_t *c, uint64_t to, uintptr_t page, void *frame)
{
	if (to != CAIRN_NOW)
		return c->ops->kept_peek(c->tracker, to, page, frame, CRN_PAGE_SIZE);
	if (!crn_area_at(c, page) || c->env.load(&c->env, frame, page, CRN_PAGE_SIZE) < 0)
		return CAIRN_ENOTAREA;
	return 0;
}

/* The two frames hold one page at each time. */
static int compare_page(
	cairn_t *c, uint64_t to, struct change_walk *w, uintptr_t page, void *a, void *b)
{
	int r = c->ops->kept_peek(c->tracker, w->from, page, a, CRN_PAGE_SIZE);

	if (r >= 0)
		r = load_kept(c, to, page, b);
	if (r == CAIRN_ENOTAREA)
		return 0;
	return r < 0 ? r : change_page(&w->walk, page, a, b);
}

/*
 * A tracker that keeps its own checkpoints has no list of changed pages: compare all that were
 * tracked both times, but for those that it knows to be the same.
 */
static int compare_kept(cairn_t *c, uint64_t to, struct change_walk *w, void *a, void *b)
{
	uintptr_t begin = 0, end = 0, stop;
	int r = 1;

	while (c->ops->kept_next(c->tracker, w->from, end, &begin, &end)) {
		for (; begin < end; begin = stop) {
			stop = end;
			r = c->ops->kept_differs(c->tracker, w->from, to, &begin, &stop);
			CRN_TRY(r);
			if (!r)
				break;
			for (uintptr_t page = begin; page < stop; page += CRN_PAGE_SIZE) {
				r = compare_page(c, to, w, page, a, b);
				if (r)
					return r;
			}
		}
	}
	return 0;
}

static int changes_kept(cairn_t *c, uint64_t to, struct change_walk *w)
{
	void *a = crn_frame_alloc(c->arena), *b = crn_frame_alloc(c->arena);
	int err = a && b ? compare_kept(c, to, w, a, b) : CAIRN_EMEMORY;

	if (a)
		crn_frame_free(c->arena, a);
	if (b)
		crn_frame_free(c->arena, b);
	return err;
}

static int changes_locked(cairn_t *c, uint64_t from, uint64_t to, struct change_walk *w)
{
	uint64_t newest = crn_mark_newest(c)->id;
	int err;

	if (to != CAIRN_NOW)
		CRN_TRY(crn_mark_usable(c, to));
	if (from >= to)
		return -EINVAL;
	if (c->ops->caps & CRN_TRACK_STORES)
		return CAIRN_EUNSUPPORTED; /* it knows no list of all memory to compare */
	if (c->ops->caps & CRN_TRACK_KEEPS) {
		CRN_TRY(to == CAIRN_NOW ? crn_layout_follow(c, CRN_FOLLOW_ADOPT) : 0);
		return changes_kept(c, to, w);
	}
	CRN_TRY(crn_mappings_check(c, 0, UINTPTR_MAX));
	if (to != CAIRN_NOW)
		return crn_journal_walk(c->journal, from, to, &w->walk);

	/* Up to the present: the open interval takes part as a record that is only looked at. */
	CRN_TRY(crn_layout_follow(c, CRN_FOLLOW_ADOPT));
	w->now = true;
	err = c->ops->undo(c->tracker, crn_journal_stage(c->journal, newest));
	if (err >= 0)
		err = crn_journal_walk(c->journal, from, CRN_JOURNAL_NOW, &w->walk);
	crn_journal_abort(c->journal);
	return err;
}

int cairn_changes(cairn_t *c, uint64_t from, uint64_t to, cairn_change_fn fn, void *ctx)
{
	struct change_walk w = {
		.walk = { .page = change_page, .present = change_present, .want_to = true },
		.c = c, .from = from, .to = to, .fn = fn, .ctx = ctx,
	};
	int err, lost;

	if (!fn)
		return -EINVAL;
	CRN_TRY(crn_lock(c));
	c->unread = 0;
	err = usable(c, from);
	if (err >= 0)
		err = changes_locked(c, from, to, &w);
	if (err >= 0 && c->unread)
		err = c->unread;
	if (err >= 0 && (lost = usable(c, from)) < 0)
		err = lost; /* somebody may have written meanwhile, unseen */
	crn_unlock(c);
	return err;
}
