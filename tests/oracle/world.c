/* SPDX-License-Identifier: MIT */
/* The oracle's own memory: one shared mapping that no surface covers, and the seeded numbers. */
#include <string.h>
#include <sys/mman.h>
#include "oracle.h"
#include "os/sys.h"

#define POOL_SIZE (3ul << 30)

struct world *W;

void *oracle_shared(size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		test_fail("no memory for the copies");
	return p;
}

void world_create(uint64_t seed)
{
	/* A forked child makes a world of its own: it must not write into its parent's. */
	W = oracle_shared(sizeof(*W) + POOL_SIZE);
	W->pool_size = POOL_SIZE;
	W->seed = seed;
	W->rng = seed;
	W->copies = memfd_create("oracle-copies", MFD_CLOEXEC);
	W->rng = rnd(); /* or one seed's numbers would be the next one's, one later */
}

void *world_alloc(size_t size, size_t align)
{
	size_t at = (W->pool_used + align - 1) & ~(align - 1);

	if (at + size > W->pool_size)
		test_fail("the pool of copies is full");
	W->pool_used = at + size;
	return W->pool + at;
}

/* splitmix64: any state is a good state, so a seed may be a small number. */
uint64_t rnd_from(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint64_t rnd(void)
{
	return rnd_from(&W->rng);
}

uint64_t rnd_below(uint64_t n)
{
	return n ? rnd() % n : 0;
}

static const char *region_name(uintptr_t addr)
{
	for (size_t i = 0; i < REGIONS_MAX; i++) {
		const struct region *r = &W->regions[i];

		if (!r->live || addr - (uintptr_t)r->addr >= r->len)
			continue;
		switch (r->kind) {
		case REGION_ANON:
			return "anonymous region";
		case REGION_FILE:
			return "private file region";
		case REGION_STATIC:
			return "static region";
		case REGION_HEAP:
			return "malloc region";
		case REGION_BRK:
			return "brk region";
		default:
			return "shared region";
		}
	}
	if (addr - W->stack.begin < W->stack.end - W->stack.begin)
		return "stack";
	return "other mapping";
}

/* Without libc: what has been put back wrongly may be its own, or the table of our calls. */
static void say(const char *text)
{
	size_t len = 0;

	while (text[len])
		len++;
	crn_sys3(SYS_write, 2, text, len);
}

static void say_number(const char *before, uint64_t n, unsigned base)
{
	char text[24];
	size_t at = sizeof(text) - 1;

	text[at] = 0;
	do
		text[--at] = "0123456789abcdef"[n % base];
	while (n /= base);
	say(before);
	say(text + at);
}

static void say_run(void)
{
	say("oracle: row ");
	say(W->row->name);
	say(", tracker ");
	say(W->rules->name);
	say_number(", step ", W->step, 10);
	say_number(", keep ", W->keep, 10);
	say(W->all ? ", surface all\n" : ", explicit areas\n");
	say("oracle: repeat with: oracle --row ");
	say(W->row->name);
	say(" --tracker ");
	say(W->rules->name);
	say_number(" --seed ", W->seed, 10);
	say("\n");
}

void oracle_mismatch(const char *what, uint64_t id, uintptr_t addr, int want, int got)
{
	say("oracle: MISMATCH ");
	say(what);
	say_number(": checkpoint ", id, 10);
	say_number(", address 0x", addr, 16);
	if (W) {
		say(" (");
		say(region_name(addr));
		say(")");
	}
	say_number(": expected ", (uint32_t)want, 16);
	say_number(", found ", (uint32_t)got, 16);
	say("\n");
	if (W && W->row && W->rules)
		say_run();
	for (;;)
		crn_sys1(SYS_exit_group, 1);
}
