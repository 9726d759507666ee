/* SPDX-License-Identifier: MIT */
/*
 * ladder CASE: programs that crash in ways that a recovery must refuse, or give up on.
 * test_ladder.py knows what each must print and how each must end.
 */
#include <fcntl.h>
#include <pthread.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "../lib/harness.h"
#include "../lib/tcp_pair.h"

static volatile int *outside; /* [0] passes; memory that a restore leaves alone */

static void wake_up(void)
{
	poll(NULL, 0, 0);
}

static void crash(void)
{
	*(volatile int *)24 = 0;
}

static void take_input(void)
{
	int pair[2];
	char c;

	if (tcp_pair(pair) || write(pair[1], "x", 1) != 1 || read(pair[0], &c, 1) != 1)
		_exit(3);
}

/* Crashes for ever: once with the suspect reset, once with all, then the default action. */
static void again_and_again(void)
{
	take_input();
	wake_up();
	outside[0]++;
	printf("pass %d\n", outside[0]);
	crash();
}

static void own_handler(int sig, siginfo_t *info, void *uc)
{
	static const char text[] = "own handler\n";

	if (info->si_addr == (void *)24 && write(1, text, sizeof(text) - 1) > 0)
		_exit(42);
	_exit(4);
}

/*
 * The same with a handler of the program's own at the end of the ladder; asked for, it is the
 * truth.
 */
static void handler_at_the_end(void)
{
	struct sigaction sa = { .sa_sigaction = own_handler, .sa_flags = SA_SIGINFO | SA_ONSTACK },
			 old;

	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGSEGV, NULL, &old);
	if (old.sa_sigaction != own_handler)
		_exit(5);
	again_and_again();
}

/* A wake-up between two crashes: never a repetition, however often. */
static void progress(void)
{
	for (int i = 0; i < 50; i++) {
		wake_up();
		wake_up();
		if (outside[0]++ % 2 == 0)
			crash();
	}
	printf("crashed %d times\n", (outside[0] + 1) / 2);
}

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ll + t.tv_nsec / 1000;
}

/*
 * More than a hundred a second, or a machine on which nobody can: then the last line says how long
 * the fastest hundred and one took.
 */
static void too_often(void)
{
	enum { CRASHES = 150 };
	volatile int64_t *moments = (volatile int64_t *)outside + 1;
	int64_t least = INT64_MAX;

	for (int i = 0; i < CRASHES; i++) {
		wake_up();
		wake_up();
		if (outside[0]++ % 2 == 0) {
			moments[i] = now_us();
			crash();
		}
	}
	for (int i = 100; i < CRASHES; i++)
		if (moments[i] - moments[i - 100] < least)
			least = moments[i] - moments[i - 100];
	printf("not reached: %lld us\n", (long long)least);
}

static volatile int tid; /* of the other thread, once it has its name */

static void *spin(void *arg)
{
	char *buffer = arg;

	prctl(PR_SET_NAME, "spinner");
	tid = (int)syscall(SYS_gettid);
	for (;;)
		memset(buffer, 1, 8);
	return NULL;
}

/* The other thread has begun the one call that it sleeps in, two checkpoints ago. */
static void wait_until_asleep(void)
{
	char path[64], text[256];
	bool asleep = false;
	ssize_t n;
	int fd;

	while (!asleep) {
		usleep(1000);
		snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
		fd = tid ? open(path, O_RDONLY) : -1;
		n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		text[n < 0 ? 0 : n] = '\0';
		asleep = strstr(text, ") S ");
		if (fd >= 0)
			close(fd);
	}
	wake_up();
	wake_up();
}

static void another_thread_ran(void)
{
	static char buffer[8];
	pthread_t t;

	pthread_create(&t, NULL, spin, buffer);
	while (!tid)
		usleep(1000);
	wake_up();
	wake_up();
	crash();
}

static volatile bool may_end;

static void *end(void *arg)
{
	prctl(PR_SET_NAME, "ender");
	while (!may_end)
		usleep(1000);
	return arg;
}

/* What it has done cannot be done again: it is gone. */
static void another_thread_ended(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, end, NULL))
		_exit(3);
	wake_up();
	may_end = true;
	if (pthread_join(t, NULL))
		_exit(3);
	crash();
}

static int pipe_ends[2];

static void *sleep_in_read(void *arg)
{
	char c;

	prctl(PR_SET_NAME, "sleeper");
	tid = (int)syscall(SYS_gettid);
	if (read(pipe_ends[0], &c, 1) == 1)
		outside[1] = c;
	return arg;
}

/* A thread that slept through the interval is no obstacle, and sleeps on. */
static void another_thread_slept(void)
{
	pthread_t t;

	if (pipe(pipe_ends) || pthread_create(&t, NULL, sleep_in_read, NULL))
		_exit(3);
	wait_until_asleep();
	if (outside[0]++ == 0)
		crash();
	if (write(pipe_ends[1], "z", 1) != 1 || pthread_join(t, NULL))
		_exit(6);
	printf("the sleeper read %c\n", outside[1]);
}

static volatile char half[100]; /* written by the kernel alone */

static void *sleep_in_recv(void *arg)
{
	tid = (int)syscall(SYS_gettid);
	if (recv(pipe_ends[0], (char *)half, sizeof(half), MSG_WAITALL) != sizeof(half))
		_exit(5);
	return arg;
}

/* What has come for its call so far is not put back: the kernel does not bring it again. */
static void another_thread_got_half(void)
{
	char text[50];
	pthread_t t;
	pid_t child;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pipe_ends) ||
		pthread_create(&t, NULL, sleep_in_recv, NULL))
		_exit(3);
	memset(text, 'h', sizeof(text));
	wait_until_asleep();
	child = fork();
	if (child == 0) {
		while (!outside[2])
			usleep(1000);
		_exit(write(pipe_ends[1], text, sizeof(text)) != sizeof(text));
	}
	wake_up();
	if (outside[0]++ == 0) {
		outside[2] = 1;
		while (half[sizeof(text) - 1] != 'h')
			__builtin_ia32_pause();
		crash();
	}
	if (write(pipe_ends[1], text, sizeof(text)) != sizeof(text) || pthread_join(t, NULL))
		_exit(6);
	waitpid(child, NULL, 0);
	printf("the sleeper read %s\n",
		half[0] == 'h' && !memcmp((char *)half, (char *)half + 1, sizeof(half) - 1)
			? "all" : "garbage");
}

static void no_checkpoint(void)
{
	crash();
}

/* It never waits, and tells something after each crash: none is another's repetition. */
static void passes_each(void)
{
	wake_up();
	for (int i = 0; i < 4; i++) {
		if (outside[i]++ < 2)
			crash();
		printf("passed %d\n", i);
	}
}

/* Somebody sent it: not a crash. */
static void sent(void)
{
	wake_up();
	kill(getpid(), SIGSEGV);
}

static int overflow(int n)
{
	volatile char big[4096];

	big[0] = (char)n;
	return overflow(n + 1) + big[0];
}

static void stack_overflow(void)
{
	wake_up();
	if (outside[0]++ == 0)
		printf("%d\n", overflow(0));
	puts("survived");
}

/* What the program itself may not write: a constant, and memory that it has closed. */
static void read_only(void)
{
	static const char constant[] = "constant";
	static char closed[8192] __attribute__((aligned(4096)));

	memset(closed, 1, sizeof(closed));
	wake_up();
	if (outside[0]++ == 0)
		*(volatile char *)constant = 'x';
	mprotect(closed, 4096, PROT_READ);
	wake_up();
	if (outside[1]++ == 0)
		*(volatile char *)closed = 2;
	puts(closed[0] == 1 && constant[0] == 'c' ? "survived both" : "changed");
}

/* The address is in %rcx, where the kernel leaves that of the instruction behind a call. */
static void jump_to(uintptr_t address)
{
	__asm__ volatile("jmp *%[to]" : : [to] "c"(address) : "memory");
}

/* Through a null pointer, to the first byte behind what is mapped, and to where the file ends. */
static void jumps(void)
{
	int fd = memfd_create("short", MFD_CLOEXEC);
	char *end = mmap(NULL, 8192, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	if (ftruncate(fd, 4096) < 0 || end == MAP_FAILED)
		_exit(3);
	wake_up();
	if (outside[0]++ == 0)
		jump_to(0);
	wake_up();
	wake_up();
	if (outside[1]++ == 0)
		jump_to(1ul << 40);
	wake_up();
	wake_up();
	if (outside[2]++ == 0)
		jump_to((uintptr_t)end + 4097);
	puts("survived all");
}

static void signals(void)
{
	volatile int zero = 0;

	wake_up();
	if (outside[0]++ == 0)
		printf("%d\n", 7 / zero);
	wake_up();
	wake_up();
	if (outside[1]++ == 0)
		__builtin_trap();
	puts("survived both");
}

/*
 * A crash inside a signal handler of the program goes back to before the signal, which is raised
 * again.
 */
static void crash_in_handler_of(int sig)
{
	if (outside[0]++ == 0)
		crash();
	outside[1]++;
}

static void in_handler(void)
{
	signal(SIGALRM, crash_in_handler_of);
	wake_up();
	alarm(1);
	wake_up();
	for (int i = 0; i < 3000 && !outside[1]; i++)
		usleep(10000);
	printf("handled %d\n", outside[1]);
}

static volatile int reaped;
static int waker[2]; /* the ends of what a handler writes to; of an eventfd both */

static void wake(int sig)
{
	const uint64_t one = 1;

	if (write(waker[1], &one, sizeof(one)) != sizeof(one))
		_exit(4);
}

static void reap(int sig)
{
	int status;

	while (waitpid(-1, &status, WNOHANG) > 0)
		reaped += WEXITSTATUS(status);
}

/*
 * A handler that tells somebody something comes between the read of the request and its crash: no
 * checkpoint may lie there, to which the restore would go, and crash again.
 */
static void crash_behind(int sig, void (*handler)(int))
{
	sigset_t set;
	int pair[2];
	ssize_t n;
	char c;

	sigemptyset(&set);
	sigaddset(&set, sig);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(sig, handler);
	if (tcp_pair(pair) || write(pair[1], "x", 1) != 1 ||
		kill(getpid(), sig))
		_exit(3);
	wake_up();
	wake_up();
	n = recv(pair[0], &c, 1, MSG_DONTWAIT);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	if (n == 1)
		crash();
}

static void woken_once(void)
{
	uint64_t count = 0;

	crash_behind(SIGUSR1, wake);
	wake_up();
	if (read(waker[0], &count, sizeof(count)) != sizeof(count) || count != 1 ||
		read(waker[0], &count, sizeof(count)) != -1)
		_exit(5);
	puts("woken once");
}

static void wake_by_pipe(void)
{
	if (pipe2(waker, O_NONBLOCK))
		_exit(3);
	woken_once();
}

static void wake_by_pair(void)
{
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, waker))
		_exit(3);
	woken_once();
}

static void wake_by_event(void)
{
	waker[0] = waker[1] = eventfd(0, EFD_NONBLOCK);
	woken_once();
}

/* A child that has both ends, too, and closes the reading one when it is told to. */
static pid_t fork_holder(void)
{
	pid_t child;

	if (pipe2(waker, O_NONBLOCK))
		_exit(3);
	child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (!outside[3])
			usleep(1000);
		close(waker[0]);
		outside[4] = 1;
		for (;;)
			pause();
	}
	return child;
}

static void wake_by_shared_pipe(void)
{
	pid_t child = fork_holder();

	woken_once();
	kill(child, SIGKILL);
}

static void write_one(int sig)
{
	const uint64_t one = 1;

	if (write(waker[1], &one, sizeof(one)) != sizeof(one))
		_exit(3);
}

/* A call that the kernel makes again by itself waits for what the handler has written. */
static void wait_for_handler(void)
{
	struct sigaction sa = { .sa_handler = write_one, .sa_flags = SA_RESTART };
	const struct itimerval soon = { .it_value = { 0, 20000 } };
	uint64_t got;

	sigaction(SIGALRM, &sa, NULL);
	wake_up();
	for (int kind = 0; kind < 3; kind++) {
		if (kind == 0 ? pipe(waker) :
			kind == 1 ? socketpair(AF_UNIX, SOCK_STREAM, 0, waker) :
				    (waker[0] = waker[1] = eventfd(0, 0)) < 0)
			_exit(3);
		setitimer(ITIMER_REAL, &soon, NULL);
		if (read(waker[0], &got, sizeof(got)) != sizeof(got) || got != 1)
			_exit(4);
	}
	puts("woken 3 times");
}

/* Whoever could have read it ends after it has been written: that is no news for who wrote. */
static void write_to_the_gone(void)
{
	pid_t child = fork_holder();

	wake_up();
	write_one(0);
	wake_up();
	close(waker[0]);
	wake_up();
	write_one(0);
	outside[3] = 1;
	while (!outside[4])
		;
	wake_up();
	puts("still there");
	kill(child, SIGKILL);
}

static void reap_in_handler(void)
{
	pid_t child = fork();
	siginfo_t info;

	if (child == 0)
		_exit(7);
	waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
	crash_behind(SIGCHLD, reap);
	printf("reaped %d\n", reaped);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "again", again_and_again },
		{ "handler", handler_at_the_end },
		{ "progress", progress },
		{ "passed", passes_each },
		{ "often", too_often },
		{ "ran", another_thread_ran },
		{ "ended", another_thread_ended },
		{ "slept", another_thread_slept },
		{ "half", another_thread_got_half },
		{ "none", no_checkpoint },
		{ "sent", sent },
		{ "stack", stack_overflow },
		{ "read_only", read_only },
		{ "jumps", jumps },
		{ "signals", signals },
		{ "in_handler", in_handler },
		{ "pipe", wake_by_pipe },
		{ "pair", wake_by_pair },
		{ "event", wake_by_event },
		{ "shared_pipe", wake_by_shared_pipe },
		{ "reap", reap_in_handler },
		{ "restarted", wait_for_handler },
		{ "gone", write_to_the_gone },
		{ NULL, NULL },
	};

	setvbuf(stdout, NULL, _IOLBF, 0);
	outside = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return outside == MAP_FAILED ? 2 : test_run_case(cases, argv[1]);
}
