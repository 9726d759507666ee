/* SPDX-License-Identifier: MIT */
/*
 * An interpreter in one function, by computed jumps, that stores, takes checkpoints, goes back,
 * rests, and closes and opens its session, all at random: it changes from the version of its blocks
 * with hooks to that without and back, and variables of its own live through that. Every word is
 * compared with a copy. argv: TRACKER. Built with -fcairn-clone=on.
 */
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define KEEP  3
#define STEPS 60000
#define WORDS 2048

static unsigned long memory[WORDS];

/* Survives restores. */
static struct shared {
	uint64_t random;
	unsigned long step, restores, sessions, rests;
	struct kept {
		uint64_t id; /* 0: none */
		unsigned long a, b;
		unsigned long copy[WORDS];
	} kept[KEEP];
} *shared;

static uint64_t draw(uint64_t below)
{
	return test_draw(&shared->random, below);
}

/* Cannot reach a checkpoint, so it is there twice. */
static __attribute__((noinline)) unsigned long store_some(unsigned long a)
{
	for (uint64_t n = draw(20); n--;)
		memory[draw(WORDS)] = a += n;
	return a;
}

static cairn_t *open_session(const char *tracker)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;

	o.tracker = tracker;
	o.keep = KEEP;
	CHECK_OK(cairn_open(&c, &o));
	CHECK_OK(cairn_area_exclude(c, shared, sizeof(*shared)));
	shared->sessions++;
	return c;
}

static void forget(void)
{
	for (int i = 0; i < KEEP; i++)
		shared->kept[i].id = 0;
}

static struct kept *kept_of(uint64_t id)
{
	for (int i = 0; i < KEEP; i++)
		if (shared->kept[i].id == id)
			return &shared->kept[i];
	return NULL;
}

/* Those that are newer are gone. */
static void compare(uint64_t id, unsigned long a, unsigned long b)
{
	const struct kept *k = kept_of(id);

	CHECK(k && k->a == a && k->b == b);
	for (int i = 0; i < WORDS; i++)
		CHECK(memory[i] == k->copy[i]);
	for (int i = 0; i < KEEP; i++)
		if (shared->kept[i].id > id)
			shared->kept[i].id = 0;
}

/* In the functions that it is in; nothing but the call tells the versions of their blocks apart. */
static inline __attribute__((always_inline)) unsigned long take(
	cairn_t *c, unsigned long a, unsigned long b)
{
	struct kept *k = shared->kept;
	uint64_t id;

	for (int i = 1; i < KEEP; i++)
		if (shared->kept[i].id < k->id)
			k = &shared->kept[i];
	k->id = 0;
	k->a = a;
	k->b = b;
	memcpy(k->copy, memory, sizeof(memory));
	if (cairn_checkpoint(c, &id) == CAIRN_RESTORED)
		compare(id, a, b);
	else
		k->id = id;
	a += 5;
	memory[draw(WORDS)] = a;
	return a;
}

/* Begins without hooks, and ends with them. */
static __attribute__((noinline)) unsigned long wake(cairn_t *c, unsigned long a, unsigned long b)
{
	memory[draw(WORDS)] = a;
	CHECK_OK(cairn_resume(c));
	memory[5] = b;
	return take(c, a, b);
}

/* So does this; a variable comes right behind the call that changes it. */
static __attribute__((noinline)) unsigned long wake_late(
	cairn_t *c, unsigned long a, unsigned long b)
{
	wake(c, a, b);
	volatile unsigned long *variable = __builtin_alloca(sizeof(*variable));

	*variable = a + b;
	memory[draw(WORDS)] = *variable;
	return *variable;
}

/* The other way round. */
static __attribute__((noinline)) unsigned long rest(cairn_t *c, unsigned long b)
{
	memory[3] = b;
	CHECK_OK(cairn_pause(c));
	forget();
	memory[draw(WORDS)] = b;
	shared->rests++;
	return store_some(b);
}

static unsigned long run(const char *tracker)
{
	static void *const labels[] = { &&store, &&row, &&fill, &&call, &&store, &&row, &&call,
		&&jump, &&checkpoint, &&checkpoint, &&restore, &&rest, &&sessions };
	unsigned long a = 1, b = 2;
	bool rests = false;
	cairn_t *c = NULL;
	jmp_buf back;
	size_t at;

next:
	if (shared->step++ == STEPS)
		return a ^ b;
	goto *labels[draw(sizeof(labels) / sizeof(*labels))];
store:
	memory[draw(WORDS)] = a;
	a = a * 3 + b;
	goto next;
row:
	at = draw(WORDS - 64);
	for (size_t i = 0; i < 64; i++)
		memory[at + i] = b + i;
	b++;
	goto next;
fill:
	at = draw(WORDS - 256);
	memset(&memory[at], (int)a, draw(256) * sizeof(*memory));
	goto next;
call:
	a = store_some(a);
	goto next;
jump:
	if (setjmp(back) == 0) {
		memory[draw(WORDS)] = b;
		longjmp(back, 1);
	}
	memory[draw(WORDS)] = a;
	goto next;
checkpoint:
	if (!c || rests)
		goto next;
	a = take(c, a, b);
	goto next;
restore:
	at = draw(KEEP);
	if (!c || rests || !shared->kept[at].id)
		goto next;
	shared->restores++;
	CHECK_OK(cairn_restore(c, shared->kept[at].id)); /* does not return */
rest:
	if (!c)
		goto next;
	b = !rests ? rest(c, b) : draw(2) ? wake(c, a, b) : wake_late(c, a, b);
	rests = !rests;
	memory[draw(WORDS)] = b;
	goto next;
sessions:
	if (draw(20))
		goto next;
	forget();
	if (c) {
		CHECK_OK(cairn_close(c));
		c = NULL;
		rests = false;
	} else {
		c = open_session(tracker);
	}
	memory[draw(WORDS)] = a + b;
	goto next;
}

int main(int argc, char **argv)
{
	(void)argc;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
		0);
	CHECK(shared != MAP_FAILED);
	shared->random = 88172645463325252u;
	(void)run(argv[1]);
	printf("%lu restores, %lu sessions, %lu rests\n", shared->restores, shared->sessions,
		shared->rests);
	CHECK(shared->restores > 100 && shared->sessions > 20 && shared->rests > 100);
	return 0;
}
