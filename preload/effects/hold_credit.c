/* SPDX-License-Identifier: MIT */
/*
 * May bytes for this socket be held? Only if the kernel would take them at once: a connected TCP or
 * local stream, without kernel TLS, with room in its send buffer. The kernel is asked by its own
 * measure (SO_MEMINFO), but rarely: its answer is a credit that each send uses up, and meanwhile
 * the buffer only gets emptier.
 */
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "base/copy.h"
#include "effects/hold.h"
#include "effects/planted.h"
#include "os/clock.h"

#define SO_MEMINFO_OPTION   55
#define MEMINFO_WMEM_ALLOC  2
#define MEMINFO_SNDBUF      3
#define MEMINFO_WMEM_QUEUED 5
#define MEMINFO_COUNT       9

#define TCP_INFO_OPTION          11
#define TCP_NOTSENT_LOWAT_OPTION 25
#define TCP_ULP_OPTION           31
#define STATE_ESTABLISHED        1
#define STATE_CLOSE_WAIT         8

/* What `n` bytes take of a send buffer: they, and the kernel's own structures around them. */
static size_t cost(size_t n)
{
	return n + n / 4 + 4096;
}

static long option(int fd, int level, int name, void *value, unsigned len)
{
	unsigned got = len;
	long ret = crn_sys5(SYS_getsockopt, fd, level, name, value, &got);

	return ret < 0 ? ret : (long)got;
}

bool crn_hold_lingers(int fd)
{
	struct linger how = {0};

	return option(fd, SOL_SOCKET, SO_LINGER, &how, sizeof(how)) > 0 && how.l_onoff &&
		how.l_linger > 0;
}

static bool is_open_tcp(int fd)
{
	uint8_t state = 0;

	return option(fd, IPPROTO_TCP, TCP_INFO_OPTION, &state, sizeof(state)) > 0 &&
		(state == STATE_ESTABLISHED || state == STATE_CLOSE_WAIT);
}

/* Nothing between the socket and the wire that asks for more than bytes. */
static bool is_plain_tcp(int fd)
{
	int protocol = 0, lowat = 0;
	char ulp[16];

	return option(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, sizeof(protocol)) > 0 &&
		protocol == IPPROTO_TCP &&
		option(fd, IPPROTO_TCP, TCP_ULP_OPTION, ulp, sizeof(ulp)) <= 0 &&
		option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT_OPTION, &lowat, sizeof(lowat)) > 0 &&
		lowat == 0;
}

/* One with a name was made by connect; whose, the kernel knows. */
static bool is_foreign_local(int fd)
{
	struct sockaddr_un a;
	unsigned len = sizeof(a), peer = sizeof(a);
	struct {
		int32_t pid, uid, gid;
	} who = {0};

	return crn_sys3(SYS_getsockname, fd, &a, &len) == 0 &&
		crn_sys3(SYS_getpeername, fd, &a, &peer) == 0 &&
		(len > sizeof(a.sun_family) || peer > sizeof(a.sun_family)) &&
		option(fd, SOL_SOCKET, SO_PEERCRED, &who, sizeof(who)) == sizeof(who) &&
		who.pid && who.pid != crn_agent->pid;
}

static enum crn_fd_hold judge(int fd, struct crn_fd *f)
{
	int domain = 0;

	if (option(fd, SOL_SOCKET, SO_DOMAIN, &domain, sizeof(domain)) <= 0)
		return CRN_FDH_NEVER;
	if (domain == AF_INET || domain == AF_INET6)
		return !is_open_tcp(fd) ? CRN_FDH_UNKNOWN
			: is_plain_tcp(fd) ? CRN_FDH_TCP : CRN_FDH_NEVER;
	if (domain == AF_UNIX)
		return is_foreign_local(fd) ? CRN_FDH_LOCAL
			: crn_hold_is_pair(fd, f) ? CRN_FDH_OWN : CRN_FDH_NEVER;
	return CRN_FDH_NEVER;
}

/* Room in the send buffer, of which what is held for the socket is no part yet. */
static uint32_t ask(int fd, struct crn_fd *f)
{
	uint32_t info[MEMINFO_COUNT], used;

	if (f->hold == CRN_FDH_UNKNOWN)
		f->hold = (uint8_t)judge(fd, f);
	else if (f->hold == CRN_FDH_TCP && !is_open_tcp(fd))
		return 0;
	if (f->hold != CRN_FDH_TCP && f->hold != CRN_FDH_LOCAL && f->hold != CRN_FDH_OWN)
		return 0;
	if (option(fd, SOL_SOCKET, SO_MEMINFO_OPTION, info, sizeof(info)) !=
		(long)sizeof(info))
		return 0;
	used = CRN_MAX(info[MEMINFO_WMEM_ALLOC], info[MEMINFO_WMEM_QUEUED]);
	return info[MEMINFO_SNDBUF] > used ? info[MEMINFO_SNDBUF] - used : 0;
}

/* Would the kernel take `n` more bytes at once, on top of what is held for this descriptor? */
static bool has_room(int fd, struct crn_fd *f, size_t n)
{
	struct crn_hold *h = crn_agent->effects->hold;
	uint32_t credit;

	if (cost(n) > f->credit) {
		/* What is held already is not in the kernel's figure: send it before asking. */
		if (crn_hold_has(fd))
			return false;
		credit = ask(fd, f);
		if (f->hold == CRN_FDH_TCP)
			credit = CRN_MIN(credit, h->lowat);
		if (crn_planted(CRN_PLANT_CREDIT) && f->hold != CRN_FDH_NEVER)
			credit = CRN_HOLD_SIZE;
		crn_fd_credit_set(fd, credit);
	}
	if (cost(n) > f->credit)
		return false;
	f->credit -= (uint32_t)cost(n);
	return true;
}

void crn_hold_spent(int fd)
{
	struct crn_fd *f = crn_fd_look(fd);

	if (f->kind == CRN_FD_STREAM)
		f->credit = 0;
}

void crn_hold_doubt(int fd)
{
	struct crn_fd *f = crn_fd_look(fd);

	crn_hold_spent(fd);
	if (f->kind == CRN_FD_STREAM && f->hold != CRN_FDH_NEVER)
		f->hold = CRN_FDH_UNKNOWN;
}

bool crn_hold_may_take(int fd, struct crn_fd *f, size_t n)
{
	const struct crn_hold *h = crn_agent->effects->hold;

	return n && n <= CRN_HOLD_ONE &&
		h->used + n + 2 * sizeof(struct crn_held) < CRN_HOLD_SIZE &&
		crn_clock_ticks() >= h->not_before && has_room(fd, f, n);
}

/* ---- which connection it is ------------------------------------------------------------------ */

static uint32_t mix(uint32_t h, const uint8_t *bytes, size_t n)
{
	while (n--)
		h = (h ^ *bytes++) * 0x01000193u;
	return h;
}

/* Address and port; an IPv4 address that is written as IPv6 is that address. */
static uint32_t end_of(const struct sockaddr *any)
{
	const struct sockaddr_in *v4 = (const void *)any;
	const struct sockaddr_in6 *v6 = (const void *)any;
	uint32_t h = 0x811c9dc5u;

	if (any->sa_family == AF_INET) {
		h = mix(h, (const uint8_t *)&v4->sin_port, 2);
		return mix(h, (const uint8_t *)&v4->sin_addr, 4);
	}
	if (any->sa_family != AF_INET6)
		return 0;
	h = mix(h, (const uint8_t *)&v6->sin6_port, 2);
	return IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)
		? mix(h, v6->sin6_addr.s6_addr + 12, 4)
		: mix(h, v6->sin6_addr.s6_addr, 16);
}

/*
 * The same for both ends, so that a process that talks to itself is noticed. All local sockets
 * share a number: theirs cannot be told apart.
 */
uint32_t crn_hold_connection(int fd, struct crn_fd *f)
{
	union {
		struct sockaddr any;
		struct sockaddr_in6 v6;
		struct sockaddr_un un;
	} here, there;
	unsigned here_len = sizeof(here), there_len = sizeof(there);

	if (f->connection)
		return f->connection;
	f->connection = 1;
	if (crn_sys3(SYS_getsockname, fd, &here, &here_len) == 0 &&
		crn_sys3(SYS_getpeername, fd, &there, &there_len) == 0)
		f->connection = (end_of(&here.any) ^ end_of(&there.any)) | 1;
	return f->connection;
}
