/* SPDX-License-Identifier: MIT */
/*
 * -fcairn-guard=on: stores of all kinds that stray into shadow, tags, tags of tags, log, lists,
 * state and arena. Each must end in SIGSEGV before it happens; the handler goes back to the
 * checkpoint, and all is as it was. argv: TRACKER, and for the test of the test "canary": without
 * the guard some must go through.
 */
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"
#include "smaps.h"

#define BYTES       4096
#define TARGETS_MAX 4096
#define BELOW       (sizeof(long) == 8 ? (uintptr_t)0x100000005000ull : 0x80000000u)
#define SHIFT       7

extern char __cairn_rt[];
static unsigned char bytes[BYTES] __attribute__((aligned(4096)));

/* Survives restores. */
static struct shared {
	cairn_t *session;
	uint64_t id;
	volatile int kind, target, stopped, through;
	int target_count;
	uintptr_t targets[TARGETS_MAX];
	struct smaps maps;
} *shared;

/* ---- Kinds of store ------------------------------------------------------------------------- */

static void *(*volatile set_bytes)(void *, int, size_t) = memset;
static void *(*volatile copy_bytes)(void *, const void *, size_t) = memcpy;
static char *(*volatile copy_text)(char *, const char *) = strcpy;

struct wide {
	long words[12];
};

static void store_1(uintptr_t at) { *(volatile char *)at = 1; }
static void store_2(uintptr_t at) { *(volatile short *)at = 1; }
static void store_4(uintptr_t at) { *(volatile int *)at = 1; }
static void store_8(uintptr_t at) { *(volatile long *)at = 1; }
static void store_odd(uintptr_t at) { __builtin_memcpy((char *)at, "1234567", 7); }
static void store_wide(uintptr_t at) { *(struct wide *)at = (struct wide){ { 1 } }; }
static void store_set(uintptr_t at) { set_bytes((void *)at, 1, 40); }
static void store_copy(uintptr_t at) { copy_bytes((void *)at, bytes, 3); }
static void store_text(uintptr_t at) { copy_text((char *)at, "x"); }
static void store_add(uintptr_t at) { __atomic_fetch_add((int *)at, 1, __ATOMIC_SEQ_CST); }

static void store_fields(uintptr_t at)
{
	volatile struct { short a, b; int c; } *s = (void *)at;

	s->a = 1;
	s->b = 2;
	s->c = 3;
}

/* Off a variable of the stack: checkpoints copy that, so that stores to it need no saving. */
static void store_off_stack(uintptr_t at)
{
	volatile char local[16] = "";

	local[at - (uintptr_t)local] = 1;
}

static void (*const kinds[])(uintptr_t) = {
	store_1, store_2, store_4, store_8, store_odd, store_wide, store_set, store_copy,
	store_text, store_add, store_fields, store_off_stack,
};
#define KINDS ((int)(sizeof(kinds) / sizeof(kinds[0])))

/* ---- Targets -------------------------------------------------------------------------------- */

static void add(uintptr_t at)
{
	CHECK(shared->target_count < TARGETS_MAX);
	shared->targets[shared->target_count++] = at;
}

static void add_range(uintptr_t begin, uintptr_t end)
{
	add(begin);
	add(begin + 64);
	add(begin + ((end - begin) / 2 & ~7ul));
	add(end - 128);
}

/* What the engine and the run-time have mapped: wiped in a child. */
static void add_mappings(void)
{
	char *text = shared->maps.text, *line;
	const char *flags;

	read_smaps(&shared->maps);
	while ((line = next_mapping(&text, &flags))) {
		char *rest;
		uintptr_t begin = strtoul(line, &rest, 16), end = strtoul(rest + 1, NULL, 16);

		if (strstr(flags, " wf"))
			add_range(begin, end);
	}
}

static void find_targets(bool shadow)
{
	uintptr_t data = (uintptr_t)bytes, stack = (uintptr_t)&data;

	for (uintptr_t at = (uintptr_t)__cairn_rt; at < (uintptr_t)__cairn_rt + 4096; at += 72)
		add(at);
	add_mappings();
	for (int i = 0; shadow && i < 3; i++) {
		uintptr_t primary = i == 0 ? data : i == 1 ? stack : (uintptr_t)shared->session;

		add(primary - BELOW);
		for (uintptr_t tag = primary >> SHIFT; tag > 65536; tag >>= SHIFT)
			add(tag);
		for (uintptr_t tag = (primary - BELOW) >> SHIFT; tag > 65536; tag >>= SHIFT)
			add(tag);
	}
}

/* ---- The test ------------------------------------------------------------------------------- */

static void strayed(int sig)
{
	(void)sig;
	shared->stopped++;
	bytes[100] = 0xbb;
	CHECK_OK(cairn_restore(shared->session, shared->id)); /* does not return */
}

static void try_all(cairn_t *c, bool canary)
{
	for (shared->kind = 0; shared->kind < KINDS; shared->kind++) {
		for (shared->target = 0; shared->target < shared->target_count; shared->target++) {
			if (cairn_checkpoint(c, &shared->id) == CAIRN_RESTORED) {
				for (size_t i = 0; i < BYTES; i++)
					CHECK(bytes[i] == (unsigned char)i);
				continue;
			}
			bytes[5] = 0xaa;
			kinds[shared->kind](shared->targets[shared->target]);
			if (canary)
				_exit(0); /* seen; what it has hit may be anything */
			test_fail("a store of kind %d to %zx went through", shared->kind,
				shared->targets[shared->target]);
		}
	}
}

int main(int argc, char **argv)
{
	struct sigaction act = { .sa_handler = strayed };
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	bool canary = argc > 2;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		-1, 0);
	CHECK(shared != MAP_FAILED && !sigaction(SIGSEGV, &act, NULL));
	for (size_t i = 0; i < BYTES; i++)
		bytes[i] = (unsigned char)i;
	o.tracker = argv[1];
	o.memory_max = 64 << 20;
	CHECK_OK(cairn_open(&shared->session, &o));
	CHECK_OK(cairn_area_exclude(shared->session, shared, sizeof(*shared)));
	find_targets(!strcmp(argv[1], "shadow"));
	try_all(shared->session, canary);
	printf("%d stores were stopped\n", shared->stopped);
	CHECK(!canary && shared->stopped == KINDS * shared->target_count);
	CHECK_OK(cairn_close(shared->session));
	return 0;
}
