/* SPDX-License-Identifier: MIT */
/*
 * System calls of many threads that sleep with their buffers in hand, while another thread takes
 * checkpoints without end: none may fail or come back short because of that. Every buffer has
 * several pages, or a page of its own.
 *
 *	victim_buffers [SECONDS [NAME]]
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include "expect.h"

#define PAGE  4096
#define PAGES 12

static atomic_bool over;
static atomic_ulong checkpoints;
static double seconds = 2;

/*
 * Pages of their own, all of them dirty, and known to the engine after the next checkpoint. With a
 * hole on each side: memory that touches a thread's stack is treated as one.
 */
static void *pages(size_t count)
{
	char *p = mmap(NULL, (count + 2) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	EXPECT(p != MAP_FAILED && !mprotect(p + PAGE, count * PAGE, PROT_READ | PROT_WRITE));
	return memset(p + PAGE, 0xee, count * PAGE);
}

static void pages_free(void *at, size_t count)
{
	EXPECT(munmap((char *)at - PAGE, (count + 2) * PAGE) == 0);
}

/* Long enough that whoever reads sleeps, and checkpoints pass by. */
static void nap(void)
{
	struct timespec t = {0, 300000};

	nanosleep(&t, NULL);
}

static void *checkpointer(void *arg)
{
	(void)arg;
	while (!over) {
		poll(NULL, 0, 0);
		atomic_fetch_add(&checkpoints, 1);
		sched_yield();
	}
	return NULL;
}

static void fill(unsigned char *to, size_t len, unsigned round)
{
	for (size_t i = 0; i < len; i++)
		to[i] = (unsigned char)(i * 7 + i / PAGE + round);
}

static void check(const unsigned char *p, size_t len, unsigned round)
{
	for (size_t i = 0; i < len; i++)
		EXPECT(p[i] == (unsigned char)(i * 7 + i / PAGE + round));
}

struct pair {
	int fd[2];
	pthread_t writer;
	void (*write)(struct pair *, unsigned round);
};

static void *pair_writer(void *arg)
{
	struct pair *p = arg;

	for (unsigned round = 0; !over; round++) {
		nap();
		p->write(p, round);
	}
	shutdown(p->fd[1], SHUT_WR);
	close(p->fd[1]);
	return NULL;
}

static void pair_open(struct pair *p, int type, void (*fn)(struct pair *, unsigned))
{
	EXPECT(socketpair(AF_UNIX, type, 0, p->fd) == 0);
	p->write = fn;
	EXPECT(!pthread_create(&p->writer, NULL, pair_writer, p));
}

static void pair_close(struct pair *p)
{
	pthread_join(p->writer, NULL);
	close(p->fd[0]);
}

static void send_datagram(struct pair *p, unsigned round)
{
	static __thread unsigned char *buffer;

	if (!buffer)
		buffer = pages(PAGES);
	fill(buffer, PAGES * PAGE, round);
	EXPECT(send(p->fd[1], buffer, PAGES * PAGE, MSG_NOSIGNAL) == PAGES * PAGE);
}

/* A datagram that is copied out in part is lost. */
static void *receives(void *arg)
{
	unsigned char *buffer = pages(PAGES);
	struct pair p;
	ssize_t n;

	(void)arg;
	pair_open(&p, SOCK_SEQPACKET, send_datagram);
	for (unsigned round = 0; (n = recv(p.fd[0], buffer, PAGES * PAGE, 0)) != 0; round++) {
		EXPECT(n == PAGES * PAGE);
		check(buffer, PAGES * PAGE, round);
	}
	pair_close(&p);
	return NULL;
}

/* The same into many buffers, with everything that recvmsg writes on pages of their own. */
static void *receives_message(void *arg)
{
	unsigned char *buffer = pages(2 * PAGES);
	struct iovec *iov = pages(1);
	struct msghdr *msg = pages(1);
	struct pair p;
	ssize_t n;

	(void)arg;
	pair_open(&p, SOCK_SEQPACKET, send_datagram);
	memset(msg, 0, sizeof(*msg));
	for (int i = 0; i < PAGES; i++)
		iov[i] = (struct iovec){buffer + 2 * i * PAGE, PAGE};
	for (unsigned round = 0;; round++) {
		msg->msg_iov = iov;
		msg->msg_iovlen = PAGES;
		msg->msg_name = pages(1);
		msg->msg_namelen = sizeof(struct sockaddr_un);
		n = recvmsg(p.fd[0], msg, 0);
		pages_free(msg->msg_name, 1);
		if (n == 0)
			break;
		EXPECT(n == PAGES * PAGE && !(msg->msg_flags & MSG_TRUNC));
		for (size_t i = 0; i < PAGES * PAGE; i++)
			EXPECT(buffer[2 * (i / PAGE) * PAGE + i % PAGE] ==
				(unsigned char)(i * 7 + i / PAGE + round));
	}
	pair_close(&p);
	return NULL;
}

static void send_numbers(struct pair *p, unsigned round)
{
	uint32_t word[2] = {round * 2, round * 2 + 1};

	EXPECT(send(p->fd[1], &word[0], 4, MSG_NOSIGNAL) == 4);
	EXPECT(send(p->fd[1], &word[1], 4, MSG_NOSIGNAL) == 4);
}

static void *receives_many(void *arg)
{
	char *at = pages(8);
	struct mmsghdr *msgs = pages(1);
	struct pair p;
	uint32_t next = 0;
	int n;

	(void)arg;
	pair_open(&p, SOCK_SEQPACKET, send_numbers);
	for (;;) {
		struct iovec iov[4];

		memset(msgs, 0, 4 * sizeof(*msgs));
		for (int i = 0; i < 4; i++) {
			iov[i] = (struct iovec){at + 2 * i * PAGE, 4};
			msgs[i].msg_hdr.msg_iov = &iov[i];
			msgs[i].msg_hdr.msg_iovlen = 1;
		}
		n = recvmmsg(p.fd[0], msgs, 4, MSG_WAITFORONE, NULL);
		EXPECT(n > 0);
		if (!msgs[0].msg_len)
			break;
		for (int i = 0; i < n && msgs[i].msg_len; i++)
			EXPECT(msgs[i].msg_len == 4 && *(uint32_t *)iov[i].iov_base == next++);
	}
	pair_close(&p);
	return NULL;
}

static void *reads_pipe(void *arg)
{
	unsigned char *buffer = pages(PAGES), *sent = pages(PAGES);
	int fd[2];

	(void)arg;
	EXPECT(pipe(fd) == 0);
	while (!over) {
		struct iovec iov[3] = {{buffer, PAGE}, {buffer + PAGE, 4 * PAGE},
			{buffer + 5 * PAGE, 7 * PAGE}};
		size_t have = 0;
		pid_t child;
		int status;

		fill(sent, PAGES * PAGE, 3);
		child = fork();
		EXPECT(child >= 0);
		if (!child) {
			nap();
			_exit(write(fd[1], sent, PAGES * PAGE) == PAGES * PAGE ? 7 : 8);
		}
		while (have < PAGES * PAGE) {
			ssize_t n = have ? read(fd[0], buffer + have, PAGES * PAGE - have)
					 : readv(fd[0], iov, 3);

			EXPECT(n > 0);
			have += (size_t)n;
		}
		check(buffer, PAGES * PAGE, 3);
		EXPECT(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
	}
	return NULL;
}

/* A wait consumes the child before it finds that it cannot tell. */
static void *reaps(void *arg)
{
	int *status = pages(1);
	siginfo_t *info = pages(1);

	(void)arg;
	for (int i = 0; !over; i++) {
		pid_t child = fork();

		EXPECT(child >= 0);
		if (!child) {
			nap();
			_exit(i & 63);
		}
		if (i & 1) {
			EXPECT(waitid(P_PID, (id_t)child, info, WEXITED) == 0);
			EXPECT(info->si_status == (i & 63));
		} else {
			EXPECT(waitpid(child, status, 0) == child);
			EXPECT(WEXITSTATUS(*status) == (i & 63));
		}
	}
	return NULL;
}

extern char **environ;

static void *spawns(void *arg)
{
	char *const argv[] = {"sh", "-c", "sleep 0.002; exit 5", NULL};
	int *status = pages(1);

	(void)arg;
	while (!over) {
		pid_t child;

		EXPECT(posix_spawn(&child, "/bin/sh", NULL, NULL, argv, environ) == 0);
		EXPECT(waitpid(child, status, 0) == child && WEXITSTATUS(*status) == 5);
	}
	return NULL;
}

struct robust {
	pthread_mutex_t lock;
	char rest[PAGE - sizeof(pthread_mutex_t)];
};

static void *dies_with_lock(void *arg)
{
	struct robust *r = arg;

	for (int i = 0; i < 3; i++)
		EXPECT(pthread_mutex_lock(&r[i].lock) == 0);
	nap();
	return NULL;
}

/* The kernel marks what a thread leaves locked, also on a page that nobody has written lately. */
static void *inherits(void *arg)
{
	pthread_mutexattr_t attr;

	(void)arg;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	while (!over) {
		struct robust *r = pages(3);
		struct timespec when;
		pthread_t t;

		for (int i = 0; i < 3; i++)
			pthread_mutex_init(&r[i].lock, &attr);
		EXPECT(!pthread_create(&t, NULL, dies_with_lock, r));
		pthread_join(t, NULL);
		clock_gettime(CLOCK_REALTIME, &when);
		when.tv_sec += 100;
		for (int i = 0; i < 3; i++) {
			EXPECT(pthread_mutex_timedlock(&r[i].lock, &when) == EOWNERDEAD);
			EXPECT(pthread_mutex_consistent(&r[i].lock) == 0);
			EXPECT(pthread_mutex_unlock(&r[i].lock) == 0);
		}
		pages_free(r, 3);
	}
	return NULL;
}

static pthread_mutex_t *heir;
static long heir_count;

static void *takes_turns(void *arg)
{
	long *mine = arg;

	while (!over) {
		EXPECT(pthread_mutex_lock(heir) == 0);
		heir_count++;
		++*mine;
		nap();
		EXPECT(pthread_mutex_unlock(heir) == 0);
	}
	return NULL;
}

/* Priority inheritance: the kernel itself hands the lock's word on. */
static void *hands_on(void *arg)
{
	pthread_mutexattr_t attr;
	pthread_t t[3];
	long *mine = pages(1);

	(void)arg;
	heir = pages(1);
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(heir, &attr);
	memset(mine, 0, PAGE);
	for (int i = 0; i < 3; i++)
		EXPECT(!pthread_create(&t[i], NULL, takes_turns, &mine[i]));
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	EXPECT(mine[0] + mine[1] + mine[2] == heir_count);
	return NULL;
}

static void *gets_messages(void *arg)
{
	struct message {
		long type;
		unsigned char text[2 * PAGE - sizeof(long)];
	} *in = pages(2), *out = pages(2);
	int queue = msgget(IPC_PRIVATE, 0600);
	int status;

	(void)arg;
	EXPECT(queue >= 0);
	while (!over) {
		pid_t child;

		out->type = 4;
		fill(out->text, sizeof(out->text), 9);
		child = fork();
		EXPECT(child >= 0);
		if (!child) {
			nap();
			_exit(msgsnd(queue, out, sizeof(out->text), 0) == 0 ? 0 : 1);
		}
		EXPECT(msgrcv(queue, in, sizeof(in->text), 0, 0) == (ssize_t)sizeof(in->text));
		EXPECT(in->type == 4);
		check(in->text, sizeof(in->text), 9);
		EXPECT(waitpid(child, &status, 0) == child && status == 0);
	}
	msgctl(queue, IPC_RMID, NULL);
	return NULL;
}

static void *waits_for_events(void *arg)
{
	struct epoll_event *events = pages(3);
	int set = epoll_create1(0), fd[600][2];

	(void)arg;
	for (int i = 0; i < 600; i++) {
		struct epoll_event e = {.events = EPOLLOUT | EPOLLONESHOT, .data.u64 = (uint64_t)i};

		EXPECT(socketpair(AF_UNIX, SOCK_STREAM, 0, fd[i]) == 0);
		EXPECT(epoll_ctl(set, EPOLL_CTL_ADD, fd[i][0], &e) == 0);
	}
	while (!over) {
		uint64_t seen[10] = {0}, sum = 0;
		int n = epoll_wait(set, events, 1000, 1000);

		EXPECT(n == 600);
		for (int i = 0; i < n; i++)
			seen[events[i].data.u64 / 64] |= 1ull << (events[i].data.u64 % 64);
		for (int i = 0; i < 10; i++)
			sum += (uint64_t)__builtin_popcountll(seen[i]);
		EXPECT(sum == 600);
		for (int i = 0; i < 600; i++) {
			struct epoll_event e = {
				.events = EPOLLOUT | EPOLLONESHOT, .data.u64 = (uint64_t)i};

			EXPECT(epoll_ctl(set, EPOLL_CTL_MOD, fd[i][0], &e) == 0);
		}
	}
	for (int i = 0; i < 600; i++) {
		close(fd[i][0]);
		close(fd[i][1]);
	}
	close(set);
	return NULL;
}

static atomic_int handled;
static atomic_bool rested;
static __thread uintptr_t altstack_at;

static void on_alarm(int sig, siginfo_t *info, void *context)
{
	uintptr_t here = (uintptr_t)&sig;

	(void)info;
	(void)context;
	EXPECT(sig == SIGUSR1 && here - altstack_at < 16 * PAGE);
	atomic_fetch_add(&handled, 1);
}

static void *self_signals(void *arg)
{
	pthread_t *whom = arg;

	while (!rested) {
		nap();
		pthread_kill(*whom, SIGUSR1);
	}
	return NULL;
}

/* Handlers on an alternate stack, in the midst of a sleep whose rest goes to a page of its own. */
static void *is_interrupted(void *arg)
{
	struct sigaction action = {.sa_sigaction = on_alarm, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	struct timespec *rest = pages(1);
	stack_t stack = {.ss_sp = pages(16), .ss_size = 16 * PAGE};
	pthread_t self = pthread_self(), other;

	(void)arg;
	altstack_at = (uintptr_t)stack.ss_sp;
	EXPECT(sigaltstack(&stack, NULL) == 0 && sigaction(SIGUSR1, &action, NULL) == 0);
	EXPECT(!pthread_create(&other, NULL, self_signals, &self));
	do { /* once at least, also if we have been born late */
		struct timespec t = {50, 0};

		rest->tv_sec = 77;
		EXPECT(nanosleep(&t, rest) == -1 && errno == EINTR);
		EXPECT(rest->tv_sec <= 50);
	} while (!over);
	rested = true;
	pthread_join(other, NULL);
	EXPECT(handled > 0);
	return NULL;
}

static const struct part {
	const char *name;
	void *(*run)(void *);
} parts[] = {
	{"recv", receives}, {"recvmsg", receives_message}, {"recvmmsg", receives_many},
	{"pipe", reads_pipe}, {"reap", reaps}, {"spawn", spawns}, {"robust", inherits},
	{"inherit", hands_on}, {"message", gets_messages}, {"epoll", waits_for_events},
	{"signal", is_interrupted},
};
#define PARTS (int)(sizeof(parts) / sizeof(parts[0]))

int main(int argc, char **argv)
{
	pthread_t t[PARTS], own;
	struct timespec length;
	int count = 0;

	if (argc > 1)
		seconds = atof(argv[1]);
	EXPECT(!pthread_create(&own, NULL, checkpointer, NULL));
	for (int i = 0; i < PARTS; i++)
		if (argc < 3 || !strcmp(argv[2], parts[i].name))
			EXPECT(!pthread_create(&t[count++], NULL, parts[i].run, NULL));
	length = (struct timespec){(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
	while (nanosleep(&length, &length) < 0)
		;
	over = true;
	for (int i = 0; i < count; i++)
		pthread_join(t[i], NULL);
	pthread_join(own, NULL);
	printf("buffers: ok, %lu checkpoints\n", (unsigned long)checkpoints);
	return 0;
}
