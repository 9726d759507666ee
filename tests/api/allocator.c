/* SPDX-License-Identifier: MIT */
/*
 * allocator TRACKER: surface "all" with whatever malloc is preloaded. Its lists, arenas and
 * mappings go back with the memory that they describe, and it goes on from there.
 */
#include <string.h>
#include "../lib/harness.h"

#define PAGE   4096
#define BLOCKS 400
#define ROUNDS 60

struct block {
	uint8_t *at;
	size_t len;
	uint8_t value;
};

/* All of it but `kept` goes back. */
static struct block blocks[BLOCKS];
static uint32_t seed = 1;
static struct {
	int returns;
} kept __attribute__((aligned(PAGE)));

static uint32_t rnd(uint32_t below)
{
	seed = seed * 1664525u + 1013904223u;
	return (uint32_t)((uint64_t)(seed >> 8) * below >> 24);
}

static void check(const struct block *b)
{
	for (size_t i = 0; i < b->len; i++)
		if (b->at[i] != b->value)
			test_fail("block of %zu: byte %zu is %u, not %u", b->len, i, b->at[i],
				b->value);
}

/* Small and large, freed and resized: some come from a mapping of their own. */
static void churn(int count)
{
	while (count--) {
		struct block *b = &blocks[rnd(BLOCKS)];
		size_t len = rnd(20) ? 1 + rnd(3000) : 1 + rnd(600000);

		if (b->at)
			check(b);
		if (b->at && rnd(2)) {
			free(b->at);
			b->at = NULL;
			b->len = 0;
			continue;
		}
		b->at = realloc(b->at, len);
		CHECK(b->at != NULL);
		b->len = len;
		b->value = (uint8_t)rnd(256);
		memset(b->at, b->value, len);
	}
}

static void check_all(void)
{
	for (int i = 0; i < BLOCKS; i++)
		check(&blocks[i]);
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t id;
	cairn_t *c;

	o.tracker = argc > 1 ? argv[1] : "async";
	o.keep = 2;
	c = test_open(&o);
	CHECK_OK(cairn_area_exclude(c, &kept, sizeof(kept)));
	for (int round = 0; round < ROUNDS; round++) {
		int rc, before = kept.returns;

		churn(300);
		rc = cairn_checkpoint(c, &id);
		check_all();
		kept.returns++;
		if (rc == CAIRN_TAKEN) {
			churn(300);
			rc = cairn_restore(c, id);
			test_fail("cairn_restore: %d (%s)", rc, cairn_strerror(rc));
		}
		CHECK_RC(rc, CAIRN_RESTORED);
		CHECK_U64((uint64_t)kept.returns, (uint64_t)before + 2);
		CHECK_U64((uint64_t)kept.returns, 2 * (uint64_t)round + 2);
	}
	CHECK_OK(cairn_close(c));
	return 0;
}
