/* SPDX-License-Identifier: MIT */
/*
 * Threads under the agent: many short ones, cancelled ones, signalled ones, one of raw clone, and
 * calls by all of them.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <linux/futex.h>
#include "expect.h"

static atomic_int started, cleaned, handled;
static atomic_bool over;
static __thread int mine;

static void on_signal(int sig)
{
	(void)sig;
	EXPECT(syscall(SYS_gettid) > 0);
	atomic_fetch_add(&handled, 1);
}

static void *short_life(void *arg)
{
	mine = (int)(intptr_t)arg;
	EXPECT(getpid() == syscall(SYS_getpid) && gettid() != getpid());
	atomic_fetch_add(&started, 1);
	return (void *)(intptr_t)mine;
}

static void test_many(void)
{
	pthread_t t[16];
	void *result;

	for (int round = 0; round < 60; round++) {
		for (int i = 0; i < 16; i++)
			EXPECT(!pthread_create(
				&t[i], NULL, short_life, (void *)(intptr_t)(round * 16 + i)));
		for (int i = 0; i < 16; i++)
			EXPECT(!pthread_join(t[i], &result) && (intptr_t)result == round * 16 + i);
	}
	EXPECT(started == 60 * 16);
}

static void clean(void *arg)
{
	atomic_fetch_add((atomic_int *)arg, 1);
}

static void destroyed(int *dummy)
{
	(void)dummy;
	atomic_fetch_add(&cleaned, 1);
}

static int pipes[2];

static void *cancelled(void *arg)
{
	int dummy __attribute__((cleanup(destroyed))) = 0;
	char c;

	(void)arg;
	(void)dummy;
	pthread_cleanup_push(clean, &cleaned);
	atomic_fetch_add(&started, 1);
	EXPECT(read(pipes[0], &c, 1) == 1); /* a cancellation point; never comes back */
	pthread_cleanup_pop(0);
	return NULL;
}

/* The unwinder goes from the signal's frame through the stub to the cleanup handlers. */
static void test_cancel(void)
{
	pthread_t t;
	void *result;

	EXPECT(!pipe(pipes));
	for (int i = 0; i < 20; i++) {
		started = 0;
		EXPECT(!pthread_create(&t, NULL, cancelled, NULL));
		while (!started)
			sched_yield();
		usleep(i * 100);
		EXPECT(!pthread_cancel(t) && !pthread_join(t, &result) &&
			result == PTHREAD_CANCELED);
	}
	EXPECT(cleaned == 2 * 20);
}

static void *busy(void *arg)
{
	pthread_mutex_t *m = arg;
	uint64_t n = 0;

	while (!atomic_load(&over)) {
		pthread_mutex_lock(m);
		n += getppid() == syscall(SYS_getppid);
		pthread_mutex_unlock(m);
	}
	return (void *)(uintptr_t)n;
}

static void test_signalled(void)
{
	struct sigaction a = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	pthread_t t[6];

	EXPECT(!sigaction(SIGUSR1, &a, NULL));
	for (int i = 0; i < 6; i++)
		EXPECT(!pthread_create(&t[i], NULL, busy, &m));
	for (int i = 0; i < 6000; i++)
		EXPECT(!pthread_kill(t[i % 6], SIGUSR1));
	atomic_store(&over, 1);
	for (int i = 0; i < 6; i++)
		EXPECT(!pthread_join(t[i], NULL));
	EXPECT(handled >= 6);
}

static int raw_child(void *arg)
{
	*(atomic_int *)arg = (int)syscall(SYS_gettid);
	return 0;
}

/* A thread that libc knows nothing of shares the TLS of its creator. */
static void test_raw_clone(void)
{
	static atomic_int word;
	static int ctid = 1;
	size_t size = 65536;
	char *stack = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int tid;

	EXPECT(stack != MAP_FAILED);
	for (int i = 0; i < 50; i++) {
		ctid = 1;
		word = 0;
		tid = clone(raw_child, stack + size,
			CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD |
				CLONE_SYSVSEM | CLONE_CHILD_CLEARTID,
			(void *)&word, NULL, NULL, &ctid);
		EXPECT(tid > 0);
		while (__atomic_load_n(&ctid, __ATOMIC_ACQUIRE))
			syscall(SYS_futex, &ctid, FUTEX_WAIT, 1, NULL, NULL, 0);
		EXPECT(word == tid);
	}
}

int main(void)
{
	test_many();
	test_cancel();
	test_signalled();
	test_raw_clone();
	puts("threads: ok");
	return 0;
}
