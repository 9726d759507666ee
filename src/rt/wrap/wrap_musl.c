/* SPDX-License-Identifier: MIT */
/*
 * Functions that a musl with hooks of its own (-fcairn-complete, scripts/build_musl.py) calls in
 * place of its system calls, and at points that hooks cannot see: its start, and the birth and end
 * of threads. libc's functions have no wrappers there, because all that they write, they write with
 * hooks.
 */
#include <sched.h>
#include <sys/syscall.h>
#include "base/status.h"
#include "os/memory.h"
#include "rt/wrap/wrap.h"
#include "rt/wrap/wrap_call.h"

typedef int main_fn(int argc, char **argv, char **envp);
typedef void (*start_fn)(int argc, char **argv, char **envp);

extern const start_fn __preinit_array_start[] __attribute__((weak, visibility("hidden")));
extern const start_fn __preinit_array_end[] __attribute__((weak, visibility("hidden")));

/* musl's own. */
int __libc_start_main(main_fn *run, int argc, char **argv, void (*init)(void), void (*fini)(void),
	void (*unused)(void));
long __syscall_cp_asm(volatile void *cancel, long nr, long a, long b, long c, long d, long e,
	long f) __attribute__((weak));
int __clone(int (*f)(void *), void *stack, int flags, void *arg, int *tid, void *tls,
	int *clear) __attribute__((weak));
_Noreturn void __unmapself(void *base, size_t len) __attribute__((weak));

/*
 * Is there one thread, and has never been another? Not by glibc's name for it: C++ programs ask for
 * that, and would be linked with this one.
 */
char crn_musl_one_thread = 1;

int __cairn_start_main(main_fn *run, int argc, char **argv, void (*init)(void),
	void (*fini)(void), void (*unused)(void));
long __cairn_syscall(long nr, long a, long b, long c, long d, long e, long f);
long __cairn_syscall_cp(volatile void *cancel, long nr, long a, long b, long c, long d, long e,
	long f);
int __cairn_clone(int (*f)(void *), void *stack, int flags, void *arg, int *tid, void *tls,
	int *clear);
_Noreturn void __cairn_unmapself(void *base, size_t len);

/*
 * Of rcrt1.o, before musl has initialised anything, for which it has hooks; it does not know
 * .preinit_array.
 */
int __cairn_start_main(main_fn *run, int argc, char **argv, void (*init)(void),
	void (*fini)(void), void (*unused)(void))
{
	for (const start_fn *f = __preinit_array_start; f < __preinit_array_end; f++)
		(*f)(argc, argv, argv + argc + 1);
	return __libc_start_main(run, argc, argv, init, fini, unused);
}

static long call(long nr, const long args[6])
{
	struct crn_call c;

	if (crn_call_maps(nr))
		return crn_call_map(nr, args);
	crn_call_begin(&c, nr, args);
	return crn_call_end(&c, nr, args, crn_memory_call(nr, c.args));
}

long __cairn_syscall(long nr, long a, long b, long c, long d, long e, long f)
{
	return call(nr, (const long[6]){ a, b, c, d, e, f });
}

/* One that a cancellation may end. */
long __cairn_syscall_cp(volatile void *cancel, long nr, long a, long b, long c, long d, long e,
	long f)
{
	const long args[6] = { a, b, c, d, e, f };

	struct crn_call call;
	long got;

	crn_call_begin(&call, nr, args);
	got = __syscall_cp_asm(cancel, nr, call.args[0], call.args[1], call.args[2], call.args[3],
		call.args[4], call.args[5]);
	return crn_call_end(&call, nr, args, got);
}

/* A thread is born: the kernel writes its number. */
int __cairn_clone(int (*f)(void *), void *stack, int flags, void *arg, int *tid, void *tls,
	int *clear)
{
	crn_musl_one_thread = 0;
	keep(tid, sizeof(*tid));
	return __clone(f, stack, flags, arg, tid, tls, clear);
}

/* A thread that nobody joins ends on the stack that it unmaps: it cannot wait for a checkpoint. */
void __cairn_unmapself(void *base, size_t len)
{
	crn_rt_give_up((uintptr_t)base, CAIRN_ELAYOUT);
	__unmapself(base, len);
}
