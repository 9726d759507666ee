/* SPDX-License-Identifier: MIT */
/* What would write to memory, or speak to peers, behind our back: answered as by an old kernel. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include "classes.h"

void try_refused(void)
{
	static const struct {
		const char *name;
		long nr;
	} calls[] = {
		{ "io_setup", SYS_io_setup },
		{ "userfaultfd", SYS_userfaultfd },
		{ "io_uring_setup", SYS_io_uring_setup },
		{ "io_uring_enter", SYS_io_uring_enter },
		{ "io_uring_register", SYS_io_uring_register },
		{ "map_shadow_stack", 453 },
	};

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		memset(P(0), 0, 256);
		errno = 0;
		if (syscall(calls[i].nr, 1, P(0), 0, 0, 0, 0) != -1 || errno != ENOSYS)
			judge(calls[i].name, QUIET, figures->outputs, (errno = EPROTO, -1), 0);
	}
	/* IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE: what comes so is no input that is kept */
	errno = 0;
	if (syscall(SYS_getsockopt, socket(AF_INET, SOCK_STREAM, 0), 6, 35, P(0), P(1)) != -1 ||
		errno != ENOPROTOOPT)
		judge("TCP_ZEROCOPY_RECEIVE", QUIET, figures->outputs, (errno = EPROTO, -1), 0);
	/* ARCH_REQ_XCOMP_PERM, the tiles of AMX */
	if (syscall(SYS_arch_prctl, 0x1023, 18) == 0)
		judge("AMX", QUIET, figures->outputs, (errno = EPROTO, -1), 0);
	/* ARCH_SHSTK_ENABLE, ARCH_SHSTK_SHSTK */
	if (syscall(SYS_arch_prctl, 0x5001, 1) == 0)
		judge("a shadow stack", QUIET, figures->outputs, (errno = EPROTO, -1), 0);
}
