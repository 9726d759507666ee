/* SPDX-License-Identifier: MIT */
/* The table: one row is one kind of program, run on every tracker. */
#include <string.h>
#include "oracle.h"

#define KINDS_ALL (REGION_ANON | REGION_FILE | REGION_STATIC | REGION_HEAP | REGION_BRK)
#define KERNEL_WRITES                                                                              \
	(OP(READ) | OP(RECV) | OP(READV) | OP(WAITPID) | OP(DIRECT) | OP(VMWRITEV) | OP(PROCMEM) | \
		OP(VFORK))
#define MAP_CHANGES (OP(MMAP) | OP(MUNMAP) | OP(MREMAP) | OP(BRK) | OP(DONTNEED))
#define EVERYTHING                                                                      \
	(OP(STORE) | OP(COPY) | KERNEL_WRITES | MAP_CHANGES | OP(THREADS) | OP(STACK) | \
		OP(EXCLUDE) | OP(TAG))

/* clang-format off */
const struct row oracle_rows[] = {
	/* name        writers                       regions       keep  steps flags */
	{ "stores",    OP(STORE),                    KINDS_ALL,    0,    900 },
	{ "keep_1",    OP(STORE) | OP(COPY),         REGION_ANON,  1,    900 },
	{ "keep_2",    OP(STORE) | OP(COPY),         REGION_ANON,  2,    900 },
	{ "keep_8",    OP(STORE) | OP(COPY),         REGION_ANON,  8,    900 },
	{ "keep_1000", OP(STORE),                    REGION_ANON,  1000, 9000, ROW_EXPLICIT },
	{ "copies",    OP(STORE) | OP(COPY),         KINDS_ALL,    0,    700 },
	{ "read",      OP(STORE) | OP(READ),         KINDS_ALL,    0,    700 },
	{ "recv",      OP(STORE) | OP(RECV),         KINDS_ALL,    0,    700 },
	{ "readv",     OP(STORE) | OP(READV),        KINDS_ALL,    0,    700 },
	{ "waitpid",   OP(STORE) | OP(WAITPID),      KINDS_ALL,    0,    400 },
	{ "direct",    OP(STORE) | OP(DIRECT),       REGION_ANON | REGION_BRK, 0, 600 },
	{ "vmwritev",  OP(STORE) | OP(VMWRITEV),     KINDS_ALL,    0,    500 },
	{ "procmem",   OP(STORE) | OP(PROCMEM),      KINDS_ALL,    0,    600 },
	{ "threads",   OP(STORE) | OP(THREADS),      KINDS_ALL,    0,    600 },
	{ "race",      OP(STORE) | OP(RACE),         REGION_ANON | REGION_STATIC, 0, 250 },
	{ "vfork",     OP(STORE) | OP(VFORK),        KINDS_ALL,    0,    500 },
	{ "mmap",      OP(STORE) | OP(MMAP),         REGION_ANON,  0,    600 },
	{ "munmap",    OP(STORE) | OP(MMAP) | OP(MUNMAP), REGION_ANON, 0, 700 },
	{ "mremap",    OP(STORE) | OP(MMAP) | OP(MREMAP), REGION_ANON, 0, 700 },
	{ "brk",       OP(STORE) | OP(BRK),          REGION_ANON | REGION_BRK, 0, 700 },
	{ "stack",     OP(STORE) | OP(STACK),        REGION_ANON | REGION_STATIC, 0, 700 },
	{ "fork",      OP(STORE) | OP(FORK),         REGION_ANON | REGION_FILE, 0, 240 },
	{ "dontneed",  OP(STORE) | OP(DONTNEED),     REGION_ANON | REGION_FILE, 0, 700 },
	{ "drops",     OP(STORE) | OP(DROP),         REGION_ANON | REGION_BIG, 8, 700 },
	{ "protect",   OP(STORE) | OP(PROTECT),      REGION_ANON | REGION_FILE, 0, 700 },
	{ "files",     OP(STORE) | OP(COPY) | OP(READ), REGION_FILE, 0,  700 },
	{ "constants", OP(STORE) | OP(CONSTANTS) | OP(MMAP) | OP(MUNMAP),
			REGION_ANON | REGION_FILE, 0, 400 },
	{ "exclude",   OP(STORE) | OP(COPY) | OP(EXCLUDE), REGION_ANON | REGION_STATIC, 0, 700 },
	{ "areas",     OP(STORE) | OP(AREA) | OP(EXCLUDE), REGION_ANON | REGION_STATIC, 0, 900,
			ROW_EXPLICIT },
	{ "shared",    OP(STORE) | OP(AREA) | OP(READ), REGION_ANON | REGION_SHARED, 0, 600,
			ROW_EXPLICIT },
	{ "tags",      OP(STORE) | OP(TAG),          REGION_ANON,  8,    600 },
	{ "memory_max", OP(STORE) | OP(BURST), REGION_ANON | REGION_BIG, 8, 900,
			ROW_EXPLICIT | ROW_MEMORY_MAX },
	{ "threads_one", OP(STORE) | OP(READ),       KINDS_ALL,    0,    500, ROW_THREADS_ONE },
	{ "closes",    OP(STORE) | OP(COPY) | OP(THREADS) | OP(FORK) | OP(MMAP) | OP(MUNMAP) |
			OP(DONTNEED), REGION_ANON | REGION_FILE | REGION_STATIC, 0, 400,
			ROW_CLOSES },
	{ "pauses",    OP(STORE) | OP(COPY) | OP(READ) | OP(THREADS) | OP(MMAP) | OP(MUNMAP) |
			OP(DONTNEED) | OP(EXCLUDE), KINDS_ALL, 0, 500, ROW_PAUSES },
	{ "everything", EVERYTHING,                  KINDS_ALL,    8,    900 },
	{ "everything_explicit", EVERYTHING | OP(AREA), KINDS_ALL, 8,    900, ROW_EXPLICIT },
	{ .name = "returns", .special = special_returns },
	{ .name = "sparse", .special = special_sparse },
	{ .name = "grown", .special = special_grown },
	{ .name = "surfaces", .special = special_surfaces },
	{ .name = "other_thread", .special = special_threads },
	{ .name = NULL },
};
/* clang-format on */

static const struct tracker_rules rules[] = {
	{ .name = "async" },
	{ .name = "softdirty" },
	{ .name = "fork", .keeps = true },
	{ .name = "uffd", .explicit_only = true, .touch_first = true, .by_protection = true },
	{ .name = "mprotect", .explicit_only = true, .touch_first = true, .by_protection = true },
};

const struct row *row_find(const char *name)
{
	for (const struct row *r = oracle_rows; r->name; r++)
		if (!strcmp(r->name, name))
			return r;
	return NULL;
}

/* Without a mirror: what has been written unseen is lost, and what follows it in the interval. */
static const struct tracker_rules rules_of_images = { .name = "async", .explicit_only = true,
	.touch_first = true, .by_protection = true, .sees_faults = true, .may_lose = true };

const struct tracker_rules *tracker_find(const char *name, const char *feed)
{
	if (feed && !strcmp(feed, "bpf-images"))
		return &rules_of_images;
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
		if (!strcmp(rules[i].name, name))
			return &rules[i];
	return NULL;
}

#define ENTRY(op, fn) [OP_##op] = { #op, fn }
const struct op_entry oracle_ops[OP_COUNT] = {
	ENTRY(STORE, op_store),
	ENTRY(COPY, op_copy),
	ENTRY(READ, op_read),
	ENTRY(RECV, op_recv),
	ENTRY(READV, op_readv),
	ENTRY(WAITPID, op_waitpid),
	ENTRY(DIRECT, op_direct),
	ENTRY(VMWRITEV, op_vmwritev),
	ENTRY(PROCMEM, op_procmem),
	ENTRY(THREADS, op_threads),
	ENTRY(RACE, op_race),
	ENTRY(VFORK, op_vfork),
	ENTRY(MMAP, op_mmap),
	ENTRY(MUNMAP, op_munmap),
	ENTRY(MREMAP, op_mremap),
	ENTRY(BRK, op_brk),
	ENTRY(STACK, op_stack),
	ENTRY(FORK, op_fork),
	ENTRY(DONTNEED, op_dontneed),
	ENTRY(PROTECT, op_protect),
	ENTRY(EXCLUDE, op_exclude),
	ENTRY(BURST, op_burst),
	ENTRY(DROP, op_drop),
	ENTRY(AREA, op_area),
	ENTRY(TAG, op_tag),
	ENTRY(CONSTANTS, op_constants),
};
