/* SPDX-License-Identifier: MIT */
/* Content that goes from under pages, checkpoints that come before anybody looks. */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>
#include "../track/child_find.h"
#include "remapped.h"

/* Pages that are open may go: their past is kept, and nothing is refused. */
static void drop_and_checkpoint(void)
{
	begin(map_area(), "none");
	thread_begins();
	for (int i = 0; i < 10; i++) {
		CHECK_OK(cairn_area_touch(c, area + 5 * PAGE, PAGE));
		maker(drop_open);
		if (i % 2)
			area[5 * PAGE + 9] = 9;
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
		memcpy(at_checkpoint, area, sizeof(at_checkpoint));
		area[6 * PAGE] ^= 0xff;
		if (i % 3)
			area[5 * PAGE + 7] ^= 0xff;
		CHECK_OK(cairn_rewind(c, id));
		CHECK(is_restored());
	}
	thread_ends();
	CHECK_OK(cairn_close(c));
}

/* What is stored to, or touched, after somebody else has gone, and goes then. */
static void drop_one_by_one(void)
{
	begin(map_area(), "none");
	for (size_t k = 5; k < 16; k++) {
		if (k % 2)
			area[k * PAGE] ^= 1;
		else
			CHECK_OK(cairn_area_touch(c, area + k * PAGE, PAGE));
		CHECK(madvise(area + k * PAGE, PAGE, MADV_DONTNEED) == 0);
	}
	CHECK_OK(cairn_rewind(c, id));
	CHECK(is_restored());
	CHECK_OK(cairn_close(c));
}

/* Another mapping in place of an open page, which a checkpoint may close. */
static void check_over_open(bool looks, void (*then)(void), bool told)
{
	int rc;

	begin(map_area(), "none");
	over_open();
	if (looks) {
		CHECK_OK(cairn_rewind(c, id));
		CHECK(is_restored());
		area[5 * PAGE] ^= 1;
	}
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memcpy(at_checkpoint, area, sizeof(at_checkpoint));
	if (looks)
		(void)!cairn_rewind(c, id);
	then();
	rc = cairn_rewind(c, id);
	CHECK(rc == 0 ? !told && is_restored() : rc == CAIRN_ELAYOUT);
	CHECK_OK(cairn_close(c));
}

static void store_over(void)
{
	area[5 * PAGE] = 3;
}

static void over_open_gone(void)
{
	CHECK(munmap(area + 5 * PAGE, PAGE) == 0);
}

void mapped_over(void)
{
	for (int looks = 0; looks < 2; looks++) {
		check_over_open(looks, store_over, false);
		check_over_open(looks, over_open_gone, told_of_nothing());
		if (!told_of_nothing() || events_are_read())
			check_over_open(looks, drop_open, told_of_nothing());
	}
}

/* What is touched with others has gone: the others are open all the same. */
static void touch_around(bool hole)
{
	int rc;

	begin(map_area(), "none");
	if (hole)
		CHECK(munmap(area + 9 * PAGE, PAGE) == 0);
	else
		map_at(area + 9 * PAGE, 1, MAP_FIXED);
	(void)!cairn_area_touch(c, area + 8 * PAGE, 4 * PAGE);
	area[8 * PAGE] = area[10 * PAGE] = area[11 * PAGE] = 1;
	rc = cairn_rewind(c, id);
	CHECK(rc == CAIRN_ELAYOUT || (rc == 0 && is_restored()));
	CHECK_OK(cairn_close(c));
}

/* An area that was added anew after a loss has lost nothing. */
static void drop_and_add(void)
{
	begin(map_area(), "none");
	drop_clean();
	CHECK_OK(cairn_area_remove(c, area, PAGES * PAGE));
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memcpy(at_checkpoint, area, sizeof(at_checkpoint));
	area[9 * PAGE] = 1;
	CHECK_OK(cairn_rewind(c, id));
	CHECK(is_restored());
	CHECK_OK(cairn_close(c));
}

static atomic_bool busy, busy_over;

static void *run_busily(void *unused)
{
	for (busy = true; !busy_over;)
		;
	return unused;
}

/* What others drop stays open while one of them may be at it, also where it is an area anew. */
static void drop_and_add_beside_busy(void)
{
	uint8_t *other = map_at(NULL, 1, 0);
	pthread_t thread;

	begin(map_area(), "none");
	busy = busy_over = false;
	CHECK(pthread_create(&thread, NULL, run_busily, NULL) == 0);
	while (!busy)
		sched_yield();
	CHECK_OK(cairn_area_add(c, other, PAGE));
	other[0] = 1;
	drop_open();
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	other[0] = 2;
	CHECK_OK(cairn_area_remove(c, area, PAGES * PAGE));
	CHECK(madvise(other, PAGE, MADV_DONTNEED) == 0);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memcpy(at_checkpoint, area, sizeof(at_checkpoint));
	area[5 * PAGE] ^= 1;
	area[9 * PAGE] ^= 1;
	CHECK_OK(cairn_rewind(c, id));
	CHECK(is_restored());
	busy_over = true;
	pthread_join(thread, NULL);
	CHECK_OK(cairn_close(c));
	CHECK(munmap(other, PAGE) == 0);
}

/* Whoever looks comes late: after a checkpoint, or after more calls than are remembered. */
static void drop_and_go_on(size_t calls, bool checkpoint)
{
	int rc;

	begin(map_area(), "none");
	if (told_of_nothing() && !events_are_read())
		test_skip("userfaultfd with events");
	drop_clean();
	for (size_t i = 0; i < calls; i++)
		drop_open();
	if (checkpoint) {
		uint64_t next;

		CHECK(cairn_checkpoint(c, &next) == CAIRN_TAKEN);
	}
	area[9 * PAGE] = area[5 * PAGE] = 1;
	rc = cairn_rewind(c, id);
	if (told_of_nothing())
		CHECK_RC(rc, CAIRN_ELAYOUT);
	else
		CHECK(rc == 0 && is_restored());
	CHECK_OK(cairn_close(c));
}

void dropped(void)
{
	drop_and_checkpoint();
	maker = its_thread;
	drop_and_checkpoint();
	drop_one_by_one();
	touch_around(false);
	touch_around(true);
	drop_and_add();
	drop_and_add_beside_busy();
	drop_and_go_on(0, true);
	drop_and_go_on(3000, false);
	drop_and_go_on(3000, true);
}

void dropped_of_file(void)
{
	kind = OF_FILE;
	dropped();
}

void mapped_over_of_file(void)
{
	kind = OF_FILE;
	mapped_over();
}

/* ---- A drop that is announced long before it happens ---- */

static atomic_bool dropping, has_dropped;

/* Where the main thread runs, and only when that leaves the processor alone. */
static void *drop_when_idle(void *arg)
{
	struct sched_param none = { 0 };

	CHECK(sched_setaffinity(0, sizeof(cpu_set_t), arg) == 0);
	CHECK(sched_setscheduler(0, SCHED_IDLE, &none) == 0);
	dropping = true;
	drop_open();
	has_dropped = true;
	return NULL;
}

static void signal_all(const char *name, int sig)
{
	pid_t pids[CHILDREN_MAX];
	size_t count;

	child_name = name;
	count = children_find(pids);
	for (size_t i = 0; i < count; i++)
		CHECK(kill(pids[i], sig) == 0);
}

static void be_busy(long ms)
{
	struct timespec begin, now;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	do
		clock_gettime(CLOCK_MONOTONIC, &now);
	while ((now.tv_sec - begin.tv_sec) * 1000 + (now.tv_nsec - begin.tv_nsec) / 1000000 < ms);
}

/* Of a page that is empty and open; it is closed with content by then. Has that been seen? */
static bool drop_late(cpu_set_t *here)
{
	pthread_t other;
	bool late;
	int rc;

	begin(map_area(), "none");
	drop_open();
	dropping = has_dropped = false;
	signal_all("cairn-keeper", SIGSTOP);
	signal_all("cairn-twin", SIGSTOP);
	CHECK(pthread_create(&other, NULL, drop_when_idle, here) == 0);
	while (!dropping)
		usleep(1000);
	usleep(10000);
	signal_all("cairn-keeper", SIGCONT);
	signal_all("cairn-twin", SIGCONT);
	be_busy(5); /* readers let the drop go on */
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	area[5 * PAGE] = 42;
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memcpy(at_checkpoint, area, sizeof(at_checkpoint));
	late = !has_dropped && at_checkpoint[5 * PAGE] == 42;
	pthread_join(other, NULL);
	rc = cairn_rewind(c, id);
	if (late)
		CHECK(rc == 0 ? is_restored() : rc == CAIRN_ELAYOUT);
	CHECK_OK(cairn_close(c));
	return late;
}

void dropped_late(void)
{
	cpu_set_t here;

	begin(map_area(), "none");
	if (!events_are_read())
		test_skip("userfaultfd with events");
	CHECK_OK(cairn_close(c));
	CPU_ZERO(&here);
	CPU_SET(sched_getcpu(), &here);
	CHECK(sched_setaffinity(0, sizeof(here), &here) == 0);
	for (int i = 0; i < 50; i++)
		if (drop_late(&here))
			return;
	test_skip("a processor that is not busy");
}

/* By the program itself, between two pages that the tracker opens and closes. */
void opened_between(void)
{
	uint64_t newer;
	int rc;

	begin(map_area(), "none");
	CHECK(mprotect((void *)(area + 9 * PAGE), PAGE, PROT_READ | PROT_WRITE) == 0);
	for (size_t p = 8; p <= 10; p++)
		area[p * PAGE] ^= 0xff;
	rc = cairn_checkpoint(c, &newer);
	CHECK(rc == CAIRN_TAKEN || rc == CAIRN_ELAYOUT);
	rc = cairn_rewind(c, id);
	CHECK(rc == 0 ? is_restored() : rc == CAIRN_ELAYOUT);
	CHECK_OK(cairn_close(c));
}

static bool is_writable(void *at)
{
	int fd = open("/dev/zero", O_RDONLY);
	ssize_t n = read(fd, at, 1);

	close(fd);
	return n == 1;
}

/*
 * What the program makes unwritable, or hides, goes back all the same; it stays so, but
 * for trackers that follow protections.
 */
static void check_closed(int prot)
{
	begin(map_area(), "none");
	CHECK(mprotect(area, PAGES * PAGE, prot) == 0);
	for (int i = 0; i < 2; i++) {
		CHECK_OK(cairn_rewind(c, id));
		CHECK(!told_of_nothing() || !is_writable(area + 5 * PAGE));
		CHECK(mprotect(area, PAGES * PAGE, PROT_READ) == 0);
		CHECK(is_restored());
	}
	CHECK_OK(cairn_close(c));
}

void closed(void)
{
	for (kind = PLAIN; kind < KINDS; kind++) {
		check_closed(PROT_READ);
		check_closed(PROT_NONE);
	}
}
