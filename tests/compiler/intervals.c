/* SPDX-License-Identifier: MIT */
/*
 * Many short intervals, more than an epoch has numbers: random stores over three kinds of memory,
 * far apart, and restores at random; every byte is compared with a full copy. Now and then the
 * session rests. argv: TRACKER ["hybrid"]; with that, built with -fcairn-hybrid, some intervals go
 * on in page mode, and exit status 77 says that this host has none.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define KEEP   3
#define ROUNDS 1200 /* four times round an epoch's numbers, with what restores add */
#define BYTES  (96 * 1024)
#define PLACES 3

static unsigned char data[BYTES] __attribute__((aligned(8)));
static bool hybrid;

/* Survives restores. */
static struct shared {
	uint64_t random;
	int round, restores, pauses;
	uint64_t ids[KEEP + 1];
	unsigned char *places[PLACES];
	unsigned char copies[KEEP + 1][PLACES][BYTES];
} *shared;

static uint64_t draw(uint64_t below)
{
	return test_draw(&shared->random, below);
}

static void page_mode(cairn_t *c)
{
	int err = hybrid && !draw(4) ? cairn_interval_long(c) : 0;

	if (err == CAIRN_ENOTRACK)
		exit(77);
	CHECK_OK(err);
}

__attribute__((noinline)) static void store_some(void)
{
	for (int n = (int)draw(30); n >= 0; n--) {
		unsigned char *at = shared->places[draw(PLACES)] + draw(BYTES - 512);
		uint64_t value = draw(~0ul);

		/* A part of memory is hot, the rest comes rarely: tags of all ages. */
		if (draw(4))
			at -= (size_t)(at - data) < BYTES ? (size_t)(at - data) & ~4095ul : 0;
		switch (draw(5)) {
		case 0:
			*at = (unsigned char)value;
			break;
		case 1:
			memcpy(at, &value, 4);
			break;
		case 2:
			memcpy(at, &value, 8);
			break;
		case 3:
			*(uint64_t *)((uintptr_t)at & ~7ul) = value;
			break;
		default:
			memset(at, (int)value, value % 512);
		}
	}
}

/* Each byte as it was, without going there. */
static void look(cairn_t *c, int slot)
{
	static unsigned char seen[BYTES];

	for (int p = 0; p < PLACES; p++) {
		CHECK_OK(cairn_peek(c, shared->ids[slot], shared->places[p], seen, BYTES));
		CHECK(!memcmp(seen, shared->copies[slot][p], BYTES));
	}
}

static void compare(int slot)
{
	for (int p = 0; p < PLACES; p++)
		for (size_t i = 0; i < BYTES; i++)
			if (shared->places[p][i] != shared->copies[slot][p][i])
				test_fail("round %d: place %d, byte %zu", shared->round, p, i);
}

static uint64_t any_kept(cairn_t *c)
{
	uint64_t oldest, newest;
	int slot;

	CHECK_OK(cairn_range(c, &oldest, &newest));
	do {
		slot = (int)draw(KEEP + 1);
	} while (!shared->ids[slot] || shared->ids[slot] < oldest || shared->ids[slot] > newest);
	return shared->ids[slot];
}

/* After a restore: what was taken later is gone. */
static void forget_later(int slot)
{
	for (int i = 0; i <= KEEP; i++)
		if (shared->ids[i] > shared->ids[slot])
			shared->ids[i] = 0;
}

static uint64_t saved(cairn_t *c)
{
	struct cairn_stats s = { .size = sizeof(s) };

	CHECK_OK(cairn_stats(c, &s));
	return s.faults;
}

static uint64_t longs(cairn_t *c)
{
	struct cairn_stats s = { .size = sizeof(s) };

	CHECK_OK(cairn_stats(c, &s));
	return s.long_intervals;
}

/* Stores are not saved, and nothing can be named; what begins then is as after cairn_open. */
static void rest(cairn_t *c)
{
	uint64_t old, id = 0, before;

	CHECK_OK(cairn_range(c, NULL, &old));
	CHECK_OK(cairn_pause(c));
	before = saved(c);
	for (int n = (int)draw(3); n >= 0; n--)
		store_some();
	CHECK(saved(c) == before);
	CHECK(cairn_restore(c, old) == CAIRN_EEVICTED && cairn_rewind(c, old) == CAIRN_EEVICTED);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_EPAUSED && !id);
	CHECK_OK(cairn_resume(c));
	CHECK_OK(cairn_range(c, &id, NULL));
	CHECK(id > old && cairn_rewind(c, old) == CAIRN_EEVICTED);
	memset(shared->ids, 0, sizeof(shared->ids));
	for (int p = 0; p < PLACES; p++)
		memcpy(shared->copies[0][p], shared->places[p], BYTES);
	store_some();
	CHECK_OK(cairn_rewind(c, id));
	compare(0);
	shared->pauses++;
}

static void run(cairn_t *c)
{
	while (shared->round++ < ROUNDS) {
		int slot = shared->round % (KEEP + 1);

		if (!draw(30))
			rest(c);

		for (int p = 0; p < PLACES; p++)
			memcpy(shared->copies[slot][p], shared->places[p], BYTES);
		switch (cairn_checkpoint(c, &shared->ids[slot])) {
		case CAIRN_TAKEN:
			break;
		case CAIRN_RESTORED:
			compare(slot);
			forget_later(slot);
			break;
		default:
			test_fail("no checkpoint");
		}
		page_mode(c);
		store_some();
		page_mode(c);
		if (hybrid)
			store_some();
		if (hybrid && !draw(8))
			look(c, slot);
		if (draw(3) == 0) {
			shared->restores++;
			CHECK_OK(cairn_restore(c, any_kept(c))); /* does not return */
		}
	}
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;

	hybrid = argc > 2;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		-1, 0);
	CHECK(shared != MAP_FAILED);
	shared->random = 88172645463325252u;
	shared->places[0] = data;
	shared->places[1] = malloc(BYTES);
	shared->places[2] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
		-1, 0);
	CHECK(shared->places[1] && shared->places[2] != MAP_FAILED);
	o.tracker = argv[1];
	o.keep = KEEP;
	/* Twice: the second session begins with what the first one left. */
	for (int session = 0; session < 2; session++) {
		shared->round = shared->restores = shared->pauses = 0;
		memset(shared->ids, 0, sizeof(shared->ids));
		CHECK_OK(cairn_open(&c, &o));
		CHECK_OK(cairn_area_exclude(c, shared, sizeof(*shared)));
		run(c);
		CHECK(!hybrid || longs(c) > ROUNDS / 5);
		CHECK(shared->restores > ROUNDS / 5 && shared->pauses > ROUNDS / 100);
		CHECK_OK(cairn_close(c));
	}
	return 0;
}
