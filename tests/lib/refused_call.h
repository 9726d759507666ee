/* SPDX-License-Identifier: MIT */
/* A system call that the kernel refuses from now on, as a sandbox would have it. */
#ifndef TEST_REFUSED_CALL_H
#define TEST_REFUSED_CALL_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include "harness.h"

/* From now on the kernel answers call nr by `with_it` (SECCOMP_RET_...), others by `others`. */
static inline void filter_call(unsigned nr, unsigned with_it, unsigned others)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, with_it),
		BPF_STMT(BPF_RET | BPF_K, others),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		test_skip("seccomp filters (CONFIG_SECCOMP_FILTER)");
}

static inline void refuse_call(unsigned nr, unsigned err)
{
	filter_call(nr, SECCOMP_RET_ERRNO | err, SECCOMP_RET_ALLOW);
}

#endif
