/* SPDX-License-Identifier: MIT */
/*
 * -fcairn-threads: hooks that do not come to their end soon. argv: CASE. "jump": a fault within a
 * hook is left by siglongjmp, and no checkpoint waits for that hook. "late": another thread's hook
 * waits in the handler of its fault until a checkpoint has been taken; later ones wait for hooks
 * all the same, and what its store changed is brought back, or the restore is refused. "list": such
 * a hook was about to note its region, and does that when the list is another interval's: nothing
 * is brought back wrongly, and from the next checkpoint on all is as ever.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define BUSY   4
#define FAULTS 200
#define LOCKS  4096
#define ROUNDS 3000
#define PAGE   4096
#define MAX_S  20
#define VALUES 600
#define LIST   0x300000000000ul /* of saved regions: src/rt/rt.h */

static struct {
	_Alignas(128) pthread_mutex_t lock;
} *locks;

static struct kept {
	_Atomic bool in_fault, checked, written, over, ready;
	unsigned round, restored, refused;
} *kept; /* survives restores */

static volatile unsigned value;
static char *volatile page;
static sigjmp_buf out;
static struct kept *volatile seen; /* by handlers and threads, whatever is restored */

static void *map(size_t len, int prot, int flags)
{
	void *at = mmap(NULL, len, prot, flags | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	return at;
}

static void *map_excluded(cairn_t *c, size_t len)
{
	void *at = map(len, PROT_READ | PROT_WRITE, MAP_SHARED);

	CHECK_OK(cairn_area_exclude(c, at, len));
	return at;
}

static void jump(int sig)
{
	siglongjmp(out, 1);
}

static void wait_for(_Atomic bool *what)
{
	struct timespec ms = { .tv_nsec = 1000000 };

	while (!atomic_load(what))
		nanosleep(&ms, NULL);
}

static void delay(int sig)
{
	atomic_store(&seen->in_fault, true);
	wait_for(&seen->checked);
	CHECK(!mprotect(page, PAGE, PROT_READ | PROT_WRITE));
}

static void handle(void (*handler)(int))
{
	struct sigaction sa = { .sa_handler = handler };

	CHECK(!sigaction(SIGSEGV, &sa, NULL));
}

/* Each yield of a checkpoint that waits takes long. */
static void *spin(void *arg)
{
	while (!atomic_load(&seen->over))
		;
	return arg;
}

static time_t seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec;
}

static void left_by_jump(cairn_t *c)
{
	pthread_t threads[BUSY];
	time_t begin = seconds();
	uint64_t id;

	handle(jump);
	for (int i = 0; i < BUSY; i++)
		CHECK(!pthread_create(&threads[i], NULL, spin, NULL));
	for (int i = 0; i < FAULTS; i++) {
		if (!sigsetjmp(out, 1))
			*page = 1;
		value++;
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		CHECK(seconds() - begin < MAX_S);
	}
	atomic_store(&seen->over, true);
	for (int i = 0; i < BUSY; i++)
		CHECK(!pthread_join(threads[i], NULL));
}

static void *store_and_lock(void *arg)
{
	*page = 1;
	atomic_store(&seen->written, true);
	for (unsigned i = 0; !atomic_load(&seen->over); i++) {
		pthread_mutex_lock(&locks[i % LOCKS].lock);
		pthread_mutex_unlock(&locks[i % LOCKS].lock);
	}
	return arg;
}

static void restore_beside(cairn_t *c)
{
	uint64_t older, newer;
	int got;

	while (kept->round < ROUNDS) {
		value = ++kept->round;
		got = cairn_checkpoint(c, &older);
		CHECK(got >= 0);
		if (got == CAIRN_RESTORED) {
			CHECK_U64(value, kept->round);
			kept->restored++;
			continue;
		}
		value = 0;
		CHECK_RC(cairn_checkpoint(c, &newer), CAIRN_TAKEN);
		CHECK_OK(cairn_restore(c, older)); /* does not return */
	}
	CHECK_U64(kept->restored, ROUNDS);
}

static void late(cairn_t *c)
{
	pthread_t thread;
	uint64_t id;
	int got;

	locks = map_excluded(c, LOCKS * sizeof(*locks));
	for (size_t i = 0; i < LOCKS; i++)
		CHECK(!pthread_mutex_init(&locks[i].lock, NULL));
	handle(delay);
	CHECK(!pthread_create(&thread, NULL, store_and_lock, NULL));
	wait_for(&seen->in_fault);
	got = cairn_checkpoint(c, &id);
	CHECK(got >= 0);
	if (got == CAIRN_TAKEN) {
		atomic_store(&seen->checked, true);
		wait_for(&seen->written);
		CHECK(*page == 1);
		kept->refused = cairn_restore(c, id) < 0;
	}
	CHECK(kept->refused || !*page);
	restore_beside(c);
	atomic_store(&seen->over, true);
	CHECK(!pthread_join(thread, NULL));
}

static struct {
	_Alignas(128) unsigned value; /* each in a region of its own */
} values[VALUES];

static void set_all(unsigned value)
{
	for (size_t i = 0; i < VALUES; i++)
		values[i].value = value;
}

static bool all_are(unsigned value)
{
	for (size_t i = 0; i < VALUES; i++)
		if (values[i].value != value)
			return false;
	return true;
}

/* Past libc, whose wrapper has hooks, too. */
static void protect_list(int prot)
{
	long got;

	__asm__ volatile("syscall"
			 : "=a"(got)
			 : "0"(SYS_mprotect), "D"(LIST), "S"(4 * PAGE), "d"(prot)
			 : "rcx", "r11", "memory");
	CHECK(!got);
}

static __thread bool is_worker;

static void delay_list(int sig)
{
	if (!is_worker) {
		protect_list(PROT_READ | PROT_WRITE);
		return;
	}
	atomic_store(&seen->in_fault, true);
	wait_for(&seen->checked);
}

static void *store_alone(void *arg)
{
	is_worker = true;
	atomic_store(&seen->in_fault, false); /* its region is saved */
	atomic_store(&seen->ready, true);
	wait_for(&seen->over);
	value = 1;
	atomic_store(&seen->written, true);
	return arg;
}

static void list(cairn_t *c)
{
	pthread_t thread;
	uint64_t id;

	handle(delay_list);
	set_all(1);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	CHECK(!pthread_create(&thread, NULL, store_alone, NULL));
	wait_for(&seen->ready);
	atomic_store(&seen->over, false); /* its region is saved: the list is not needed again */
	protect_list(PROT_NONE);
	atomic_store(&seen->over, true);
	wait_for(&seen->in_fault);
	set_all(2);
	if (cairn_checkpoint(c, &id) == CAIRN_RESTORED)
		CHECK(all_are(2));
	else if (!kept->restored++) {
		set_all(3);
		atomic_store(&seen->checked, true);
		wait_for(&seen->written);
		kept->refused = cairn_restore(c, id) < 0;
	}
	set_all(4);
	if (cairn_checkpoint(c, &id) == CAIRN_TAKEN) {
		set_all(5);
		CHECK_OK(cairn_restore(c, id)); /* does not return */
	}
	CHECK(all_are(4));
	CHECK(!pthread_join(thread, NULL));
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;

	CHECK(argc == 2);
	page = map(PAGE, PROT_NONE, MAP_PRIVATE);
	o.tracker = "shadow";
	o.keep = 3;
	CHECK_OK(cairn_open(&c, &o));
	seen = kept = map_excluded(c, sizeof(*kept));
	if (!strcmp(argv[1], "jump"))
		left_by_jump(c);
	else if (!strcmp(argv[1], "list"))
		list(c);
	else
		late(c);
	CHECK_OK(cairn_close(c));
	return 0;
}
