/* SPDX-License-Identifier: MIT */
/*
 * cut_files TRACKER STRATEGY [FEED]: private memory of a file that is cut short and grows again.
 * The kernel takes what the program had written there along, without a store or an event. Trackers
 * that have no copy of it must refuse; a restore that succeeds has every byte. With FEED, of async:
 * surface all, where the file is mapped in parts, as an object is that has been loaded.
 */
#include <stdbool.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../lib/harness.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define PAGE  4096ul
#define PAGES 200ul
#define CUT   70ul /* the first page that goes */
#define OWN   72ul /* the first of the program's own after it */

static cairn_t *c;
static struct cairn_options options = CAIRN_OPTIONS_INIT;
static bool copies; /* the tracker has the content of clean pages as well */
static bool images;
static int file;
static uint8_t *area, at_checkpoint[PAGES * PAGE];
static uint64_t id;

static void begin(void)
{
	file = memfd_create("cut_files", 0);
	CHECK(file >= 0 && ftruncate(file, PAGES * PAGE) == 0);
	for (size_t i = 0; i < PAGES; i++)
		CHECK(pwrite(file, "file", 4, (off_t)(i * PAGE)) == 4);
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	CHECK(area != MAP_FAILED);
}

static void checkpoint(void)
{
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memcpy(at_checkpoint, area, sizeof(at_checkpoint));
}

/* Every third page is the program's own when the area is added. */
static void begin_session(void)
{
	begin();
	for (size_t i = 0; i < PAGES; i += 3)
		area[i * PAGE + 8] = 'o';
	c = test_open(&options);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	checkpoint();
}

static void end(void)
{
	CHECK_OK(cairn_close(c));
	munmap(area, PAGES * PAGE);
	close(file);
}

static void cut(size_t first)
{
	CHECK(ftruncate(file, (off_t)(first * PAGE)) == 0);
	CHECK(ftruncate(file, PAGES * PAGE) == 0);
}

/*
 * Pages beyond the cut that the program has never written are what the file has now: that is a
 * write behind the back of every tracker, and who has copies may put back what it had before.
 */
static void check_restored(bool cut)
{
	for (size_t i = 0; i < PAGES; i++)
		if (!cut || i < CUT || at_checkpoint[i * PAGE + 8])
			CHECK(memcmp(area + i * PAGE, at_checkpoint + i * PAGE, PAGE) == 0);
}

/* Without a mirror every doubt costs the past of a private file. */
static void check_rewind(bool cut)
{
	int rc = cairn_rewind(c, id);

	if (images && rc == CAIRN_EFAILED)
		return;
	CHECK_OK(rc);
	check_restored(cut);
}

/* Own pages have gone that were clean. */
static void check_loss(void)
{
	int rc = cairn_rewind(c, id);

	CHECK(rc == 0 || rc == CAIRN_ELAYOUT || rc == CAIRN_EFAILED);
	CHECK((rc == 0) == copies);
	if (rc == 0)
		check_restored(true);
	else
		CHECK(cairn_rewind(c, id) < 0);
	/* What is there now is what the next checkpoint holds. */
	checkpoint();
	area[OWN * PAGE + 8] = area[(OWN + 3) * PAGE] = 1;
	check_rewind(true);
	if (!images) {
		CHECK(area[OWN * PAGE + 8] == at_checkpoint[OWN * PAGE + 8]);
		CHECK(area[(OWN + 3) * PAGE] == at_checkpoint[(OWN + 3) * PAGE]);
	}
}

/* A strategy may have copied it: then it is not lost. */
static void check_hot(void)
{
	int rc = cairn_rewind(c, id);

	CHECK(rc == 0 || rc == CAIRN_ELAYOUT || rc == CAIRN_EFAILED);
	if (rc == 0)
		check_restored(true);
}

/* Own when the area was added, or since an interval that has ended. */
static void clean_goes(void)
{
	for (int how = 0; how < 6; how++) {
		begin_session();
		if (how & 1) {
			for (size_t i = 0; i < PAGES; i++)
				area[i * PAGE + 8] = 'w';
			checkpoint();
		}
		if (how == 4)
			checkpoint();
		cut(how < 4 ? CUT : 198ul - (size_t)how % 2); /* 198 is own from the beginning */
		if (how & 2) /* the page that a restore would put back is not the first to go */
			area[5] = 1;
		check_loss();
		end();
	}
}

/* A store to such a page, or a touch, would save the wrong old content. */
static void saved_after(void)
{
	for (int how = 0; how < 6; how++) {
		begin_session();
		if (how > 3) { /* its own since an interval that has ended */
			area[198 * PAGE + 8] = 'w';
			checkpoint();
		}
		cut(197);
		if (how == 3 || how == 4)
			CHECK(area[198 * PAGE + 8] == 0);
		if (how == 5)
			(void)madvise(area + 190 * PAGE, 10 * PAGE, MADV_POPULATE_READ);
		if (how == 0 || how > 2)
			area[198 * PAGE] = 1;
		if (how == 1)
			CHECK_OK(cairn_area_touch(c, area + 198 * PAGE, PAGE));
		if (how == 2)
			CHECK_OK(cairn_area_touch(c, area + 190 * PAGE, 10 * PAGE));
		if (how > 3 && strcmp(options.strategy, "none") != 0)
			check_hot();
		else
			check_loss();
		end();
	}
}

static int ignore(void *ctx, void *addr, size_t len, const void *before, const void *after)
{
	return 0;
}

/* Who looks at the past is not told something else either. */
static void past(void)
{
	uint8_t seen[2 * PAGE];
	int rc;

	begin_session();
	cut(CUT);
	rc = cairn_peek(c, id, area + 198 * PAGE, seen, PAGE);
	CHECK(copies ? rc == 0 && memcmp(seen, at_checkpoint + 198 * PAGE, PAGE) == 0 : rc < 0);
	end();
	begin_session();
	cut(CUT);
	rc = cairn_peek(c, id, area + 197 * PAGE + 100, seen, PAGE + 1);
	CHECK(copies ? rc == 0 && seen[PAGE - 92] == 'o' : rc < 0);
	if (!images && strcmp(options.tracker, "fork") != 0)
		CHECK_OK(cairn_peek(c, id, area + 50 * PAGE + 100, seen, PAGE + 1));
	end();
	begin_session();
	cut(CUT);
	rc = cairn_changes(c, id, CAIRN_NOW, ignore, NULL);
	CHECK(copies ? rc == 0 : rc < 0);
	end();
}

/* What was open when it went is kept, and nothing is refused. */
static void open_goes(void)
{
	for (int how = 0; how < 3; how++) {
		begin_session();
		for (size_t i = CUT; i < PAGES; i++)
			area[i * PAGE + 8] = 'n';
		if (how == 1)
			CHECK_OK(cairn_rewind(c, id));
		if (how == 2) { /* that it is the file's again is what this checkpoint holds */
			cut(CUT);
			checkpoint();
			area[CUT * PAGE + 8] = 'x';
		}
		if (how < 2)
			cut(CUT);
		check_rewind(how == 2);
		end();
	}
}

/* Opened and never written: it is the file's as before, and may go. */
static void untouched(void)
{
	begin();
	c = test_open(&options);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	checkpoint();
	CHECK_OK(cairn_area_touch(c, area + CUT * PAGE, 4 * PAGE));
	checkpoint();
	area[3] = 1;
	cut(CUT);
	check_rewind(true);
	area[3] = area[CUT * PAGE] = 1;
	checkpoint();
	area[3] = 2;
	check_rewind(true);
	end();
}

/* Of an object that has been loaded: nobody cuts that. */
static uint8_t variables[3 * PAGE] __attribute__((aligned(4096))) = { 1 };

static void variable_goes(void)
{
	variables[PAGE] = 'o';
	c = test_open(&options);
	for (int i = 0; i < 4; i++)
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	CHECK(madvise(variables + PAGE, PAGE, MADV_DONTNEED) == 0);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(variables[PAGE] == 'o');
	CHECK_OK(cairn_close(c));
}

/* The parts differ in what the program may do there; nobody writes the first. */
static void part_goes(bool whole, bool advised)
{
	begin();
	area[OWN * PAGE + 8] = area[198 * PAGE + 8] = 'o';
	CHECK(mprotect(area, 10 * PAGE, PROT_READ) == 0);
	CHECK(mprotect(area + 100 * PAGE, PAGE, PROT_NONE) == 0);
	c = test_open(&options);
	for (int i = 0; i < 4; i++)
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	if (whole) /* looked at in parts, too */
		CHECK(mprotect(area + 50 * PAGE, 4 * PAGE, PROT_READ) == 0);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	if (advised)
		CHECK(madvise(area + CUT * PAGE, 5 * PAGE, MADV_DONTNEED) == 0 &&
			madvise(area + 190 * PAGE, 10 * PAGE, MADV_DONTNEED) == 0);
	else
		cut(CUT);
	if (cairn_rewind(c, id) < 0)
		CHECK(!copies);
	else
		CHECK(area[OWN * PAGE + 8] == 'o' && area[198 * PAGE + 8] == 'o');
	end();
}

static void parts_go(void)
{
	options.surface = "all";
	for (int how = 0; how < 4; how++)
		part_goes(how & 1, how & 2);
	variable_goes();
}

int main(int argc, char **argv)
{
	CHECK(argc == 3 || argc == 4);
	images = strcmp(argv[1], "images") == 0;
	options.tracker = images ? "async" : argv[1];
	options.feed = images ? "bpf-images" : NULL;
	options.strategy = argv[2];
	options.surface = "none";
	options.keep = 4;
	copies = strcmp(argv[1], "async") == 0;
	if (argc == 4) {
		options.feed = argv[3];
		parts_go();
		return 0;
	}
	clean_goes();
	saved_after();
	past();
	if (strcmp(argv[1], "fork") != 0) { /* the child has lost it, too */
		open_goes();
		untouched();
	}
	return 0;
}
