/* SPDX-License-Identifier: MIT */
/*
 * remapped CASE TRACKER: the program unmaps, moves or opens (a part of) an area that it has not
 * removed. Whatever a restore, rewind, peek or list of changes says then, it is no wrong byte: all
 * is right, or it is refused and nothing changes. Else nothing is refused.
 */
#include "remapped.h"
#include <pthread.h>
#include <stdatomic.h>

const char *tracker;
cairn_t *c;
uint8_t *area, at_checkpoint[PAGES * PAGE];
uint64_t id;
static uint8_t now[PAGES * PAGE];

uint8_t *map_at(void *at, size_t pages, int fixed)
{
	uint8_t *p = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

enum kind kind;

uint8_t *map_area(void)
{
	int fd = kind == OF_FILE || kind == SHARED_FILE ? test_file() : -1;
	int flags = kind == SHARED || kind == SHARED_FILE ? MAP_SHARED : MAP_PRIVATE;
	uint8_t *p;

	CHECK(fd < 0 || ftruncate(fd, PAGES * PAGE) == 0);
	p = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
		flags | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
	CHECK(p != MAP_FAILED);
	close(fd);
	return p;
}

bool told_of_nothing(void)
{
	return !strcmp(tracker, "uffd") || !strcmp(tracker, "mprotect");
}

void open_on(uint8_t *at, const char *strategy)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	area = at;
	o.tracker = tracker;
	o.surface = "none";
	o.strategy = strategy;
	o.keep = 4;
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memcpy(at_checkpoint, area, sizeof(at_checkpoint));
}

void begin(uint8_t *at, const char *strategy)
{
	for (size_t i = 0; i < PAGES * PAGE; i++)
		at[i] = (uint8_t)(1 + i / PAGE + i % 7);
	open_on(at, strategy);
	for (size_t i = 4; i < 8; i++)
		area[i * PAGE] ^= 0xff;
}

static int count_bytes(void *ctx, void *addr, size_t len, const void *before, const void *after)
{
	(void)addr, (void)before, (void)after;
	*(size_t *)ctx += len;
	return 0;
}

bool is_restored(void)
{
	return !memcmp(area, at_checkpoint, sizeof(at_checkpoint));
}

void check_exchanged(size_t first, size_t count)
{
	uint8_t old[PAGE];
	size_t bytes = 0;
	int rc;

	area[first * PAGE + 5] = 99;
	memcpy(now, area, sizeof(now));
	rc = cairn_peek(c, id, area + first * PAGE, old, PAGE);
	if (rc == 0)
		CHECK(!memcmp(old, at_checkpoint + first * PAGE, PAGE));
	if (told_of_nothing()) {
		CHECK_RC(rc, CAIRN_ELAYOUT);
		CHECK_RC(cairn_changes(c, id, CAIRN_NOW, count_bytes, &bytes), CAIRN_ELAYOUT);
		CHECK(!bytes);
		CHECK_RC(cairn_restore(c, id), CAIRN_ELAYOUT);
	}
	rc = cairn_rewind(c, id);
	CHECK(rc == 0 ? is_restored() : rc == CAIRN_ELAYOUT && !memcmp(area, now, sizeof(now)));
	if (!told_of_nothing())
		return;
	CHECK_RC(rc, CAIRN_ELAYOUT);
	CHECK_RC(cairn_rewind(c, id), CAIRN_ELAYOUT);
	/* Removed and added, it is an area again. */
	CHECK_OK(cairn_area_remove(c, area, PAGES * PAGE));
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memset(area + first * PAGE, 3, count * PAGE);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(!memcmp(area, now, sizeof(now)));
}

static void exchange(size_t first, size_t count)
{
	begin(map_at(NULL, PAGES, 0), "none");
	CHECK(munmap(area + first * PAGE, count * PAGE) == 0);
	CHECK(map_at(area + first * PAGE, count, MAP_FIXED_NOREPLACE) == area + first * PAGE);
	check_exchanged(first, count);
}

static void whole(void)
{
	exchange(0, PAGES);
}

static void first_page(void)
{
	exchange(0, 1);
}

static void last_page(void)
{
	exchange(PAGES - 1, 1);
}

/* Open pages and clean ones. */
static void middle(void)
{
	exchange(6, 4);
}

static void put_over(void)
{
	begin(map_at(NULL, PAGES, 0), "none");
	map_at(area + 9 * PAGE, 1, MAP_FIXED);
	check_exchanged(9, 1);
}

static void moved_in(void)
{
	uint8_t *other = map_at(NULL, 2, 0);

	memset(other, 55, 2 * PAGE);
	begin(map_at(NULL, PAGES, 0), "none");
	CHECK(mremap(other, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
		      area + 12 * PAGE) == area + 12 * PAGE);
	check_exchanged(12, 2);
}

/* Without anything in its place: there is nothing to write, but there is something to lose. */
static void hole(void)
{
	uint8_t old;
	int rc;

	begin(map_at(NULL, PAGES, 0), "none");
	CHECK(munmap(area + 10 * PAGE, PAGE) == 0);
	rc = cairn_peek(c, id, area + 10 * PAGE, &old, 1);
	CHECK(rc == 0 ? old == at_checkpoint[10 * PAGE] : rc == CAIRN_ELAYOUT);
	rc = cairn_rewind(c, id);
	CHECK(rc == 0 ? is_restored() : rc == CAIRN_ELAYOUT);
}

/* The program opens what `mprotect` has closed; for the others it is nothing. */
static void opened(void)
{
	begin(map_at(NULL, PAGES, 0), "none");
	CHECK(mprotect(area, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
	area[15 * PAGE] = 1;
	CHECK_RC(cairn_rewind(c, id), strcmp(tracker, "mprotect") ? 0 : CAIRN_ELAYOUT);
	CHECK(strcmp(tracker, "mprotect") ? is_restored() : area[15 * PAGE] == 1);
}

/* A checkpoint is taken before anybody looks: it is none. */
static void checkpoint_between(void)
{
	begin(map_at(NULL, PAGES, 0), "none");
	map_at(area, PAGES, MAP_FIXED);
	area[20 * PAGE] = 1;
	if (cairn_checkpoint(c, &id) != CAIRN_TAKEN)
		return;
	memcpy(at_checkpoint, area, sizeof(at_checkpoint));
	area[20 * PAGE] = area[5 * PAGE] = 2;
	check_exchanged(21, 1);
}

/* The program adds and removes other areas meanwhile: the session reads the map then. */
static void other_comes_and_goes(bool hole)
{
	uint8_t *other = map_at(NULL, 1, 0);
	uint64_t newer;
	int rc;

	begin(map_area(), "none");
	CHECK_OK(cairn_area_add(c, other, PAGE));
	if (hole)
		CHECK(munmap(area + 9 * PAGE, PAGE) == 0);
	else
		map_at(area + 9 * PAGE, 1, MAP_FIXED);
	CHECK_OK(cairn_area_remove(c, other, PAGE));
	(void)!cairn_checkpoint(c, &newer);
	if (!hole) {
		check_exchanged(9, 1);
	} else {
		rc = cairn_rewind(c, id);
		CHECK(rc == 0 ? is_restored() : rc == CAIRN_ELAYOUT);
		if (told_of_nothing())
			CHECK_OK(cairn_area_remove(c, area, PAGES * PAGE));
	}
	CHECK_OK(cairn_close(c));
}

static void beside_removed(void)
{
	for (kind = PLAIN; kind < KINDS; kind++) {
		if (kind >= SHARED && !strcmp(tracker, "fork"))
			break; /* it takes no shared areas */
		other_comes_and_goes(false);
		other_comes_and_goes(true);
	}
}

/* ---- No false alarm ---- */

static void rounds(void)
{
	uint64_t first;

	for (int i = 0; i < 40; i++) {
		size_t bytes = 0;
		uint8_t old;

		CHECK_OK(cairn_rewind(c, id));
		CHECK(is_restored());
		for (size_t k = 0; k < PAGES; k += 1 + i % 5)
			area[k * PAGE + 8] += 1;
		CHECK_OK(cairn_peek(c, id, area + 3 * PAGE, &old, 1));
		CHECK_OK(cairn_changes(c, id, CAIRN_NOW, count_bytes, &bytes));
		CHECK(bytes);
		CHECK_OK(cairn_range(c, &first, &id));
		CHECK_OK(cairn_rewind(c, id));
		for (size_t k = 1; k < PAGES; k += 1 + i % 3)
			area[k * PAGE + 8] += 1;
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
		memcpy(at_checkpoint, area, sizeof(at_checkpoint));
	}
}

static void untouched(void)
{
	begin(map_at(NULL, PAGES, 0), "none");
	rounds();
}

static void hot(void)
{
	begin(map_at(NULL, PAGES, 0), "decay");
	rounds();
}

/* Several mappings of two kinds are one area. */
static void patched(void)
{
	uint8_t *at = map_at(NULL, PAGES, 0);
	int fd = test_file();

	CHECK(ftruncate(fd, 4 * PAGE) == 0);
	CHECK(madvise(at + 4 * PAGE, 4 * PAGE, MADV_DONTDUMP) == 0);
	CHECK(mmap(at + 12 * PAGE, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd,
		      0) == at + 12 * PAGE);
	begin(at, "none");
	rounds();
}

static atomic_bool done;

static void *store_on(void *arg)
{
	for (size_t i = 0; !done; i++)
		area[(PAGES + i % 16) * PAGE] += 1;
	return arg;
}

/* Another thread opens pages of another area all the time. */
static void beside_stores(void)
{
	pthread_t id_of;

	begin(map_at(NULL, PAGES + 16, 0), "none");
	CHECK_OK(cairn_area_add(c, area + PAGES * PAGE, 16 * PAGE));
	CHECK(pthread_create(&id_of, NULL, store_on, NULL) == 0);
	rounds();
	done = true;
	pthread_join(id_of, NULL);
}

static const struct test_case cases[] = {
	{ "whole", whole },
	{ "first_page", first_page },
	{ "last_page", last_page },
	{ "middle", middle },
	{ "put_over", put_over },
	{ "moved_in", moved_in },
	{ "hole", hole },
	{ "opened", opened },
	{ "checkpoint_between", checkpoint_between },
	{ "rewinds", rewinds },
	{ "keeper_killed", keeper_killed },
	{ "keeper_spent", keeper_spent },
	{ "keeper_refused", keeper_refused },
	{ "perf_refused", perf_refused },
	{ "by_thread", by_thread },
	{ "by_young_thread", by_young_thread },
	{ "by_child", by_child }, { "by_grandchild", by_grandchild },
	{ "by_one_of_many", by_one_of_many }, { "after_many_births", after_many_births },
	{ "born_within", born_within },
	{ "keeper_stalled", keeper_stalled },
	{ "dropped", dropped },
	{ "mapped_over", mapped_over },
	{ "dropped_of_file", dropped_of_file },
	{ "mapped_over_of_file", mapped_over_of_file },
	{ "rewinds_of_file", rewinds_of_file },
	{ "closed", closed },
	{ "beside_removed", beside_removed },
	{ "dropped_late", dropped_late },
	{ "opened_between", opened_between },
	{ "silent", silent },
	{ "silent_parent", silent_parent },
	{ "untouched", untouched },
	{ "hot", hot },
	{ "patched", patched },
	{ "beside_stores", beside_stores },
	{ "exchanged_at_once", exchanged_at_once },
	{ "exchanged", exchanged },
	{ "exchanged_younger", exchanged_younger },
	{ "exchanged_removed", exchanged_removed },
	{ "exchanged_refused", exchanged_refused },
	{ "exchanged_taken", exchanged_taken },
	{ "mixed", mixed },
	{ "closed_end", closed_end },
	{ "sealed_page", sealed_page },
	{ "closed_hot", closed_hot },
	{ "open_hole", open_hole },
	{ "touched", touched },
	{ "touched_hole", touched_hole },
	{ "emptied_later", emptied_later },
	{ "expected", expected },
	{ "closed_within", closed_within },
	{ "other_object", other_object },
	{ "other_object_saved", other_object_saved },
	{ "other_object_kept", other_object_kept },
	{ "other_object_open", other_object_open },
	{ "other_object_number", other_object_number },
	{ "closed_past", closed_past },
	{ "exchanged_told", exchanged_told },
	{ "removed_stays", removed_stays },
	{ "part_stays", part_stays },
	{ "removed_gone", removed_gone },
	{ "stays_refused", stays_refused },
	{ "in_front", in_front },
	{ "opened_past", opened_past },
	{ "closed_unseen", closed_unseen },
	{ "refused_before", refused_before },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	alarm(100);
	tracker = argc > 2 ? argv[2] : "uffd";
	return test_run_case(cases, argc > 1 ? argv[1] : NULL);
}
