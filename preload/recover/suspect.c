/* SPDX-License-Identifier: MIT */
/*
 * Whose input it was. The suspect is the descriptor whose input was consumed last. If that is a
 * socket, its peer is disconnected by connect(AF_UNSPEC), which resets the connection on both
 * sides; after shutdown() a truncated answer would look complete (measured). Local sockets cannot
 * be reset so: local_reset.c. The program finds ECONNRESET at its next read and closes the
 * connection itself.
 */
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "base/copy.h"
#include "base/log.h"
#include "effects/hold.h"
#include "recover/recover.h"

/* Closed since, but a connection whose close is held: the restore opens it again. */
static bool comes_back(int fd, uint64_t dev, uint64_t ino)
{
	const struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < e->inverse_count; i++) {
		const struct crn_inverse *inv = &e->inverses[i];

		if (inv->kind == CRN_INV_REOPEN && inv->fd == fd && inv->other >= 0 &&
			crn_fd_is_object(inv->other, dev, ino))
			return true;
	}
	return false;
}

static bool is_connection(int fd)
{
	int type = 0;
	unsigned len = sizeof(type);

	crn_sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &len);
	return type == SOCK_STREAM || type == SOCK_SEQPACKET;
}

/* A request that crashes whoever looks at it stays where it is. */
static bool has_looked(void)
{
	const struct crn_effects *e = crn_agent->effects;

	return e->last_peek.ino && e->last_peek.interval == e->interval &&
		crn_fd_is_object(e->last_peek.fd, e->last_peek.dev, e->last_peek.ino);
}

/*
 * Is it a part of the program: an end of a pair that this process has made, or has both ends of? To
 * disconnect it does not lose a client; a wake-up of an event loop goes with it, or what a child
 * says. Who has only got one end from whoever forked it serves that process, as others their
 * clients.
 */
static bool is_own_pair(int fd)
{
	struct {
		int32_t pid, uid, gid;
	} who = {0};
	unsigned len = sizeof(who);
	uint64_t peer;
	struct stat st;
	int number;

	if (!is_connection(fd) ||
		crn_sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 ||
		who.pid <= 0)
		return false;
	if (who.pid == crn_agent->pid)
		return true;
	peer = crn_sys2(SYS_fstat, fd, &st) == 0 ? crn_local_peer(st.st_ino) : 0;
	return peer && crn_fd_numbers(crn_agent->pid, "socket", peer, &number, 1) > 0;
}

static void find(struct crn_suspect *out)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_fd *f;

	*out = (struct crn_suspect){.fd = -1};
	if (has_looked()) {
		*out = (struct crn_suspect){ .fd = e->last_peek.fd, .dev = e->last_peek.dev,
			.ino = e->last_peek.ino, .socket = true, .peeked = true,
			.connection = is_connection(e->last_peek.fd),
			.message = e->last_peek.piece };
		return;
	}
	if (!e->last_input.ino)
		return;
	f = crn_fd_look(e->last_input.fd);
	if (f->dev != e->last_input.dev || f->ino != e->last_input.ino) {
		if (comes_back(e->last_input.fd, e->last_input.dev, e->last_input.ino))
			*out = (struct crn_suspect){ .fd = e->last_input.fd,
				.dev = e->last_input.dev, .ino = e->last_input.ino,
				.socket = true, .connection = true };
		return;
	}
	*out = (struct crn_suspect){ .fd = e->last_input.fd, .dev = f->dev, .ino = f->ino,
		.socket = crn_fd_is_socket(f), .connection = is_connection(e->last_input.fd) };
	if (!out->connection)
		out->message = crn_stream_last_message(crn_stream_find(f), &out->several);
}

void crn_suspect_find(struct crn_suspect *out)
{
	find(out);
	out->own = out->connection && crn_fd_is_object(out->fd, out->dev, out->ino) &&
		is_own_pair(out->fd);
}

static void name_peer(int fd, char *out, size_t size)
{
	union {
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
		struct sockaddr_un un;
		struct sockaddr any;
	} a;
	unsigned len = sizeof(a);
	const uint8_t *b;

	crn_format(out, size, "descriptor %d", fd);
	if (crn_sys3(SYS_getpeername, fd, &a, &len) < 0)
		return;
	if (a.any.sa_family == AF_INET) {
		b = (const uint8_t *)&a.v4.sin_addr;
		crn_format(out, size, "%u.%u.%u.%u:%u", b[0], b[1], b[2], b[3],
			__builtin_bswap16(a.v4.sin_port));
	} else if (a.any.sa_family == AF_INET6) {
		b = (const uint8_t *)&a.v6.sin6_addr;
		crn_format(out, size, "[%x:%x:%x:%x:%x:%x:%x:%x]:%u", b[0] << 8 | b[1],
			b[2] << 8 | b[3], b[4] << 8 | b[5], b[6] << 8 | b[7], b[8] << 8 | b[9],
			b[10] << 8 | b[11], b[12] << 8 | b[13], b[14] << 8 | b[15],
			__builtin_bswap16(a.v6.sin6_port));
	} else if (a.any.sa_family == AF_UNIX) {
		crn_format(out, size, "a local socket (descriptor %d)", fd);
	}
}

/* A listening socket is nobody's connection. */
static bool is_listening(int fd)
{
	int on = 0;
	unsigned len = sizeof(on);

	return crn_sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &len) == 0 && on;
}

static bool reset(int fd)
{
	struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	struct stat st;

	if (is_listening(fd))
		return false;
	crn_fd_hold_set(fd, CRN_FDH_NEVER);
	if (!is_connection(fd))
		return true; /* datagrams: forgetting the one that was read is enough */
	if (crn_sys3(SYS_connect, fd, &nobody, sizeof(nobody)) < 0 &&
		!(crn_sys2(SYS_fstat, fd, &st) == 0 && crn_local_reset(fd, st.st_ino)))
		crn_sys2(SYS_shutdown, fd, SHUT_RDWR); /* both ends see the end of the stream */
	return true;
}

/*
 * What a wait has announced will not be there: hooks_input.c has what follows. Not if the restore
 * makes that wait again, nor for a descriptor that the program waits for in its reads alone.
 * message: only this one; 0: all that was read.
 */
static void drop(struct crn_stream *s, uint32_t message)
{
	const struct crn_effects *e = crn_agent->effects;
	struct crn_fd *f = crn_fd_look(s->fd);

	if (e->waited && !e->at_wait && f->ino == s->ino && f->dev == s->dev &&
		(f->flags & CRN_FDF_AWAITED || crn_epoll_holds(s->fd)))
		f->dropped = e->wakeups + 1;
	if (!message || !crn_stream_take_out(s, message))
		crn_stream_drop(s);
}

static void drop_input(const struct crn_suspect *suspect)
{
	struct crn_stream *s = crn_stream_find(
		&(struct crn_fd){.dev = suspect->dev, .ino = suspect->ino});
	uint8_t byte;

	if (suspect->peeked && !suspect->connection && !suspect->message)
		crn_sys6(SYS_recvfrom, suspect->fd, (long)&byte, 1, MSG_DONTWAIT, 0, 0);
	else if (s && suspect->several)
		s->singly = true;
	else if (s)
		drop(s, suspect->connection ? 0 : suspect->message);
}

/* What was accepted in the interval waits to be accepted again, under a high number. */
static int waiting_number(uint64_t dev, uint64_t ino)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < e->stream_count; i++) {
		for (uint32_t at = e->streams[i].cursor; at; at = crn_piece_at(at)->next) {
			const struct crn_piece *p = crn_piece_at(at);

			if (p->kind == CRN_PIECE_SOCKET && crn_fd_is_object(p->value, dev, ino))
				return p->value;
		}
	}
	return -1;
}

void crn_suspect_reset(const struct crn_suspect *suspect, char *peer, size_t size)
{
	int fd = suspect->fd;

	crn_format(peer, size, "none");
	if (fd < 0)
		return;
	if (suspect->own) {
		crn_format(peer, size, "its own pair of local sockets (descriptor %d)", fd);
		return;
	}
	if (!suspect->socket) { /* a pipe, a terminal: giving it again has not helped */
		drop_input(suspect);
		crn_format(peer, size, "descriptor %d (its input is dropped)", fd);
		return;
	}
	if (!crn_fd_is_object(fd, suspect->dev, suspect->ino))
		fd = waiting_number(suspect->dev, suspect->ino);
	if (fd < 0)
		return;
	name_peer(fd, peer, size);
	if (!reset(fd)) {
		crn_format(peer, size, "a listening socket");
		return;
	}
	drop_input(suspect);
	if (suspect->several)
		crn_format(peer, size, "descriptor %d (its datagrams are read one by one)", fd);
	crn_agent->recover->resets += !suspect->several;
}

unsigned crn_suspects_reset_all(bool *others)
{
	struct crn_effects *e = crn_agent->effects;
	unsigned count = 0;

	for (uint32_t i = e->stream_count; i-- > 0;) {
		struct crn_stream *s = &e->streams[i];
		int fd = s->fd;

		if (crn_stream_socket(s) || !s->dev)
			continue; /* a listener; a timer, a signal: nobody's */
		if (!crn_fd_is_object(fd, s->dev, s->ino))
			fd = waiting_number(s->dev, s->ino);
		if (fd >= 0 && crn_fd_is_socket(crn_fd_look(fd))) {
			if (crn_fd_look(fd)->flags & CRN_FDF_KERNEL || is_own_pair(fd))
				continue;
			count += reset(fd);
		} else {
			*others = true;
		}
		drop(s, 0);
	}
	if (has_looked() && !is_own_pair(e->last_peek.fd))
		count += reset(e->last_peek.fd);
	crn_agent->recover->resets += count;
	return count;
}
