/* SPDX-License-Identifier: MIT */
/*
 * hot_beside_closed FEED: a page that the program has made unreadable is no reason to take all hot
 * pages for changed, at each checkpoint, for ever. What is closed itself still has its past.
 */
#include <string.h>
#include <sys/mman.h>
#include "../lib/harness.h"

#define PAGE 4096ul
#define HOT  200
#define IDLE 30

static cairn_t *c;
static uint8_t *pages; /* HOT of them, and one more */

static uint64_t take(void)
{
	uint64_t id;

	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	return id;
}

static uint64_t saved(void)
{
	struct cairn_stats s = { .size = sizeof(s) };

	CHECK_OK(cairn_stats(c, &s));
	return s.pages_saved;
}

/* Not so often that they are taken for changed without a look. */
static void heat(void)
{
	struct cairn_stats s = { .size = sizeof(s) };

	for (int i = 0; i < 20; i++) {
		take();
		for (size_t k = 0; k < HOT; k++)
			pages[k * PAGE] = (uint8_t)(i + 1);
	}
	CHECK_OK(cairn_stats(c, &s));
	CHECK(s.hot_pages >= HOT / 2);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t before, id;

	o.tracker = "async";
	o.feed = argc > 1 ? argv[1] : "scan";
	o.strategy = "last"; /* all that was written is hot */
	o.surface = "all";
	o.keep = 4;
	pages = mmap(NULL, (HOT + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	CHECK(pages != MAP_FAILED);
	memset(pages, 1, (HOT + 1) * PAGE);
	c = test_open(&o);
	heat();

	/* One of them is closed as well, after a store. */
	pages[0] = 77;
	CHECK(!mprotect(pages, PAGE, PROT_NONE));
	CHECK(!mprotect(pages + HOT * PAGE, PAGE, PROT_NONE));
	id = take();
	before = saved();
	for (int i = 0; i < IDLE; i++)
		take();
	printf("%lu pages in %d idle intervals\n", (unsigned long)(saved() - before), IDLE);
	CHECK(saved() - before < HOT * IDLE / 3);

	CHECK(!mprotect(pages, PAGE, PROT_READ | PROT_WRITE));
	CHECK_U64(pages[0], 77);
	heat();
	pages[0] = 78;
	CHECK(!mprotect(pages, PAGE, PROT_NONE));
	id = take();
	CHECK(!mprotect(pages, PAGE, PROT_READ | PROT_WRITE));
	pages[0] = 79;
	CHECK_OK(cairn_rewind(c, id));
	CHECK(!mprotect(pages, PAGE, PROT_READ | PROT_WRITE));
	CHECK_U64(pages[0], 78);
	CHECK_OK(cairn_close(c));
	return 0;
}
