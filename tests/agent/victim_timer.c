/* SPDX-License-Identifier: MIT */
/*
 * Sleeps of every kind, in threads that a timer of ours may find in them, while others compute:
 * none may end early, late or with EINTR. A signal of the program's own still cuts them short, also
 * when ours comes just as its handler returns.
 *
 *	victim_timer sleep|rest|compute|often|threads|idle|ignored|signals|calls|whole [SECONDS]
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sem.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <linux/futex.h>
#include <time.h>
#include "expect.h"

static atomic_bool over, begun;
static double seconds = 1;
static volatile uint64_t sink[64 << 10];

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* In user code, without one call. */
static void *compute(void *arg)
{
	double until = *(double *)arg;

	for (uint64_t i = 0; !over && now() < until; i++)
		for (int k = 0; k < 20000; k++)
			sink[(i + (uint64_t)k * 512) % (64 << 10)] += i;
	return NULL;
}

/* Calls that take no time, in a program of 64 MiB. */
static void call_often(void)
{
	size_t size = 64 << 20;
	char *large = malloc(size);

	EXPECT(large != NULL);
	memset(large, 1, size);
	for (int i = 0; i < 100000; i++)
		EXPECT(getppid() > 0 && large[size / 2] == 1);
	free(large);
}

#define NAP 0.15

static int sleep_nanosleep(void)
{
	struct timespec t = {0, (long)(NAP * 1e9)};

	return nanosleep(&t, NULL);
}

static int sleep_clock(void)
{
	struct timespec t = {0, (long)(NAP * 1e9)};

	return clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
}

static int sleep_poll(void)
{
	return poll(NULL, 0, (int)(NAP * 1e3));
}

static int sleep_ppoll(void)
{
	struct timespec t = {0, (long)(NAP * 1e9)};

	return ppoll(NULL, 0, &t, NULL);
}

static int sleep_select(void)
{
	struct timeval t = {0, (long)(NAP * 1e6)};

	return select(0, NULL, NULL, NULL, &t);
}

static int sleep_epoll(void)
{
	int set = epoll_create1(0), r;
	struct epoll_event e;

	r = epoll_wait(set, &e, 1, (int)(NAP * 1e3));
	close(set);
	return r;
}

static int sleep_futex(void)
{
	struct timespec t = {0, (long)(NAP * 1e9)};
	int word = 0;
	long r = syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &t, NULL, 0);

	return r < 0 && errno == ETIMEDOUT ? 0 : -1;
}

static int sleep_sigtimedwait(void)
{
	struct timespec t = {0, (long)(NAP * 1e9)};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGWINCH);
	return sigtimedwait(&set, NULL, &t) < 0 && errno == EAGAIN ? 0 : -1;
}

static int sleep_semtimedop(void)
{
	struct timespec t = {0, (long)(NAP * 1e9)};
	struct sembuf op = {0, -1, 0};
	int id = semget(IPC_PRIVATE, 1, 0600), r;

	r = semtimedop(id, &op, 1, &t) < 0 && errno == EAGAIN ? 0 : -1;
	semctl(id, 0, IPC_RMID);
	return r;
}

static int sleep_read(void)
{
	int fd[2], status, r;
	char byte;
	pid_t child;

	EXPECT(pipe(fd) == 0);
	child = fork();
	if (!child) {
		struct timespec t = {0, (long)(NAP * 1e9)};

		nanosleep(&t, NULL);
		_exit(write(fd[1], "x", 1) != 1);
	}
	r = read(fd[0], &byte, 1) == 1 ? 0 : -1;
	EXPECT(waitpid(child, &status, 0) == child && status == 0);
	close(fd[0]);
	close(fd[1]);
	return r;
}

static int sleep_wait(void)
{
	pid_t child = fork();
	int status;

	if (!child) {
		struct timespec t = {0, (long)(NAP * 1e9)};

		_exit(nanosleep(&t, NULL) != 0);
	}
	return waitpid(child, &status, 0) == child && status == 0 ? 0 : -1;
}

static const struct {
	const char *name;
	int (*run)(void);
} sleeps[] = {
	{"nanosleep", sleep_nanosleep}, {"clock_nanosleep", sleep_clock}, {"poll", sleep_poll},
	{"ppoll", sleep_ppoll}, {"select", sleep_select}, {"epoll_wait", sleep_epoll},
	{"futex", sleep_futex}, {"sigtimedwait", sleep_sigtimedwait},
	{"semtimedop", sleep_semtimedop}, {"read", sleep_read}, {"waitpid", sleep_wait},
};
#define SLEEPS (int)(sizeof(sleeps) / sizeof(sleeps[0]))

/* A machine that is busy makes sleeps longer, never shorter. */
static void *sleep_all(void *arg)
{
	double late = *(double *)arg;

	for (int i = 0; i < SLEEPS; i++) {
		double start = now(), took;

		errno = 0;
		if (sleeps[i].run() != 0) {
			dprintf(2, "%s: errno %d\n", sleeps[i].name, errno);
			_exit(1);
		}
		took = now() - start;
		if (took < NAP - 0.002 || took > late) {
			dprintf(2, "%s took %.3f s\n", sleeps[i].name, took);
			_exit(1);
		}
	}
	return NULL;
}

/*
 * Under a timer that comes near the end of each nap: a timeout that began anew then
 * would take nearly two. One of many tries is enough, however busy the machine is.
 */
static void each_goes_on_where_it_was(void)
{
	for (int i = 0; i < SLEEPS; i++) {
		double took = NAP * 2;

		for (int n = 0; n < 200 && took > NAP * 1.8; n++) {
			double start = now();

			EXPECT(sleeps[i].run() == 0);
			took = now() - start;
		}
		if (took > NAP * 1.8)
			dprintf(2, "%s begins anew: %.3f s\n", sleeps[i].name, took);
		EXPECT(took <= NAP * 1.8);
	}
}

static atomic_int alarms;

static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

static void own_signal_interrupts(void)
{
	/* Again and again: one of them finds us in the call, however late we get there. */
	const struct itimerval every = {{1, 0}, {1, 0}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = on_alarm};

	EXPECT(sigaction(SIGALRM, &action, NULL) == 0);
	EXPECT(setitimer(ITIMER_REAL, &every, NULL) == 0);
	EXPECT(poll(NULL, 0, -1) == -1 && errno == EINTR && alarms > 0);
	EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

/* Waits that the kernel itself does not begin again. */
static void *short_sleeps(void *arg)
{
	struct timespec t = {0, 4000000};
	int set = epoll_create1(0), id = semget(IPC_PRIVATE, 1, 0600);
	struct sembuf op = {0, -1, 0};
	struct epoll_event e;
	sigset_t signals;

	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	EXPECT(set >= 0 && id >= 0);
	while (!begun)
		sched_yield();
	while (!over) {
		EXPECT(epoll_wait(set, &e, 1, 4) == 0);
		EXPECT(sigtimedwait(&signals, NULL, &t) < 0 && errno == EAGAIN);
		EXPECT(semtimedop(id, &op, 1, &t) < 0 && errno == EAGAIN);
	}
	semctl(id, 0, IPC_RMID);
	close(set);
	return arg;
}

/*
 * Signals that nobody handles rain down from another process: they may well come while a timer's
 * handler blocks them, and are no reason to end a call.
 */
static void ignored_signals_do_not_interrupt(void)
{
	struct timespec t = {0, 4000000};
	pid_t whom = getpid(), child = fork();
	pthread_t sleeper;
	double until;
	sigset_t set;

	EXPECT(child >= 0);
	while (!child)
		if (getppid() != whom || kill(whom, SIGURG) < 0 || kill(whom, SIGCHLD) < 0)
			_exit(1);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	for (int i = 0; i < 400; i++) {
		EXPECT(sigtimedwait(&set, NULL, &t) < 0 && errno == EAGAIN);
		EXPECT(poll(NULL, 0, 4) == 0);
	}
	/* A signal that comes while a handler is at work here is handed to whoever sleeps. */
	until = now() + 1;
	EXPECT(!pthread_create(&sleeper, NULL, short_sleeps, NULL));
	begun = true; /* libc blocks all while it makes a thread: they would wake the new one */
	compute(&until);
	over = true;
	pthread_join(sleeper, NULL);
	EXPECT(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
}

/* One handler for each wait: a wait that is made again would have two, or return to nowhere. */
static void own_signals_interrupt_each(double until)
{
	const struct itimerval every = {{0, 60}, {0, 60}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	struct timespec second = {1, 0};
	int set = epoll_create1(0);
	struct epoll_event e;
	sigset_t alarm, none;

	sigemptyset(&none);
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	EXPECT(set >= 0 && sigaction(SIGALRM, &action, NULL) == 0);
	EXPECT(setitimer(ITIMER_REAL, &every, NULL) == 0);
	while (now() < until) {
		EXPECT(pause() == -1 && errno == EINTR);
		EXPECT(sigprocmask(SIG_BLOCK, &alarm, NULL) == 0);
		for (int i = 0; i < 100; i++) {
			int before = alarms;

			EXPECT(ppoll(NULL, 0, &second, &none) == -1 && errno == EINTR);
			EXPECT(alarms == before + 1);
		}
		EXPECT(sigprocmask(SIG_UNBLOCK, &alarm, NULL) == 0);
		for (int i = 0; i < 100; i++)
			EXPECT(epoll_wait(set, &e, 1, -1) == -1 && errno == EINTR);
	}
	EXPECT(setitimer(ITIMER_REAL, &never, NULL) == 0);
	close(set);
}

/*
 * Calls from code that is made at run time, which nothing but dispatch's SIGSYS tells of: one that
 * is lost to a timer's would seem to return its own number.
 */
static void unpatched_calls_are_made(double until)
{
	static const uint8_t code[] = {0x48, 0x89, 0xf8, 0x0f, 0x05, 0xc3}; /* mov; syscall; ret */
	void *place = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long (*call)(long) = (long (*)(long))place, parent = getppid();

	EXPECT(place != MAP_FAILED && parent != SYS_getppid);
	memcpy(place, code, sizeof(code));
	while (now() < until)
		for (int i = 0; i < 1000; i++)
			EXPECT(call(SYS_getppid) == parent);
}

#define BULK  (2 << 20)
#define PARTS 8

static char bulk[BULK], got[BULK];

static void cut_up(char *bytes, struct iovec parts[PARTS])
{
	for (int i = 0; i < PARTS; i++)
		parts[i] = (struct iovec){bytes + i * (BULK / PARTS), BULK / PARTS};
}

static long move_write(int fd)
{
	return write(fd, bulk, BULK);
}

static long move_send(int fd)
{
	return send(fd, bulk, BULK, MSG_NOSIGNAL);
}

static long move_writev(int fd)
{
	struct iovec parts[PARTS];

	cut_up(bulk, parts);
	return writev(fd, parts, PARTS);
}

static long move_sendmsg(int fd)
{
	struct iovec parts[PARTS];
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = PARTS};

	cut_up(bulk, parts);
	return sendmsg(fd, &m, 0);
}

static long move_sendfile(int fd)
{
	int file = memfd_create("bulk", 0);
	off_t at = 0;
	long n;

	EXPECT(file >= 0 && write(file, bulk, BULK) == BULK);
	n = sendfile(fd, file, &at, BULK);
	EXPECT(close(file) == 0 && at == BULK);
	return n;
}

static long move_recv(int fd)
{
	return recv(fd, got, BULK, MSG_WAITALL);
}

static long move_recvmsg(int fd)
{
	struct iovec parts[PARTS];
	struct msghdr m = {.msg_iov = parts, .msg_iovlen = PARTS};

	cut_up(got, parts);
	return recvmsg(fd, &m, MSG_WAITALL);
}

static const struct {
	const char *name;
	long (*run)(int fd);
	bool pipe, reads;
} moves[] = {
	{"write to a pipe", move_write, true, false}, {"write", move_write, false, false},
	{"send", move_send, false, false}, {"writev to a pipe", move_writev, true, false},
	{"writev", move_writev, false, false}, {"sendmsg", move_sendmsg, false, false},
	{"sendfile", move_sendfile, false, false}, {"recv", move_recv, false, true},
	{"recvmsg", move_recvmsg, false, true},
};

/* What the kernel makes itself comes whole, too. */
static void all_is_made(void)
{
	static const char none[32];
	const size_t size = 16 << 20;
	char *to = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int zeros = open("/dev/zero", O_RDONLY);

	EXPECT(to != MAP_FAILED && zeros >= 0);
	for (int i = 0; i < 8; i++) {
		EXPECT(getrandom(to, size, 0) == (ssize_t)size && memcmp(to + size - 32, none, 32));
		EXPECT(read(zeros, to, size) == (ssize_t)size && !memcmp(to + size - 32, none, 32));
	}
	close(zeros);
}

/* The other end takes its time, so that a call waits again and again. */
static void slow_end(int fd, bool writes)
{
	const long step = 16 << 10;

	for (long at = 0, n; at < BULK; at += n) {
		usleep(500);
		n = writes ? write(fd, bulk + at, (size_t)(BULK - at < step ? BULK - at : step))
			   : read(fd, got + at, (size_t)(BULK - at < step ? BULK - at : step));
		if (n <= 0)
			_exit(1);
	}
	_exit(memcmp(writes ? bulk : got, bulk, BULK) != 0);
}

/* A call that moves all of its bytes, as it does where no signal comes, does so under our timer. */
static void all_is_moved(void)
{
	for (size_t i = 0; i < BULK; i++)
		bulk[i] = (char)(i * 7 ^ i >> 12);
	for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++) {
		int end[2], status;
		long n;
		pid_t child;

		EXPECT((moves[i].pipe ? pipe(end) : socketpair(AF_UNIX, SOCK_STREAM, 0, end)) == 0);
		memset(got, 0, BULK);
		child = fork();
		EXPECT(child >= 0);
		if (!child) {
			close(end[1]);
			slow_end(end[0], moves[i].reads);
		}
		close(end[0]);
		n = moves[i].run(end[1]);
		if (n != BULK)
			dprintf(2, "%s: %ld of %d\n", moves[i].name, n, BULK);
		EXPECT(n == BULK && (!moves[i].reads || memcmp(got, bulk, BULK) == 0));
		close(end[1]);
		EXPECT(waitpid(child, &status, 0) == child && status == 0);
	}
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "sleep";
	double start = now(), until, late = NAP + 100;
	pthread_t t[3];

	if (argc > 2)
		seconds = atof(argv[2]);
	until = start + seconds;
	if (!strcmp(what, "compute")) {
		compute(&until);
	} else if (!strcmp(what, "often")) {
		call_often();
	} else if (!strcmp(what, "threads")) { /* the first thread sleeps all the time */
		for (int i = 0; i < 2; i++)
			EXPECT(!pthread_create(&t[i], NULL, compute, &until));
		for (int i = 0; i < 2; i++)
			pthread_join(t[i], NULL);
	} else if (!strcmp(what, "ignored")) {
		ignored_signals_do_not_interrupt();
	} else if (!strcmp(what, "signals")) {
		own_signals_interrupt_each(until);
	} else if (!strcmp(what, "calls")) {
		unpatched_calls_are_made(until);
	} else if (!strcmp(what, "whole")) {
		all_is_moved();
		all_is_made();
	} else if (!strcmp(what, "rest")) {
		each_goes_on_where_it_was();
	} else if (!strcmp(what, "idle")) {
		EXPECT(poll(NULL, 0, (int)(seconds * 1e3)) == 0);
	} else {
		until = start + 1000;
		sleep_all(&late);
		EXPECT(!pthread_create(&t[0], NULL, compute, &until));
		EXPECT(!pthread_create(&t[1], NULL, sleep_all, &late));
		sleep_all(&late);
		pthread_join(t[1], NULL);
		over = true;
		pthread_join(t[0], NULL);
		own_signal_interrupts();
	}
	printf("timer: ok, %.0f ms\n", (now() - start) * 1e3);
	return 0;
}
