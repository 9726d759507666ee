/* SPDX-License-Identifier: MIT */
/* A system call that the kernel refuses from now on, as a sandbox would have it. */
#ifndef TEST_REFUSED_CALL_H
#define TEST_REFUSED_CALL_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "harness.h"

/* `flags`: SECCOMP_FILTER_FLAG_... */
static inline void filter_install(struct sock_filter *code, unsigned short count, unsigned flags)
{
	struct sock_fprog program = { count, code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program) < 0)
		test_skip("seccomp filters (CONFIG_SECCOMP_FILTER; listeners: Linux 5.0)");
}

static inline void filter_call_with(unsigned nr, unsigned with_it, unsigned others, unsigned flags)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, with_it),
		BPF_STMT(BPF_RET | BPF_K, others),
	};

	filter_install(code, sizeof(code) / sizeof(code[0]), flags);
}

/* From now on the kernel answers call nr by `with_it` (SECCOMP_RET_...), others by `others`. */
static inline void filter_call(unsigned nr, unsigned with_it, unsigned others)
{
	filter_call_with(nr, with_it, others, 0);
}

static inline void refuse_call(unsigned nr, unsigned err)
{
	filter_call(nr, SECCOMP_RET_ERRNO | err, SECCOMP_RET_ALLOW);
}

/* Whoever calls it never comes back: what stops him could as well be a SIGSTOP. */
static inline void hold_callers(unsigned nr)
{
	filter_call_with(nr, SECCOMP_RET_USER_NOTIF, SECCOMP_RET_ALLOW,
		SECCOMP_FILTER_FLAG_NEW_LISTENER);
}

#endif
