/* SPDX-License-Identifier: MIT */
/*
 * Waits. They change nothing, but after a restore there may be input that only the agent has. Then
 * the kernel is asked without waiting, and the readiness of that input is added to its answer.
 */
#include <linux/futex.h>
#include <poll.h>
#include <sys/epoll.h>
#include <time.h>
#include "base/copy.h"
#include "effects/effects.h"
#include "effects/hooks.h"

/*
 * A timeout of zero, as timespec and as timeval. The kernel may try to write the rest back: it
 * cannot, and does not mind.
 */
static const uint64_t zero_timeout[2];

/* ---- epoll ----------------------------------------------------------------------------------- */

/* Sets in sets: no deeper does the kernel let them be. */
#define NESTED_MAX 5

static bool gives_again(int fd, unsigned depth);

static bool replay_event(const struct crn_epoll_item *item, unsigned depth)
{
	if (item->fd < 0 || item->fired || !(item->events & (EPOLLIN | EPOLLRDNORM)))
		return false;
	if ((item->events & EPOLLET) && !item->edge)
		return false;
	return gives_again(item->fd, depth);
}

/* Is there something to be given by it, or, if it is an epoll set, by one of its items? */
static bool gives_again(int fd, unsigned depth)
{
	struct crn_epoll_set *set;

	if (!crn_agent->effects->pending_count)
		return false;
	if (crn_fd_look(fd)->kind != CRN_FD_EPOLL)
		return crn_fd_pending(fd);
	set = depth < NESTED_MAX ? crn_epoll_look(fd) : NULL;
	for (uint32_t i = 0; set && i < set->size; i++)
		if (replay_event(&set->items[i], depth + 1))
			return true;
	return false;
}

static enum crn_verdict epoll_wait_before(struct crn_call *call)
{
	struct crn_epoll_set *set;

	call->scratch[0] = 0;
	call->scratch[1] = crn_agent->effects->restores;
	set = crn_epoll_look((int)call->args[0]);
	if (!set || !crn_agent->effects->pending_count)
		return CRN_CALL_RUN_THEN;
	for (uint32_t i = 0; i < set->size && !call->scratch[0]; i++)
		call->scratch[0] = replay_event(&set->items[i], 0);
	if (call->scratch[0])
		call->args[3] = call->nr == SYS_epoll_pwait2 ? (long)zero_timeout : 0;
	return CRN_CALL_RUN_THEN;
}

static void event_given(struct crn_epoll_set *set, struct crn_epoll_item *item)
{
	struct epoll_event quiet = {.events = EPOLLONESHOT, .data.u64 = item->data};

	item->edge = false;
	if (!(item->events & EPOLLONESHOT))
		return;
	item->fired = crn_agent->effects->interval;
	crn_sys4(SYS_epoll_ctl, set->fd, EPOLL_CTL_MOD, item->fd, &quiet);
}

static void epoll_wait_after(struct crn_call *call)
{
	const uint32_t restores = crn_agent->effects->restores;
	struct crn_epoll_set *set;
	uintptr_t events = (uintptr_t)call->args[1];
	long count, native;

	/* SAFETY: the kernel has just written them, and no checkpoint closes them meanwhile. */
	if (call->result > 0 && restores && call->scratch[1] != restores) {
		call->result = crn_epoll_sift((int)call->args[0], (struct epoll_event *)events,
			call->result);
		call->again = !call->result;
	}
	count = native = call->result;
	if (count < 0 || call->again)
		return;
	if (count)
		crn_epoll_delivered(call);
	if (!call->scratch[0])
		return;
	set = crn_epoll_look((int)call->args[0]);
	for (uint32_t i = 0; set && i < set->size; i++) {
		struct crn_epoll_item *item = &set->items[i];
		struct epoll_event event = { .events = item->events & (EPOLLIN | EPOLLRDNORM),
			.data.u64 = item->data };
		long at = 0;

		if (!replay_event(item, 0))
			continue;
		/* SAFETY: the kernel has just written `native` events there. */
		while (at < native && ((struct epoll_event *)events)[at].data.u64 != item->data)
			at++;
		if (at < native)
			event.events |= ((struct epoll_event *)events)[at].events;
		else if (count == call->args[2])
			continue; /* no room: it is reported next time */
		else
			at = count++;
		if (crn_user_write(events + (uintptr_t)at * sizeof(event), &event, sizeof(event)) <
			0) {
			call->result = -EFAULT;
			return;
		}
		event_given(set, item);
		set->delivered = crn_agent->effects->interval;
	}
	call->result = count;
}
const struct crn_hook crn_hook_epoll_wait = {epoll_wait_before, epoll_wait_after};

/*
 * scratch: [0] the item's old mask, [1] its old data, [2] there was one, [3] new mask, [4] new
 * data, [5] it had fired at the checkpoint
 */
static enum crn_verdict epoll_ctl_before(struct crn_call *call)
{
	struct crn_epoll_set *set = crn_epoll_look((int)call->args[0]);
	struct crn_epoll_item *item = crn_epoll_find(set, (int)call->args[2]);
	struct epoll_event event = {0};

	if (!set) {
		if (crn_fd_look((int)call->args[0])->kind == CRN_FD_EPOLL)
			crn_call_raise(call); /* more sets than the mirror holds */
		return CRN_CALL_RUN_THEN;
	}
	call->scratch[0] = item ? item->events : 0;
	call->scratch[1] = item ? item->data : 0;
	call->scratch[2] = item != NULL;
	call->scratch[5] = item && item->fired && item->fired != crn_agent->effects->interval;
	if (call->args[1] != EPOLL_CTL_DEL)
		(void)!crn_user_read(&event, (uintptr_t)call->args[3], sizeof(event));
	call->scratch[3] = event.events;
	call->scratch[4] = event.data.u64;
	return CRN_CALL_RUN_THEN;
}

static void epoll_ctl_after(struct crn_call *call)
{
	int epfd = (int)call->args[0], op = (int)call->args[1], fd = (int)call->args[2];
	struct crn_inverse *inv;

	if (call->result < 0 || call->effect == CRN_EFFECT_OUTPUT)
		return;
	crn_epoll_note(epfd, op, fd, (uint32_t)call->scratch[3], call->scratch[4]);
	if (op != EPOLL_CTL_ADD && !call->scratch[2]) {
		crn_call_raise(call); /* we did not know the item: its inverse is unknown too */
		return;
	}
	inv = crn_inverse_add(call, CRN_INV_EPOLL, epfd);
	if (!inv)
		return;
	inv->other = fd;
	inv->a = call->scratch[5] ? EPOLLONESHOT : call->scratch[0];
	inv->b = call->scratch[1];
	inv->c = op == EPOLL_CTL_ADD  ? EPOLL_CTL_DEL
		: op == EPOLL_CTL_DEL ? EPOLL_CTL_ADD
				      : EPOLL_CTL_MOD;
}
const struct crn_hook crn_hook_epoll_ctl = {epoll_ctl_before, epoll_ctl_after};

/* ---- futex ----------------------------------------------------------------------------------- */

/*
 * Where another thread sleeps, and which one owns what it sleeps for, is known to the kernel alone:
 * memory that is put back would contradict it. (Who is woken looks again itself.)
 */
static enum crn_verdict futex_before(struct crn_call *call)
{
	switch (call->nr == SYS_futex ? call->args[1] & FUTEX_CMD_MASK : FUTEX_REQUEUE) {
	case FUTEX_REQUEUE:
	case FUTEX_CMP_REQUEUE:
	case FUTEX_CMP_REQUEUE_PI:
	case FUTEX_UNLOCK_PI:
		crn_call_raise(call);
		return CRN_CALL_RUN_THEN;
	}
	return CRN_CALL_RUN;
}

/* Nobody was moved. */
static void futex_after(struct crn_call *call)
{
	if (call->effect == CRN_EFFECT_OUTPUT && call->result <= 0 &&
		(call->nr != SYS_futex || (call->args[1] & FUTEX_CMD_MASK) != FUTEX_UNLOCK_PI))
		call->effect = CRN_EFFECT_NONE;
}
const struct crn_hook crn_hook_futex = {futex_before, futex_after};

/* ---- what has been announced ----------------------------------------------------------------- */

static void note_poll(const struct crn_call *call)
{
	const struct pollfd *fds = (const struct pollfd *)call->args[0];
	unsigned count = (unsigned)call->args[1];
	long left = call->result;

	for (unsigned i = 0; i < count && left > 0; i++) {
		if (fds[i].fd < 0 || !fds[i].revents)
			continue;
		crn_fd_look(fds[i].fd)->flags |= CRN_FDF_AWAITED;
		left--;
	}
}

static void note_select(const struct crn_call *call)
{
	const uint64_t *set = (const uint64_t *)call->args[1];

	for (unsigned i = 0; set && call->result > 0 && i < (unsigned)call->args[0]; i += 64)
		for (uint64_t bits = set[i / 64]; bits; bits &= bits - 1)
			crn_fd_look((int)i + __builtin_ctzll(bits))->flags |= CRN_FDF_AWAITED;
}

/* SAFETY: the kernel has just written these arrays. Of epoll the mirror tells. */
void crn_wait_note(const struct crn_call *call)
{
	if (call->nr == SYS_poll || call->nr == SYS_ppoll)
		note_poll(call);
	else if (call->nr == SYS_select || call->nr == SYS_pselect6)
		note_select(call);
}

/* ---- poll ------------------------------------------------------------------------------------ */

#define POLL_READ (POLLIN | POLLRDNORM)

static enum crn_verdict poll_before(struct crn_call *call)
{
	struct pollfd chunk[32];
	unsigned count = (unsigned)call->args[1];

	call->scratch[0] = 0;
	if (!crn_agent->effects->pending_count)
		return CRN_CALL_RUN_THEN;
	for (unsigned i = 0; i < count && !call->scratch[0]; i += CRN_ARRAY_SIZE(chunk)) {
		unsigned n = CRN_MIN(count - i, (unsigned)CRN_ARRAY_SIZE(chunk));

		if (crn_user_read(chunk, (uintptr_t)call->args[0] + i * sizeof(*chunk),
			    n * sizeof(*chunk)) < 0)
			return CRN_CALL_RUN_THEN;
		for (unsigned j = 0; j < n; j++)
			call->scratch[0] |= chunk[j].fd >= 0 && (chunk[j].events & POLL_READ) &&
				gives_again(chunk[j].fd, 0);
	}
	if (!call->scratch[0])
		return CRN_CALL_RUN_THEN;
	call->args[2] = call->nr == SYS_ppoll ? (long)zero_timeout : 0;
	return CRN_CALL_RUN_THEN;
}

static void poll_after(struct crn_call *call)
{
	/* SAFETY: the kernel has read and written this array; crn_output_memory has opened it. */
	struct pollfd *fds = (struct pollfd *)call->args[0];
	unsigned count = (unsigned)call->args[1];

	if (call->result < 0)
		return;
	for (unsigned i = 0; call->scratch[0] && i < count; i++) {
		if (fds[i].fd < 0 || !(fds[i].events & POLL_READ) || !gives_again(fds[i].fd, 0))
			continue;
		call->result += !fds[i].revents;
		fds[i].revents |= fds[i].events & POLL_READ;
	}
	crn_wait_note(call);
}
const struct crn_hook crn_hook_poll = {poll_before, poll_after};

/* ---- select ---------------------------------------------------------------------------------- */

/*
 * scratch[0]: how many; the descriptors follow as 32-bit numbers. What does not fit is reported by
 * the next select.
 */
#define SELECT_MAX ((CRN_ARRAY_SIZE(((struct crn_call *)0)->scratch) - 1) * 2)

static enum crn_verdict select_before(struct crn_call *call)
{
	int32_t *found = (int32_t *)&call->scratch[1];
	unsigned count = (unsigned)call->args[0];

	call->scratch[0] = 0;
	if (!crn_agent->effects->pending_count || !call->args[1] || (int)count < 0)
		return CRN_CALL_RUN_THEN;
	for (unsigned i = 0; i < count; i += 64) {
		uint64_t bits;

		if (crn_user_read(&bits, (uintptr_t)call->args[1] + i / 8, sizeof(bits)) < 0)
			return CRN_CALL_RUN_THEN;
		for (unsigned j = 0; j < 64 && i + j < count; j++)
			if ((bits >> j & 1) && call->scratch[0] < SELECT_MAX &&
				gives_again((int)(i + j), 0))
				found[call->scratch[0]++] = (int32_t)(i + j);
	}
	if (!call->scratch[0])
		return CRN_CALL_RUN_THEN;
	call->args[4] = (long)zero_timeout;
	return CRN_CALL_RUN_THEN;
}

static void select_after(struct crn_call *call)
{
	const int32_t *found = (const int32_t *)&call->scratch[1];
	uint64_t *set = (uint64_t *)call->args[1];

	if (call->result < 0)
		return;
	for (uint64_t i = 0; i < call->scratch[0]; i++) {
		uint64_t bit = 1ull << (found[i] & 63);

		/* SAFETY: the kernel has read and written this set. */
		call->result += !(set[found[i] / 64] & bit);
		set[found[i] / 64] |= bit;
	}
	crn_wait_note(call);
}
const struct crn_hook crn_hook_select = {select_before, select_after};
