/* SPDX-License-Identifier: MIT */
#include "os/own_locks.h"

#include <errno.h>
#include <stdbool.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/other_task.h"
#include "os/proc.h"
#include "os/signal.h"
#include "os/sys.h"
#include "os/thread.h"

/* 1: POSIX  ADVISORY  READ 1234 fd:01:5678 0 EOF */
enum { NUMBER, KIND, MODE, ACCESS, PID, FILE_ID, BEGIN, LAST, WORDS };

/* What the kernel tells by one read, from one look at its list. */
#define TEXT_MAX 4096

/* The words of a line; behind it. */
static const char *split(const char *at, const char *words[WORDS])
{
	int n = 0;

	for (int i = 0; i < WORDS; i++)
		words[i] = "";
	while (*at && *at != '\n') {
		while (*at == ' ')
			at++;
		if (n < WORDS)
			words[n++] = at;
		while (*at && *at != ' ' && *at != '\n')
			at++;
	}
	return at + (*at == '\n');
}

static uint64_t number(const char *at)
{
	uint64_t value = 0;

	if (*at < '0' || *at > '9')
		return UINT64_MAX; /* EOF */
	for (; *at >= '0' && *at <= '9'; at++)
		value = value * 10 + (uint64_t)(*at - '0');
	return value;
}

int crn_own_locks(uint64_t begin, uint64_t last)
{
	char text[TEXT_MAX + 1];
	const char *words[WORDS];
	long len;

	if (crn_proc_is_foreign())
		return -EXDEV;
	CRN_TRY(len = crn_file_read("/proc/locks", text, sizeof(text)));
	if (len == TEXT_MAX)
		return -EMSGSIZE;
	for (const char *at = text; *at;) {
		at = split(at, words);
		if (crn_starts_with(words[KIND], "POSIX") &&
			number(words[PID]) == (uint64_t)crn_getpid() &&
			number(words[BEGIN]) <= last && number(words[LAST]) >= begin)
			return 1;
	}
	return 0;
}

struct errand {
	int (*fn)(void *arg);
	void *arg;
};

static void run_in_child(struct errand *e)
{
	e->fn(e->arg); /* with the child its descriptors go */
}

static long by_child(struct errand *e)
{
	uint64_t mask = crn_signal_mask(SIG_SETMASK, ~0ull);
	register long r10 __asm__("r10") = 0;
	register long r8 __asm__("r8") = 0;
	long pid;

	/*
	 * SAFETY: the child runs below our stack pointer (and what may lie below that) while
	 * CLONE_VFORK holds us. No signal handler can run in it, and it never returns.
	 */
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "lea -256(%%rsp), %%rsp\n\t"
			 "and $-16, %%rsp\n\t"
			 "mov %[errand], %%rdi\n\t"
			 "call *%[run]\n\t"
			 "mov %[exit], %%eax\n\t"
			 "xor %%edi, %%edi\n\t"
			 "syscall\n\t"
			 "ud2\n"
			 "1:"
			 : "=a"(pid)
			 : "a"(SYS_clone), "D"(CRN_CLONE_CHILD), "S"(0), "d"(0), "r"(r10), "r"(r8),
			 [errand] "b"(e), [run] "r"(&run_in_child), [exit] "i"(SYS_exit)
			 : "rcx", "r11", "memory");
	while (pid > 0 && crn_sys4(SYS_wait4, pid, 0, 0x40000000 /* __WALL */, 0) == -EINTR)
		;
	crn_signal_mask(SIG_SETMASK, mask);
	return pid;
}

int crn_beside_locks(int (*fn)(void *arg), void *arg)
{
	struct errand e = { fn, arg };
	int fd;

	if (crn_own_locks(0, UINT64_MAX) != 0)
		return crn_proc_children_elsewhere() ? -EXDEV : (int)CRN_MIN(by_child(&e), 0l);
	fd = fn(arg);
	if (fd >= 0)
		crn_sys1(SYS_close, fd);
	return 0;
}
