/* SPDX-License-Identifier: MIT */
/*
 * A session with one area of PAGES pages, a number that the test defines. In each page one byte is
 * looked at, at a place of its own: a page that was taken for another one shows.
 */
#ifndef TEST_MARKED_AREA_H
#define TEST_MARKED_AREA_H

#include <sys/mman.h>
#include "harness.h"

#define PAGE 4096ul

static cairn_t *c;
static volatile uint8_t *area;

static inline void open_with_area(struct cairn_options *o)
{
	c = test_open(o);
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	CHECK_OK(cairn_area_add(c, (void *)area, PAGES * PAGE));
}

static inline void write_all(uint8_t value)
{
	for (size_t i = 0; i < PAGES; i++)
		area[i * PAGE + i] = value;
}

static inline void expect_all(uint8_t value)
{
	for (size_t i = 0; i < PAGES; i++)
		if (area[i * PAGE + i] != value)
			test_fail("page %zu has %u, not %u", i, area[i * PAGE + i], value);
}

#endif
