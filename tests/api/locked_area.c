/* SPDX-License-Identifier: MIT */
/*
 * locked_area TRACKER: shared memory that is locked up to RLIMIT_MEMLOCK, of which the kernel
 * refuses a second mapping, can be an area, and comes back.
 */
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include "../lib/harness.h"

#define LEN (1ul << 20)

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	struct rlimit limit = { LEN, LEN };
	volatile uint8_t *at;
	cairn_t *c;
	uint64_t id;
	int fd, got;

	CHECK(argc == 2);
	CHECK(!setrlimit(RLIMIT_MEMLOCK, &limit));
	if (!geteuid()) /* root may lock more */
		CHECK(!setresuid(65534, 65534, 65534));
	o.tracker = argv[1];
	o.surface = "none";
	CHECK_OK(cairn_open(&c, &o));
	fd = test_file();
	CHECK(fd >= 0 && !ftruncate(fd, LEN));
	at = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(at != MAP_FAILED);
	CHECK(!mlock((void *)at, LEN));
	CHECK_OK(cairn_area_add(c, (void *)at, LEN));
	*at = 1;
	got = cairn_checkpoint(c, &id);
	CHECK(got >= 0);
	CHECK_U64(*at, 1);
	if (got == CAIRN_TAKEN) {
		*at = 2;
		CHECK_OK(cairn_restore(c, id)); /* does not return */
	}
	CHECK_OK(cairn_close(c));
	return 0;
}
