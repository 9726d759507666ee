/* SPDX-License-Identifier: MIT */
/*
 * CAIRN_PROTECT: wild stores into the engine are stopped, and nothing else is: copies (mirror and
 * its nodes, undo pages, journal), records, tables. What write-fault handlers write stays open
 * under the trackers that have one; under the others nothing does but the control page.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <cmocka.h>
#include "journal/record.h"
#include "os/pkey.h"
#include "session/engine.h"
#include "track/async/async.h"

#define PAGES 64
#define BYTES (PAGES * CRN_PAGE_SIZE)

static sigjmp_buf caught;

static void on_fault(int sig)
{
	siglongjmp(caught, 1);
}

/* By a protection key the engine is closed to loads too: the test itself must open it to look. */
static uint32_t look_begin(void)
{
	return crn_pkey_open(crn_pkey_all());
}

static void look_end(uint32_t before)
{
	crn_pkey_restore(crn_pkey_all(), before);
}

static bool load_faults(const void *at)
{
	if (sigsetjmp(caught, 1))
		return true;
	(void)*(const volatile uint8_t *)at;
	return false;
}

static bool store_faults(const void *at)
{
	if (sigsetjmp(caught, 1))
		return true;
	*(volatile uint8_t *)at = 0xee;
	return false;
}

static uint8_t *map_area(void)
{
	void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(p, MAP_FAILED);
	return p;
}

static cairn_t *open_session(const char *tracker, uint32_t keep, uint8_t *area)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	struct sigaction act = { .sa_handler = on_fault };
	cairn_t *c;
	int err;

	sigaction(SIGSEGV, &act, NULL);
	sigaction(SIGBUS, &act, NULL); /* frames that userfaultfd closes */
	o.tracker = tracker;
	o.surface = "none";
	o.keep = keep;
	o.flags = CAIRN_PROTECT;
	err = cairn_open(&c, &o);
	if (err == CAIRN_ENOTRACK)
		skip();
	assert_int_equal(err, 0);
	memset(area, 1, BYTES);
	assert_int_equal(cairn_area_add(c, area, BYTES), 0);
	return c;
}

/*
 * Every page of a part of the arena refuses a store; but a key leaves the stack of restores open,
 * of which nothing is left between calls.
 */
static void expect_closed(cairn_t *c, enum crn_arena_part part, size_t least)
{
	volatile size_t stopped = 0; /* over siglongjmp */
	uintptr_t begin, end, stack;
	uint32_t before = look_begin();

	crn_arena_part(c->arena, part, &begin, &end);
	stack = (uintptr_t)c->restore_stack;
	look_end(before);
	if (part == CRN_ARENA_BLOCKS && crn_pkey_all()) {
		assert_int_equal(begin, stack);
		begin += CRN_RESTORE_STACK;
	}
	assert_int_equal(load_faults((void *)begin), crn_pkey_all() != 0);
	assert_true(crn_pages(end - begin) >= least);
	for (volatile uintptr_t at = begin; at < end; at += CRN_PAGE_SIZE)
		stopped += store_faults((void *)(at + 100));
	assert_int_equal(stopped, crn_pages(end - begin));
}

static void wild_stores(void **state)
{
	uint8_t *area = map_area();
	cairn_t *c = open_session(*state, 4, area);
	uint32_t before = look_begin(), caps = c->ops->caps;
	/* Handlers write to open blocks, unless they open them by the key. */
	bool handlers = !(caps & (CRN_TRACK_MIRROR | CRN_TRACK_KEEPS)) && !crn_pkey_all();
	uint64_t id;

	look_end(before);
	for (int round = 0; round < 3; round++) {
		assert_int_equal(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		memset(area, 10 + round, BYTES / 2);
	}

	expect_closed(c, CRN_ARENA_BLOCKS, 16);
	if (!(caps & CRN_TRACK_KEEPS))
		expect_closed(c, CRN_ARENA_FRAMES, PAGES);
	if (!handlers)
		expect_closed(c, CRN_ARENA_OPEN, 1);

	assert_int_equal(cairn_rewind(c, id), 0);
	assert_int_equal(area[0], 11);
	assert_int_equal(cairn_rewind(c, id - 2), 0);
	assert_int_equal(area[0], 1);
	assert_int_equal(area[BYTES - 1], 1);
	assert_int_equal(cairn_close(c), 0);
	munmap(area, BYTES);
}

#define KINDS_MAX 20

static size_t kinds(cairn_t *c, uint8_t *area, const void **to)
{
	struct crn_journal *j;
	uint32_t before = look_begin();
	const void *old = NULL;
	size_t n = 0;

	j = c->journal;
	to[n++] = c;
	to[n++] = c->areas;
	to[n++] = c->areas[0];
	to[n++] = c->marks.at;
	to[n++] = crn_mark_newest(c)->stack;
	if (!crn_pkey_all())
		to[n++] = c->restore_stack;
	to[n++] = j;
	to[n++] = j->ring;
	to[n++] = j->staging;
	to[n++] = j->entries.head; /* records */
	to[n++] = j->deltas.head;  /* contents */
	if (c->ops == &crn_tracker_async) {
		struct crn_async *t = c->tracker;

		to[n++] = t;
		to[n++] = t->spans;
		to[n++] = t->mirror.root; /* a node */
		to[n++] = *crn_mirror_slot(&t->mirror, (uintptr_t)area);
	} else {
		assert_int_equal(c->ops->look(c->tracker, (uintptr_t)area, &old), 0);
		to[n++] = old;
	}
	look_end(before);
	return n;
}

/* One of each kind, by name: that what matters lies in those parts. */
static void each_kind(void **state)
{
	uint8_t *area = map_area();
	cairn_t *c = open_session(*state, 100, area);
	const void *targets[KINDS_MAX];
	volatile size_t count; /* over siglongjmp */
	uint64_t id;

	for (int round = 0; round < 3; round++) {
		assert_int_equal(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		area[round] = 77;
	}
	count = kinds(c, area, targets);
	for (size_t i = 0; i < count; i++) {
		assert_non_null(targets[i]);
		assert_true(store_faults(targets[i]));
	}
	assert_int_equal(cairn_rewind(c, id), 0);
	assert_int_equal(area[2], 1);
	assert_int_equal(cairn_rewind(c, id - 2), 0);
	assert_int_equal(area[0], 1);
	assert_int_equal(cairn_close(c), 0);
	munmap(area, BYTES);
}

/* ---- Feeds ---------------------------------------------------------------------------------- */

#define SURE_TRIES 2000

/* Opening and closing the engine's memory is no cause for doubt; others may give some, at times. */
static void feed_is_sure(void **state)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	struct cairn_stats stats = { .size = sizeof(stats) };
	uint8_t *area = map_area();
	uint64_t id, scans = 0, before = 0;
	cairn_t *c;

	o.tracker = "async";
	o.feed = *state;
	o.surface = "none";
	o.keep = 4;
	o.flags = CAIRN_PROTECT;
	if (cairn_open(&c, &o) == CAIRN_ENOTRACK)
		skip();
	assert_int_equal(cairn_area_add(c, area, BYTES), 0);
	for (int i = 0; i < 2 || (i < SURE_TRIES && scans != before); i++) {
		area[i % BYTES] = 1;
		assert_int_equal(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		assert_int_equal(cairn_stats(c, &stats), 0);
		before = scans;
		scans = stats.scans;
	}
	assert_string_equal(stats.feed, *state);
	assert_int_equal(scans, before);
	assert_int_equal(cairn_close(c), 0);
	munmap(area, BYTES);
}

/* ---- First stores of other threads while calls open and close the engine -------------------- */

struct storing {
	uint8_t *page;
	_Atomic bool stop;
};

static void *store_on(void *arg)
{
	struct storing *s = arg;

	for (uint32_t n = 0; !atomic_load(&s->stop); n++)
		((_Atomic uint32_t *)s->page)[n % (CRN_PAGE_SIZE / 4)] = n;
	return NULL;
}

static void threads_store_meanwhile(void **state)
{
	uint8_t *area = map_area();
	cairn_t *c = open_session(*state, 4, area);
	struct storing s[2] = { { .page = area }, { .page = area + BYTES - CRN_PAGE_SIZE } };
	pthread_t threads[2];
	uint64_t id;

	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, store_on, &s[i]), 0);
	for (int round = 0; round < 2000; round++) {
		area[CRN_PAGE_SIZE] = (uint8_t)round;
		assert_int_equal(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		area[CRN_PAGE_SIZE] = 0xaa;
		area[2 * CRN_PAGE_SIZE] = 0xaa;
		assert_int_equal(cairn_rewind(c, round % 8 ? id : id - (id > 2)), 0);
		assert_int_equal(area[CRN_PAGE_SIZE],
			round % 8 || id <= 2 ? (uint8_t)round : (uint8_t)(round - 1));
	}
	for (int i = 0; i < 2; i++) {
		atomic_store(&s[i].stop, true);
		pthread_join(threads[i], NULL);
	}
	expect_closed(c, CRN_ARENA_BLOCKS, 16);
	assert_int_equal(cairn_close(c), 0);
	munmap(area, BYTES);
}

/* ---- Handlers that run on the stack of restores ---------------------------------------------- */

static volatile uintptr_t restore_stack;
static volatile int alarms, on_stack;

static void on_alarm(int sig)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);

	alarms++;
	on_stack += here - restore_stack < CRN_RESTORE_STACK;
}

static uintptr_t stack_of(cairn_t *c)
{
	uint32_t before = look_begin();
	uintptr_t at = (uintptr_t)c->restore_stack;

	look_end(before);
	return at;
}

static void alarms_every(suseconds_t us)
{
	const struct itimerval every = { { 0, us }, { 0, us } };
	struct sigaction act = { .sa_handler = on_alarm, .sa_flags = SA_RESTART };

	alarms = 0;
	sigaction(SIGALRM, &act, NULL);
	setitimer(ITIMER_REAL, &every, NULL);
}

/* It is small, and closed to handlers but for our own: the program's come before or afterwards. */
static void signals_meet_restores(void **state)
{
	uint8_t *area = map_area();
	cairn_t *c = open_session(*state, 4, area);
	static uint64_t id;

	restore_stack = stack_of(c);
	alarms_every(50);
	assert_true(cairn_checkpoint(c, &id) >= 0);
	if (alarms < 2000) {
		memset(area, 2, BYTES);
		(void)!cairn_restore(c, id);
		fail();
	}
	alarms_every(0);
	assert_int_equal(on_stack, 0);
	assert_int_equal(area[BYTES - 1], 1);
	assert_int_equal(cairn_close(c), 0);
	munmap(area, BYTES);
}

/* The kernel calls a handler without the engine's key, ours as well. */
static void faults_meet_restores(void **state)
{
	uint8_t *area = map_area();
	cairn_t *c = open_session(*state, 4, area);
	static uint64_t id;
	int ret = cairn_checkpoint(c, &id);

	if (ret == CAIRN_TAKEN) {
		area[0] = 2;
		assert_int_equal(mprotect(area, CRN_PAGE_SIZE, PROT_READ), 0);
		(void)!cairn_restore(c, id);
	}
	assert_int_equal(ret, CAIRN_RESTORED);
	assert_int_equal(area[0], 1);
	assert_int_equal(cairn_close(c), 0);
	munmap(area, BYTES);
}

/* ---- Memory that has a key of the program's own ---------------------------------------------- */

/* Closed to the program while calls and handlers copy it and put it back. */
static void programs_key(void **state)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint8_t *area = map_area();
	int key = crn_pkey_alloc();
	uint32_t open, closed;
	uint64_t id;
	cairn_t *c;

	if (key < 0)
		skip();
	open = crn_pkey_register();
	closed = open | crn_pkey_bits(key);
	assert_int_equal(
		crn_pkey_protect(area, BYTES, PROT_READ | PROT_WRITE, key), 0);
	o.tracker = *state;
	o.surface = "none";
	o.keep = 4;
	if (cairn_open(&c, &o) == CAIRN_ENOTRACK)
		skip();
	memset(area, 1, BYTES);
	crn_pkey_register_set(closed);
	assert_int_equal(cairn_area_add(c, area, BYTES), 0);
	for (uint8_t round = 2; round < 5; round++) {
		crn_pkey_register_set(open);
		memset(area, round, BYTES);
		crn_pkey_register_set(closed);
		assert_int_equal(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	}
	assert_int_equal(cairn_rewind(c, id - 1), 0);
	assert_int_equal(crn_pkey_register(), closed);
	crn_pkey_register_set(open);
	for (size_t i = 0; i < BYTES; i++)
		assert_int_equal(area[i], 3);
	crn_pkey_register_set(closed);
	if (cairn_checkpoint(c, &id) != CAIRN_RESTORED) {
		crn_pkey_register_set(open);
		assert_int_equal(cairn_restore(c, id), 0); /* does not return */
	}
	assert_int_equal(crn_pkey_register(), closed);
	crn_pkey_register_set(open);
	assert_int_equal(cairn_close(c), 0);
	munmap(area, BYTES);
	assert_int_equal(crn_pkey_free(key), 0);
}

/* Arguments: the machine of qemu.pkeys must have keys. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		{ "wild async", wild_stores, NULL, NULL, "async" },
		{ "wild mprotect", wild_stores, NULL, NULL, "mprotect" },
		{ "wild uffd", wild_stores, NULL, NULL, "uffd" },
		{ "wild softdirty", wild_stores, NULL, NULL, "softdirty" },
		{ "wild fork", wild_stores, NULL, NULL, "fork" },
		{ "kinds async", each_kind, NULL, NULL, "async" },
		{ "kinds mprotect", each_kind, NULL, NULL, "mprotect" },
		{ "kinds uffd", each_kind, NULL, NULL, "uffd" },
		{ "sure bpf", feed_is_sure, NULL, NULL, "bpf" },
		{ "sure perf", feed_is_sure, NULL, NULL, "perf" },
		{ "sure images", feed_is_sure, NULL, NULL, "bpf-images" },
		{ "program's key async", programs_key, NULL, NULL, "async" },
		{ "program's key mprotect", programs_key, NULL, NULL, "mprotect" },
		{ "program's key uffd", programs_key, NULL, NULL, "uffd" },
		{ "program's key softdirty", programs_key, NULL, NULL, "softdirty" },
		{ "program's key fork", programs_key, NULL, NULL, "fork" },
		{ "signals async", signals_meet_restores, NULL, NULL, "async" },
		{ "signals uffd", signals_meet_restores, NULL, NULL, "uffd" },
		{ "signals fork", signals_meet_restores, NULL, NULL, "fork" },
		{ "faults uffd", faults_meet_restores, NULL, NULL, "uffd" },
		{ "threads async", threads_store_meanwhile, NULL, NULL, "async" },
		{ "threads mprotect", threads_store_meanwhile, NULL, NULL, "mprotect" },
		{ "threads uffd", threads_store_meanwhile, NULL, NULL, "uffd" },
	};

	if (argc > 1 && !crn_pkey_all())
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
