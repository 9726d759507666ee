/* SPDX-License-Identifier: MIT */
/*
 * short_memory TRACKER FEED [SEED]: areas come and go, are written, saved and rewound, while the
 * engine is refused memory now and then. A call may then fail; what it says has been done is done
 * to the byte, and what fails changes nothing. Whatever is asked for more than there is needed just
 * then counts as refused (linked by --wrap), so that all of its tables are full.
 */
#include <stdbool.h>
#include <sys/mman.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define AREAS 12
#define PAGES 640ul /* of an area: nearly each has a leaf of the mirror to itself */
#define LEAF  (2ul << 20)
#define LINE  64ul /* of each page that is written and compared: that keeps it short */
#define STEPS 1500

struct crn_arena;

int __real_crn_table_grow(struct crn_arena *a, void **table, size_t *capacity, size_t count,
	size_t need, size_t size);
int __wrap_crn_table_grow(struct crn_arena *a, void **table, size_t *capacity, size_t count,
	size_t need, size_t size);
int __real_crn_frame_reserve(struct crn_arena *a, size_t count);
int __wrap_crn_frame_reserve(struct crn_arena *a, size_t count);
void *__real_crn_block_alloc(struct crn_arena *a, size_t size);
void *__wrap_crn_block_alloc(struct crn_arena *a, size_t size);

static unsigned short_of; /* tables, blocks, frames */

int __wrap_crn_table_grow(struct crn_arena *a, void **table, size_t *capacity, size_t count,
	size_t need, size_t size)
{
	return short_of & 1 && need > count
		? CAIRN_EMEMORY
		: __real_crn_table_grow(a, table, capacity, count, need, size);
}

void *__wrap_crn_block_alloc(struct crn_arena *a, size_t size)
{
	return short_of & 2 ? NULL : __real_crn_block_alloc(a, size);
}

int __wrap_crn_frame_reserve(struct crn_arena *a, size_t count)
{
	return short_of & 4 ? CAIRN_EMEMORY : __real_crn_frame_reserve(a, count);
}

static cairn_t *c;
static uint64_t rng, id;
static uint8_t *base, saved[AREAS * PAGES][LINE], before[AREAS * PAGES][LINE];
static bool is_area[AREAS], was_area[AREAS]; /* now, and at the checkpoint */
static size_t refused;

static uint32_t rnd(uint32_t below)
{
	return (uint32_t)test_draw(&rng, below);
}

static uint8_t *at(size_t i)
{
	return base + i * PAGES * PAGE;
}

static void store_some(void)
{
	size_t from = rnd(AREAS * PAGES), count = 1 + rnd(rnd(8) ? 20 : 2 * PAGES);

	for (size_t p = from; p < from + count && p < AREAS * PAGES; p++)
		base[p * PAGE + rnd(LINE)] = (uint8_t)rnd(256);
}

static void change_area(void)
{
	size_t i = rnd(AREAS);
	int rc = is_area[i] ? cairn_area_remove(c, at(i), PAGES * PAGE)
			    : cairn_area_add(c, at(i), PAGES * PAGE);

	if (rc < 0 && rc != CAIRN_EMEMORY)
		test_fail("area %zu: %s", i, cairn_strerror(rc));
	refused += rc < 0;
	if (rc == 0) {
		is_area[i] = !is_area[i];
		was_area[i] = false;
	}
}

static void copy_to(uint8_t (*to)[LINE])
{
	for (size_t p = 0; p < AREAS * PAGES; p++)
		memcpy(to[p], base + p * PAGE, LINE);
}

static void take(void)
{
	uint64_t next;
	int rc = cairn_checkpoint(c, &next);

	refused += rc < 0;
	if (rc < 0)
		return;
	id = next;
	copy_to(saved);
	memcpy(was_area, is_area, sizeof(is_area));
}

static void go_back(void)
{
	int rc;

	copy_to(before);
	rc = cairn_rewind(c, id);
	refused += rc < 0;
	for (size_t p = 0; p < AREAS * PAGES; p++) {
		bool back = rc == 0 && was_area[p / PAGES];

		if (memcmp(base + p * PAGE, back ? saved[p] : before[p], LINE))
			test_fail("area %zu page %zu after rewind to %llu: %s", p / PAGES,
				p % PAGES, (unsigned long long)id, rc ? cairn_strerror(rc) : "ok");
	}
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	const size_t bytes = AREAS * PAGES * PAGE;

	o.tracker = argc > 1 ? argv[1] : "async";
	o.feed = argc > 2 ? argv[2] : "auto";
	o.surface = "none";
	o.keep = 2;
	rng = (argc > 3 ? strtoull(argv[3], NULL, 0) : 1) * 0x9e3779b97f4a7c15ull;
	base = mmap(NULL, bytes + LEAF, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(base != MAP_FAILED);
	base = (uint8_t *)(((uintptr_t)base + LEAF - 1) & ~(LEAF - 1));
	c = test_open(&o);
	take();
	for (size_t step = 0; step < STEPS; step++) {
		if (!rnd(12))
			short_of = rnd(3) ? 0 : rnd(8);
		if (step == STEPS - 50)
			short_of = 0;
		switch (rnd(6)) {
		case 0:
			change_area();
			break;
		case 1:
			take();
			break;
		case 2:
			go_back();
			break;
		default:
			store_some();
		}
	}
	take();
	store_some();
	go_back();
	CHECK(refused);
	CHECK_OK(cairn_close(c));
	return 0;
}
