/* SPDX-License-Identifier: MIT */
/*
 * Every kind of system call, once, with its buffers in pages that have just been closed by a
 * checkpoint: it must succeed as it does bare (trackers whose pages the kernel cannot open must
 * have opened them), and a checkpoint must follow if somebody else can see what it did, and only
 * then. What is expected here comes from the manual pages, not from effects.def. Under
 * `cairn run --at wait --recover --commit each`; its figures are read from the page that `cairn
 * stat` reads.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/keyctl.h>
#include <mqueue.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include "classes.h"

const volatile struct crn_stat_page *figures;
char *buffer;
static int failures, calls;

static void find_figures(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned long at;

	while (maps && fgets(line, sizeof(line), maps))
		if (strstr(line, CRN_STAT_NAME) && sscanf(line, "%lx-", &at) == 1)
			figures = (const void *)at;
	if (maps)
		fclose(maps);
	if (!figures || figures->magic != CRN_STAT_MAGIC) {
		fprintf(stderr, "FAIL no figures: not under cairn run\n");
		exit(1);
	}
}

void close_buffers(void)
{
	for (int i = 0; i < PAGES; i++)
		buffer[i * 4096 + 4095]++;
	poll(NULL, 0, 0);
}

void judge(const char *name, int class, uint64_t before, long result, int allowed)
{
	bool followed = figures->outputs != before;

	calls++;
	if (result < 0 && errno != ENOSYS && errno != allowed) {
		fprintf(stderr, "FAIL %s: %s\n", name, strerror(errno));
		failures++;
	} else if (result >= 0 && followed != (class == SEEN)) {
		fprintf(stderr, "FAIL %s: %s checkpoint follows\n", name, followed ? "a" : "no");
		failures++;
	}
}

/* ---- files ----------------------------------------------------------------------------------- */

char path[] = "/tmp/cairn-classes-XXXXXX";
int file;

static void try_files(void)
{
	struct {
		uint64_t value;
		uint32_t size, flags;
	} *xattr = (void *)P(1);
	struct iovec *iov = (void *)P(2);

	TRY(QUIET, "stat", syscall(SYS_stat, path, P(0)));
	TRY(QUIET, "fstat", syscall(SYS_fstat, file, P(0)));
	TRY(QUIET, "newfstatat", syscall(SYS_newfstatat, AT_FDCWD, path, P(0), 0));
	TRY(QUIET, "statx", syscall(SYS_statx, AT_FDCWD, path, 0, 0xfff, P(0)));
	TRY(QUIET, "statfs", syscall(SYS_statfs, path, P(0)));
	TRY(QUIET, "fstatfs", syscall(SYS_fstatfs, file, P(0)));
	TRY(QUIET, "access", syscall(SYS_access, path, R_OK));
	TRY(QUIET, "getcwd", syscall(SYS_getcwd, P(0), 4096));
	TRY(QUIET, "readlink", syscall(SYS_readlink, "/proc/self/exe", P(0), 4096));
	TRY(QUIET, "pread64", syscall(SYS_pread64, file, P(0), 2 * 4096, 0));
	iov[0] = (struct iovec){P(3), 2 * 4096};
	TRY(QUIET, "preadv", syscall(SYS_preadv, file, iov, 1, 0, 0));
	iov[0] = (struct iovec){P(3), 2 * 4096};
	TRY(QUIET, "preadv2", syscall(SYS_preadv2, file, iov, 1, 0, 0, 0));
	TRY(QUIET, "read", syscall(SYS_read, file, P(0), 2 * 4096));
	TRY(QUIET, "lseek", syscall(SYS_lseek, file, 0, SEEK_SET));
	TRY(SEEN, "pwrite64", syscall(SYS_pwrite64, file, "x", 1, 0));
	TRY(SEEN, "write", syscall(SYS_write, file, "x", 1));
	TRY(SEEN, "ftruncate", syscall(SYS_ftruncate, file, 100));
	TRY(SEEN, "fchmod", syscall(SYS_fchmod, file, 0600));
	TRY(SEEN, "fsync", syscall(SYS_fsync, file));
	TRY(SEEN, "flock", syscall(SYS_flock, file, LOCK_SH));
	TRY(SEEN, "utimensat", syscall(SYS_utimensat, AT_FDCWD, path, NULL, 0));
	TRY(SEEN, "open O_TRUNC", syscall(SYS_close, open(path, O_WRONLY | O_TRUNC)));
	TRY(QUIET, "open and close", syscall(SYS_close, open(path, O_RDONLY)));
	TRY(QUIET, "readahead", syscall(SYS_readahead, file, 0, 4096));
	TRY(QUIET, "mincore", syscall(SYS_mincore, buffer, PAGES * 4096, P(0)));
	TRY(QUIET, "getdents64",
		syscall(SYS_getdents64, open("/proc/self/task", O_RDONLY), P(0), 8192));
	if (fsetxattr(file, "user.cairn", "value", 5, 0) == 0) {
		TRY(SEEN, "fsetxattr", fsetxattr(file, "user.cairn", "value", 5, 0));
		TRY(QUIET, "getxattr", syscall(SYS_getxattr, path, "user.cairn", P(0), 5));
		TRY(QUIET, "flistxattr", syscall(SYS_flistxattr, file, P(0), 4096));
		xattr->value = (uintptr_t)P(3);
		xattr->size = 64;
		xattr->flags = 0;
		TRY(QUIET, "getxattrat",
			syscall(464, AT_FDCWD, path, 0, "user.cairn", xattr, 16));
		TRY(QUIET, "listxattrat", syscall(465, AT_FDCWD, path, 0, P(0), 4096));
	}
	TRY(QUIET, "umask", syscall(SYS_umask, 022));
	TRY(QUIET, "chdir", syscall(SYS_chdir, "/"));
	TRY(QUIET, "fchdir", syscall(SYS_fchdir, open("/proc", O_RDONLY | O_DIRECTORY)));
	TRY(QUIET, "chdir again", syscall(SYS_chdir, "/"));
	TRY(SEEN, "mkdir", syscall(SYS_mkdir, strcat(strcpy(P(7), path), ".d"), 0700));
	TRY(SEEN, "rmdir", syscall(SYS_rmdir, P(7)));
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static void try_descriptors(void)
{
	struct flock *lock = (void *)P(0);
	struct epoll_event *event = (void *)P(1);
	int tube[2], set = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, 0);
	struct itimerspec late = {.it_value = {1000, 0}};

	TRY(QUIET, "pipe2", syscall(SYS_pipe2, P(0), 0));
	memcpy(tube, P(0), sizeof(tube));
	TRY(SEEN, "write to a pipe", syscall(SYS_write, tube[1], "hello", 5));
	TRY(QUIET, "ioctl FIONREAD", syscall(SYS_ioctl, tube[0], FIONREAD, P(2)));
	TRY(QUIET, "read from a pipe", syscall(SYS_read, tube[0], P(2), 8192));
	TRY(QUIET, "dup", syscall(SYS_dup, tube[0]));
	TRY(QUIET, "fcntl F_GETFL", syscall(SYS_fcntl, tube[0], F_GETFL));
	TRY(QUIET, "fcntl F_SETFL", syscall(SYS_fcntl, tube[0], F_SETFL, O_NONBLOCK));
	TRY(QUIET, "fcntl F_GETPIPE_SZ", syscall(SYS_fcntl, tube[0], F_GETPIPE_SZ));
	*lock = (struct flock){.l_type = F_WRLCK};
	TRY(QUIET, "fcntl F_GETLK", syscall(SYS_fcntl, file, F_GETLK, lock));
	lock->l_pid = 0;
	TRY(QUIET, "fcntl F_OFD_GETLK", syscall(SYS_fcntl, file, F_OFD_GETLK, lock));
	TRY(QUIET, "fcntl F_GETOWN_EX", syscall(SYS_fcntl, tube[0], F_GETOWN_EX, P(2)));
	TRY(SEEN, "fcntl F_SETOWN", syscall(SYS_fcntl, tube[0], F_SETOWN, getpid()));
	event->events = EPOLLIN;
	TRY(QUIET, "epoll_ctl", syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, tube[0], event));
	TRY(QUIET, "timerfd_settime", syscall(SYS_timerfd_settime, timer, 0, &late, P(2)));
	TRY(QUIET, "timerfd_gettime", syscall(SYS_timerfd_gettime, timer, P(2)));
	TRY(SEEN, "close of a pipe", syscall(SYS_close, tube[1]));
	TRY(QUIET, "eventfd2", syscall(SYS_eventfd2, 1, 0));
	TRY(QUIET, "memfd_create", syscall(SYS_memfd_create, "classes", 0));
}

/* ---- sockets --------------------------------------------------------------------------------- */

static void try_sockets(void)
{
	struct sockaddr_in at = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
	socklen_t *len = (void *)P(1);
	int s, t, on = 1;
	struct ifreq *ifr = (void *)P(2);
	struct ifconf *list = (void *)P(3);

	TRY(QUIET, "socket", s = (int)syscall(SYS_socket, AF_INET, SOCK_DGRAM, 0));
	TRY(SEEN, "bind", syscall(SYS_bind, s, &at, sizeof(at)));
	TRY(QUIET, "getsockname", (*len = 16, syscall(SYS_getsockname, s, P(0), len)));
	TRY(QUIET, "setsockopt", syscall(SYS_setsockopt, s, SOL_SOCKET, SO_REUSEADDR, &on, 4));
	TRY(QUIET, "getsockopt",
		(*len = 4, syscall(SYS_getsockopt, s, SOL_SOCKET, SO_REUSEADDR, P(0), len)));
	getsockname(s, (struct sockaddr *)&at, (*len = 16, len));
	TRY(SEEN, "connect", syscall(SYS_connect, s, &at, sizeof(at)));
	TRY(QUIET, "getpeername", (*len = 16, syscall(SYS_getpeername, s, P(0), len)));
	TRY(SEEN, "sendto", syscall(SYS_sendto, s, "datagram", 8, 0, NULL, 0));
	TRY(QUIET, "recvfrom", (*len = 16, syscall(SYS_recvfrom, s, P(4), 8192, 0, P(0), len)));
	TRY(QUIET, "socketpair", syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, P(0)));
	memcpy(&t, P(0), sizeof(t));
	TRY(SEEN, "write to a socket", syscall(SYS_write, t, "stream", 6));
	TRY(SEEN, "shutdown", syscall(SYS_shutdown, t, SHUT_WR));
	strcpy(ifr->ifr_name, "lo");
	TRY(QUIET, "ioctl SIOCGIFFLAGS", syscall(SYS_ioctl, s, SIOCGIFFLAGS, ifr));
	if (ioctl(s, SIOCSIFFLAGS, ifr) == 0)
		TRY(SEEN, "ioctl SIOCSIFFLAGS", syscall(SYS_ioctl, s, SIOCSIFFLAGS, ifr));
	*list = (struct ifconf){.ifc_len = 4096, .ifc_buf = P(4)};
	TRY(QUIET, "ioctl SIOCGIFCONF", syscall(SYS_ioctl, s, SIOCGIFCONF, list));
}

/* ---- the process ----------------------------------------------------------------------------- */

static void try_process(void)
{
	stack_t *stack = (void *)P(0);
	timer_t *timer = (void *)P(1);
	struct itimerspec late = {.it_value = {1000, 0}};

	TRY(QUIET, "getpid", syscall(SYS_getpid));
	TRY(QUIET, "uname", syscall(SYS_uname, P(0)));
	TRY(QUIET, "sysinfo", syscall(SYS_sysinfo, P(0)));
	TRY(QUIET, "times", syscall(SYS_times, P(0)));
	TRY(QUIET, "getrusage", syscall(SYS_getrusage, RUSAGE_SELF, P(0)));
	TRY(QUIET, "getrlimit", syscall(SYS_getrlimit, RLIMIT_NOFILE, P(0)));
	TRY(QUIET, "prlimit64", syscall(SYS_prlimit64, 0, RLIMIT_CORE, NULL, P(0)));
	TRY(SEEN, "prlimit64 to set", syscall(SYS_prlimit64, 0, RLIMIT_CORE, P(0), NULL));
	TRY(QUIET, "getresuid", syscall(SYS_getresuid, P(0), P(1), P(2)));
	TRY(QUIET, "getgroups", syscall(SYS_getgroups, 1024, P(0)));
	TRY(QUIET, "rt_sigprocmask", syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, P(0), 8));
	TRY(QUIET, "rt_sigpending", syscall(SYS_rt_sigpending, P(0), 8));
	TRY(QUIET, "rt_sigaction", syscall(SYS_rt_sigaction, SIGUSR1, NULL, P(0), 8));
	TRY(QUIET, "sigaltstack", syscall(SYS_sigaltstack, NULL, stack));
	TRY(QUIET, "getitimer", syscall(SYS_getitimer, ITIMER_REAL, P(0)));
	TRY(QUIET, "setitimer", (memset(P(1), 0, 32),
		syscall(SYS_setitimer, ITIMER_VIRTUAL, P(1), P(0))));
	TRY(QUIET, "sched_getaffinity", syscall(SYS_sched_getaffinity, 0, 128, P(0)));
	TRY(QUIET, "sched_getparam", syscall(SYS_sched_getparam, 0, P(0)));
	TRY(QUIET, "sched_getattr", syscall(SYS_sched_getattr, 0, P(0), 48, 0));
	TRY(QUIET, "sched_rr_get_interval", syscall(SYS_sched_rr_get_interval, 0, P(0)));
	TRY(QUIET, "getcpu", syscall(SYS_getcpu, P(0), P(1), NULL));
	TRY(QUIET, "getrandom", syscall(SYS_getrandom, P(0), 8192, 0));
	TRY(QUIET, "clock_gettime", syscall(SYS_clock_gettime, CLOCK_MONOTONIC, P(0)));
	TRY(QUIET, "clock_getres", syscall(SYS_clock_getres, CLOCK_MONOTONIC, P(0)));
	TRY(QUIET, "gettimeofday", syscall(SYS_gettimeofday, P(0), P(1)));
	TRY(QUIET, "get_robust_list", syscall(SYS_get_robust_list, 0, P(0), P(1)));
	TRY(QUIET, "prctl PR_GET_NAME", syscall(SYS_prctl, PR_GET_NAME, P(0), 0, 0, 0));
	TRY(SEEN, "timer_create", syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, timer));
	TRY(QUIET, "timer_settime", syscall(SYS_timer_settime, *timer, 0, &late, P(0)));
	TRY(QUIET, "timer_gettime", syscall(SYS_timer_gettime, *timer, P(0)));
	TRY(SEEN, "timer_delete", syscall(SYS_timer_delete, *timer));
	TRY(SEEN, "setpriority", syscall(SYS_setpriority, PRIO_PROCESS, 0, 0));
	TRY(SEEN, "kill", syscall(SYS_kill, getpid(), SIGURG));
	TRY(QUIET, "kill of nobody", 0 * syscall(SYS_kill, 0x7ffffff0, 0));
	TRY(QUIET, "mlock", syscall(SYS_mlock, P(0), 4096));
	TRY(SEEN, "munlock", syscall(SYS_munlock, P(0), 4096));
	TRY(QUIET, "mlock2", syscall(SYS_mlock2, P(0), 4096, 1));
	TRY(QUIET, "madvise", syscall(SYS_madvise, P(0), 4096, MADV_WILLNEED));
	TRY(SEEN, "madvise MADV_DONTDUMP", syscall(SYS_madvise, P(0), 4096, MADV_DONTDUMP));
	TRY(SEEN, "madvise MADV_DODUMP", syscall(SYS_madvise, P(0), 4096, MADV_DODUMP));
	TRY(SEEN, "madvise MADV_DONTFORK", syscall(SYS_madvise, P(0), 4096, MADV_DONTFORK));
	TRY(SEEN, "madvise MADV_DOFORK", syscall(SYS_madvise, P(0), 4096, MADV_DOFORK));
	TRY(SEEN, "madvise MADV_WIPEONFORK", syscall(SYS_madvise, P(0), 4096, MADV_WIPEONFORK));
	TRY(SEEN, "madvise MADV_KEEPONFORK", syscall(SYS_madvise, P(0), 4096, MADV_KEEPONFORK));
	TRY(QUIET, "madvise MADV_POPULATE_WRITE", syscall(SYS_madvise, P(0), 8192, 23));
}

/* ---- System V, and other processes ----------------------------------------------------------- */

static void try_messages(void)
{
	int queue, set, shared;

	TRY(SEEN, "msgget", queue = msgget(IPC_PRIVATE, 0600));
	*(long *)P(0) = 1;
	TRY(SEEN, "msgsnd", syscall(SYS_msgsnd, queue, P(0), 4000, 0));
	TRY(SEEN, "msgrcv", syscall(SYS_msgrcv, queue, P(1), 8000, 0, 0));
	TRY(SEEN, "msgctl", syscall(SYS_msgctl, queue, IPC_STAT, P(0)));
	msgctl(queue, IPC_RMID, NULL);
	TRY(SEEN, "semget", set = semget(IPC_PRIVATE, 2000, 0600));
	TRY(SEEN, "semctl", syscall(SYS_semctl, set, 0, GETALL, P(0)));
	semctl(set, 0, IPC_RMID);
	TRY(SEEN, "shmget", shared = shmget(IPC_PRIVATE, 4096, 0600));
	TRY(SEEN, "shmctl", syscall(SYS_shmctl, shared, IPC_STAT, P(0)));
	shmctl(shared, IPC_RMID, NULL);
}

static void try_children(void)
{
	struct iovec *iov = (void *)P(0);
	pid_t pid = fork();

	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		_exit(0);
	}
	TRY(SEEN, "wait4", syscall(SYS_wait4, pid, P(0), 0, P(1)));
	TRY(SEEN, "ptrace PTRACE_GETREGS", syscall(SYS_ptrace, PTRACE_GETREGS, pid, 0, P(0)));
	*iov = (struct iovec){P(2), sizeof(struct user_regs_struct)};
	TRY(SEEN, "ptrace PTRACE_GETREGSET",
		syscall(SYS_ptrace, PTRACE_GETREGSET, pid, 1 /* NT_PRSTATUS */, iov));
	ptrace(PTRACE_CONT, pid, NULL, NULL);
	waitid(P_PID, (id_t)pid, &(siginfo_t){0}, WEXITED | WNOWAIT);
	TRY(QUIET, "waitid", syscall(SYS_waitid, P_PID, pid, P(0), WEXITED, P(1)));
}

int main(void)
{
	/* With a hole on each side: memory that touches a thread's is never closed. */
	buffer = mmap(NULL, (PAGES + 2) * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	file = mkstemp(path);
	if (buffer == MAP_FAILED || file < 0 || ftruncate(file, 16 * 4096) < 0 ||
		mprotect(buffer += 4096, PAGES * 4096, PROT_READ | PROT_WRITE) < 0)
		return 1;
	signal(SIGURG, SIG_IGN);
	poll(NULL, 0, 0);
	find_figures();
	try_files();
	try_descriptors();
	try_sockets();
	try_process();
	try_messages();
	try_children();
	try_names();
	try_identity();
	try_refused();
	unlink(path);
	printf("%d calls, %d failures\n", calls, failures);
	return failures != 0;
}
