/* SPDX-License-Identifier: MIT */
/* How old content changes hands: trackers fill a sink, the journal is one. */
#ifndef CRN_SINK_H
#define CRN_SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A page of the program, and the frame that is to hold what it holds. */
struct crn_page_copy {
	void *to;
	const void *from;
};

/*
 * Receives extents and their old content. `old` is a page frame of the arena if len is a page and
 * `owned` is set: the sink then owns it. old == NULL means zeros. Negative results stop the walk.
 *
 * prepare (interval_end only) announces at most `count` pages, of which `bare` have no frame yet;
 * after it returned 0 no take or absorb of them fails, and the tracker may crn_frame_alloc the
 * frames that replace those it hands over and those of the bare pages. So a tracker finds the
 * written pages first, then prepares, then hands over: that is how interval_end fails before
 * anything is handed over. How many there are, and what the tracker has found to be cheaper
 * (`differences`, set before), decide in which form the sink wants them: absorb and exchange are to
 * be looked at after prepare.
 *
 * absorb is set when the sink wants differences instead of whole pages. `frame` holds the old
 * content of a page and `live` the page as it is. It returns 1 if the sink noted the difference and
 * made frame equal to live (a word that another thread changes meanwhile is left for the next
 * interval): the tracker keeps the frame as the new content, or frees it. It returns 0 if the sink
 * took the frame over, as by take(): the tracker copies live into a new one. -EFAULT: live has
 * vanished; nothing was taken. A tracker uses absorb for pages that have a frame, if it is not
 * NULL, and take for all others. Where nothing is kept (`keeps` is not set, with K = 1) only a page
 * whose frame stays gains by it.
 *
 * absorb_pages goes with it: absorb for each of the pages at `from`, sorted by address, with the
 * frame in `to`, beginning with the last one if `down` is set. The result is how many were noted.
 * Of the others, `to` is NULL if the sink took the frame over, and `from` is NULL if nothing was
 * taken. All else that `pages` held is undefined then.
 *
 * exchange is set when the sink wants whole pages: of each of the pages at `from`, sorted by
 * address, it takes over the frame with the old content that is in `to`, like take(), and puts a
 * frame for the new content there, which the tracker is to fill. That spares the way through the
 * arena. With K = 1 nothing is kept, and all frames stay where they are. The result is how many
 * were exchanged; the others, for which there is no memory, are untouched. If it is set, a tracker
 * that needs a frame for the new content must use it: the frames that prepare promised for
 * replacement wait there.
 */
struct crn_sink {
	int (*prepare)(struct crn_sink *self, size_t count, size_t bare); /* or NULL */
	int (*take)(struct crn_sink *self, uintptr_t addr, size_t len, void *old, bool owned);
	/* or NULL */
	int (*absorb)(struct crn_sink *self, uintptr_t addr, void *frame, const void *live);
	size_t (*absorb_pages)(
		struct crn_sink *self, struct crn_page_copy *pages, size_t count, bool down);
	/* or NULL */
	size_t (*exchange)(struct crn_sink *self, struct crn_page_copy *pages, size_t count);
	bool differences; /* by the tracker: it would rather hand over differences */
	bool keeps;
};

/* absorb_pages of a sink that has nothing better than to absorb one after the other. */
static inline size_t crn_absorb_each(struct crn_sink *sink,
	int (*absorb)(struct crn_sink *self, uintptr_t addr, void *frame, const void *live),
	struct crn_page_copy *pages, size_t count, bool down)
{
	size_t done = 0;

	for (size_t n = 0; n < count; n++) {
		struct crn_page_copy *p = &pages[down ? count - 1 - n : n];
		int got = absorb(sink, (uintptr_t)p->from, p->to, p->from);

		done += got > 0;
		if (!got)
			p->to = NULL;
		if (got < 0)
			p->from = NULL;
	}
	return done;
}

#endif
