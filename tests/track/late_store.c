/* SPDX-License-Identifier: MIT */
/*
 * late_store FEED refused | memory: a page that was hot and has not changed goes cold. Another
 * thread stores to it once the strategy has decided so, just before it is protected (here the
 * engine's own call does); and protecting the next one fails, because its mapping is not what it
 * was, or for lack of memory. The store must show in the checkpoint, or be undone without it.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include "fed_session.h"
#include "os/userfault.h"

#define PAGE  4096ul
#define LEN   (8ul << 20)
#define APART (4ul << 20) /* not in one scan */

int __real_crn_uffd_protect(int uffd, uintptr_t begin, size_t len, bool on);
int __wrap_crn_uffd_protect(int uffd, uintptr_t begin, size_t len, bool on);

static uint8_t *area;
static unsigned calls; /* of those that protect the two pages; 0: nothing happens yet */
static int failure;

int __wrap_crn_uffd_protect(int uffd, uintptr_t begin, size_t len, bool on)
{
	if (on && len == PAGE && calls) {
		if (calls++ > 1) {
			calls = 0;
			return failure;
		}
		CHECK(begin == (uintptr_t)area);
		*(volatile uint8_t *)area = 9;
	}
	return __real_crn_uffd_protect(uffd, begin, len, on);
}

static void store_both(uint8_t value)
{
	*(volatile uint8_t *)area = value;
	*(volatile uint8_t *)(area + APART) = value;
}

int main(int argc, char **argv)
{
	uint64_t id, newest;
	cairn_t *c;
	int rc;

	CHECK(argc > 2);
	failure = strcmp(argv[2], "memory") ? -ENOENT : CAIRN_EMEMORY;
	c = open_fed(argv[1], "last");
	area = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	CHECK(!madvise(area, LEN, MADV_NOHUGEPAGE));
	memset(area, 1, LEN);
	CHECK_OK(cairn_area_add(c, area, LEN));
	for (uint8_t value = 2; value < 6; value++) {
		store_both(value);
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	}
	calls = 1;
	rc = cairn_checkpoint(c, &newest);
	CHECK_U64(calls, 0);
	if (failure == CAIRN_EMEMORY) {
		CHECK_U64(rc, CAIRN_EMEMORY);
		CHECK_OK(cairn_rewind(c, id));
		CHECK_U64(*area, 5);
	} else {
		CHECK_U64(rc, CAIRN_TAKEN);
		store_both(20);
		CHECK_OK(cairn_rewind(c, newest));
		CHECK_U64(*area, 9);
		CHECK_OK(cairn_rewind(c, id));
		CHECK_U64(*area, 5);
	}
	CHECK_U64(area[APART], 5);
	CHECK_OK(cairn_close(c));
	return 0;
}
