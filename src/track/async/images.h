/* SPDX-License-Identifier: MIT */
/* What images.c, the tracker, and images_guard.c, its protection of pages, share. */
#ifndef CRN_IMAGES_H
#define CRN_IMAGES_H

#include "track/feeds/feed.h"
#include "track/undo/undo_pages.h"

extern const struct undo_guard crn_images_guard;

/*
 * Register the area and protect what it holds. `plain`: it is private memory of no file. 0, or
 * negative: nothing of it is watched.
 */
int crn_images_watch(struct crn_undo_pages *u, struct undo_area *a, bool plain);

/* The old content of a page is not known: the past of the open interval is lost. */
void crn_images_lost(struct crn_undo_pages *u, uintptr_t page, int why);

#endif
