/* SPDX-License-Identifier: MIT */
/*
 * A real reset for local sockets, which the kernel does not offer except in one case: if a socket
 * is closed for good with bytes unread, its peer gets ECONNRESET. So each number of the suspect's
 * socket is given to a dead socket, which tells the program the same, and the last reference to the
 * real one goes. Unread bytes are those that the peer has sent since. If there are none, we send
 * one through the peer's own descriptor, borrowed from its process where ptrace would be allowed,
 * too. Nobody reads it: it goes with the socket.
 *
 * If that cannot be done (another process holds the socket as well, or the peer's may not be looked
 * at), nothing has changed, and the caller shuts the connection down: the peer then sees the end of
 * the stream. This runs in a recovery, so time does not matter much.
 */
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include "base/copy.h"
#include "base/log.h"
#include "effects/effects.h"
#include "os/descriptor.h"
#include "recover/recover.h"

#define NUMBERS_MAX 64

/* Whose descriptors may not be looked at, another user's or of another namespace, may have it. */
static bool may_have_it(int pid, uint64_t ino)
{
	int number;
	long found = pid ? crn_fd_numbers(pid, "socket", ino, &number, 1) : -EACCES;

	return found > 0 || (found < 0 && found != -ENOENT && found != -ESRCH);
}

/*
 * Whoever was forked since it was accepted has it too: our children, and who forked us. Where the
 * kernel does not list them, any may.
 */
static bool is_shared(uint64_t ino)
{
	char path[64], list[1024];
	int pid = 0;
	long n;

	if (may_have_it((int)crn_sys0(SYS_getppid), ino))
		return true;
	for (const struct crn_thread *t = crn_agent->threads; t; t = t->next) {
		crn_format(path, sizeof(path), "/proc/self/task/%d/children", t->tid);
		n = crn_file_read(path, list, sizeof(list));
		if (n >= (long)sizeof(list) - 1 || (n < 0 && t->live && !t->exiting))
			return true;
		for (const char *c = list; n > 0 && *c; c++) {
			if (*c >= '0' && *c <= '9') {
				pid = pid * 10 + (*c - '0');
				continue;
			}
			if (pid && may_have_it(pid, ino))
				return true;
			pid = 0;
		}
	}
	return false;
}

/* One byte for us, by the peer's descriptor. */
static bool send_as_peer(int fd, uint64_t ino)
{
	struct {
		int32_t pid, uid, gid;
	} who = {0};
	unsigned len = sizeof(who);
	uint64_t peer = crn_local_peer(ino);
	int number, pidfd, theirs = -1;
	bool sent = false;
	struct stat st;

	if (!peer || crn_sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 ||
		who.pid <= 0 || crn_fd_numbers(who.pid, "socket", peer, &number, 1) != 1)
		return false;
	pidfd = (int)crn_sys2(SYS_pidfd_open, who.pid, 0);
	if (pidfd >= 0)
		theirs = (int)crn_sys3(SYS_pidfd_getfd, pidfd, number, 0);
	/* Is it still that one? */
	if (theirs >= 0 && crn_sys2(SYS_fstat, theirs, &st) == 0 && st.st_ino == peer)
		sent = crn_sys6(SYS_sendto, theirs, (long)"", 1,
			       MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0) == 1;
	if (theirs >= 0)
		crn_sys1(SYS_close, theirs);
	if (pidfd >= 0)
		crn_sys1(SYS_close, pidfd);
	return sent;
}

/* A socket whose peer has gone, and whose next read says ECONNRESET. */
static int dead_socket(int like)
{
	long status = crn_sys2(SYS_fcntl, like, F_GETFL);
	int type = SOCK_STREAM, pair[2];
	unsigned len = sizeof(type);

	crn_sys5(SYS_getsockopt, like, SOL_SOCKET, SO_TYPE, &type, &len);
	if (status & O_NONBLOCK)
		type |= SOCK_NONBLOCK;
	if (crn_sys4(SYS_socketpair, AF_UNIX, type | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	crn_sys6(SYS_sendto, pair[0], (long)"", 1, MSG_DONTWAIT | MSG_NOSIGNAL, 0, 0);
	crn_sys1(SYS_close, pair[1]);
	return pair[0];
}

bool crn_local_reset(int fd, uint64_t ino)
{
	int numbers[NUMBERS_MAX], dead, unread = 0;
	long count = crn_fd_numbers(crn_agent->pid, "socket", ino, numbers, NUMBERS_MAX);

	if (count <= 0 || count == NUMBERS_MAX || is_shared(ino))
		return false;
	dead = dead_socket(fd);
	if (dead < 0)
		return false;
	crn_sys3(SYS_ioctl, fd, FIONREAD, &unread);
	if (unread <= 0 && !send_as_peer(fd, ino)) {
		crn_sys1(SYS_close, dead);
		return false;
	}
	for (long i = 0; i < count; i++) {
		long flags = crn_sys2(SYS_fcntl, numbers[i], F_GETFD);

		crn_sys3(SYS_dup3, dead, numbers[i], flags & FD_CLOEXEC ? O_CLOEXEC : 0);
		crn_fd_forget(numbers[i]);
	}
	crn_sys1(SYS_close, dead);
	/* The kernel has dropped them from every set, with the old socket. */
	for (long i = 0; i < count; i++)
		crn_epoll_join_again(numbers[i]);
	return true;
}
