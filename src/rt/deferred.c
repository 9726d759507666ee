/* SPDX-License-Identifier: MIT */
#include "rt/deferred.h"
#include "base/bits.h"
#include "os/memory.h"
#include "rt/rt.h"

#define COUNT_MAX (1u << 20)

struct entry {
	void *what;
	uint64_t id; /* of the interval that gave it back */
};

/* Not turned back: a page of its own. In a forked child the list is empty: crn_memory_span. */
static struct {
	struct entry *list; /* a ring; NULL until something is put off */
	uint32_t first, count;
	char rest[4096 - 16];
} deferred __attribute__((aligned(4096)));

static struct entry *entry_at(uint32_t i)
{
	return &deferred.list[(deferred.first + i) % COUNT_MAX];
}

/* The engine, in cairn_restore: the intervals from `id` on never were. */
static void undone(uint64_t id)
{
	while (deferred.count && entry_at(deferred.count - 1)->id >= id)
		deferred.count--;
}

bool crn_deferred_add(void *what)
{
	struct crn_rt *rt = &__cairn_rt;
	void *at = NULL;

	if (!rt->active)
		return false;
	if (!deferred.list) {
		if (crn_memory_span(&at, COUNT_MAX * sizeof(struct entry)) < 0)
			return true;
		deferred.list = at;
	}
	rt->undone = undone;
	if (deferred.count < COUNT_MAX)
		*entry_at(deferred.count++) = (struct entry){ what, rt->open };
	return true;
}

void *crn_deferred_next(void)
{
	struct crn_rt *rt = &__cairn_rt;
	void *what;

	if (crn_likely(!deferred.count) || (rt->active && entry_at(0)->id >= rt->oldest))
		return NULL;
	what = entry_at(0)->what;
	deferred.first = (deferred.first + 1) % COUNT_MAX;
	deferred.count--;
	return what;
}
