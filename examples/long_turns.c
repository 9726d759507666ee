/* SPDX-License-Identifier: MIT */
/*
 * Turns of very different length: most change a few entries of a table, one in eight sorts all of
 * it. Each begins with a checkpoint, and one in three is taken back by a rewind, after which the
 * table must be what it was. Built by cairn-cc with -fcairn-hybrid the long turns go on without
 * hooks once they have cost as much as page mode does; the short ones never pay for pages.
 *
 *	long_turns [TURNS]
 */
#include <stdio.h>
#include <stdlib.h>

#include "cairn/cairn.h"

#define ENTRIES 200000

static uint32_t table[ENTRIES];

static void must(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, cairn_strerror(result));
	exit(1);
}

static void sort(uint32_t *at, long count)
{
	for (long gap = count / 2; gap; gap = gap == 2 ? 1 : gap * 5 / 11)
		for (long i = gap; i < count; i++) {
			uint32_t entry = at[i];
			long to = i;

			for (; to >= gap && at[to - gap] > entry; to -= gap)
				at[to] = at[to - gap];
			at[to] = entry;
		}
}

static void turn(uint32_t n)
{
	if (n % 8 == 7) {
		sort(table, ENTRIES);
		return;
	}
	for (uint32_t i = 0; i < 20; i++)
		table[(n * 7919 + i * 104729) % ENTRIES] = n * 2654435761u + i;
}

/* Nothing comes back here a second time: rewinds return to their caller. */
static __attribute__((noinline)) uint64_t checkpoint(cairn_t *session)
{
	uint64_t id;

	must(cairn_checkpoint(session, &id), "cairn_checkpoint");
	return id;
}

static uint64_t sum_up(void)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < ENTRIES; i++)
		sum = sum * 31 + table[i];
	return sum;
}

int main(int argc, char **argv)
{
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	struct cairn_stats stats = { .size = sizeof(stats) };
	uint32_t turns = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 64;
	cairn_t *session;
	uint64_t id, before;

	for (uint32_t i = 0; i < ENTRIES; i++)
		table[i] = i * 2654435761u;
	must(cairn_open(&session, &options), "cairn_open");
	for (uint32_t n = 0; n < turns; n++) {
		before = n % 3 == 2 ? sum_up() : 0;
		id = checkpoint(session);
		turn(n);
		if (n % 3 != 2)
			continue;
		must(cairn_rewind(session, id), "cairn_rewind");
		if (sum_up() != before) {
			fprintf(stderr, "turn %u was not taken back\n", n);
			return 1;
		}
	}
	must(cairn_stats(session, &stats), "cairn_stats");
	printf("%u turns, %u taken back, table %016llx; %llu went on without hooks\n", turns,
		turns / 3, (unsigned long long)sum_up(), (unsigned long long)stats.long_intervals);
	must(cairn_close(session), "cairn_close");
	return 0;
}
