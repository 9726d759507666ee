/* SPDX-License-Identifier: MIT */
/* Who a process is, how it is scheduled, what it tells others. No value is changed to another. */
#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include "classes.h"

static void try_users(void)
{
	TRY(QUIET, "getuid", syscall(SYS_getuid));
	TRY(QUIET, "getgid", syscall(SYS_getgid));
	TRY(QUIET, "geteuid", syscall(SYS_geteuid));
	TRY(QUIET, "getegid", syscall(SYS_getegid));
	TRY(QUIET, "getresgid", syscall(SYS_getresgid, P(0), P(1), P(2)));
	TRY(QUIET, "getpgid", syscall(SYS_getpgid, 0));
	TRY(QUIET, "getsid", syscall(SYS_getsid, 0));
	TRY(SEEN, "setuid", syscall(SYS_setuid, getuid()));
	TRY(SEEN, "setgid", syscall(SYS_setgid, getgid()));
	TRY(SEEN, "setreuid", syscall(SYS_setreuid, -1, -1));
	TRY(SEEN, "setregid", syscall(SYS_setregid, -1, -1));
	TRY(SEEN, "setresuid", syscall(SYS_setresuid, -1, -1, -1));
	TRY(SEEN, "setresgid", syscall(SYS_setresgid, -1, -1, -1));
	TRY(SEEN, "setfsuid", syscall(SYS_setfsuid, getuid()));
	TRY(SEEN, "setfsgid", syscall(SYS_setfsgid, getgid()));
	TRY_UNLESS(EPERM, SEEN, "setpgid", syscall(SYS_setpgid, 0, getpgid(0)));
	TRY(SEEN, "personality", syscall(SYS_personality, 0xffffffff));
	TRY(SEEN, "setrlimit", (getrlimit(RLIMIT_CORE, (struct rlimit *)P(0)),
		syscall(SYS_setrlimit, RLIMIT_CORE, P(0))));
}

static void try_scheduling(void)
{
	struct sched_param *param = (void *)P(0);

	TRY(QUIET, "getpriority", syscall(SYS_getpriority, PRIO_PROCESS, 0));
	TRY(QUIET, "sched_getscheduler", syscall(SYS_sched_getscheduler, 0));
	TRY(QUIET, "sched_get_priority_max", syscall(SYS_sched_get_priority_max, SCHED_RR));
	TRY(QUIET, "sched_get_priority_min", syscall(SYS_sched_get_priority_min, SCHED_RR));
	memset(param, 0, sizeof(*param));
	TRY(SEEN, "sched_setparam", syscall(SYS_sched_setparam, 0, param));
	TRY(SEEN, "sched_setscheduler", syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, param));
	sched_getaffinity(0, 128, (cpu_set_t *)P(0));
	TRY(SEEN, "sched_setaffinity", syscall(SYS_sched_setaffinity, 0, 128, P(0)));
	TRY(QUIET, "ioprio_get", syscall(SYS_ioprio_get, 1, 0));
	TRY(SEEN, "ioprio_set", syscall(SYS_ioprio_set, 1, 0, 0));
	TRY_UNLESS(EPERM, QUIET, "get_mempolicy",
		syscall(SYS_get_mempolicy, P(0), NULL, 0, NULL, 0));
	TRY_UNLESS(EPERM, SEEN, "set_mempolicy", syscall(SYS_set_mempolicy, 0, NULL, 0));
	TRY(QUIET, "membarrier", syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0));
	TRY(SEEN, "unshare", syscall(SYS_unshare, 0));
}

static void try_signals(void)
{
	int pidfd;
	struct timespec never = { 0, 0 };
	uint64_t urgent = 1ull << (SIGURG - 1);
	siginfo_t *info = (void *)P(0);

	TRY(QUIET, "pidfd_open", pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0));
	TRY(SEEN, "pidfd_send_signal", syscall(SYS_pidfd_send_signal, pidfd, SIGURG, NULL, 0));
	TRY_UNLESS(EPERM, QUIET, "pidfd_getfd",
		close((int)syscall(SYS_pidfd_getfd, pidfd, file, 0)));
	TRY(SEEN, "tkill", syscall(SYS_tkill, gettid(), SIGURG));
	TRY(SEEN, "tgkill", syscall(SYS_tgkill, getpid(), gettid(), SIGURG));
	memset(info, 0, sizeof(*info));
	info->si_code = SI_QUEUE;
	TRY(SEEN, "rt_sigqueueinfo", syscall(SYS_rt_sigqueueinfo, getpid(), SIGURG, P(0)));
	TRY(SEEN, "rt_tgsigqueueinfo",
		syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGURG, P(0)));
	syscall(SYS_rt_sigprocmask, SIG_BLOCK, &urgent, NULL, 8);
	syscall(SYS_tkill, gettid(), SIGURG);
	TRY_UNLESS(EAGAIN, SEEN, "rt_sigtimedwait",
		syscall(SYS_rt_sigtimedwait, &urgent, P(0), &never, 8));
	syscall(SYS_rt_sigprocmask, SIG_UNBLOCK, &urgent, NULL, 8);
	close(pidfd);
}

static void try_memory(void)
{
	struct iovec ours = { P(0), 64 }, theirs = { P(4), 64 };
	struct sembuf up = { 0, 1, 0 };
	int shared = shmget(IPC_PRIVATE, 4096, 0600), set = semget(IPC_PRIVATE, 1, 0600);
	void *at;

	TRY(QUIET, "process_vm_readv",
		syscall(SYS_process_vm_readv, getpid(), &ours, 1, &theirs, 1, 0));
	TRY(SEEN, "process_vm_writev",
		syscall(SYS_process_vm_writev, getpid(), &ours, 1, &theirs, 1, 0));
	TRY(SEEN, "shmat", (at = shmat(shared, NULL, 0)) == (void *)-1 ? -1 : 0);
	TRY(SEEN, "shmdt", syscall(SYS_shmdt, at));
	TRY(SEEN, "semop", syscall(SYS_semop, set, &up, 1));
	TRY(SEEN, "semtimedop", syscall(SYS_semtimedop, set, &up, 1, NULL));
	TRY_UNLESS(ENOMEM, SEEN, "mlockall", syscall(SYS_mlockall, MCL_FUTURE));
	TRY(SEEN, "munlockall", syscall(SYS_munlockall));
	shmctl(shared, IPC_RMID, NULL);
	semctl(set, 0, IPC_RMID);
}

void try_identity(void)
{
	try_users();
	try_scheduling();
	try_signals();
	try_memory();
}
