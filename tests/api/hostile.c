/* SPDX-License-Identifier: MIT */
/*
 * hostile CASE TRACKER: programs that use the library at awkward moments and on awkward memory.
 * Each case stands for a byte that was lost, a crash or a deadlock of the past.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include "../lib/harness.h"

#define PAGE 4096ul

static const char *tracker;
static cairn_t *c;

static void open_session(const char *surface, unsigned keep)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	o.tracker = tracker;
	o.surface = surface;
	o.keep = keep;
	c = test_open(&o);
}

static uint8_t *map_pages(size_t count)
{
	void *p = mmap(
		NULL, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		test_fail("mmap: errno %d", errno);
	return p;
}

/* An excluded local variable of a stack that is no area, but comes back with the registers. */
static void excluded_local(void)
{
	volatile int passes = 0;
	uint64_t id;

	open_session("none", 2);
	CHECK_OK(cairn_area_exclude(c, (void *)&passes, sizeof(passes)));
	if (cairn_checkpoint(c, &id) == CAIRN_RESTORED) {
		CHECK(passes == 1);
		return;
	}
	passes = 1;
	CHECK_OK(cairn_restore(c, id));
}

/* ---- A handler that restores, whatever it interrupts ---- */

static uint64_t goal;
static volatile unsigned leaps;
static time_t last_second;

static void arm(unsigned us)
{
	struct itimerval t = { .it_value = { .tv_usec = us } };

	CHECK_OK(setitimer(ITIMER_REAL, &t, NULL));
}

static void leap(int sig)
{
	int err = cairn_restore(c, goal);

	CHECK(err == -EDEADLK); /* it was in a call */
	arm(30);
}

static void restoring_handler(void)
{
	struct sigaction act = { .sa_handler = leap };
	struct cairn_stats s = { .size = sizeof(s) };
	sigset_t alarm;

	open_session("none", 2);
	last_second = time(NULL) + 3;
	CHECK_OK(sigaction(SIGALRM, &act, NULL));
	CHECK(cairn_checkpoint(c, &goal) >= 0);
	/* The mask does not come back under every tracker. */
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	CHECK_OK(sigprocmask(SIG_UNBLOCK, &alarm, NULL));
	if (time(NULL) >= last_second) {
		CHECK(leaps > 100);
		return;
	}
	arm(50 + leaps++ % 37);
	for (;;)
		CHECK_OK(cairn_stats(c, &s));
}

/* ---- A thread that is gone leaves no bytes that no restore touches ---- */

static void *rewind_once(void *arg)
{
	CHECK_OK(cairn_rewind(c, 0));
	return NULL;
}

static void place_of_a_thread(void)
{
	size_t len = 256 * PAGE, bad = 0;
	uint8_t *stack = map_pages(256);
	pthread_attr_t attr;
	pthread_t thread;
	uint64_t id;

	open_session("none", 2);
	CHECK_OK(pthread_attr_init(&attr));
	CHECK_OK(pthread_attr_setstack(&attr, stack, len));
	CHECK_OK(pthread_create(&thread, &attr, rewind_once, NULL));
	CHECK_OK(pthread_join(thread, NULL));
	memset(stack, 1, len);
	CHECK_OK(cairn_area_add(c, stack, len));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memset(stack, 2, len);
	CHECK_OK(cairn_rewind(c, id));
	for (size_t i = 0; i < len; i++)
		bad += stack[i] != 1;
	CHECK_U64(bad, 0);
}

/* ---- Shared memory that is mapped twice: a store shows at one of the places ---- */

static void mapped_twice(void)
{
	const int rw = PROT_READ | PROT_WRITE;
	int fd = memfd_create("hostile", 0), err;
	uint8_t *ring = map_pages(8), *later = map_pages(2), *other;
	uint64_t id;

	CHECK(fd >= 0);
	CHECK_OK(ftruncate(fd, 4 * PAGE));
	CHECK(mmap(ring, 4 * PAGE, rw, MAP_SHARED | MAP_FIXED, fd, 0) == ring);
	other = mmap(ring + 4 * PAGE, 4 * PAGE, rw, MAP_SHARED | MAP_FIXED, fd, 0);
	CHECK(other == ring + 4 * PAGE);
	open_session("none", 4);
	err = cairn_area_add(c, ring, 8 * PAGE);
	if (err == CAIRN_ESHARED)
		test_skip("shared areas");
	CHECK_RC(err, CAIRN_EOVERLAP);
	CHECK_OK(cairn_area_add(c, ring, 2 * PAGE));
	CHECK_RC(cairn_area_add(c, other, PAGE), CAIRN_EOVERLAP);
	CHECK_RC(cairn_area_add(c, other + PAGE, 2 * PAGE), CAIRN_EOVERLAP);
	CHECK_OK(cairn_area_add(c, other + 2 * PAGE, 2 * PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	ring[0] = other[3 * PAGE] = 1;
	CHECK_OK(cairn_rewind(c, id));
	CHECK(!other[0] && !ring[3 * PAGE]);
	/* One place for the other: that is no second one. */
	CHECK_OK(cairn_area_remove(c, ring, 2 * PAGE));
	CHECK_OK(cairn_area_add(c, other, 2 * PAGE));
	CHECK_OK(cairn_area_remove(c, other, 2 * PAGE));
	if (strcmp(tracker, "async") != 0)
		return;
	CHECK_OK(cairn_area_add(c, ring, 2 * PAGE));
	CHECK_OK(munmap(ring, 2 * PAGE));
	CHECK_OK(cairn_area_add(c, other, 2 * PAGE));
	/* It comes where an area is. */
	CHECK_OK(cairn_area_add(c, later, 2 * PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	CHECK(mmap(later, PAGE, rw, MAP_SHARED | MAP_FIXED, fd, 0) == later);
	later[0] = 1;
	CHECK_RC(cairn_rewind(c, id), CAIRN_EUNSUPPORTED);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	CHECK_RC(cairn_rewind(c, id), CAIRN_EUNSUPPORTED);
	/* What was stored by it is there when it has gone. */
	CHECK_OK(munmap(later, PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	other[8] = 2;
	CHECK_OK(cairn_rewind(c, id));
	CHECK(other[0] == 1 && !other[8]);
}

/* ---- A handler that stores to areas, whatever it interrupts ---- */

#define SPOTS 64ul

static uint8_t *spots;
static volatile unsigned rounds;

static void store_everywhere(int sig)
{
	for (size_t i = 0; i < SPOTS; i++)
		spots[i * PAGE + rounds % PAGE]++;
	rounds++;
	arm(60 + rounds % 41);
}

static void storing_handler(void)
{
	struct sigaction act = { .sa_handler = store_everywhere };
	uint8_t *copy = map_pages(SPOTS);
	time_t end = time(NULL) + 3;
	sigset_t alarm;
	uint64_t id;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	open_session("none", 3);
	spots = map_pages(SPOTS);
	CHECK_OK(cairn_area_add(c, spots, SPOTS * PAGE));
	CHECK_OK(cairn_area_exclude(c, (void *)&rounds, sizeof(rounds)));
	CHECK_OK(sigaction(SIGALRM, &act, NULL));
	arm(60);
	while (time(NULL) < end) {
		for (int i = 0; i < 20; i++)
			CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
		CHECK_OK(sigprocmask(SIG_BLOCK, &alarm, NULL));
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
		memcpy(copy, spots, SPOTS * PAGE);
		CHECK_OK(sigprocmask(SIG_UNBLOCK, &alarm, NULL));
		for (int i = 0; i < 20; i++)
			CHECK_OK(cairn_rewind(c, id));
		CHECK_OK(sigprocmask(SIG_BLOCK, &alarm, NULL));
		CHECK_OK(cairn_rewind(c, id));
		CHECK(memcmp(copy, spots, SPOTS * PAGE) == 0);
		CHECK_OK(sigprocmask(SIG_UNBLOCK, &alarm, NULL));
	}
	CHECK(rounds > 100);
}

/* ---- A file that is cut short under an area ---- */

static void cut_short(int flags)
{
	int fd = memfd_create("hostile", 0), err;
	uint64_t id, later;
	uint8_t *p;

	open_session("none", 4);
	CHECK(fd >= 0);
	CHECK_OK(ftruncate(fd, 16 * PAGE));
	p = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
	CHECK(p != MAP_FAILED);
	memset(p, 1, 16 * PAGE);
	err = cairn_area_add(c, p, 16 * PAGE);
	if (err == CAIRN_ESHARED)
		test_skip("shared areas");
	CHECK_OK(err);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memset(p, 2, 16 * PAGE);
	CHECK_OK(ftruncate(fd, 8 * PAGE));
	CHECK(cairn_checkpoint(c, &later) == CAIRN_TAKEN);
	p[5] = 3;
	CHECK_RC(cairn_rewind(c, id), CAIRN_ELAYOUT);
	CHECK(p[0] == 2 && p[5] == 3);
	CHECK(cairn_checkpoint(c, &later) == CAIRN_TAKEN);
	CHECK_OK(ftruncate(fd, 16 * PAGE));
	if (strcmp(tracker, "fork") == 0) { /* what was cut off is lost to the child as well */
		CHECK_RC(cairn_rewind(c, id), CAIRN_ELAYOUT);
		CHECK(p[0] == 2 && p[5] == 3);
		return;
	}
	CHECK_OK(cairn_rewind(c, id));
	for (size_t i = 0; i < 8 * PAGE; i++)
		CHECK(p[i] == 1);
}

static void cut_shared(void)
{
	cut_short(MAP_SHARED);
}

static void cut_private(void)
{
	cut_short(MAP_PRIVATE);
}

/* ---- More threads than a table of fixed size would hold ---- */

#define THREADS 300

static pthread_barrier_t started;

static void *show_stack(void *arg)
{
	volatile uint8_t here = 1;

	*(volatile uint8_t **)arg = &here;
	pthread_barrier_wait(&started);
	for (;;)
		pause();
	return NULL;
}

static void many_threads(void)
{
	static uint8_t *stacks[THREADS];
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	pthread_attr_t attr;
	pthread_t thread;
	uint8_t byte;
	int err;

	CHECK_OK(pthread_barrier_init(&started, NULL, THREADS + 1));
	CHECK_OK(pthread_attr_init(&attr));
	CHECK_OK(pthread_attr_setstacksize(&attr, 256 << 10));
	for (int i = 0; i < THREADS; i++)
		CHECK_OK(pthread_create(&thread, &attr, show_stack, &stacks[i]));
	pthread_barrier_wait(&started);
	o.tracker = tracker;
	o.surface = "program";
	err = cairn_open(&c, &o);
	if (err == CAIRN_EAREAONLY || err == CAIRN_ENOTRACK)
		test_skip("surfaces of mappings");
	CHECK_OK(err);
	for (int i = 0; i < THREADS; i++)
		CHECK_OK(cairn_peek(c, 0, stacks[i], &byte, 1));
	_exit(0);
}

/* ---- The program's variables as an area, the library's among them ---- */

#define MANY 200

extern uint8_t __data_start[], _end[];

static void variables(void)
{
	uintptr_t begin = (uintptr_t)__data_start & ~(PAGE - 1);
	uintptr_t end = ((uintptr_t)_end + PAGE - 1) & ~(PAGE - 1);
	static volatile int variable;
	uint8_t *pages = map_pages(2 * MANY);
	int status;
	pid_t child;
	uint64_t id;

	open_session("none", 4);
	CHECK_OK(cairn_area_add(c, (void *)begin, end - begin));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	variable = 1;
	for (size_t i = 0; i < MANY; i++)
		CHECK_OK(cairn_area_add(c, pages + 2 * i * PAGE, PAGE));
	CHECK_OK(cairn_rewind(c, id));
	CHECK(variable == 0);
	for (size_t i = 0; i < MANY; i++)
		pages[2 * i * PAGE] = 1;
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	for (size_t i = 0; i < MANY; i += 2)
		CHECK_OK(cairn_area_remove(c, pages + 2 * i * PAGE, PAGE));
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		/* In a child everything can be written. */
		for (size_t i = 0; i < MANY; i++)
			pages[2 * i * PAGE] = 2;
		variable = 3;
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK_OK(cairn_close(c));
}

/* ---- A child that inherits only a part of an area ---- */

static void partial_child(void)
{
	uint8_t *pages = map_pages(16);
	int status = 0;
	uint64_t id;
	pid_t child;

	memset(pages, 7, 16 * PAGE);
	open_session("none", 4);
	CHECK_OK(cairn_area_add(c, pages, 16 * PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	CHECK(madvise(pages, 4 * PAGE, MADV_DONTFORK) == 0);
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		for (size_t i = 4; i < 16; i++)
			pages[i * PAGE] = 1;
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK_OK(cairn_close(c));
}

/* ---- Memory at address 0, as emulators have it ---- */

static void page_zero(void)
{
	volatile uint8_t *zero = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	uint64_t first, second;
	uint8_t seen;

	if (zero == MAP_FAILED)
		test_skip("address 0 may not be mapped");
	zero[1] = zero[PAGE] = 1;
	open_session("none", 20); /* differences are kept */
	CHECK_OK(cairn_area_add(c, (void *)zero, 2 * PAGE));
	zero[1] = zero[PAGE] = 2;
	CHECK(cairn_checkpoint(c, &first) == CAIRN_TAKEN);
	zero[1] = zero[PAGE] = 3;
	CHECK(cairn_checkpoint(c, &second) == CAIRN_TAKEN);
	CHECK_OK(cairn_peek(c, first, (void *)(zero + 1), &seen, 1));
	CHECK_U64(seen, 2);
	zero[1] = zero[PAGE] = 4;
	CHECK_OK(cairn_rewind(c, second));
	CHECK(zero[1] == 3 && zero[PAGE] == 3);
	CHECK_OK(cairn_rewind(c, first));
	CHECK(zero[1] == 2 && zero[PAGE] == 2);
	for (int i = 0; i < 100; i++) { /* the page above becomes hot */
		zero[1] = zero[PAGE] = (uint8_t)i;
		CHECK(cairn_checkpoint(c, i == 90 ? &first : &second) == CAIRN_TAKEN);
	}
	CHECK_OK(cairn_peek(c, first, (void *)(zero + 1), &seen, 1));
	CHECK_U64(seen, 90);
	CHECK_OK(cairn_rewind(c, first));
	CHECK(zero[1] == 90 && zero[PAGE] == 90);
	CHECK_OK(cairn_close(c));
}

/* ---- .bss that is several mappings ---- */

static uint8_t divided[64 * PAGE] __attribute__((aligned(4096)));

static void divided_bss(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t id;

	CHECK_OK(madvise(divided + 16 * PAGE, 16 * PAGE, MADV_DONTDUMP));
	if (strcmp(tracker, "uffd") == 0 || strcmp(tracker, "mprotect") == 0) {
		o.tracker = tracker;
		o.surface = "program";
		CHECK_RC(cairn_open(&c, &o), CAIRN_EAREAONLY);
		return;
	}
	open_session("program", 4);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	for (size_t i = 0; i < 64; i++)
		divided[i * PAGE] = 1;
	CHECK_OK(cairn_rewind(c, id));
	for (size_t i = 0; i < 64; i++)
		CHECK_U64(divided[i * PAGE], 0);
	CHECK_OK(cairn_close(c));
}

/* ---- Threads that store while the past is read: a count never goes back ---- */

#define COUNTERS 32
#define DEPTH    40

static volatile uint64_t *counters;
static volatile bool enough;

static void *count_up(void *arg)
{
	while (!enough)
		for (size_t i = 0; i < COUNTERS; i++)
			counters[i * PAGE / 8]++;
	return NULL;
}

static void read_counts(void)
{
	uint64_t last[COUNTERS] = { 0 }, oldest, newest, value;

	CHECK_OK(cairn_range(c, &oldest, &newest));
	for (uint64_t id = oldest; id <= newest; id++) {
		for (size_t i = 0; i < COUNTERS; i++) {
			const void *at = (const void *)&counters[i * PAGE / 8];

			CHECK_OK(cairn_peek(c, id, at, &value, sizeof(value)));
			CHECK(value >= last[i]);
			last[i] = value;
		}
	}
}

static void counting_threads(void)
{
	time_t end = time(NULL) + 3;
	pthread_t thread;
	uint64_t id;

	open_session("none", strcmp(tracker, "fork") == 0 ? 4 : DEPTH);
	counters = (volatile uint64_t *)map_pages(COUNTERS);
	CHECK_OK(cairn_area_add(c, (void *)counters, COUNTERS * PAGE));
	CHECK_OK(pthread_create(&thread, NULL, count_up, NULL));
	while (time(NULL) < end) {
		for (int i = 0; i < DEPTH; i++)
			CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
		read_counts();
	}
	enough = true;
	CHECK_OK(pthread_join(thread, NULL));
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "excluded_local", excluded_local },
	{ "restoring_handler", restoring_handler },
	{ "place_of_a_thread", place_of_a_thread },
	{ "mapped_twice", mapped_twice },
	{ "storing_handler", storing_handler },
	{ "cut_shared", cut_shared },
	{ "cut_private", cut_private },
	{ "many_threads", many_threads },
	{ "variables", variables },
	{ "partial_child", partial_child },
	{ "page_zero", page_zero },
	{ "divided_bss", divided_bss },
	{ "counting_threads", counting_threads },
};

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	tracker = argv[2];
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (strcmp(argv[1], cases[i].name) == 0) {
			cases[i].run();
			return 0;
		}
	}
	test_fail("no case %s", argv[1]);
}
