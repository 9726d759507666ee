/* SPDX-License-Identifier: MIT */
/*
 * In which form hot pages change hands: as a whole, which writes a page for each, or as
 * differences, for which a page and its old content are compared, and only lines that differ are
 * written. Which is cheaper depends on the processor, on who else uses its caches, and on how much
 * of a page an interval changes. So both are measured: the form in use always, the other one in
 * short trials. While a trial finds nothing better, the next one comes twice as late.
 *
 * And in which form their old content is known: one that has not changed is compared with its frame
 * again, or has a hash, so that one page is read, not two. This takes half as long once pages and
 * frames do not fit in the processor's own caches, and a quarter longer while they do.
 *
 * Thread-safety: the session's lock is held.
 */
#ifndef CRN_HOT_FORM_H
#define CRN_HOT_FORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CRN_HOT_FORM_TRIAL 3u   /* samples; the first one finds the other form's caches */
#define CRN_HOT_FORM_REST  4u   /* samples from one trial to the next, at first */
#define CRN_HOT_FORM_RARE  256u /* at last */
#define CRN_HOT_FORM_MANY  64u  /* pages: half a MiB, with their frames */

struct crn_hot_form {
	bool differences; /* the form in use; else whole pages */
	bool trial;       /* it is in use only to be measured */
	uint32_t cost[2]; /* cycles per hot page, whole and as differences; 0: not yet known */
	uint32_t before;  /* the last sample of the form in use; 0: there is none */
	uint16_t left;    /* samples until the trial ends, or the next one begins */
	uint16_t rest;
};

void crn_hot_form_open(struct crn_hot_form *f);
/* Are differences to be asked for? */
bool crn_hot_form_asks(const struct crn_hot_form *f);
/* What a hot page has cost at a checkpoint, in cycles, in the form that was asked for. */
void crn_hot_form_note(struct crn_hot_form *f, uint32_t cost);
/* Are pages that have not changed to have hashes, where there are so many hot ones? */
bool crn_hot_form_hashes(size_t count);

#endif
