/* SPDX-License-Identifier: MIT */
/*
 * Clean pages that the program has exchanged, emptied or opened, and that the engine then opens
 * itself, for no store that was refused: for a touch, or because a strategy expects their stores.
 */
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "remapped.h"

#define AT 5ul

static bool is_images(void)
{
	return !strcmp(tracker, "images");
}

static void open_area(const char *strategy, uint32_t flags)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	area = map_area();
	for (size_t i = 0; i < PAGES; i++)
		memset(area + i * PAGE, 10 + (int)i, PAGE);
	o.tracker = is_images() ? "async" : tracker;
	o.feed = is_images() ? "bpf-images" : NULL;
	o.surface = "none";
	o.strategy = strategy;
	o.flags = flags;
	o.keep = 4;
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
}

static void close_area(void)
{
	CHECK_OK(cairn_close(c));
	CHECK(munmap(area, PAGES * PAGE) == 0);
}

/* ---- What becomes of the page ---------------------------------------------------------------- */

static void exchange_page(void)
{
	map_at(area + AT * PAGE, 1, MAP_FIXED);
}

static void open_page(void)
{
	CHECK(mprotect(area + AT * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void empty_page(void)
{
	CHECK(madvise(area + AT * PAGE, PAGE, MADV_DONTNEED) == 0);
}

/* Its content goes, its place stays. Not of shared memory. */
static void move_content(void)
{
	void *to = mremap(area + AT * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);

	CHECK(to == MAP_FAILED || munmap(to, PAGE) == 0);
}

static void unmap_page(void)
{
	CHECK(munmap(area + AT * PAGE, PAGE) == 0);
}

/* All is right, or it is refused and nothing changes. */
static void check_rewind(void)
{
	static uint8_t now[PAGES * PAGE];
	int rc;

	memcpy(now, area, sizeof(now));
	rc = cairn_rewind(c, id);
	CHECK(rc == 0 || rc == CAIRN_ELAYOUT || rc == CAIRN_EFAILED);
	CHECK(!memcmp(area, rc == 0 ? at_checkpoint : now, sizeof(now)));
}

static void take(void)
{
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memcpy(at_checkpoint, area, sizeof(at_checkpoint));
}

/* ---- Touched --------------------------------------------------------------------------------- */

static void check_touched(void (*change)(void), bool stored)
{
	open_area("none", 0);
	take();
	change();
	if (stored)
		area[AT * PAGE] = 99;
	(void)!cairn_area_touch(c, area + AT * PAGE, PAGE);
	if (change == unmap_page)
		exchange_page();
	area[AT * PAGE + 1] = 98;
	check_rewind();
	close_area();
}

void touched(void)
{
	for (kind = PLAIN; kind < KINDS; kind++) {
		check_touched(exchange_page, true);
		check_touched(open_page, strcmp(tracker, "mprotect") == 0 || kind != PLAIN);
		check_touched(unmap_page, false);
		if (kind < SHARED) {
			check_touched(empty_page, false);
			check_touched(move_content, false);
		}
	}
}

/* A touch finds a hole: what is beside it can be stored to all the same. */
void touched_hole(void)
{
	for (kind = PLAIN; kind < KINDS; kind++) {
		open_area("none", 0);
		take();
		unmap_page();
		(void)!cairn_area_touch(c, area + (AT - 1) * PAGE, 3 * PAGE);
		for (size_t i = 0; i < PAGES; i++)
			if (i != AT)
				area[i * PAGE + 7] = 1;
		exchange_page();
		check_rewind();
		close_area();
	}
}

/* A page is exchanged while it is open, closed with a checkpoint, and loses its content then. */
void emptied_later(void)
{
	for (kind = PLAIN; kind < KINDS; kind++) {
		open_area("none", 0);
		take();
		area[AT * PAGE] = 1;
		exchange_page();
		area[AT * PAGE] = 2;
		take();
		empty_page();
		check_rewind();
		close_area();
	}
}

/* ---- Opened because a strategy expects it ---------------------------------------------------- */

static uint64_t faults(void)
{
	struct cairn_stats s = { .size = sizeof(s) };

	CHECK_OK(cairn_stats(c, &s));
	return s.faults;
}

#define FIRST  (AT - 1) /* of the pages that store_some writes */
#define LAST   (AT + 4)
#define REGION (2ul << 20) /* what Histase opens goes no further */

static void store_some(uint8_t byte)
{
	for (size_t i = FIRST; i <= LAST; i++)
		area[i * PAGE] = byte;
}

/*
 * Histase learns which pages are written with the first: then that one's fault opens them all, up
 * to the end of its 2 MiB. Where areas come to lie, the 2 MiB may end between these pages.
 */
static bool is_learnt(void)
{
	uintptr_t base = (uintptr_t)area;
	uint64_t least = (base + LAST * PAGE) / REGION - (base + FIRST * PAGE) / REGION + 1;

	for (int i = 1; i < 200; i++) {
		uint64_t before;

		take();
		before = faults();
		store_some((uint8_t)i);
		if (faults() - before == least)
			return true;
	}
	return false;
}

static void check_expected(void (*change)(void), uint32_t flags)
{
	open_area("histase", flags);
	CHECK(is_learnt());
	take();
	change();
	if (change == exchange_page || (change == open_page && strcmp(tracker, "uffd")))
		area[AT * PAGE] = 99;
	area[(AT - 1) * PAGE] = 100; /* opens the others as well */
	for (size_t i = AT + 1; i < PAGES; i++)
		area[i * PAGE] = 101;
	check_rewind();
	close_area();
}

void expected(void)
{
	for (uint32_t flags = 0; flags <= CAIRN_PROTECT; flags += CAIRN_PROTECT) {
		for (kind = PLAIN; kind < KINDS; kind++) {
			check_expected(exchange_page, flags);
			check_expected(open_page, flags);
			if (kind < SHARED)
				check_expected(empty_page, flags);
		}
	}
	kind = PLAIN;
}

/* ---- Closed by another thread while a store to it is served ---------------------------------- */

/* The signal of a store that was refused comes when the page cannot be read any more. */
void closed_within(void)
{
	siginfo_t info = { .si_signo = SIGBUS, .si_code = BUS_ADRERR };

	open_area("none", 0);
	take();
	info.si_addr = area + AT * PAGE;
	CHECK(mprotect(area + AT * PAGE, PAGE, PROT_NONE) == 0);
	area[(AT + 1) * PAGE] = 1; /* the last fault was a store's */
	CHECK(syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGBUS, &info) == 0);
	CHECK(mprotect(area + AT * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
	area[AT * PAGE] = 1;
	CHECK_OK(cairn_rewind(c, id));
	CHECK(is_restored());
	close_area();
}
