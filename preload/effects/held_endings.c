/* SPDX-License-Identifier: MIT */
/*
 * Operations that are held together with bytes, in the same list and order: a file that is sent,
 * the end of what is sent (shutdown), and the close of a connection.
 *
 * A held close really closes the number, so the next descriptor gets it as usual. The connection
 * lives on under a high duplicate until the commit. If the interval is undone, the journal's
 * inverse opens the number again. Bytes that are held for the number move to the duplicate before
 * it is closed: it may be another connection's at once, and another thread may send what is held.
 */
#include <sys/epoll.h>
#include <sys/socket.h>
#include "effects/hold.h"
#include "effects/hooks.h"
#include "effects/planted.h"
#include "os/clock.h"

/* Beyond this a file goes without being copied through here. */
#define FILE_MAX (64u << 10)

/* A connection of ours, as far as we know; `h` has room for a word about it. */
static bool is_connection(const struct crn_hold *h, const struct crn_fd *f)
{
	return f->kind == CRN_FD_STREAM && f->connection > 1 &&
		h->used + 2 * sizeof(struct crn_held) < CRN_HOLD_SIZE;
}

static void note(struct crn_thread *t, int fd, enum crn_held_kind kind, uint32_t id)
{
	struct crn_hold *h = crn_agent->effects->hold;
	struct crn_held *p;

	if (!h->used) {
		h->since = crn_clock_ticks();
		crn_late_timer_start(t);
	}
	p = crn_held_add(h, fd, kind, 0);
	p->connection = id;
	h->used = h->last + (uint32_t)sizeof(*p);
}

/* ---- shutdown -------------------------------------------------------------------------------- */

bool crn_hold_shutdown(struct crn_call *call)
{
	int fd = (int)call->args[0];
	struct crn_fd *f = crn_fd_look(fd);

	if (call->args[1] != SHUT_WR || !is_connection(crn_agent->effects->hold, f) ||
		(f->hold != CRN_FDH_TCP && f->hold != CRN_FDH_LOCAL))
		return false;
	note(call->thread, fd, CRN_HELD_END, f->connection);
	crn_fd_hold_set(fd, CRN_FDH_NEVER);
	call->result = 0;
	call->effect = CRN_EFFECT_HELD;
	return true;
}

/* ---- close ----------------------------------------------------------------------------------- */

bool crn_hold_may_close(int fd)
{
	const struct crn_hold *h = crn_agent->effects->hold;
	struct crn_fd *f = crn_fd_look(fd);

	if (!h || f->kind != CRN_FD_STREAM)
		return false;
	crn_hold_connection(fd, f);
	/* Input that is still to be given must not outlive its descriptor. */
	return is_connection(h, f) && !crn_fd_pending(fd) && !crn_hold_lingers(fd);
}

void crn_hold_closing(int fd, int high)
{
	struct crn_hold *h = crn_agent->effects->hold;

	for (uint32_t at = 0; at < h->used; at = crn_held_next(h, at))
		if (crn_held_at(h, at)->fd == fd && !crn_planted(CRN_PLANT_MOVE))
			crn_held_at(h, at)->fd = high;
}

void crn_hold_closed(struct crn_thread *t, int high, uint32_t connection)
{
	note(t, high, CRN_HELD_CLOSE, connection);
}

/* ---- sendfile -------------------------------------------------------------------------------- */

/* Where the file is read: 0, or -errno; *at. */
static int file_position(const struct crn_call *call, uint64_t *at)
{
	long offset;

	if (call->args[2])
		return crn_user_copy(at, (const void *)call->args[2], sizeof(*at));
	offset = crn_sys3(SYS_lseek, call->args[1], 0, SEEK_CUR);
	*at = (uint64_t)offset;
	return offset < 0 ? (int)offset : 0;
}

static bool file_advance(struct crn_call *call, uint64_t to)
{
	if (call->args[2])
		return crn_user_write((uintptr_t)call->args[2], &to, sizeof(to)) == 0;
	crn_offset_journal(call, (int)call->args[1]);
	return call->effect != CRN_EFFECT_OUTPUT &&
		crn_sys3(SYS_lseek, call->args[1], to, SEEK_SET) >= 0;
}

bool crn_hold_file(struct crn_call *call)
{
	struct crn_hold *h = crn_agent->effects->hold;
	int fd = (int)call->args[0];
	struct crn_fd *f = crn_fd_look(fd);
	size_t size = (size_t)call->args[3];
	struct crn_hold before = *h;
	uint64_t at;
	struct crn_held *p;
	long n;

	if (f->kind != CRN_FD_STREAM || f->hold == CRN_FDH_NEVER || !size || size > FILE_MAX ||
		crn_fd_look((int)call->args[1])->kind != CRN_FD_REGULAR ||
		!crn_hold_may_take(fd, f, size) || file_position(call, &at) < 0)
		return false;
	p = crn_held_add(h, fd, CRN_HELD_BYTES, 0);
	p->connection = crn_hold_connection(fd, f);
	n = crn_sys4(SYS_pread64, call->args[1], p->bytes + p->size, size, at);
	if (n <= 0 || !file_advance(call, at + (uint64_t)n)) {
		*h = before;
		call->effect = CRN_EFFECT_OUTPUT;
		return false;
	}
	p->size += (uint32_t)n;
	crn_held_taken(call, p, n, !before.used);
	return true;
}
