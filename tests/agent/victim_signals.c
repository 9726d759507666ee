/* SPDX-License-Identifier: MIT */
/*
 * What a program can see of signals is as without the agent: actions, masks, stacks, frames,
 * restarts, jumps out of handlers.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include "expect.h"

static volatile int count[65], depth, depth_max, last_sig;
static volatile uintptr_t handler_sp;
static volatile sigset_t seen_mask;
static sigjmp_buf out;

static void count_it(int sig)
{
	char here;

	count[sig]++;
	last_sig = sig;
	handler_sp = (uintptr_t)&here;
	if (++depth > depth_max)
		depth_max = depth;
	EXPECT(!sigprocmask(SIG_SETMASK, NULL, (sigset_t *)&seen_mask));
	depth--;
}

static void install(int sig, void (*fn)(int), int flags)
{
	struct sigaction a = { .sa_handler = fn, .sa_flags = flags };

	EXPECT(!sigaction(sig, &a, NULL));
}

static void alarm_in(long us)
{
	struct itimerval v = { { 0, 0 }, { 0, us } };

	EXPECT(!setitimer(ITIMER_REAL, &v, NULL));
}

static void test_actions(void)
{
	struct sigaction a = { .sa_handler = count_it, .sa_flags = SA_RESTART | SA_NODEFER }, old;

	sigfillset(&a.sa_mask);
	EXPECT(!sigaction(SIGUSR1, &a, NULL) && !sigaction(SIGUSR1, NULL, &old));
	EXPECT(old.sa_handler == count_it &&
		(old.sa_flags & (SA_RESTART | SA_NODEFER | SA_SIGINFO | SA_ONSTACK)) ==
			(SA_RESTART | SA_NODEFER));
	EXPECT(sigismember(&old.sa_mask, SIGSEGV) == 1 && sigismember(&old.sa_mask, SIGKILL) == 0);
	a.sa_handler = SIG_IGN;
	EXPECT(!sigaction(SIGUSR1, &a, &old) && old.sa_handler == count_it);
	EXPECT(!raise(SIGUSR1) && count[SIGUSR1] == 0);
	EXPECT(sigaction(SIGKILL, &a, NULL) < 0 && errno == EINVAL);
	EXPECT(!sigaction(SIGKILL, NULL, &old) && old.sa_handler == SIG_DFL);
	EXPECT(syscall(SYS_rt_sigaction, 65, NULL, NULL, 8) < 0 && errno == EINVAL);
	EXPECT(syscall(SYS_rt_sigaction, SIGUSR1, NULL, NULL, 4) < 0 && errno == EINVAL);
	EXPECT(syscall(SYS_rt_sigaction, SIGUSR1, (void *)8, NULL, 8) < 0 && errno == EFAULT);
	/* faults: recorded and answered truthfully */
	EXPECT(!sigaction(SIGSEGV, NULL, &old) && old.sa_handler == SIG_DFL);
	EXPECT(!sigaction(SIGSYS, NULL, &old) && old.sa_handler == SIG_DFL);
	install(SIGUSR1, count_it, SA_RESETHAND);
	EXPECT(!raise(SIGUSR1) && count[SIGUSR1] == 1);
	EXPECT(!sigaction(SIGUSR1, NULL, &old) && old.sa_handler == SIG_DFL);
	count[SIGUSR1] = 0;
}

static void test_masks(void)
{
	sigset_t all, old, pending;

	install(SIGUSR1, count_it, 0);
	sigfillset(&all);
	EXPECT(!sigprocmask(SIG_SETMASK, &all, &old) && !sigismember(&old, SIGSEGV));
	EXPECT(!sigprocmask(SIG_SETMASK, NULL, &old));
	EXPECT(sigismember(&old, SIGSEGV) && sigismember(&old, SIGSYS) &&
		sigismember(&old, SIGUSR1) && !sigismember(&old, SIGKILL));
	EXPECT(!raise(SIGUSR1) && count[SIGUSR1] == 0);
	EXPECT(!sigpending(&pending) && sigismember(&pending, SIGUSR1));
	sigemptyset(&all);
	sigaddset(&all, SIGSEGV);
	EXPECT(!sigprocmask(SIG_UNBLOCK, &all, NULL) && !sigprocmask(SIG_BLOCK, NULL, &old));
	EXPECT(!sigismember(&old, SIGSEGV) && sigismember(&old, SIGSYS));
	sigemptyset(&all);
	EXPECT(!sigprocmask(SIG_SETMASK, &all, &old) && count[SIGUSR1] == 1 &&
		sigismember(&old, SIGSYS));
	EXPECT(sigismember((sigset_t *)&seen_mask, SIGUSR1) &&
		!sigismember((sigset_t *)&seen_mask, SIGUSR2));
	EXPECT(sigprocmask(77, &all, NULL) < 0 && errno == EINVAL);
	EXPECT(syscall(SYS_rt_sigprocmask, SIG_BLOCK, (void *)8, NULL, 8) < 0 && errno == EFAULT);
	count[SIGUSR1] = 0;
}

/* Signals that the agent cannot let the kernel block are held back all the same. */
static void test_blocked_faults(void)
{
	static const int sigs[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS };
	sigset_t set, old;

	for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
		install(sigs[i], count_it, 0);
		sigemptyset(&set);
		sigaddset(&set, sigs[i]);
		count[sigs[i]] = 0;
		EXPECT(!sigprocmask(SIG_BLOCK, &set, &old));
		EXPECT(!raise(sigs[i]) && !kill(getpid(), sigs[i]) && count[sigs[i]] == 0);
		EXPECT(getppid() == syscall(SYS_getppid) && count[sigs[i]] == 0);
		EXPECT(!sigprocmask(SIG_SETMASK, &old, NULL));
		EXPECT(count[sigs[i]] >= 1 && count[sigs[i]] <= 2); /* thread's and process's */
		count[sigs[i]] = 0;
		EXPECT(!raise(sigs[i]) && count[sigs[i]] == 1);
		count[sigs[i]] = 0;
		install(sigs[i], SIG_DFL, 0);
	}
}

/* They can be waited for. */
static void test_awaited_faults(void)
{
	static const int sigs[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP };
	const struct timespec none = { 0, 0 };
	sigset_t set, all, old, pending;
	siginfo_t info;
	pid_t child;

	sigfillset(&all);
	EXPECT(!sigprocmask(SIG_SETMASK, &all, &old));
	for (size_t i = 0; i < sizeof(sigs) / sizeof(sigs[0]); i++) {
		sigemptyset(&set);
		sigaddset(&set, sigs[i]);
		EXPECT(sigtimedwait(&set, &info, &none) < 0 && errno == EAGAIN);
		EXPECT(!raise(sigs[i]) && !sigpending(&pending));
		EXPECT(sigismember(&pending, sigs[i]));
		EXPECT(sigtimedwait(&all, &info, &none) == sigs[i] && info.si_pid == getpid());
		EXPECT(!kill(getpid(), sigs[i]) && !kill(getpid(), sigs[i]));
		EXPECT(sigwaitinfo(&set, &info) == sigs[i] && info.si_code == SI_USER);
		EXPECT(!sigpending(&pending) && !sigismember(&pending, sigs[i]));
		child = fork();
		if (child == 0)
			_exit(kill(getppid(), sigs[i])); /* before it waits, or while it does */
		EXPECT(sigwaitinfo(&set, &info) == sigs[i] && info.si_pid == child);
		EXPECT(waitpid(child, NULL, 0) == child);
	}
	while (sigtimedwait(&all, &info, &none) > 0)
		; /* children that have ended */
	EXPECT(!sigprocmask(SIG_SETMASK, &old, NULL));
}

static void raise_other(int sig)
{
	count_it(sig);
	depth++;
	raise(sig == SIGUSR1 ? SIGUSR2 : SIGUSR1);
	depth--;
}

static void test_nesting(void)
{
	struct sigaction a = { .sa_handler = raise_other };

	depth_max = 0;
	install(SIGUSR2, count_it, 0);
	EXPECT(!sigaction(SIGUSR1, &a, NULL) && !raise(SIGUSR1));
	EXPECT(count[SIGUSR1] == 1 && count[SIGUSR2] == 1 && depth_max == 2);
	sigaddset(&a.sa_mask, SIGUSR2);
	depth_max = 0;
	EXPECT(!sigaction(SIGUSR1, &a, NULL) && !raise(SIGUSR1));
	EXPECT(count[SIGUSR1] == 2 && count[SIGUSR2] == 2 && depth_max == 1);
	count[SIGUSR1] = count[SIGUSR2] = 0;
}

/* Until the parent sleeps in the one call that it makes after the fork. */
static void await_parent_asleep(void)
{
	char path[64], text[256];
	int asleep = 0;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)getppid());
	while (asleep < 2) {
		int fd = open(path, O_RDONLY);
		ssize_t n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);

		EXPECT(n > 0);
		text[n] = '\0';
		close(fd);
		asleep = strstr(text, ") S ") ? asleep + 1 : 0;
		usleep(1000);
	}
}

/* A child sends SIGALRM to the parent in its sleep, then writes a byte when it sleeps again. */
static pid_t disturber(int fd)
{
	pid_t child = fork();

	if (child)
		return child;
	await_parent_asleep();
	EXPECT(!kill(getppid(), SIGALRM));
	if (fd >= 0) {
		await_parent_asleep();
		EXPECT(write(fd, "x", 1) == 1);
	}
	_exit(0);
}

static void test_interrupted(void)
{
	pid_t child;
	int p[2];
	char c;

	EXPECT(!pipe(p));
	install(SIGALRM, count_it, 0);
	child = disturber(-1);
	EXPECT(read(p[0], &c, 1) < 0 && errno == EINTR && count[SIGALRM] == 1);
	EXPECT(waitpid(child, NULL, 0) == child);
	child = disturber(-1);
	EXPECT(poll(NULL, 0, 200000) < 0 && errno == EINTR && count[SIGALRM] == 2);
	EXPECT(waitpid(child, NULL, 0) == child);
	install(SIGALRM, count_it, SA_RESTART);
	child = disturber(p[1]);
	EXPECT(read(p[0], &c, 1) == 1 && count[SIGALRM] == 3);
	EXPECT(waitpid(child, NULL, 0) == child);
	count[SIGALRM] = 0;
	close(p[0]);
	close(p[1]);
}

/*
 * Two signals wait behind a mask that the call lifts: both handlers run, and the old mask is back
 * afterwards.
 */
static void test_waits(void)
{
	sigset_t both, none, now;
	struct timespec long_time = { 5, 0 };

	install(SIGUSR1, count_it, 0);
	install(SIGUSR2, count_it, 0);
	sigemptyset(&none);
	sigemptyset(&both);
	sigaddset(&both, SIGUSR1);
	sigaddset(&both, SIGUSR2);
	EXPECT(!sigprocmask(SIG_BLOCK, &both, NULL));
	for (int way = 0; way < 3; way++) {
		count[SIGUSR1] = count[SIGUSR2] = 0;
		raise(SIGUSR1);
		raise(SIGUSR2);
		if (way == 0)
			EXPECT(sigsuspend(&none) < 0 && errno == EINTR);
		else if (way == 1)
			EXPECT(ppoll(NULL, 0, &long_time, &none) < 0 && errno == EINTR);
		else
			EXPECT(pselect(0, NULL, NULL, NULL, &long_time, &none) < 0 &&
				errno == EINTR);
		EXPECT(count[SIGUSR1] == 1 && count[SIGUSR2] == 1);
		EXPECT(!sigprocmask(SIG_SETMASK, NULL, &now) && sigismember(&now, SIGUSR1) &&
			sigismember(&now, SIGUSR2));
	}
	EXPECT(!sigprocmask(SIG_SETMASK, &none, NULL));
	count[SIGUSR1] = count[SIGUSR2] = 0;
}

static void jump_out(int sig)
{
	count[sig]++;
	siglongjmp(out, sig);
}

static void test_jumps(void)
{
	sigset_t now;
	int p[2];
	char c;

	EXPECT(!pipe(p));
	install(SIGALRM, jump_out, 0);
	for (volatile int i = 0; i < 200; i++) {
		if (!sigsetjmp(out, 1)) {
			alarm_in(300);
			if (read(p[0], &c, 1) >= 0)
				EXPECT(!"read returned");
			EXPECT(!"the handler came back");
		}
	}
	EXPECT(count[SIGALRM] == 200);
	EXPECT(!sigprocmask(SIG_SETMASK, NULL, &now) && !sigismember(&now, SIGALRM));
	install(SIGSEGV, jump_out, SA_NODEFER);
	for (volatile int i = 0; i < 50; i++)
		if (!sigsetjmp(out, i & 1))
			*(volatile int *)16 = 1;
	EXPECT(count[SIGSEGV] == 50);
	install(SIGSEGV, SIG_DFL, 0);
	close(p[0]);
	close(p[1]);
	count[SIGALRM] = 0;
}

/* Who asked for a signal when there is something to read has it when the write returns. */
static void test_readiness(void)
{
	int ends[2], on = 1;
	char c;

	install(SIGIO, count_it, 0);
	for (int kind = 0; kind < 3; kind++) {
		EXPECT(kind == 2 ? !socketpair(AF_UNIX, SOCK_STREAM, 0, ends) : !pipe(ends));
		poll(NULL, 0, 1); /* a site, if this runs under the agent */
		EXPECT(write(ends[1], "a", 1) == 1 && read(ends[0], &c, 1) == 1);
		EXPECT(write(ends[1], "b", 1) == 1);
		EXPECT(!fcntl(ends[0], F_SETOWN, getpid()));
		EXPECT(!(kind ? ioctl(ends[0], FIOASYNC, &on) : fcntl(ends[0], F_SETFL, O_ASYNC)));
		EXPECT(count[SIGIO] == 0); /* that was before */
		EXPECT(write(ends[1], "c", 1) == 1 && count[SIGIO] == 1);
		count[SIGIO] = 0;
		close(ends[0]);
		close(ends[1]);
	}
	install(SIGIO, SIG_DFL, 0);
}

static int eat_stack(volatile char *p)
{
	volatile char block[4096];

	block[0] = p ? *p : 1;
	return eat_stack(block) + block[0];
}

static void test_stacks(void)
{
	static char small[32768];
	stack_t s = { .ss_sp = small, .ss_size = sizeof(small) }, old;

	EXPECT(!sigaltstack(NULL, &old) && (old.ss_flags & SS_DISABLE));
	EXPECT(!sigaltstack(&s, NULL) && !sigaltstack(NULL, &old) && old.ss_sp == small &&
		old.ss_flags == 0);
	s.ss_size = 100;
	EXPECT(sigaltstack(&s, NULL) < 0 && errno == ENOMEM);
	s.ss_flags = 12345;
	EXPECT(sigaltstack(&s, NULL) < 0 && errno == EINVAL);
	install(SIGUSR1, count_it, 0);
	EXPECT(!raise(SIGUSR1) &&
		!(handler_sp >= (uintptr_t)small && handler_sp < (uintptr_t)small + sizeof(small)));
	install(SIGUSR1, count_it, SA_ONSTACK);
	EXPECT(!raise(SIGUSR1) && handler_sp >= (uintptr_t)small &&
		handler_sp < (uintptr_t)small + sizeof(small));
	install(SIGSEGV, jump_out, SA_ONSTACK);
	for (volatile int i = 0; i < 3; i++)
		if (!sigsetjmp(out, 1))
			eat_stack(NULL);
	EXPECT(count[SIGSEGV] == 53);
	install(SIGSEGV, SIG_DFL, 0);
	s = (stack_t){ .ss_flags = SS_DISABLE };
	EXPECT(!sigaltstack(&s, &old) && old.ss_sp == small);
	count[SIGUSR1] = 0;
}

static siginfo_t forced;
static char room[65536] __attribute__((aligned(4096)));

static void make_room(int sig, siginfo_t *info, void *ucontext)
{
	forced = *info;
	EXPECT(!mprotect(room, sizeof(room), PROT_READ | PROT_WRITE));
}

/* There is no room for a handler's frame: the kernel says so by a SIGSEGV, the signal is gone. */
static void test_no_room(void)
{
	stack_t stack = { .ss_sp = room, .ss_size = sizeof(room) };
	stack_t none = { .ss_flags = SS_DISABLE };
	struct sigaction sa = { .sa_sigaction = make_room, .sa_flags = SA_SIGINFO };

	count[SIGUSR1] = 0;
	EXPECT(!sigaltstack(&stack, NULL) && !sigaction(SIGSEGV, &sa, NULL));
	install(SIGUSR1, count_it, SA_ONSTACK);
	EXPECT(!mprotect(room, sizeof(room), PROT_READ));
	raise(SIGUSR1);
	EXPECT(forced.si_signo == SIGSEGV && forced.si_code == SI_KERNEL && !count[SIGUSR1]);
	raise(SIGUSR1);
	EXPECT(count[SIGUSR1] == 1 && !sigaltstack(&none, NULL));
	count[SIGUSR1] = 0;
	install(SIGSEGV, SIG_DFL, 0);
}

static void edit_context(int sig, siginfo_t *info, void *ucontext)
{
	ucontext_t *uc = ucontext;

	count[sig]++;
	EXPECT(info->si_addr == (void *)16);
	uc->uc_mcontext.gregs[REG_RIP] += 3; /* behind mov %rax, (%rcx) */
	uc->uc_mcontext.gregs[REG_RAX] = 4711;
	sigaddset(&uc->uc_sigmask, SIGUSR2);
	sigaddset(&uc->uc_sigmask, SIGSYS);
}

static void test_frames(void)
{
	struct sigaction a = { .sa_sigaction = edit_context, .sa_flags = SA_SIGINFO };
	union sigval v = { .sival_int = 99 };
	long rax = 0;
	sigset_t set;
	siginfo_t info;

	EXPECT(!sigaction(SIGSEGV, &a, NULL));
	count[SIGSEGV] = 0;
	__asm__ volatile(".byte 0x48, 0x89, 0x01" : "+a"(rax) : "c"(16l) : "memory");
	EXPECT(rax == 4711 && count[SIGSEGV] == 1);
	EXPECT(!sigprocmask(SIG_SETMASK, NULL, &set) && sigismember(&set, SIGUSR2) &&
		sigismember(&set, SIGSYS));
	EXPECT(getppid() == syscall(SYS_getppid));
	sigemptyset(&set);
	EXPECT(!sigprocmask(SIG_SETMASK, &set, NULL));
	install(SIGSEGV, SIG_DFL, 0);
	sigaddset(&set, SIGRTMIN + 3);
	EXPECT(!sigprocmask(SIG_BLOCK, &set, NULL) && !sigqueue(getpid(), SIGRTMIN + 3, v));
	EXPECT(sigwaitinfo(&set, &info) == SIGRTMIN + 3 && info.si_value.sival_int == 99 &&
		info.si_code == SI_QUEUE);
	EXPECT(!sigprocmask(SIG_UNBLOCK, &set, NULL));
}

static void test_contexts(void)
{
	static char stack[65536];
	static ucontext_t here, there;
	volatile int n = 0;

	EXPECT(!getcontext(&there));
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = sizeof(stack);
	there.uc_link = &here;
	makecontext(&there, (void (*)(void))count_it, 1, SIGUSR1);
	EXPECT(!swapcontext(&here, &there));
	EXPECT(count[SIGUSR1] == 1 && ++n == 1);
}

static void test_death(void)
{
	static const int how[] = { SIGSEGV, SIGFPE, SIGTERM, SIGABRT, SIGILL, SIGSYS };
	int status;

	for (size_t i = 0; i < sizeof(how) / sizeof(how[0]); i++) {
		pid_t pid = fork();

		if (!pid) {
			if (how[i] == SIGSEGV)
				*(volatile int *)8 = 1;
			else if (how[i] == SIGILL)
				__asm__ volatile("ud2");
			else
				raise(how[i]);
			_exit(0);
		}
		EXPECT(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
			WTERMSIG(status) == how[i]);
	}
}

int main(void)
{
	test_actions();
	test_masks();
	test_blocked_faults();
	test_awaited_faults();
	test_nesting();
	test_interrupted();
	test_waits();
	test_readiness();
	test_jumps();
	test_stacks();
	test_no_room();
	test_frames();
	test_contexts();
	test_death();
	puts("signals: ok");
	return 0;
}
