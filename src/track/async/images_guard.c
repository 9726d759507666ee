/* SPDX-License-Identifier: MIT */
/* How pages are protected and opened under feed bpf-images: images.c has the whole. */
#include "base/check.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/keeper.h"
#include "os/memory.h"
#include "os/userfault.h"
#include "track/async/images.h"

/* ---- Protecting and opening ----------------------------------------------------------- */

static int change(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool protect)
{
	int err;

	do
		err = crn_uffd_protect(u->uffd, begin, end - begin, protect);
	while (err < 0 && crn_keeper_mend(u->env->keeper) > 0);
	return err;
}

static int protect(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool exec)
{
	return change(u, begin, end, true);
}

/* Of a page that is none of the interval's nothing is known: the next reports may tell. */
static int note_strange(struct crn_undo_pages *u, const struct crn_page_run *run)
{
	struct undo_area *a = undo_find(u, run->begin);

	for (uintptr_t p = run->begin; p < run->end; p += CRN_PAGE_SIZE) {
		if (!(undo_get(undo_word_of(a, p)) & UNDO_OPEN))
			CRN_TRY(crn_range_list_add(&u->strange, p, p + CRN_PAGE_SIZE));
	}
	return 0;
}

static int protect_dense(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end)
{
	struct crn_page_run runs[64];

	for (uintptr_t cursor = begin; cursor < end;) {
		long n = crn_pagemap_written(
			u->pagemap, &cursor, end, true, runs, CRN_ARRAY_SIZE(runs));

		CRN_TRY((int)CRN_MIN(n, 0l));
		for (long i = 0; i < n; i++) {
			if (note_strange(u, &runs[i]) < 0)
				crn_images_lost(u, runs[i].begin, CAIRN_EMEMORY);
		}
	}
	return 0;
}

struct opening {
	struct crn_undo_pages *u;
	uintptr_t begin, end;
};

/* Somebody else has had the page opened: his image is right, not the copy that was made here. */
static void prefer_image(void *arg, const struct crn_image *image)
{
	struct opening *o = arg;
	struct undo_area *a;
	uintptr_t word;
	undo_word *w;

	if (image->page < o->begin || image->page >= o->end)
		return;
	a = undo_find(o->u, image->page);
	w = undo_word_of(a, image->page);
	word = undo_get(w);
	if (word & UNDO_BUSY)
		return; /* not the first */
	if (image->old && image->calm && undo_frame(word) &&
		undo_cut_image(a, image->page, image->old)) {
		crn_copy_page(undo_frame(word), image->old);
	} else if (!image->calm || !(image->absent && word & UNDO_EMPTY)) {
		undo_frame_drop(o->u, word);
		word = (word & (UNDO_FLAGS & ~UNDO_ZERO)) | UNDO_LOST;
		crn_images_lost(o->u, image->page, CAIRN_EFAILED);
	}
	undo_set(w, word | UNDO_BUSY);
}

/* The pages have been copied and listed just now. */
static int open_pages(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool exec)
{
	struct opening o = { .u = u, .begin = begin, .end = end };
	struct undo_area *a = undo_find(u, begin);

	if (!u->feed->ops->late(u->feed, prefer_image, &o))
		crn_images_lost(u, begin, CAIRN_EFAILED);
	for (uintptr_t page = begin; page < end; page += CRN_PAGE_SIZE)
		undo_set(undo_word_of(a, page),
			undo_get(undo_word_of(a, page)) & ~(uintptr_t)UNDO_BUSY);
	return change(u, begin, end, false);
}

/* Pages of anonymous memory that hold nothing are known to be zeros, if they cannot be copied. */
static int mark_empty(struct crn_undo_pages *u, struct undo_area *a, bool mark)
{
	struct crn_page_run runs[64];

	for (uintptr_t p = a->begin; mark && p < a->end; p += CRN_PAGE_SIZE)
		undo_set(undo_word_of(a, p), undo_get(undo_word_of(a, p)) | UNDO_EMPTY);
	for (uintptr_t cursor = a->begin; cursor < a->end;) {
		struct crn_scan look = {
			.start = cursor,
			.end = a->end,
			.vec = (uintptr_t)runs,
			.vec_len = CRN_ARRAY_SIZE(runs),
			/* What is protected and empty counts as swapped. */
			.category_anyof_mask = CRN_PAGE_PRESENT | (mark ? CRN_PAGE_SWAPPED : 0),
			.return_mask = CRN_PAGE_PRESENT,
		};
		long n = crn_pagemap_scan(u->pagemap, &look);

		CRN_TRY((int)CRN_MIN(n, 0));
		cursor = look.walk_end;
		for (long i = 0; i < n; i++) {
			for (uintptr_t p = runs[i].begin; p < runs[i].end; p += CRN_PAGE_SIZE)
				undo_set(undo_word_of(a, p),
					undo_get(undo_word_of(a, p)) & ~(uintptr_t)UNDO_EMPTY);
		}
	}
	return 0;
}

static void images_end(struct crn_undo_pages *u, struct undo_area *a)
{
	/* Fails where parts are gone: with the descriptor the rest ends. */
	(void)crn_uffd_unregister(u->uffd, a->begin, a->end - a->begin);
}

/* What is not known to be empty must be there when it is copied. */
static int make_present(struct undo_area *a)
{
	for (uintptr_t p = a->begin; p < a->end; p += CRN_PAGE_SIZE)
		undo_set(undo_word_of(a, p), undo_get(undo_word_of(a, p)) & ~(uintptr_t)UNDO_EMPTY);
	(void)crn_memory_populate_read((void *)a->begin, a->end - a->begin);
	return 0;
}

int crn_images_watch(struct crn_undo_pages *u, struct undo_area *a, bool plain)
{
	size_t len = a->end - a->begin;
	int err;

	CRN_TRY(plain ? mark_empty(u, a, true) : make_present(a));
	CRN_TRY(crn_uffd_register(u->uffd, a->begin, len));
	err = CAIRN_EUNSUPPORTED; /* a store opens 512 pages, and there is an image of one */
	if (plain || crn_uffd_protect_single(u->uffd, a->begin))
		err = undo_protect_closed(u, a, a->begin, a->end, false);
	/* Another thread may have written to it until it was protected. */
	if (err >= 0 && plain)
		err = mark_empty(u, a, false);
	if (err < 0)
		images_end(u, a);
	return err;
}

static int images_begin(struct crn_undo_pages *u, struct undo_area *a)
{
	return crn_images_watch(u, a, !(a->area->flags & (CRN_AREA_FILE | CRN_AREA_SHARED)));
}

/* A fault was reported, of a page that has been protected meanwhile: it may be open again. */
static void keep_open(void *arg, const struct crn_image *image)
{
	struct crn_undo_pages *u = arg;
	uintptr_t end = image->page + CRN_PAGE_SIZE;
	struct undo_area *a = undo_find(u, image->page);

	if (a && undo_get(undo_word_of(a, image->page)) & UNDO_OPEN &&
		crn_range_list_add(&u->open, image->page, end) < 0)
		crn_images_lost(u, image->page, CAIRN_EMEMORY);
}

static void images_protected(struct crn_undo_pages *u, size_t count)
{
	size_t before = u->open.count;

	if (!u->feed->ops->late(u->feed, keep_open, u)) {
		for (size_t i = 0; i < count; i++)
			if (crn_range_list_add(&u->open, u->saved[i],
				    u->saved[i] + CRN_PAGE_SIZE) < 0)
				crn_images_lost(u, u->saved[i], CAIRN_EMEMORY);
	}
	if (u->open.count != before)
		crn_range_list_normalise(&u->open);
}

const struct undo_guard crn_images_guard = {
	.whole_kinds = true,
	.begin = images_begin,
	.end = images_end,
	.protect = protect,
	.dense = protect_dense,
	.open = open_pages,
	.protected = images_protected,
};
