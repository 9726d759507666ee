/* SPDX-License-Identifier: MIT */
/* The sink where it wants differences: they become deltas, and the frames stay the tracker's. */
#include <errno.h>
#include "base/copy.h"
#include "base/status.h"
#include "journal/delta.h"
#include "journal/record.h"
#include "os/guarded.h"

#define TAKEN 1u /* of a page's address: its frame is the journal's */

/* A frame that cannot be finished is dropped: the page is taken then. */
int crn_sink_absorb_last(
	struct crn_sink *sink, uintptr_t addr, void *frame, const void *live)
{
	struct crn_journal *j = crn_journal_of(sink);
	uint64_t lines;

	CRN_TRY(crn_guarded_lines(frame, live, &lines));
	crn_frame_open(j->arena, frame);
	CRN_TRY(crn_guarded_copy_lines(frame, live, lines));
	j->pages++;
	return 1;
}

size_t crn_sink_absorb_pages_last(
	struct crn_sink *sink, struct crn_page_copy *pages, size_t count, bool down)
{
	return crn_absorb_each(sink, crn_sink_absorb_last, pages, count, down);
}

/* The page whose delta may be longer than there is room for gets what it takes. As note(). */
static int note_tight(struct crn_journal *j, struct crn_page_copy *page)
{
	struct crn_page_copy made = *page;
	struct crn_delta_run r = { .out = j->scratch[1], .room = CRN_DELTA_LONGEST,
		.longest = CRN_DELTA_LONGEST, .page = &made, .left = 1 };
	void *delta = NULL;
	size_t size;

	CRN_TRY(crn_delta_make(&r, j->scratch[0]));
	size = CRN_DELTA_LONGEST - r.room;
	while (size <= CRN_DELTA_MAX && !(delta = crn_fifo_room(&j->deltas, size)))
		if (!crn_journal_make_room(j))
			break;
	if (!delta) {
		crn_delta_apply(page->to, made.to);
		return size > CRN_DELTA_MAX ? 0 : CAIRN_EMEMORY;
	}
	crn_copy(delta, made.to, size);
	crn_fifo_push(&j->deltas, size);
	page->to = delta;
	return 1;
}

/*
 * Note differences, from r->page on. 1: no page is left. 0: the one at r->page differs in too much;
 * or an error, and nothing has happened to it. `to` is the delta of those before it, whose frames
 * are as the pages. No walk is on its way, so that its pages are free.
 */
static int note(struct crn_journal *j, struct crn_delta_run *r)
{
	size_t begin;
	int err;

	do {
		r->out = crn_fifo_rest(&j->deltas, &r->room);
		begin = r->room;
		err = crn_delta_make(r, j->scratch[0]);
		if (r->room < begin)
			crn_fifo_push(&j->deltas, begin - r->room);
		if (crn_likely(!err))
			return 1;
		if (err == -ENOSPC)
			err = note_tight(j, r->page);
		if (err <= 0)
			return err;
		crn_delta_next(r);
	} while (r->left);
	return 1;
}

int crn_sink_absorb(struct crn_sink *sink, uintptr_t addr, void *frame, const void *live)
{
	struct crn_journal *j = crn_journal_of(sink);
	struct crn_page_copy page = { .to = frame, .from = live };
	struct crn_delta_run r = { .longest = CRN_DELTA_MAX, .page = &page, .left = 1 };
	int noted;

	CRN_ASSERT(j->open_kind == CRN_RECORD_KEPT && !(addr & (CRN_PAGE_SIZE - 1)));
	CRN_TRY(crn_staging_reserve(j, 1));
	crn_frame_open(j->arena, frame);
	CRN_TRY(noted = note(j, &r));
	crn_stage(j, addr, noted ? CRN_FORM_DELTA : CRN_FORM_WHOLE, page.to);
	j->pages++;
	return noted;
}

/* An entry for each page that was noted, or whose frame is taken over, by address. */
static void stage_pages(struct crn_journal *j, struct crn_page_copy *pages, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		bool whole = (uintptr_t)pages[i].from & TAKEN;

		if (crn_unlikely(!pages[i].from))
			continue;
		crn_stage(j, crn_page_down((uintptr_t)pages[i].from),
			whole ? CRN_FORM_WHOLE : CRN_FORM_DELTA, pages[i].to);
		j->pages++;
		if (whole)
			pages[i].to = NULL;
	}
}

size_t crn_sink_absorb_pages(
	struct crn_sink *sink, struct crn_page_copy *pages, size_t count, bool down)
{
	struct crn_journal *j = crn_journal_of(sink);
	struct crn_delta_run r = { .longest = CRN_DELTA_MAX, .left = count,
		.page = down ? pages + count - 1 : pages,
		.step = (down ? -1 : 1) * (ptrdiff_t)sizeof(*pages) };
	bool room = crn_staging_reserve(j, count) >= 0;
	size_t failed = 0;

	crn_frames_open(j, pages, count);
	for (; r.left; crn_delta_next(&r), failed++) {
		int noted = room ? note(j, &r) : CAIRN_EMEMORY;

		if (crn_likely(noted > 0))
			break;
		r.page->from = noted ? NULL : (const char *)r.page->from + TAKEN;
	}
	stage_pages(j, pages, count);
	return count - failed;
}
