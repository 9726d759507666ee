/* SPDX-License-Identifier: MIT */
#include "feed_area.h"
#include <string.h>
#include <sys/mman.h>

cairn_t *c;
uint8_t *area;
const char *feed_name;
uint64_t newest;
bool could_open;
bool images;
bool unfaulting;

void check_feed(const char *expected)
{
	struct cairn_stats s = { .size = sizeof(s) };

	CHECK_OK(cairn_stats(c, &s));
	CHECK(!strcmp(s.feed, expected));
}

void open_area(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	int rc;

	o.tracker = "async";
	o.feed = feed_name;
	o.strategy = "none"; /* hot pages raise no faults */
	o.surface = "none";
	rc = cairn_open(&c, &o);
	if (rc == CAIRN_ENOTRACK && !could_open)
		test_skip("this feed, or userfaultfd with WP_ASYNC");
	CHECK_OK(rc);
	check_feed(feed_name);
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	memset(area, 1, PAGES / 2 * PAGE);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	for (int i = 0; i < 4; i++) /* what opening has stirred up settles */
		CHECK_RC(cairn_checkpoint(c, &newest), CAIRN_TAKEN);
}

uint64_t scans(void)
{
	struct cairn_stats s = { .size = sizeof(s) };

	CHECK_OK(cairn_stats(c, &s));
	return s.scans;
}

uint8_t before(size_t page)
{
	return page < PAGES / 2;
}

void check_past(size_t page)
{
	uint8_t *at = area + page * PAGE, old = 9;

	CHECK_OK(cairn_peek(c, newest, at, &old, 1));
	CHECK_U64(old, before(page));
}

void check_page(size_t page)
{
	uint8_t *at = area + page * PAGE, now = *at, old;

	CHECK(now != before(page));
	if (unfaulting) {
		CHECK_RC(cairn_peek(c, newest, at, &old, 1), CAIRN_EFAILED);
		CHECK_RC(cairn_rewind(c, newest), CAIRN_EFAILED);
		CHECK_U64(*at, now);
		memset(at, before(page), PAGE);
		return;
	}
	check_past(page);
	CHECK_OK(cairn_rewind(c, newest));
	CHECK_U64(*at, before(page));
}

void store(uint8_t *at)
{
	*(volatile uint8_t *)at = 7;
}

void *storing_main(void *at)
{
	store(at);
	return NULL;
}
