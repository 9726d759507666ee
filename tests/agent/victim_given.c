/* SPDX-License-Identifier: MIT */
/*
 * Memory that is mapped, unmapped, emptied and grown at random between checkpoints, as allocators
 * do: calls that the agent makes itself, so that no feed doubts. Each checkpoint must hold what was
 * there, byte by byte; that is written down in shared memory, which no restore turns back.
 *
 *	victim_given alone   by one thread, going back to any checkpoint
 *	victim_given two     by two threads in turn, looking at all checkpoints
 */
#include <cairn/cairn.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include "expect.h"

#define PAGE   4096ul
#define SLOTS  12
#define PAGES  40
#define KEPT   6
#define ROUNDS 500
#define NONE   0xff /* the page is not mapped */

/* One page of each slot's address range is one byte here: what all of its bytes are. */
struct memory {
	struct {
		char *at;
		uint64_t serial; /* of the mapping */
		uint8_t fill[PAGES];
	} slots[SLOTS];
	char *heap, *arena; /* of each only the pages whose `fill` is not NONE can be used */
	uint8_t heap_fill[PAGES], arena_fill[PAGES];
};

/* In shared memory. */
struct notes {
	uint64_t seed, count, serial;
	struct {
		uint64_t id;
		struct memory memory;
	} kept[KEPT];
};

static const int rw = PROT_READ | PROT_WRITE, anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
static struct memory now;
static struct notes *notes;
static int ends[2];

static unsigned draw(unsigned below)
{
	notes->seed = notes->seed * 6364136223846793005ull + 1442695040888963407ull;
	return (unsigned)(notes->seed >> 33) % below;
}

/* ---- What the program does --------------------------------------------------------------- */

/* A stretch of a slot that is mapped, from a random page on: its length, or 0. */
static unsigned stretch(unsigned slot, unsigned *first)
{
	const uint8_t *fill = now.slots[slot].fill;
	unsigned length = 0, most = 1 + draw(PAGES);

	*first = draw(PAGES);
	if (!now.slots[slot].at)
		return 0;
	while (*first + length < PAGES && length < most && fill[*first + length] != NONE)
		length++;
	return length;
}

static void maps(unsigned slot)
{
	char *p = mmap(NULL, PAGES * PAGE, rw, anonymous | (draw(2) ? MAP_NORESERVE : 0), -1, 0);

	EXPECT(p != MAP_FAILED);
	now.slots[slot].at = p;
	now.slots[slot].serial = ++notes->serial;
	memset(now.slots[slot].fill, 0, PAGES);
}

static void unmaps(unsigned slot)
{
	unsigned first, length = stretch(slot, &first);
	bool left = false;

	if (!length)
		return;
	EXPECT(!munmap(now.slots[slot].at + first * PAGE, length * PAGE));
	memset(now.slots[slot].fill + first, NONE, length);
	for (unsigned i = 0; i < PAGES; i++)
		left |= now.slots[slot].fill[i] != NONE;
	if (!left)
		now.slots[slot].at = NULL;
}

/* Unmapped, and something else of the same kind is in its place at once. */
static void replaces(unsigned slot)
{
	unsigned first, length = stretch(slot, &first);
	char *at = now.slots[slot].at + first * PAGE;

	if (!length)
		return;
	EXPECT(!munmap(at, length * PAGE));
	EXPECT(mmap(at, length * PAGE, rw, anonymous, -1, 0) == at);
	memset(now.slots[slot].fill + first, 0, length);
	now.slots[slot].serial = ++notes->serial;
	if (draw(2))
		memset(at, now.slots[slot].fill[first] = (uint8_t)(1 + draw(200)), PAGE);
}

static void empties(unsigned slot)
{
	unsigned first, length = stretch(slot, &first);

	if (!length)
		return;
	EXPECT(!madvise(now.slots[slot].at + first * PAGE, length * PAGE, MADV_DONTNEED));
	memset(now.slots[slot].fill + first, 0, length);
}

/* By stores, by a system call, or as another process would. */
static void writes(unsigned slot)
{
	unsigned first, length = stretch(slot, &first), how = draw(4);
	char page[PAGE];

	for (unsigned i = first; i < first + length; i++) {
		char *at = now.slots[slot].at + i * PAGE;
		struct iovec from = { page, PAGE }, to = { at, PAGE };

		now.slots[slot].fill[i] = (uint8_t)(1 + draw(NONE - 1));
		memset(page, now.slots[slot].fill[i], PAGE);
		if (how > 1)
			memcpy(at, page, PAGE);
		else if (how)
			EXPECT(write(ends[1], page, PAGE) == PAGE &&
				read(ends[0], at, PAGE) == PAGE);
		else if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) != PAGE)
			memcpy(at, page, PAGE); /* forbidden here */
	}
}

static void closes(unsigned slot)
{
	unsigned first, length = stretch(slot, &first);
	char *at = now.slots[slot].at + first * PAGE;

	if (length)
		EXPECT(!mprotect(at, length * PAGE, draw(2) ? PROT_NONE : PROT_READ) &&
			!mprotect(at, length * PAGE, rw));
}

/* The break rises and falls by some pages, of which some are written. */
static void breaks(void)
{
	unsigned before = 0, after = draw(PAGES);

	while (before < PAGES && now.heap_fill[before] != NONE)
		before++;
	EXPECT(!brk(now.heap + after * PAGE));
	for (unsigned i = 0; i < PAGES; i++) {
		if (i >= after)
			now.heap_fill[i] = NONE;
		else if (i >= before)
			now.heap_fill[i] = 0;
		if (i < after && !draw(3))
			memset(now.heap + i * PAGE, now.heap_fill[i] = (uint8_t)(1 + draw(200)),
				PAGE);
	}
}

/* Some more pages of what is reserved are opened, and written; all of it is given back at last. */
static void opens(void)
{
	unsigned from = 0, end;

	while (from < PAGES && now.arena_fill[from] != NONE)
		from++;
	if (from == PAGES) {
		EXPECT(mmap(now.arena, PAGES * PAGE, PROT_NONE, anonymous | MAP_FIXED, -1, 0) ==
			now.arena);
		memset(now.arena_fill, NONE, PAGES);
		return;
	}
	end = from + 1 + draw(PAGES - from < 8 ? PAGES - from : 8);
	end = end > PAGES ? PAGES : end;
	EXPECT(!mprotect(now.arena + from * PAGE, (end - from) * PAGE, rw));
	for (; from < end; from++) {
		now.arena_fill[from] = 0;
		if (draw(3))
			memset(now.arena + from * PAGE,
				now.arena_fill[from] = (uint8_t)(1 + draw(200)), PAGE);
	}
}

static void something(void)
{
	unsigned slot = draw(SLOTS);

	if (!now.slots[slot].at) {
		maps(slot);
		return;
	}
	switch (draw(22)) {
	case 0:
		unmaps(slot);
		break;
	case 1:
	case 2:
	case 3:
		replaces(slot);
		break;
	case 4:
	case 5:
	case 6:
	case 7:
		empties(slot);
		break;
	case 8:
		closes(slot);
		break;
	case 9:
	case 10:
		breaks();
		break;
	case 11:
	case 12:
		opens();
		break;
	default:
		writes(slot);
	}
}

/* ---- What must be so ---------------------------------------------------------------------- */

static void page_is(const char *at, uint8_t fill)
{
	for (size_t i = 0; i < PAGE; i++)
		EXPECT((uint8_t)at[i] == fill);
}

static void all_is(void)
{
	for (unsigned i = 0; i < SLOTS; i++)
		for (unsigned k = 0; k < PAGES && now.slots[i].at; k++)
			if (now.slots[i].fill[k] != NONE)
				page_is(now.slots[i].at + k * PAGE, now.slots[i].fill[k]);
	for (unsigned k = 0; k < PAGES; k++)
		if (now.heap_fill[k] != NONE)
			page_is(now.heap + k * PAGE, now.heap_fill[k]);
	for (unsigned k = 0; k < PAGES; k++)
		if (now.arena_fill[k] != NONE)
			page_is(now.arena + k * PAGE, now.arena_fill[k]);
		else
			EXPECT(write(ends[1], now.arena + k * PAGE, 1) < 0);
}

/* What has been unmapped since can only come back by a restore. */
static void held(cairn_t *c, uint64_t id, const char *at, uint8_t fill, uint8_t fill_now)
{
	char page[PAGE];

	if (fill == NONE || fill_now == NONE)
		return;
	EXPECT(cairn_peek(c, id, at, page, PAGE) == 0);
	page_is(page, fill);
}

static void look_at_all(cairn_t *c)
{
	for (unsigned n = 0; n < notes->count; n++) {
		const struct memory *m = &notes->kept[n].memory;
		uint64_t id = notes->kept[n].id;

		for (unsigned i = 0; i < SLOTS; i++)
			for (unsigned k = 0; k < PAGES && m->slots[i].at; k++)
				if (m->slots[i].serial == now.slots[i].serial)
					held(c, id, m->slots[i].at + k * PAGE, m->slots[i].fill[k],
						now.slots[i].fill[k]);
	}
}

static void keep(uint64_t id)
{
	if (notes->count == KEPT) {
		memmove(notes->kept, notes->kept + 1, (KEPT - 1) * sizeof(notes->kept[0]));
		notes->count--;
	}
	notes->kept[notes->count].id = id;
	notes->kept[notes->count++].memory = now;
}

static void checkpoint(cairn_t *c)
{
	uint64_t id;
	int ret = cairn_checkpoint(c, &id);

	EXPECT(ret == CAIRN_TAKEN || ret == CAIRN_RESTORED);
	if (ret == CAIRN_TAKEN)
		keep(id);
	else
		EXPECT(!memcmp(&now, &notes->kept[notes->count - 1].memory, sizeof(now)));
	all_is();
}

static void go_back(cairn_t *c)
{
	unsigned n = draw((unsigned)notes->count);

	notes->count = n + 1;
	EXPECT(cairn_restore(c, notes->kept[n].id) == 0);
}

/* ---- Two threads -------------------------------------------------------------------------- */

static sem_t asked, done;

static void *second(void *arg)
{
	for (;;) {
		sem_wait(&asked);
		something();
		sem_post(&done);
	}
	return arg;
}

int main(int argc, char **argv)
{
	bool two = argc > 1 && !strcmp(argv[1], "two");
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	pthread_t t;
	cairn_t *c;

	notes = mmap(NULL, sizeof(*notes), rw, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EXPECT(notes != MAP_FAILED && !pipe(ends));
	notes->seed = argc > 2 ? strtoul(argv[2], NULL, 0) : 1;
	EXPECT(poll(NULL, 0, 1) == 0 && cairn_open(&c, &options) == 0);
	memset(now.heap_fill, NONE, PAGES);
	memset(now.arena_fill, NONE, PAGES);
	now.arena = mmap(NULL, PAGES * PAGE, PROT_NONE, anonymous, -1, 0);
	EXPECT(now.arena != MAP_FAILED);
	now.heap = (char *)(((uintptr_t)sbrk(0) + 16 * PAGE) & ~(PAGE - 1));
	EXPECT(!sem_init(&asked, 0, 0) && !sem_init(&done, 0, 0));
	EXPECT(!two || !pthread_create(&t, NULL, second, NULL));
	for (volatile int round = 0; notes->seed && round < ROUNDS; round++) {
		for (unsigned n = draw(8); n; n--) {
			if (two && draw(2)) {
				sem_post(&asked);
				sem_wait(&done);
			} else {
				something();
			}
		}
		all_is();
		if (two || !notes->count || draw(4))
			checkpoint(c);
		else
			go_back(c);
		if (two && !draw(16))
			look_at_all(c);
	}
	puts("given: ok");
	return 0;
}
