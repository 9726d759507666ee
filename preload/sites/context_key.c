/* SPDX-License-Identifier: MIT */
/*
 * --context: what kind of work comes next, as a number. It is asked at each checkpoint; a strategy
 * keeps one working set for each answer. What cannot be found out is 0.
 */
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "base/bits.h"
#include "effects/effects.h"
#include "sites/sites.h"

#define EVENTS_MAX 16 /* looked at; the rest adds little */
#define FDS_MAX    (1u << 20)

/* ---- The descriptors that are ready --------------------------------------------------------- */

/*
 * Without --recover nobody mirrors epoll sets. Most programs' data words are the descriptors, in
 * the lower half; the upper half may be anything then.
 */
static int epoll_fd(const struct crn_call *call, uint64_t data)
{
	struct crn_epoll_set *set = crn_epoll_look((int)call->args[0]);

	if (!set && (uint32_t)data < FDS_MAX)
		return (int)(uint32_t)data;
	for (uint32_t i = 0; set && i < set->size; i++)
		if (set->items[i].fd >= 0 && set->items[i].data == data)
			return set->items[i].fd;
	return -1;
}

static size_t ready_epoll(const struct crn_call *call, int *fds)
{
	size_t count = CRN_MIN((size_t)call->result, (size_t)EVENTS_MAX), known = 0;
	struct epoll_event events[EVENTS_MAX];

	if (crn_user_read(events, (uintptr_t)call->args[1], count * sizeof(events[0])))
		return 0;
	for (size_t i = 0; i < count; i++) {
		fds[known] = epoll_fd(call, events[i].data.u64);
		known += fds[known] >= 0;
	}
	return known;
}

static size_t ready_poll(const struct crn_call *call, int *fds)
{
	uintptr_t at = (uintptr_t)call->args[0];
	struct pollfd p;
	size_t known = 0;

	for (long i = 0; i < call->args[1] && i < 1024 && known < EVENTS_MAX; i++) {
		if (crn_user_read(&p, at + (size_t)i * sizeof(p), sizeof(p)))
			break;
		if (p.revents)
			fds[known++] = p.fd;
	}
	return known;
}

static size_t ready_select(const struct crn_call *call, int *fds)
{
	size_t known = 0;

	for (long i = 0; i < call->args[0] && i < 1024 && known < EVENTS_MAX; i += 64) {
		uint64_t bits = 0;

		if (!call->args[1] || crn_user_read(&bits, (uintptr_t)call->args[1] + i / 8, 8))
			break;
		for (; bits && known < EVENTS_MAX; bits &= bits - 1)
			fds[known++] = (int)i + __builtin_ctzll(bits);
	}
	return known;
}

static size_t ready(const struct crn_call *call, int *fds)
{
	if (call->spec || call->result <= 0)
		return 0;
	switch (call->nr) {
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
	case SYS_epoll_pwait2:
		return ready_epoll(call, fds);
	case SYS_poll:
	case SYS_ppoll:
		return ready_poll(call, fds);
	case SYS_select:
	case SYS_pselect6:
		return ready_select(call, fds);
	default:
		fds[0] = (int)call->args[0];
		return 1;
	}
}

/* Bits above those of enum crn_fd_kind. */
#define LISTENING 63

static unsigned kind_of(int fd)
{
	unsigned kind = crn_fd_look(fd)->kind;
	int listens = 0, len = sizeof(listens);

	if (kind == CRN_FD_STREAM && crn_sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_ACCEPTCONN,
					     (long)&listens, (long)&len) >= 0 && listens)
		return LISTENING;
	return kind;
}

static uint64_t kinds(const struct crn_call *call)
{
	int fds[EVENTS_MAX];
	size_t count = ready(call, fds);
	uint64_t set = 0;

	for (size_t i = 0; i < count; i++)
		set |= 1ull << kind_of(fds[i]);
	return set;
}

/* The program's own word for a descriptor of an epoll set tells it from others as well. */
static uint64_t first_data(const struct crn_call *call)
{
	bool epoll = call->nr == SYS_epoll_wait || call->nr == SYS_epoll_pwait ||
		call->nr == SYS_epoll_pwait2;
	struct epoll_event event;

	if (call->spec || call->result <= 0 || !epoll ||
		crn_user_read(&event, (uintptr_t)call->args[1], sizeof(event)))
		return 0;
	return event.data.u64 + 1;
}

static uint64_t first_fd(const struct crn_call *call)
{
	int fds[EVENTS_MAX];

	return ready(call, fds) ? (uint64_t)fds[0] + 1 : first_data(call);
}

/* ---- Registers and memory ---------------------------------------------------------------- */

static uint64_t register_of(const struct crn_call *call, uint32_t index)
{
	const struct crn_regs *regs = call->thread->regs;

	return regs && index < sizeof(*regs) / 8 ? ((const uint64_t *)regs)[index] : 0;
}

static uint64_t word_at(uintptr_t addr)
{
	uint64_t word = 0;

	return crn_user_read(&word, addr, sizeof(word)) ? 0 : word;
}

uint64_t crn_context_key(const struct crn_call *call)
{
	const struct crn_context_spec *c = &crn_agent->config.context;

	switch (c->kind) {
	case CRN_CONTEXT_SITE:
		return call->spec ? 4096 + call->spec : (uint64_t)call->nr + 1;
	case CRN_CONTEXT_RESULT:
		return call->spec ? 0 : (uint64_t)call->result;
	case CRN_CONTEXT_EVENTS:
		return kinds(call);
	case CRN_CONTEXT_FD:
		return first_fd(call);
	case CRN_CONTEXT_REGISTER:
		return register_of(call, c->index);
	case CRN_CONTEXT_WORD:
		return word_at(register_of(call, c->index) + (uintptr_t)c->offset);
	default:
		return 0;
	}
}
