/* SPDX-License-Identifier: MIT */
/*
 * Kept input that the program gets rid of without reading it. A timer that is set has not run out
 * any more, and a terminal that is flushed has no lines. The kernel forgets that at once; what is
 * still to be given again must be forgotten with it. And a timer that was set in an interval has
 * not run out when that is undone. And the message that is to blame for a crash is taken out.
 */
#include "effects/effects.h"
#include "effects/inherited_input.h"
#include "effects/input.h"

/* As if it had been read: a restore to before brings it back. */
void crn_stream_pass(int fd)
{
	struct crn_stream *s = crn_fd_pending(fd) ? crn_stream_find(crn_fd_look(fd)) : NULL;

	if (!s || !crn_stream_claim(s))
		return;
	s->cursor = s->cursor_at = 0;
	crn_streams_count();
}

/* Pieces of one interval lie in the pool in the order in which they were read. */
void crn_stream_cut(int fd, uint32_t from)
{
	struct crn_stream *s = crn_stream_find(crn_fd_look(fd));
	uint32_t last = 0;

	if (!s)
		return;
	for (uint32_t at = s->first; at && at < from; at = crn_piece_at(at)->next)
		last = at;
	if (!last) {
		crn_stream_drop(s);
		return;
	}
	crn_piece_at(last)->next = 0;
	s->last = last;
	if (s->cursor >= from)
		s->cursor = s->cursor_at = 0;
}

bool crn_stream_take_out(struct crn_stream *s, uint32_t message)
{
	uint32_t at = s->first, before = 0;

	while (at && at != message) {
		before = at;
		at = crn_piece_at(at)->next;
	}
	if (!at || (!before && at == s->last))
		return false;
	if (before)
		crn_piece_at(before)->next = crn_piece_at(at)->next;
	else
		s->first = s->cursor = crn_piece_at(at)->next;
	if (s->last == at)
		s->last = before;
	s->dropped = at;
	return true;
}
