/* SPDX-License-Identifier: MIT */
/* What the programs of this folder share: a tracker by name, a session, an area, limits. */
#ifndef STARVE_H
#define STARVE_H

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define PAGES 64ul

static const char *tracker;
static cairn_t *c;
static uint8_t *area;

static inline struct cairn_options with_defaults(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	o.tracker = tracker;
	o.surface = "none";
	o.keep = 4;
	return o;
}

static inline void map_area(size_t pages)
{
	area = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		test_fail("mmap: errno %d", errno);
}

static inline void limit(int resource, rlim_t value, struct rlimit *old)
{
	struct rlimit now;

	CHECK_U64((uint64_t)getrlimit(resource, old), 0);
	now = (struct rlimit){ value, old->rlim_max };
	CHECK_U64((uint64_t)setrlimit(resource, &now), 0);
}

static inline void unlimit(int resource, const struct rlimit *old)
{
	CHECK_U64((uint64_t)setrlimit(resource, old), 0);
}

static inline size_t mapped_bytes(void)
{
	char text[64] = { 0 };
	int fd = open("/proc/self/statm", O_RDONLY);

	CHECK(fd >= 0 && read(fd, text, sizeof(text) - 1) > 0);
	close(fd);
	return strtoul(text, NULL, 10) * PAGE;
}

#endif
