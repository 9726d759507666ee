/* SPDX-License-Identifier: MIT */
/* Memory of which little is there: what is in neither process is skipped, and nothing else. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "frozen.h"

#define SPACE (1ul << 40) /* page by page this would take minutes */

static uint8_t *space;
static const size_t places[] = {
	0, PAGE, 64 * PAGE, 1ul << 21, (1ul << 30) - PAGE, 1ul << 39, SPACE - PAGE,
};
#define PLACES (sizeof(places) / sizeof(places[0]))

struct told {
	unsigned seen; /* a bit for each place */
	unsigned others;
};

static int note(void *ctx, void *addr, size_t len, const void *before, const void *after)
{
	struct told *told = ctx;
	size_t page = ((size_t)((uint8_t *)addr - space)) & ~(PAGE - 1);

	for (size_t i = 0; i < PLACES; i++)
		if (places[i] == page) {
			told->seen |= 1u << i;
			return 0;
		}
	told->others++;
	return 0;
}

static void expect_changes(uint64_t from, uint64_t to, unsigned seen, unsigned others)
{
	struct told told = { 0, 0 };

	CHECK_OK(cairn_changes(c, from, to, note, &told));
	CHECK_U64(told.seen, seen);
	CHECK_U64(told.others, others);
}

void case_sparse(void)
{
	int file = test_file();
	uint8_t page[PAGE];
	uint64_t first, next;

	space = mmap(NULL, SPACE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(space != MAP_FAILED && !madvise(space, SPACE, MADV_NOHUGEPAGE));
	open_session(3);
	CHECK_OK(cairn_area_add(c, space, SPACE));
	for (size_t i = 0; i < PLACES; i += 2)
		space[places[i]] = 1;
	first = checkpoint();
	/* Come, changed, gone; and the last page of all. */
	space[places[1]] = space[places[2]] = space[places[PLACES - 1]] = 2;
	CHECK(!madvise(space + places[4], PAGE, MADV_DONTNEED));
	CHECK(space[places[5]] == 0); /* looked at, it is the page of zeros */
	expect_changes(first, CAIRN_NOW, 1u << 1 | 1u << 2 | 1u << 4 | 1u << (PLACES - 1), 0);
	next = checkpoint();
	space[places[3]] = space[places[0]] = 3;
	/* A file in the midst of the hole, of which no page has been looked at. */
	memset(page, 7, PAGE);
	CHECK(write(file, page, PAGE) == (ssize_t)PAGE);
	CHECK(mmap(space + SPACE / 4, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file,
		      0) != MAP_FAILED);
	expect_changes(first, next, 1u << 1 | 1u << 2 | 1u << 4 | 1u << (PLACES - 1), 0);
	expect_changes(next, CAIRN_NOW, 1u << 0 | 1u << 3, 1);
	CHECK_OK(cairn_rewind(c, next));
	CHECK(space[places[3]] == 0 && space[places[0]] == 1 && space[places[2]] == 2);
	CHECK(space[SPACE / 4] == 0 && space[places[4]] == 0 && space[places[PLACES - 1]] == 2);
	CHECK_OK(cairn_rewind(c, first));
	for (size_t i = 0; i < PLACES; i++)
		CHECK_U64(space[places[i]], i % 2 == 0);
	expect_changes(first, CAIRN_NOW, 0, 0);
	CHECK_OK(cairn_close(c));
}
