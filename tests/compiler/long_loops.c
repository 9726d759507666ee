/* SPDX-License-Identifier: MIT */
/*
 * Page mode begins after any number of hooks: in the midst of nested loops, before and between
 * calls. What a run computes and leaves in memory is what it does without a session, and a restore
 * brings every byte back. Built with -fcairn-hybrid; argv: nothing, or (by itself) one run.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define WORDS 3000
#define RUNS  150

static uint64_t data[WORDS], *heap;
static _Thread_local uint64_t own[4];
static double real[64];
static uint64_t state;

/* Survives a restore. */
static struct shared {
	uint64_t result, data[WORDS], heap[WORDS], own[4], before[WORDS];
	double real[64];
	int restored;
} *shared;

__attribute__((noinline)) static uint64_t next(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

__attribute__((noinline)) static void leaf(uint64_t *at, uint64_t value)
{
	*at += value;
	own[value & 3] ^= value;
}

/* Values that live across rounds, ways out of the midst, a loop in a loop in a loop. */
__attribute__((noinline)) static uint64_t work(uint64_t seed)
{
	uint64_t sum = seed, last = 0;
	double mean = 1;

	state = seed;
	for (uint64_t x = next(); x % 61; x = next()) {
		uint64_t *at = x & 64 ? data : heap, steps = 0;

		while ((x >>= 1) > 9) {
			uint64_t i = x % WORDS;

			at[i] = at[i] * 3 + sum;
			for (uint64_t j = i; j && j > i / 2; j = j * 5 / 7) {
				at[j] ^= last;
				last += at[j] & 0xff;
				if (last % 97 == 5)
					goto out;
			}
			if (x % 11 == 3)
				continue;
			for (int k = 0; k < 8; k++)
				real[(i + (uint64_t)k) % 64] = mean + k;
			leaf(&data[steps % WORDS], x);
			steps++;
		}
		mean = (mean + real[steps % 64]) / 2;
out:
		sum += steps + last;
		switch (sum % 5) {
		case 0:
			memset(heap + sum % 1000, (int)sum, 300);
			break;
		case 1:
			memcpy(data + sum % 1000, heap + 1500, 800);
			break;
		default:
			leaf(heap + sum % WORDS, sum);
		}
	}
	return sum + last + (uint64_t)mean;
}

static void prepare(void)
{
	for (size_t i = 0; i < WORDS; i++)
		data[i] = heap[i] = i * 0x9e3779b97f4a7c15u;
	memset(own, 0, sizeof(own));
	memset(real, 0, sizeof(real));
}

static bool as_prepared(void)
{
	for (size_t i = 0; i < WORDS; i++)
		if (data[i] != i * 0x9e3779b97f4a7c15u || heap[i] != data[i])
			return false;
	for (size_t i = 0; i < 64; i++)
		if (real[i])
			return false;
	return !own[0] && !own[1] && !own[2] && !own[3];
}

static void take_result(uint64_t result)
{
	shared->result = result;
	memcpy(shared->data, data, sizeof(data));
	memcpy(shared->heap, heap, sizeof(data));
	memcpy(shared->own, own, sizeof(own));
	memcpy(shared->real, real, sizeof(real));
}

static bool same_result(uint64_t result)
{
	return shared->result == result && !memcmp(shared->data, data, sizeof(data)) &&
		!memcmp(shared->heap, heap, sizeof(data)) &&
		!memcmp(shared->own, own, sizeof(own)) && !memcmp(shared->real, real, sizeof(real));
}

static int run(uint64_t seed)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	struct cairn_stats s = { .size = sizeof(s) };
	uint64_t id = 0;
	cairn_t *c;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		-1, 0);
	heap = malloc(sizeof(data));
	CHECK(shared != MAP_FAILED && heap);
	prepare();
	take_result(work(seed));
	prepare();
	CHECK_OK(cairn_open(&c, &o));
	CHECK_OK(cairn_area_exclude(c, shared, sizeof(*shared)));
	if (cairn_checkpoint(c, &id) == CAIRN_RESTORED)
		CHECK(as_prepared());
	CHECK(same_result(work(seed)));
	CHECK_OK(cairn_stats(c, &s));
	if (!shared->restored++)
		CHECK_OK(cairn_restore(c, id));
	CHECK_OK(cairn_close(c));
	CHECK(same_result(shared->result));
	return s.long_intervals ? 0 : 77;
}

int main(int argc, char **argv)
{
	int status, longs = 0;
	char number[16];

	if (argc > 1)
		return run(strtoul(argv[1], NULL, 10));
	for (int i = 1; i <= RUNS; i++) {
		pid_t child;

		snprintf(number, sizeof(number), "%d", i * i / 4 + i);
		CHECK(!setenv("CAIRN_BREAK_EVEN", number, 1));
		snprintf(number, sizeof(number), "%d", 12345 + i);
		child = fork();
		if (!child) {
			execl(argv[0], argv[0], number, NULL);
			_exit(1);
		}
		CHECK(waitpid(child, &status, 0) == child);
		if (status && status != 77 << 8)
			test_fail("run %d: status %x", i, status);
		longs += !status;
	}
	printf("%d of %d runs went on in page mode\n", longs, RUNS);
	return longs ? 0 : 77;
}
