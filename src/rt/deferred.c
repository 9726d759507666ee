/* SPDX-License-Identifier: MIT */
#include "rt/deferred.h"
#include "base/bits.h"
#include "base/status.h"
#include "os/memory.h"
#include "os/thread.h"
#include "rt/program_maps.h"
#include "rt/rt.h"

#define COUNT_MAX (1u << 20)

struct entry {
	uint64_t id; /* of the interval that gave it back, or changed it */
	uintptr_t addr;
	size_t len; /* 0: nothing any more */
	uint8_t change; /* enum crn_map_change */
	uint8_t prot;
};

struct ring {
	struct entry *list; /* NULL until something is put off */
	uint32_t first, count;
};

/*
 * Not turned back: a page of its own. In a forked child the lists are empty (crn_memory_span), and
 * their entries nothing.
 */
static struct {
	struct ring blocks, maps;
	int locked; /* guards both; a restore, when nobody else runs, does without */
	char rest[4096 - 2 * sizeof(struct ring) - sizeof(int)];
} deferred CRN_RT_LASTING;

static void lock(void)
{
	if (crn_rt_one_thread())
		return;
	while (__atomic_exchange_n(&deferred.locked, 1, __ATOMIC_ACQUIRE))
		crn_yield();
}

static void unlock(void)
{
	__atomic_store_n(&deferred.locked, 0, __ATOMIC_RELEASE);
}

static struct entry *entry_at(const struct ring *r, uint32_t i)
{
	return &r->list[(r->first + i) % COUNT_MAX];
}

static void drop_first(struct ring *r)
{
	r->first = (r->first + 1) % COUNT_MAX;
	r->count--;
}

/* ---- What the engine calls ------------------------------------------------------------------- */

static void unmap(const struct entry *e)
{
	crn_program_maps_cut(e->addr, e->addr + e->len);
	(void)crn_memory_unmap((void *)e->addr, e->len);
}

/* At a checkpoint: what only older ones needed goes. Blocks wait for the program's context. */
static void settled(uint64_t oldest)
{
	struct ring *r = &deferred.maps;

	lock();
	for (uint32_t i = 0; oldest == UINT64_MAX && i < deferred.blocks.count; i++)
		entry_at(&deferred.blocks, i)->id = 0;

	for (; r->count && entry_at(r, 0)->id < oldest; drop_first(r)) {
		const struct entry *e = entry_at(r, 0);

		if (e->change == CRN_MAP_LEFT && e->len)
			unmap(e);
	}
	unlock();
}

/* glibc's copy of the heap's end, by which it goes; absent elsewhere. */
extern uintptr_t __curbrk __attribute__((weak));

void crn_break_told(uintptr_t end)
{
	if (&__curbrk)
		__curbrk = end;
}

/* Before a restore to id puts back old content: it must be possible to store there. */
static void undoing(uint64_t id)
{
	const struct ring *r = &deferred.maps;

	for (uint32_t i = r->count; i-- && entry_at(r, i)->id >= id;) {
		const struct entry *e = entry_at(r, i);

		if (e->change == CRN_MAP_BREAK && crn_memory_break(0) < e->addr)
			crn_break_told(crn_memory_break(e->addr));
		if (e->change == CRN_MAP_PROTECTED)
			(void)crn_memory_protect((void *)e->addr, e->len, PROT_READ | PROT_WRITE);
	}
}

static void undo(const struct entry *e)
{
	switch (e->change) {
	case CRN_MAP_NEW:
		if (e->len)
			unmap(e);
		break;
	case CRN_MAP_OPENED:
		(void)crn_memory_advise((void *)e->addr, e->len, MADV_DONTNEED);
		(void)crn_memory_protect((void *)e->addr, e->len, PROT_NONE);
		break;
	case CRN_MAP_PROTECTED:
		(void)crn_memory_protect((void *)e->addr, e->len, e->prot);
		break;
	case CRN_MAP_BREAK:
		/* Unless somebody else, like libc's malloc, has moved it since. */
		if (crn_memory_break(0) == e->addr + e->len)
			crn_break_told(crn_memory_break(e->addr));
		break;
	case CRN_TOLD:
		*(void **)e->addr = NULL;
		break;
	case CRN_CAUGHT:
		/* Its thread may have gone since. */
		(void)crn_memory_poke((void *)e->addr, &e->len, sizeof(e->len));
		break;
	default:
		break;
	}
}

/* After it: the intervals from id on never were. Newest first. */
static void undone(uint64_t id)
{
	struct ring *r = &deferred.maps;

	for (; r->count && entry_at(r, r->count - 1)->id >= id; r->count--)
		undo(entry_at(r, r->count - 1));
	r = &deferred.blocks;
	while (r->count && entry_at(r, r->count - 1)->id >= id)
		r->count--;
}

/* ---- The lists ------------------------------------------------------------------------------- */

static bool add_locked(struct ring *r, struct entry e)
{
	struct crn_rt *rt = &__cairn_rt;
	void *at = NULL;

	if (!r->list) {
		if (crn_memory_span(&at, COUNT_MAX * sizeof(e)) < 0)
			return false;
		r->list = at;
	}
	if (r->count == COUNT_MAX)
		return false;
	rt->settled = settled;
	rt->undoing = undoing;
	rt->undone = undone;
	e.id = rt->open;
	*entry_at(r, r->count++) = e;
	return true;
}

static bool add(struct ring *r, struct entry e)
{
	bool added;

	lock();
	added = add_locked(r, e);
	unlock();
	return added;
}

bool crn_deferred_add(void *what)
{
	if (!__cairn_rt.active)
		return false;
	(void)add(&deferred.blocks, (struct entry){ .addr = (uintptr_t)what });
	return true;
}

void *crn_deferred_next(void)
{
	const struct crn_rt *rt = &__cairn_rt;
	struct ring *r = &deferred.blocks;
	void *what = NULL;

	if (crn_likely(!r->count))
		return NULL;
	lock();
	if (r->count && (!rt->active || entry_at(r, 0)->id < rt->oldest)) {
		what = (void *)entry_at(r, 0)->addr;
		drop_first(r);
	}
	unlock();
	return what;
}

bool crn_map_changed(enum crn_map_change change, uintptr_t addr, size_t len, int prot)
{
	struct entry e = { .addr = addr, .len = len, .change = (uint8_t)change,
		.prot = (uint8_t)prot };

	if (!__cairn_rt.active) {
		settled(UINT64_MAX);
		return false;
	}
	if (add(&deferred.maps, e))
		return true;
	crn_rt_give_up(addr, CAIRN_EMEMORY);
	return false;
}

void crn_map_replaced(uintptr_t addr, size_t len)
{
	struct ring *r = &deferred.maps;
	uintptr_t end = addr + len;

	for (uint32_t i = 0, count = r->count; i < count; i++) {
		struct entry *e = entry_at(r, i);
		uintptr_t stop = e->addr + e->len;

		if (e->change != CRN_MAP_LEFT || stop <= addr || e->addr >= end)
			continue;
		/* What lies behind would need an entry as old as this one: it stays mapped. */
		e->len = e->addr < addr ? addr - e->addr : 0;
	}
}
