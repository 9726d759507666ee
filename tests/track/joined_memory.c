/* SPDX-License-Identifier: MIT */
/*
 * joined_memory CASE: a scanning `async` joins full stretches of 2 MiB into huge pages. What is
 * stored, dropped, closed and read there is undone as ever, and nothing is joined that must not be.
 */
#include <pthread.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../lib/harness.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGE    4096ul
#define STRETCH (2ul << 20)
#define BYTES   (4 * STRETCH)
#define KEEP    6
#define STEPS   700

static struct cairn_options o = CAIRN_OPTIONS_INIT;
static cairn_t *c;
static uint64_t state = 11;

static size_t any(size_t below)
{
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return (size_t)(state >> 33) % below;
}

/* At the start of a stretch; the rest of the first one stays behind. */
static uint8_t *map_stretches(size_t bytes)
{
	uint8_t *at = mmap(NULL, bytes + STRETCH, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	return (uint8_t *)(((uintptr_t)at + STRETCH - 1) & ~(STRETCH - 1));
}

/* A number of kB in /proc/self/smaps of the mapping at `at`. */
static size_t kilobytes(const uint8_t *at, const char *what)
{
	FILE *f = fopen("/proc/self/smaps", "re");
	size_t value = 0;
	bool inside = false;
	char line[512];

	CHECK(f);
	while (fgets(line, sizeof(line), f)) {
		unsigned long begin, end;

		if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
			inside = (uintptr_t)at >= begin && (uintptr_t)at < end;
		else if (inside && !strncmp(line, what, strlen(what)))
			value = strtoul(line + strlen(what) + 1, NULL, 10);
	}
	fclose(f);
	return value;
}

static size_t huge_kilobytes(const uint8_t *at)
{
	return kilobytes(at, "AnonHugePages");
}

static void need_huge_pages(void)
{
	FILE *f = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "re");
	char text[64] = "";
	uint8_t *at = map_stretches(STRETCH);

	if (!f || !fgets(text, sizeof(text), f) || strstr(text, "[never]"))
		test_skip("transparent huge pages");
	fclose(f);
	memset(at, 1, STRETCH);
	if (huge_kilobytes(at))
		test_skip("a host that leaves pages small (transparent_hugepage is always)");
	if (madvise(at, STRETCH, MADV_COLLAPSE))
		test_skip("MADV_COLLAPSE");
	CHECK(!munmap(at, STRETCH));
}

static void open_session(const char *surface, const char *feed)
{
	o.tracker = "async";
	o.feed = feed;
	o.surface = surface;
	o.strategy = "none";
	o.keep = KEEP;
	c = test_open(&o);
}

/* ---- What the program does ----------------------------------------------------------------- */

static void *store_some(void *at)
{
	for (int i = 0; i < 50; i++)
		((uint8_t *)at)[any(BYTES)]++;
	return NULL;
}

static void in_a_thread(uint8_t *at)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, store_some, at));
	CHECK(!pthread_join(thread, NULL));
}

static void in_a_child(uint8_t *at)
{
	int pid = fork();

	CHECK(pid >= 0);
	if (!pid) {
		memset(at + any(4) * STRETCH, 0, STRETCH);
		_exit(0);
	}
	store_some(at);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

static void from_a_pipe(uint8_t *at)
{
	char text[100];
	int ends[2];

	memset(text, (int)any(256), sizeof(text));
	CHECK(!pipe(ends));
	CHECK(write(ends[1], text, sizeof(text)) == sizeof(text));
	CHECK(read(ends[0], at + any(BYTES - sizeof(text)), sizeof(text)) == sizeof(text));
	close(ends[0]);
	close(ends[1]);
}

static void change(uint8_t *at)
{
	size_t page = any(BYTES / PAGE - 16), count = 1 + any(16);

	switch (any(16)) {
	case 0:
		CHECK(!madvise(at + page * PAGE, count * PAGE, MADV_DONTNEED));
		break;
	case 1:
		CHECK(!madvise(at + any(4) * STRETCH, STRETCH, MADV_DONTNEED));
		break;
	case 2:
		memset(at + page * PAGE + any(PAGE), (int)any(256), count * PAGE - PAGE);
		break;
	case 3:
		from_a_pipe(at);
		break;
	case 4:
		in_a_thread(at);
		break;
	case 5:
		in_a_child(at);
		break;
	case 6:
		CHECK(!mprotect(at + page * PAGE, count * PAGE, PROT_READ));
		CHECK(!mprotect(at + page * PAGE, count * PAGE, PROT_READ | PROT_WRITE));
		break;
	default:
		at[any(BYTES)]++;
	}
}

/* ---- Cases ----------------------------------------------------------------------------------- */

static void undone(void)
{
	static uint8_t copy[KEEP][BYTES];
	uint64_t ids[KEEP];
	size_t newest = 0, live = 0, rewinds = 0;
	uint8_t *at = map_stretches(BYTES);

	for (size_t i = 0; i < BYTES; i++)
		at[i] = (uint8_t)any(256);
	open_session("none", "scan");
	CHECK_OK(cairn_area_add(c, at, BYTES));
	CHECK(huge_kilobytes(at) >= STRETCH >> 10);
	for (int step = 0; step < STEPS; step++) {
		size_t what = any(12);

		if (what == 0) {
			newest = (newest + 1) % KEEP;
			live += live < KEEP;
			CHECK_RC(cairn_checkpoint(c, &ids[newest]), CAIRN_TAKEN);
			memcpy(copy[newest], at, BYTES);
		} else if (what == 1 && live) {
			size_t back = any(live);

			newest = (newest + KEEP - back) % KEEP;
			live -= back;
			CHECK_OK(cairn_rewind(c, ids[newest]));
			CHECK(!memcmp(at, copy[newest], BYTES));
			rewinds++;
		} else {
			change(at);
		}
	}
	CHECK(rewinds > STEPS / 24);
	CHECK_OK(cairn_close(c));
}

/* Before any of it is stored to, and afterwards. */
static void split(void)
{
	uint8_t *at = map_stretches(BYTES);
	size_t joined;
	uint64_t id;

	memset(at, 7, BYTES);
	open_session("none", "scan");
	CHECK_OK(cairn_area_add(c, at, BYTES));
	joined = huge_kilobytes(at);
	CHECK(joined >= STRETCH >> 10);
	for (int i = 0; i < 5; i++)
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	CHECK_U64(huge_kilobytes(at), joined);
	at[3 * PAGE] = 8;
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	CHECK_U64(huge_kilobytes(at), joined - (STRETCH >> 10));
	CHECK_OK(cairn_close(c));
}

static void surface_all(void)
{
	uint8_t *at = map_stretches(BYTES);
	uint64_t id;

	memset(at, 7, BYTES);
	open_session("all", "scan");
	CHECK(huge_kilobytes(at) >= STRETCH >> 10);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	memset(at + STRETCH + 77, 8, STRETCH);
	CHECK(!madvise(at + 3 * STRETCH, STRETCH, MADV_DONTNEED));
	CHECK_OK(cairn_rewind(c, id));
	for (size_t i = 0; i < BYTES; i++)
		CHECK_U64(at[i], 7);
	CHECK_OK(cairn_close(c));
}

/* Neither what the program wants small, nor what is not full, nor beside a feed. */
static void left_alone(void)
{
	uint8_t *small = map_stretches(BYTES), *half = map_stretches(BYTES);
	size_t resident;

	CHECK(!madvise(small, BYTES, MADV_NOHUGEPAGE));
	memset(small, 1, BYTES);
	for (size_t i = 0; i < BYTES; i += STRETCH)
		memset(half + i, 1, STRETCH - PAGE);
	resident = kilobytes(half, "Rss");
	open_session("none", "scan");
	CHECK_OK(cairn_area_add(c, small, BYTES));
	CHECK_U64(huge_kilobytes(small), 0);
	CHECK_OK(cairn_area_add(c, half, BYTES));
	CHECK_U64(huge_kilobytes(half), 0);
	CHECK_U64(kilobytes(half, "Rss"), resident);
	CHECK_OK(cairn_close(c));
}

static void left_shared(void)
{
	uint8_t *at = map_stretches(BYTES);
	int ends[2], pid;
	char byte;

	memset(at, 1, BYTES);
	CHECK(!pipe(ends));
	pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		close(ends[1]);
		_exit((int)read(ends[0], &byte, 1));
	}
	open_session("none", "scan");
	CHECK_OK(cairn_area_add(c, at, BYTES));
	CHECK_U64(huge_kilobytes(at), 0);
	CHECK_OK(cairn_close(c));
	close(ends[1]);
	CHECK(waitpid(pid, NULL, 0) == pid);
}

static void left_with_feed(void)
{
	uint8_t *at = map_stretches(BYTES);

	memset(at, 1, BYTES);
	open_session("none", "perf");
	CHECK_OK(cairn_area_add(c, at, BYTES));
	CHECK_U64(huge_kilobytes(at), 0);
	CHECK_OK(cairn_close(c));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "undone", undone },
		{ "split", split },
		{ "surface_all", surface_all },
		{ "left_alone", left_alone },
		{ "left_shared", left_shared },
		{ "left_with_feed", left_with_feed },
		{ NULL, NULL },
	};

	need_huge_pages();
	return test_run_case(cases, argc > 1 ? argv[1] : NULL);
}
