/* SPDX-License-Identifier: MIT */
/*
 * page_kinds TRACKER FEED CASE: memory whose pages the kernel does not handle one by one
 * (hugetlbfs), replaces by itself (KSM), or takes away (swap, MADV_FREE).
 */
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define HUGE  (2ul << 20)
#define STEPS 12

static cairn_t *c;
static struct cairn_options o = CAIRN_OPTIONS_INIT;
static uint8_t copy[STEPS][HUGE];

static uint8_t *map_huge(void)
{
	uint8_t *at = mmap(NULL, HUGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);

	if (at == MAP_FAILED)
		test_skip("huge pages of 2 MiB (vm.nr_hugepages)");
	return at;
}

static void go_back(uint64_t id, const uint8_t *at, const uint8_t *then)
{
	CHECK_OK(cairn_rewind(c, id));
	CHECK(!memcmp(at, then, HUGE));
}

static void store(uint8_t *at, int step)
{
	for (size_t k = 0; k < 5; k++)
		at[(((size_t)step * 37 + k * 91) % 512) * PAGE + 8] += (uint8_t)(step + 1);
}

/* One fault opens all of the page: later stores to other parts of it raise none. */
static void huge(void)
{
	uint8_t *at = map_huge();
	uint64_t id[STEPS];

	memset(copy, 1, sizeof(copy)); /* no mapping changes later, of which a feed would hear */
	memcpy(copy[0], at, HUGE);
	CHECK_OK(cairn_area_add(c, at, HUGE));
	for (int i = 0; i < 2 * STEPS; i++) { /* what a feed has doubted settles */
		CHECK_RC(cairn_checkpoint(c, &id[0]), CAIRN_TAKEN);
		store(at, i);
		go_back(id[0], at, copy[0]);
	}
	for (int i = 0; i < STEPS; i++) {
		CHECK_RC(cairn_checkpoint(c, &id[i]), CAIRN_TAKEN);
		memcpy(copy[i], at, HUGE);
		store(at, i);
		go_back(id[i], at, copy[i]);
		store(at, i);
	}
	for (int i = STEPS - 1; i >= 0; i--)
		go_back(id[i], at, copy[i]);
}

enum drop { DROP_ADVICE, DROP_HOLE, DROP_CUT, DROPS };

static void drop_pages(enum drop how, int fd, uint8_t *at)
{
	if (how == DROP_ADVICE)
		CHECK(!madvise(at, HUGE, MADV_DONTNEED));
	else if (how == DROP_HOLE)
		CHECK(!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HUGE));
	else
		CHECK(!ftruncate(fd, 0) && !ftruncate(fd, HUGE));
}

static uint8_t *map_huge_file(int kind, int *fd)
{
	uint8_t *at;

	*fd = memfd_create("page_kinds", MFD_HUGETLB);
	at = *fd < 0 || ftruncate(*fd, HUGE) ? MAP_FAILED
		: mmap(NULL, HUGE, PROT_READ | PROT_WRITE, kind, *fd, 0);
	if (at == MAP_FAILED)
		test_skip("huge pages of 2 MiB (vm.nr_hugepages)");
	return at;
}

/* What was written before the checkpoint alone, since it, or both; and is read before the call. */
static void drop_once(int kind, enum drop how, bool store_since, bool read_since, bool between)
{
	uint64_t id, next;
	uint8_t *at;
	int fd;

	at = map_huge_file(kind, &fd);
	for (size_t i = 0; i < HUGE; i += PAGE)
		at[i] = (uint8_t)(1 + i / PAGE);
	CHECK_OK(cairn_area_add(c, at, HUGE));
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	memcpy(copy[0], at, HUGE);
	if (store_since)
		store(at, 3);
	drop_pages(how, fd, at);
	if (read_since)
		for (size_t i = 0; i < HUGE; i += PAGE)
			(void)*(volatile uint8_t *)(at + i);
	if (between)
		CHECK_RC(cairn_checkpoint(c, &next), CAIRN_TAKEN);
	go_back(id, at, copy[0]);
	/* And it is watched as before. */
	store(at, 5);
	go_back(id, at, copy[0]);
	CHECK_OK(cairn_area_remove(c, at, HUGE));
	CHECK(!munmap(at, HUGE));
	close(fd);
}

/* Neither the missing page nor the new one of zeros is written to the kernel. */
static void huge_dropped(void)
{
	for (unsigned i = 0; i < 16u * DROPS; i++)
		drop_once(i & 1 ? MAP_SHARED : MAP_PRIVATE, (enum drop)(i / 16), i & 2, i & 4,
			i & 8);
}

/* An area of ordinary pages around a huge one, of which some parts are written at each turn. */
static void beside_once(uint8_t *at, int advice)
{
	uint64_t id;

	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	memcpy(copy, at, 3 * HUGE);
	store(at, 1);
	for (size_t i = 0; i < 10; i += 2)
		at[HUGE + i * PAGE] += 3;
	CHECK(!madvise(at + HUGE, HUGE, advice));
	CHECK_OK(cairn_rewind(c, id));
	CHECK(!memcmp(copy, at, 3 * HUGE));
	for (size_t i = 0; i < 5; i++)
		at[HUGE + i * PAGE] += 3;
}

static void huge_beside(void)
{
	uint8_t *free = mmap(NULL, 4 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	const int flags = MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, prot = PROT_READ | PROT_WRITE;
	uint8_t *at = free + HUGE - (uintptr_t)free % HUGE;

	CHECK(free != MAP_FAILED);
	CHECK(mmap(at, 3 * HUGE, prot, flags, -1, 0) == at);
	if (mmap(at + HUGE, HUGE, prot, flags | MAP_HUGETLB, -1, 0) == MAP_FAILED)
		test_skip("huge pages of 2 MiB (vm.nr_hugepages)");
	memset(at, 1, 3 * HUGE);
	CHECK_OK(cairn_close(c));
	o.strategy = "histase";
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, at, 3 * HUGE));
	for (int i = 0; i < 20; i++)
		beside_once(at, i % 2 ? MADV_REMOVE : MADV_DONTNEED);
}

/* The program's memory is as usable as before. */
static void huge_refused(void)
{
	uint8_t *at = map_huge();

	at[0] = 1;
	CHECK_RC(cairn_area_add(c, at, HUGE), CAIRN_EUNSUPPORTED);
	for (size_t i = 0; i < HUGE; i += PAGE)
		at[i] = 2;
}

static bool is_mergeable(const void *at)
{
	FILE *f = fopen("/proc/self/smaps", "r");
	bool inside = false, flag = false;
	unsigned long begin, end;
	char line[512];

	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			inside = begin <= (uintptr_t)at && (uintptr_t)at < end;
		else if (inside && !strncmp(line, "VmFlags:", 8))
			flag |= strstr(line, " mg") != NULL;
	}
	fclose(f);
	return flag;
}

/* A page that has been merged has no protection any more. */
static void mergeable(void)
{
	uint8_t *at = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);

	CHECK(at != MAP_FAILED);
	if (madvise(at, 8 * PAGE, MADV_MERGEABLE))
		test_skip("KSM (MADV_MERGEABLE)");
	CHECK(is_mergeable(at));
	CHECK_OK(cairn_area_add(c, at, 8 * PAGE));
	CHECK(!is_mergeable(at));
}

static bool is_swapped(const uint8_t *page)
{
	uint64_t entry = 0;
	int fd = open("/proc/self/pagemap", O_RDONLY);

	CHECK(fd >= 0);
	CHECK(pread(fd, &entry, 8, (off_t)((uintptr_t)page / PAGE * 8)) == 8);
	close(fd);
	return entry >> 62 & 1;
}

static void swap_out(uint8_t *page)
{
	if (madvise(page, PAGE, MADV_PAGEOUT) || !is_swapped(page))
		test_skip("swap");
}

/*
 * Own pages that lie on swap when a checkpoint looks for them, and when a mapping is new. One that
 * is dropped then becomes the file's, without a fault.
 */
static void swapped(void)
{
	FILE *f = tmpfile();
	uint64_t id;
	uint8_t *at;

	CHECK(f && !ftruncate(fileno(f), 8 * PAGE));
	at = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fileno(f), 0);
	CHECK(at != MAP_FAILED);
	at[0] = 1;
	at[4 * PAGE] = 2;
	CHECK_OK(cairn_area_add(c, at, 8 * PAGE));
	swap_out(at);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	CHECK(!madvise(at, PAGE, MADV_DONTNEED));
	CHECK_U64(at[0], 0);
	CHECK_OK(cairn_rewind(c, id));
	CHECK_U64(at[0], 1);

	CHECK_OK(cairn_close(c));
	swap_out(at + 4 * PAGE);
	o.surface = "all";
	c = test_open(&o);
	CHECK(!madvise(at + 4 * PAGE, PAGE, MADV_DONTNEED));
	CHECK_U64(at[4 * PAGE], 0);
	CHECK_OK(cairn_rewind(c, 0));
	CHECK_U64(at[4 * PAGE], 2);
	fclose(f);
}

#define PAGES 8ul

/* What was given MADV_FREE goes when memory is short; now. */
static void reclaim(uint8_t *at)
{
	if (madvise(at, PAGES * PAGE, MADV_PAGEOUT))
		test_skip("MADV_PAGEOUT");
}

static uint8_t *map_pages(uint8_t value)
{
	uint8_t *at = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	memset(at, value, PAGES * PAGE);
	return at;
}

/* Hot pages that are touched before the advice, and have not changed, are put back as well. */
static void freed(void)
{
	struct cairn_stats figures = { .size = sizeof(figures) };
	uint8_t *at = map_pages(1), *try = map_pages(1);
	uint64_t id;

	CHECK(!madvise(try, PAGES * PAGE, MADV_FREE));
	reclaim(try);
	if (try[0])
		test_skip("MADV_PAGEOUT that takes what was given MADV_FREE");
	CHECK_OK(cairn_close(c));
	o.strategy = "decay";
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, at, PAGES * PAGE));
	for (uint8_t step = 2; step < 60; step++) {
		memset(at, step, PAGES * PAGE);
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	}
	CHECK_OK(cairn_stats(c, &figures));
	CHECK(figures.hot_pages);
	CHECK_OK(cairn_area_touch(c, at, PAGES * PAGE));
	CHECK(!madvise(at, PAGES * PAGE, MADV_FREE));
	CHECK_OK(cairn_rewind(c, id));
	reclaim(at);
	for (size_t i = 0; i < PAGES * PAGE; i++)
		CHECK_U64(at[i], 59);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "swapped", swapped },
		{ "huge", huge },
		{ "huge_dropped", huge_dropped },
		{ "huge_beside", huge_beside },
		{ "huge_refused", huge_refused },
		{ "mergeable", mergeable },
		{ "freed", freed },
		{ NULL, NULL },
	};

	CHECK(argc > 3);
	if (!strcmp(argv[1], "--row")) { /* CASE --tracker TRACKER: tests/qemu */
		argv[1] = argv[4];
		argv[3] = argv[2];
		argv[2] = "auto";
	}
	o.tracker = argv[1];
	o.feed = argv[2];
	o.strategy = "none"; /* hot pages need no report */
	o.surface = "none";
	o.keep = STEPS;
	c = test_open(&o);
	test_run_case(cases, argv[3]);
	CHECK_OK(cairn_close(c));
	return 0;
}
