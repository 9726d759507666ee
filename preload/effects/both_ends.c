/* SPDX-License-Identifier: MIT */
/*
 * Who has which end of a pipe or a socket: the descriptor numbers by which a process has it, and
 * which socket is the other end of a local one. Asked rarely, from /proc and the kernel's socket
 * monitor.
 */
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <sys/socket.h>
#include "base/copy.h"
#include "base/log.h"
#include "os/proc.h"
#include "effects/effects.h"

struct numbers {
	char wanted[40]; /* what their links say */
	int *out;
	long max, count;
};

static int look(void *ctx, int dir, int number)
{
	struct numbers *n = ctx;
	char name[12], target[40];
	long len;

	crn_format(name, sizeof(name), "%d", number);
	len = crn_sys4(SYS_readlinkat, dir, name, target, sizeof(target) - 1);
	target[CRN_MAX(len, 0)] = '\0';
	if (crn_streq(target, n->wanted))
		n->out[n->count++] = number;
	return n->count == n->max;
}

long crn_fd_numbers(int pid, const char *kind, uint64_t ino, int *out, long max)
{
	struct numbers n = {.out = out, .max = max};
	char path[48];
	int err;

	crn_format(n.wanted, sizeof(n.wanted), "%s:[%lu]", kind, ino);
	crn_format(path, sizeof(path), "/proc/%d/fd", pid);
	err = crn_proc_numbers(path, look, &n);
	return err < 0 ? err : n.count;
}

uint64_t crn_local_peer(uint64_t ino)
{
	struct {
		struct nlmsghdr head;
		struct unix_diag_req body;
	} ask = {
		.head = {sizeof(ask), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0},
		.body = {.sdiag_family = AF_UNIX, .udiag_states = ~0u, .udiag_ino = (uint32_t)ino,
			.udiag_show = UDIAG_SHOW_PEER, .udiag_cookie = {~0u, ~0u}},
	};
	struct {
		struct nlmsghdr head;
		struct unix_diag_msg body;
		uint8_t rest[256];
	} answer;
	int s = (int)crn_sys3(
		SYS_socket, AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	uint32_t peer = 0;
	long n;

	if (s < 0)
		return 0;
	n = crn_sys6(SYS_sendto, s, (long)&ask, sizeof(ask), 0, 0, 0);
	if (n >= 0)
		n = crn_sys6(SYS_recvfrom, s, (long)&answer, sizeof(answer), MSG_DONTWAIT, 0, 0);
	crn_sys1(SYS_close, s);
	n -= (long)sizeof(answer.head) + (long)sizeof(answer.body);
	if (n < 0 || answer.head.nlmsg_type != SOCK_DIAG_BY_FAMILY ||
		answer.body.udiag_ino != (uint32_t)ino)
		return 0;
	for (const struct rtattr *a = (const void *)answer.rest; RTA_OK(a, n); a = RTA_NEXT(a, n))
		if (a->rta_type == UNIX_DIAG_PEER)
			crn_copy(&peer, RTA_DATA(a), sizeof(peer));
	return peer;
}
