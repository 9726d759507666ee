/* SPDX-License-Identifier: MIT */
/*
 * A program built by cairn-cc: stores of many kinds, a checkpoint, other stores, a restore; all
 * that the program has stored is as it was. argv: TRACKER.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define WORDS 4096

struct odd {
	char a;
	short b;
	long c;
	char tail[3];
} __attribute__((packed));

struct wide {
	long words[64];
};

static unsigned char bytes[4 * WORDS];
static long words[WORDS];
static struct odd odds[100];
static struct wide wides[8];
static _Thread_local long local_word;
static _Atomic long counter;
static volatile int times; /* kept out of restores */

/* What a value should be depends on the seed alone. */
static void fill(long seed, long *heap, long *mapped)
{
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)(seed * 31 + (long)i);
	for (int i = 0; i < WORDS; i++) {
		words[i] = seed + i;
		heap[i] = seed - i;
		mapped[i] = seed ^ i;
	}
	for (int i = 0; i < 100; i++) {
		odds[i].a = (char)(seed + i);
		odds[i].b = (short)(seed - i);
		odds[i].c = seed * i;
		memset(odds[i].tail, (int)seed + i, sizeof(odds[i].tail));
	}
	for (int i = 0; i < 8; i++)
		for (int k = 0; k < 64; k++)
			wides[i].words[k] = seed + i * k;
	local_word = seed;
	counter = seed;
}

static int same(long seed, const long *heap, const long *mapped)
{
	for (size_t i = 0; i < sizeof(bytes); i++)
		CHECK(bytes[i] == (unsigned char)(seed * 31 + (long)i));
	for (int i = 0; i < WORDS; i++) {
		CHECK(words[i] == seed + i);
		CHECK(heap[i] == seed - i);
		CHECK(mapped[i] == (seed ^ i));
	}
	for (int i = 0; i < 100; i++) {
		CHECK(odds[i].a == (char)(seed + i) && odds[i].b == (short)(seed - i));
		CHECK(odds[i].c == seed * i && odds[i].tail[2] == (char)(seed + i));
	}
	for (int i = 0; i < 8; i++)
		for (int k = 0; k < 64; k++)
			CHECK(wides[i].words[k] == seed + i * k);
	CHECK(local_word == seed && counter == seed);
	return 1;
}

/* Through pointers, so that the compiler makes no stores of its own of them. */
static void *(*volatile set_bytes)(void *, int, size_t) = memset;
static void *(*volatile move_bytes)(void *, const void *, size_t) = memmove;
static char *(*volatile copy_string)(char *, const char *) = strcpy;
static char *(*volatile copy_part)(char *, const char *, size_t) = strncpy;
static char *(*volatile append)(char *, const char *) = strcat;

static void disturb_by_libc(unsigned n)
{
	char *text = (char *)bytes + 8000 + n;

	set_bytes(words + 700, 0x11, 999 + n);
	move_bytes(words + 2000 + n, words + 1990, 4000);
	copy_string(text, "a text that crosses regions: 128 bytes and more are needed, so");
	append(text, " it goes on for a while, until the end of the region has come and gone");
	copy_part(text + 3000, "short", 700);
}

/* Other kinds of store, scattered. */
static void disturb(unsigned n)
{
	unsigned x = n * 2654435761u + 1;

	for (int i = 0; i < 500; i++) {
		x = x * 1664525u + 1013904223u;
		bytes[x % sizeof(bytes)] ^= 0x55;
		words[x % WORDS] = x;
		counter += x;
		__atomic_compare_exchange_n(&words[(x >> 8) % WORDS], &(long){ 0 }, 7, 0,
			__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	}
	disturb_by_libc(n);
	wides[n % 8] = wides[(n + 1) % 8];
	memmove(bytes + n % 100, bytes + 200, 1000 + n % 64);
	memset(words + n % 64, 0xee, n % 300);
	odds[n % 100] = (struct odd){ 1, 2, 3, { 4, 5, 6 } };
	local_word++;
}

/* In a child the hooks are inert, and the session is gone. */
static void check_child(cairn_t *c, int *shared)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		uint64_t id;

		disturb(3);
		_exit(cairn_checkpoint(c, &id) == -EINVAL ? 0 : 1);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
	shared[1]++;
}

static void restores(cairn_t *c, long *heap, long *mapped, int *shared)
{
	uint64_t ids[4], id;

	for (volatile int round = 0; round < 4; round++) {
		fill(round, heap, mapped);
		if (cairn_checkpoint(c, &ids[round]) == CAIRN_TAKEN) {
			disturb((unsigned)round);
			continue;
		}
		shared[0]++;
		CHECK(same(round, heap, mapped));
		if (shared[0] < 40) {
			disturb((unsigned)shared[0]);
			CHECK(cairn_restore(c, ids[round]) < 0);
		}
		CHECK(cairn_range(c, NULL, &id) >= 0 && id == ids[round]);
		if (round == 0)
			return;
		shared[0] = 0;
		CHECK(cairn_restore(c, ids[round - 1]) == CAIRN_EEVICTED);
		return;
	}
	check_child(c, shared);
	CHECK(cairn_restore(c, ids[3]) < 0); /* does not return */
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	struct cairn_stats s = { .size = sizeof(s) };
	int *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	long *heap = malloc(WORDS * sizeof(long));
	long *mapped = mmap(NULL, WORDS * sizeof(long), PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cairn_t *c;

	(void)argc;
	o.tracker = argv[1];
	CHECK(shared != MAP_FAILED && heap && mapped != MAP_FAILED);
	CHECK(cairn_open(&c, &o) == 0);
	/* The count of restores must survive them. */
	CHECK(cairn_area_exclude(c, shared, 4096) == 0);
	restores(c, heap, mapped, shared);
	CHECK(cairn_stats(c, &s) == 0);
	printf("%s: %lu restores\n", s.tracker, (unsigned long)s.restores);
	CHECK(!strcmp(s.tracker, argv[1]) && s.restores >= 40 && shared[1] == 1);
	CHECK(cairn_close(c) == 0);
	return 0;
}
