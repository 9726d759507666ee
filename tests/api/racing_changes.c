/* SPDX-License-Identifier: MIT */
/*
 * racing_changes TRACKER: another thread stores to a page at the very moment at which
 * cairn_changes looks at it. What the interval in question wrote is reported, and nothing that
 * came after it.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define PAGES 16
#define WORDS (PAGE / 8)

static volatile uint64_t (*area)[WORDS];
static _Atomic long wanted = -1; /* a page that the other thread is to write */

static void *writer(void *arg)
{
	for (;;) {
		long page = atomic_load(&wanted);

		if (page == PAGES)
			return NULL;
		if (page >= 0) {
			for (size_t i = 1; i < WORDS; i++)
				area[page][i] += 1000 + i;
			atomic_store(&wanted, -1);
		}
		sched_yield();
	}
}

struct seen {
	int count, wrong;
	uint64_t before, after;
};

/* The first word of a page is told first: now the rest of it changes. */
static int on_change(void *ctx, void *addr, size_t len, const void *old, const void *new)
{
	struct seen *s = ctx;
	long page = (long)(((uintptr_t)addr - (uintptr_t)area) / PAGE);

	s->count++;
	if (addr != (void *)area[page] || len != 8 || *(const uint64_t *)old != s->before ||
		*(const uint64_t *)new != s->after)
		s->wrong++;
	atomic_store(&wanted, page);
	while (atomic_load(&wanted) >= 0)
		sched_yield();
	return 0;
}

static void look(cairn_t *c, uint64_t from, uint64_t to, uint64_t before, uint64_t after)
{
	struct seen s = { .before = before, .after = after };

	CHECK_OK(cairn_changes(c, from, to, on_change, &s));
	CHECK_U64(s.wrong, 0);
	CHECK_U64(s.count, PAGES);
}

static void mark(uint64_t value)
{
	for (int i = 0; i < PAGES; i++)
		area[i][0] = value;
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t id[3];
	pthread_t thread;
	cairn_t *c;

	o.tracker = argc > 1 ? argv[1] : "uffd";
	o.surface = "none";
	o.keep = 64; /* differences: they are undone from the page as it is */
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, (void *)area, PAGES * PAGE));
	CHECK(!pthread_create(&thread, NULL, writer, NULL));
	for (int i = 0; i < 3; i++) {
		mark((uint64_t)i + 1);
		CHECK_RC(cairn_checkpoint(c, &id[i]), CAIRN_TAKEN);
	}
	look(c, id[0], id[1], 1, 2);

	CHECK_RC(cairn_checkpoint(c, &id[0]), CAIRN_TAKEN);
	look(c, id[1], id[2], 2, 3);

	mark(4);
	CHECK_RC(cairn_checkpoint(c, &id[0]), CAIRN_TAKEN);
	mark(5);
	CHECK_RC(cairn_checkpoint(c, &id[1]), CAIRN_TAKEN);
	look(c, id[0], CAIRN_NOW, 4, 5);
	atomic_store(&wanted, PAGES);
	pthread_join(thread, NULL);
	CHECK_OK(cairn_close(c));
	return 0;
}
