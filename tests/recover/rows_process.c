/* SPDX-License-Identifier: MIT */
/* Signals, timers, masks. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include "rows.h"

static volatile int handled;

static void handler_one(int sig)
{
	handled++;
}

static void handler_two(int sig)
{
	handled += 100;
}

static void set_handler(int sig, void (*fn)(int), struct sigaction *old)
{
	struct sigaction sa = {.sa_handler = fn, .sa_flags = SA_RESTART};

	CHECK(sigaction(sig, &sa, old) == 0);
}

static void setup_handler(void)
{
	handled = 0;
	set_handler(SIGUSR1, handler_one, NULL);
}

static void body_sigaction(bool again)
{
	struct sigaction old;

	set_handler(SIGUSR1, handler_two, &old);
	CHECK(old.sa_handler == handler_one && old.sa_flags & SA_RESTART);
	if (!again)
		return;
	raise(SIGUSR1);
	CHECK(handled == 100);
}

static bool is_blocked(int sig)
{
	sigset_t set;

	CHECK(sigprocmask(SIG_BLOCK, NULL, &set) == 0);
	return sigismember(&set, sig);
}

static void body_sigprocmask(bool again)
{
	sigset_t set;

	CHECK(!is_blocked(SIGUSR2));
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && is_blocked(SIGUSR2));
	if (again)
		CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
}

static char alt_memory[65536];

static void body_sigaltstack(bool again)
{
	stack_t old, new = { .ss_sp = alt_memory, .ss_size = sizeof(alt_memory) },
		     off = { .ss_flags = SS_DISABLE };

	CHECK(CALL(sigaltstack, NULL, &old) == 0 && (old.ss_flags & SS_DISABLE));
	CHECK(CALL(sigaltstack, &new, NULL) == 0);
	CHECK(CALL(sigaltstack, NULL, &old) == 0 && old.ss_sp == alt_memory);
	if (again)
		CHECK(CALL(sigaltstack, &off, NULL) == 0);
}

/* A signal that was handled in the interval is handled again: neither lost nor counted twice. */
static void setup_alarm(void)
{
	struct itimerval soon = {.it_value = {0, 300000}};

	handled = 0;
	set_handler(SIGALRM, handler_one, NULL);
	CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

static void body_delivered(bool again)
{
	struct timespec tick = {0, 10000000};

	for (int i = 0; i < 1000 && !handled; i++)
		nanosleep(&tick, NULL);
	CHECK(handled == 1);
	if (again) {
		nanosleep(&tick, NULL);
		CHECK(handled == 1);
	}
}

/* Its handler is in place again when the signal comes again. */
static void setup_one_time(void)
{
	struct itimerval soon = {.it_value = {0, 50000}};
	struct sigaction sa = {.sa_handler = handler_one, .sa_flags = (int)SA_RESETHAND};

	handled = 0;
	CHECK(sigaction(SIGALRM, &sa, NULL) == 0 && setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

static void body_one_time(bool again)
{
	struct sigaction old;

	if (again)
		CHECK(sigaction(SIGALRM, NULL, &old) == 0 &&
			(handled || old.sa_handler == handler_one));
	body_delivered(again);
	CHECK(sigaction(SIGALRM, NULL, &old) == 0 && old.sa_handler == SIG_DFL);
}

static timer_t posix_timer;

/* A signal that waits is gone once it is ignored: nothing brings it back. */
static bool is_pending(int sig)
{
	sigset_t set;

	CHECK(sigpending(&set) == 0);
	return sigismember(&set, sig);
}

static void setup_waiting(void)
{
	sigset_t set;

	setup_handler();
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && raise(SIGUSR1) == 0);
}

static void body_ignored(bool again)
{
	sigset_t set;

	CHECK(is_pending(SIGUSR1));
	outside->count++;
	CHECK(signal(SIGUSR1, SIG_IGN) == handler_one);
	crash_once();
	CHECK(!is_pending(SIGUSR1));
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
	signal(SIGUSR1, SIG_DFL);
}

/* One that is ignored waits all the same while it is blocked, through a fork and a recovery. */
static void setup_urgent(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGURG);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0 && raise(SIGURG) == 0);
}

static void end_urgent(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGURG);
	CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
}

static void body_urgent(bool again)
{
	CHECK(is_pending(SIGURG));
	if (again)
		end_urgent();
}

static void body_urgent_fork(bool again)
{
	pid_t pid;

	CHECK(is_pending(SIGURG));
	outside->count++;
	pid = fork();
	if (!pid)
		_exit(0);
	CHECK(pid > 0 && is_pending(SIGURG));
	crash_once();
	CHECK(waitpid(pid, NULL, 0) == pid && is_pending(SIGURG));
	end_urgent();
}

/* What a timer has sent is dropped when the timer is set again. */
static void setup_timer_over(void)
{
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
	struct itimerspec soon = {.it_value = {0, 1}};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
	CHECK(timer_create(CLOCK_MONOTONIC, &event, &posix_timer) == 0);
	CHECK(timer_settime(posix_timer, 0, &soon, NULL) == 0);
	for (int i = 0; i < 1000 && !is_pending(SIGUSR2); i++)
		usleep(1000);
}

static void body_timer_over(bool again)
{
	const struct timespec now = {0, 0};
	struct itimerspec late = {.it_value = {1000, 0}};
	sigset_t set;

	CHECK(is_pending(SIGUSR2));
	outside->count++;
	CHECK(timer_settime(posix_timer, 0, &late, NULL) == 0);
	crash_once();
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigtimedwait(&set, NULL, &now);
	CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0 && timer_delete(posix_timer) == 0);
}

/* A child that ends while nobody wants to know is gone, and cannot be waited for. */
static pid_t child;

static void setup_child(void)
{
	outside->value[0] = 0;
	child = fork();
	if (!child) {
		for (int ms = 0; ms < 60000 && !outside->value[0]; ms++)
			usleep(1000);
		_exit(7);
	}
	CHECK(child > 0);
}

static void body_unwanted(bool again)
{
	struct timespec some = {0, 300000000};

	outside->count++;
	CHECK(signal(SIGCHLD, SIG_IGN) == SIG_DFL);
	outside->value[0] = 1;
	nanosleep(&some, NULL);
	crash_once();
	CHECK(waitpid(child, NULL, 0) == -1 && errno == ECHILD);
	signal(SIGCHLD, SIG_DFL);
}

/* What a timer of the interval has sent goes with it: nobody handles the signal before. */
static void body_own_timer(bool again)
{
	const struct itimerval every = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
	struct timespec tick = {0, 1000000};

	set_handler(SIGALRM, handler_one, NULL);
	CHECK(CALL(setitimer, ITIMER_REAL, &every, NULL) == 0);
	for (handled = 0; !handled;)
		nanosleep(&tick, NULL);
	if (again) {
		CHECK(setitimer(ITIMER_REAL, &off, NULL) == 0);
		signal(SIGALRM, SIG_DFL);
	}
}

static void setup_default_alarm(void)
{
	signal(SIGALRM, SIG_DFL);
}

static void setup_itimer(void)
{
	struct itimerval late = {.it_value = {1000, 0}};

	CHECK(setitimer(ITIMER_REAL, &late, NULL) == 0);
}

static void body_setitimer(bool again)
{
	struct itimerval off = {{0, 0}, {0, 0}}, old;

	CHECK(CALL(setitimer, ITIMER_REAL, &off, &old) == 0 && old.it_value.tv_sec > 900);
}

static void body_alarm(bool again)
{
	long left = CALL(alarm, 0);

	CHECK(left > 900 && left <= 1000);
}

static int timer;

static void setup_timerfd(void)
{
	struct itimerspec late = {.it_value = {1000, 0}};

	timer = timerfd_create(CLOCK_MONOTONIC, 0);
	CHECK(timer >= 0 && timerfd_settime(timer, 0, &late, NULL) == 0);
}

static void body_timerfd(bool again)
{
	struct itimerspec off = {{0, 0}, {0, 0}}, old;

	CHECK(CALL(timerfd_settime, timer, 0, &off, &old) == 0 && old.it_value.tv_sec > 900);
	if (again)
		close(timer);
}

/* One that has run out, and whose end the program then never learns because it is set again. */
static void setup_timerfd_over(void)
{
	struct itimerspec soon = {.it_value = {0, 1}};
	struct pollfd p = {.events = POLLIN};

	timer = p.fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	CHECK(timer >= 0 && timerfd_settime(timer, 0, &soon, NULL) == 0);
	CHECK(poll(&p, 1, 60000) == 1);
}

static void body_timerfd_over(bool again)
{
	struct itimerspec late = {.it_value = {1000, 0}};
	struct pollfd p = {.fd = timer, .events = POLLIN};
	uint64_t times;

	CHECK(poll(&p, 1, again ? 60000 : 0) == 1);
	CHECK(CALL(timerfd_settime, timer, 0, &late, NULL) == 0);
	CHECK(read(timer, &times, 8) == -1);
	if (again)
		close(timer);
}

/* The other way round: its end was read before, and then it is set before anybody reads. */
static void body_timerfd_reset(bool again)
{
	struct itimerspec late = {.it_value = {1000, 0}};
	struct pollfd p = {.fd = timer, .events = POLLIN};
	uint64_t times;

	if (!again) {
		CHECK(CALL(read, timer, &times, 8) == 8 && times == 1);
		return;
	}
	CHECK(CALL(timerfd_settime, timer, 0, &late, NULL) == 0);
	CHECK(poll(&p, 1, 0) == 0 && CALL(read, timer, &times, 8) == -1);
	close(timer);
}

static void setup_timerfd_off(void)
{
	timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
	CHECK(timer >= 0);
}

/* One that was set and ran out in the interval has not run out at the checkpoint. */
static void body_timerfd_own(bool again)
{
	struct itimerspec soon = {.it_value = {0, 1}};
	struct pollfd p = {.fd = timer, .events = POLLIN};
	uint64_t times;

	CHECK(poll(&p, 1, 0) == 0 && CALL(read, timer, &times, 8) == -1);
	CHECK(CALL(timerfd_settime, timer, 0, &soon, NULL) == 0);
	CHECK(poll(&p, 1, 60000) == 1 && CALL(read, timer, &times, 8) == 8);
	if (again)
		close(timer);
}

static void body_umask(bool again)
{
	CHECK(CALL(umask, 077) == 022);
	if (again)
		umask(022);
}

static void setup_umask(void)
{
	umask(022);
}

/* Where the process is: not the folder's name, which may be another one by now. */
static char folder[64], below[80];

static void setup_chdir(void)
{
	strcpy(folder, "/tmp/cairn-row-XXXXXX");
	CHECK(mkdtemp(folder) && !chdir(folder) && !mkdir("below", 0700));
	snprintf(below, sizeof(below), "%s/below", folder);
}

static void body_chdir(bool again)
{
	char here[4096];
	int fd;

	CHECK(CALL(getcwd, here, sizeof(here)) && !strcmp(here, folder));
	CHECK(CALL(chdir, "no such folder") == -1 && CALL(chdir, "below") == 0);
	CHECK(CALL(chdir, "..") == 0 && CALL(chdir, "/") == 0);
	fd = (int)CALL(open, below, O_RDONLY | O_DIRECTORY);
	CHECK(fd >= 0 && CALL(fchdir, fd) == 0 && CALL(close, fd) == 0);
	CHECK(CALL(getcwd, here, sizeof(here)) && !strcmp(here, below));
	if (again)
		CHECK(!chdir("/") && !rmdir(below) && !rmdir(folder));
}

/* Part of a limit is the agent's (address space), and no part of it comes back. */
static rlim_t space;

static void setup_limit(void)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
	space = limit.rlim_cur;
}

static void body_limit(bool again)
{
	struct rlimit limit;

	CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == space);
	outside->count++;
	limit.rlim_cur = 1ul << 40;
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
	crash_once();
	CHECK(getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur == 1ul << 40);
	limit.rlim_cur = space;
	CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

/* The base of thread-local variables is a register, which a program may load without a call. */
#define HWCAP2_FSGSBASE_BIT 2

static uintptr_t fs_base(void)
{
	uintptr_t base;

	__asm__ volatile("rdfsbase %0" : "=r"(base));
	return base;
}

static void set_fs_base(uintptr_t base)
{
	__asm__ volatile("wrfsbase %0" : : "r"(base) : "memory");
}

static uintptr_t own_base;

static void setup_base(void)
{
	if (getauxval(AT_HWCAP2) & HWCAP2_FSGSBASE_BIT)
		own_base = fs_base();
}

static void body_base(bool again)
{
	static uintptr_t copy[256] __attribute__((aligned(64)));
	uintptr_t base;

	if (!own_base)
		return;
	base = fs_base();
	set_fs_base(own_base);
	CHECK(base == own_base);
	if (again)
		return;
	memcpy(copy, (void *)own_base, sizeof(copy));
	copy[0] = copy[2] = (uintptr_t)copy; /* it and the thread's descriptor name themselves */
	set_fs_base((uintptr_t)copy);
}

/* stdio to nobody: a buffer is memory. */
static void body_printf_buffer(bool again)
{
	char b[64];

	CHECK(snprintf(b, sizeof(b), "%d %s", 12, "x") == 4);
	CHECK(outside->value[0] == again);
	outside->value[0] = 1;
}

const struct row rows_process[] = {
	{"sigaction", setup_handler, body_sigaction},
	{"sigprocmask", NULL, body_sigprocmask},
	{"sigaltstack", NULL, body_sigaltstack},
	{"signal_delivered", setup_alarm, body_delivered},
	{"signal_one_time", setup_one_time, body_one_time},
	{"signal_ignored", setup_waiting, body_ignored, .output = true},
	{"signal_waits", setup_urgent, body_urgent},
	{"signal_waits_at_fork", setup_urgent, body_urgent_fork, .output = true},
	{"timer_over", setup_timer_over, body_timer_over, .output = true},
	{"child_unwanted", setup_child, body_unwanted, .output = true},
	{"setitimer_own", setup_default_alarm, body_own_timer},
	{"setitimer", setup_itimer, body_setitimer},
	{"alarm", setup_itimer, body_alarm},
	{"timerfd_settime", setup_timerfd, body_timerfd},
	{"timerfd_over", setup_timerfd_over, body_timerfd_over},
	{"timerfd_reset", setup_timerfd_over, body_timerfd_reset},
	{"timerfd_own", setup_timerfd_off, body_timerfd_own},
	{"umask", setup_umask, body_umask},
	{"chdir", setup_chdir, body_chdir},
	{"limit_of_space", setup_limit, body_limit, .output = true},
	{"fs_base", setup_base, body_base},
	{"printf_buffer", NULL, body_printf_buffer, .stdio = true},
	{0},
};
