/* SPDX-License-Identifier: MIT */
/* Signals, limits, children, users, options of the command line. */
#include <crypt.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <getopt.h>
#include <grp.h>
#include <pty.h>
#include <pwd.h>
#include <sched.h>
#include <shadow.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#define WRAPPED_process CRN_WRAPPER
#define WRAPPERS_KEEP crn_reach_keep
#include "os/proc.h"
#include "rt/wrap/wrap.h"
#include "rt/wrap/reach.h"
#include "rt/wrap/wrap_call.h"

int __getdomainname_chk(char *to, size_t n, size_t size);
int __getgroups_chk(int n, gid_t to[], size_t size);
int __gethostname_chk(char *to, size_t n, size_t size);
int __getlogin_r_chk(char *to, size_t n, size_t size);
int __posix_getopt(int argc, char *const argv[], const char *letters);

/* They are the program's: the linker copies them there. */
#define CURRENT_OPTION current_option(argc, argv);

static void current_option(int argc, char *const argv[])
{
	OBJECT(&optarg)
	OBJECT(&optind)
	OBJECT(&optopt)
	ARRAY(argv, (size_t)argc) /* they are permuted */
}

#define PTY_NAME sizeof("/dev/pts/4294967295")

#include "rt/wrap/wrapped.def"

/* ---- By request ------------------------------------------------------------------------------ */

#define NAME_SIZE 16 /* of a thread */

static void keep_asked(int what, const unsigned long args[4])
{
	switch (what) {
	case PR_GET_NAME:
		SPAN((void *)args[0], NAME_SIZE)
		break;
	case PR_GET_PDEATHSIG:
	case PR_GET_UNALIGN:
	case PR_GET_FPEMU:
	case PR_GET_FPEXC:
	case PR_GET_ENDIAN:
	case PR_GET_TSC:
	case PR_GET_CHILD_SUBREAPER:
		OBJECT((int *)args[0])
		break;
	case PR_GET_TID_ADDRESS:
		OBJECT((void **)args[0])
		break;
	case PR_SET_MM:
		OBJECT((unsigned *)args[1])
		break;
	case 62: /* PR_SCHED_CORE */
		OBJECT((uint64_t *)args[3])
		break;
	case 0x41555856: /* PR_GET_AUXV */
		SPAN((void *)args[0], args[1])
		break;
	default:
		break;
	}
}

WRAPPER(int, prctl, int what, ...)
{
	unsigned long args[4];
	va_list ap;

	va_start(ap, what);
	for (int i = 0; i < 4; i++)
		args[i] = va_arg(ap, unsigned long);
	va_end(ap);
	keep_asked(what, args);
	return prctl(what, args[0], args[1], args[2], args[3]);
}

WRAPPER(long, ptrace, enum __ptrace_request what, ...)
{
	long args[6] = { what };
	va_list ap;

	va_start(ap, what);
	for (int i = 1; i < 4; i++)
		args[i] = va_arg(ap, long);
	va_end(ap);
	if (what > PTRACE_PEEKUSER) /* these answer by their result */
		crn_call_memory(CRN_CALL_ptrace, args, &crn_call_keeps);
	return ptrace(what, (pid_t)args[1], (void *)args[2], (void *)args[3]);
}

/* The kernel numbers the child in memory of both. */
WRAPPER(int, clone, int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	pid_t *parent, *child;
	void *tls;
	va_list ap;

	va_start(ap, arg);
	parent = va_arg(ap, pid_t *);
	tls = va_arg(ap, void *);
	child = va_arg(ap, pid_t *);
	va_end(ap);
	if (flags & (CLONE_PARENT_SETTID | CLONE_PIDFD))
		OBJECT(parent)
	if (flags & CLONE_VM && flags & (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID))
		OBJECT(child)
	return clone(fn, stack, flags, arg, parent, tls, child);
}

/* A session that is opened there reads /proc, which the new root may not have. */
WRAPPER(int, chroot, const char *path)
{
	(void)crn_proc_keep();
	return chroot(path);
}
