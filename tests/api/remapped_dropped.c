/* SPDX-License-Identifier: MIT */
/* Content that goes from under pages, checkpoints that come before anybody looks. */
#include <sys/mman.h>
#include "remapped.h"

/* Pages that are open may go: their past is kept, and nothing is refused. */
static void drop_and_checkpoint(void)
{
	begin(map_at(NULL, PAGES, 0), "none");
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
	begin(map_at(NULL, PAGES, 0), "none");
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

	begin(map_at(NULL, PAGES, 0), "none");
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

/* An area that was added anew after a loss has lost nothing. */
static void drop_and_add(void)
{
	begin(map_at(NULL, PAGES, 0), "none");
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

/* Whoever looks comes late: after a checkpoint, or after more calls than are remembered. */
static void drop_and_go_on(size_t calls, bool checkpoint)
{
	int rc;

	begin(map_at(NULL, PAGES, 0), "none");
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
	drop_and_add();
	drop_and_go_on(0, true);
	drop_and_go_on(3000, false);
	drop_and_go_on(3000, true);
}
