/* SPDX-License-Identifier: MIT */
#include "rt/deferred.h"
#include "base/bits.h"
#include "base/status.h"
#include "os/memory.h"
#include "rt/owned_lock.h"
#include "rt/program_maps.h"
#include "rt/rt.h"

#define COUNT_MAX (1u << 20)

struct entry {
	uint64_t id; /* of the interval that gave it back, or changed it */
	uintptr_t addr;
	size_t len; /* 0: nothing any more */
	uint32_t number; /* 1 more than its own in the ring; another: it is not filled */
	uint8_t change; /* enum crn_map_change */
	uint8_t prot;
};

/*
 * Entries begin to end - 1; number n lies at n % COUNT_MAX. A signal handler may come between any
 * two instructions, and add or drop entries, or leave by a restore. So one instruction takes room
 * for an entry, its number is stored last, and one instruction drops it.
 */
struct ring {
	struct entry *list; /* NULL until something is put off */
	uint32_t begin, end;
};

/* Not turned back: a page of its own. In a forked child the lists are wiped (crn_memory_span). */
static struct {
	struct ring blocks, maps;
	uintptr_t break_end; /* what it will be after the restore that goes on */
	struct crn_owned_lock lock; /* guards both; handlers go on inside */
	char rest[4096 - 2 * sizeof(struct ring) - sizeof(uintptr_t) -
		sizeof(struct crn_owned_lock)];
} deferred CRN_RT_LASTING;

static void settled(uint64_t oldest);
static void undoing(uint64_t id);
static void undone(uint64_t id);

/* False: this thread has been interrupted with the lock, which stays. A restore lets it go. */
static bool lock(void)
{
	struct crn_rt *rt = &__cairn_rt;

	if (crn_owned(&deferred.lock))
		return false;
	rt->settled = settled;
	rt->undoing = undoing;
	rt->undone = undone;
	crn_owned_lock(&deferred.lock);
	return true;
}

static void unlock(bool locked)
{
	if (locked)
		crn_owned_unlock(&deferred.lock);
}

static struct entry *entry_at(const struct ring *r, uint32_t number)
{
	return &r->list[number % COUNT_MAX];
}

static bool is_filled(const struct ring *r, uint32_t number)
{
	return entry_at(r, number)->number == number + 1;
}

/* False: somebody has moved it. */
static bool moves(uint32_t *end, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(end, &from, to, false, __ATOMIC_SEQ_CST,
		__ATOMIC_RELAXED);
}

/* Drop the first one, if it is of an interval before `oldest`. */
static bool take_first(struct ring *r, uint64_t oldest, struct entry *out)
{
	uint32_t n;

	do {
		n = r->begin;
		if (n == r->end || !is_filled(r, n) || entry_at(r, n)->id >= oldest)
			return false;
		*out = *entry_at(r, n);
	} while (!moves(&r->begin, n, n + 1));
	return true;
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
	const struct ring *r = &deferred.blocks;
	bool locked = lock();
	struct entry e;

	for (uint32_t n = r->begin; oldest == UINT64_MAX && n != r->end; n++)
		entry_at(r, n)->id = 0;
	while (take_first(&deferred.maps, oldest, &e))
		if (e.change == CRN_MAP_LEFT && e.len)
			unmap(&e);
	unlock(locked);
}

/* glibc's copy of the heap's end, by which it goes; absent elsewhere. */
extern uintptr_t __curbrk __attribute__((weak));

void crn_break_told(uintptr_t end)
{
	if (&__curbrk)
		__curbrk = end;
}

/*
 * Where the heap's end was when interval id began, as far as nobody else, like libc's malloc, has
 * moved it since.
 */
static uintptr_t break_before(uint64_t id)
{
	const struct ring *r = &deferred.maps;
	uintptr_t end = crn_memory_break(0);

	for (uint32_t n = r->end; n-- != r->begin;) {
		const struct entry *e = entry_at(r, n);

		if (is_filled(r, n) && e->id < id)
			break;
		if (is_filled(r, n) && e->change == CRN_MAP_BREAK && e->addr + e->len == end)
			end = e->addr;
	}
	return end;
}

/* Before a restore to id puts back old content: it must be possible to store there. */
static void undoing(uint64_t id)
{
	const struct ring *r = &deferred.maps;
	bool locked = lock();

	deferred.break_end = break_before(id);

	for (uint32_t n = r->end; n-- != r->begin;) {
		const struct entry *e = entry_at(r, n);

		if (!is_filled(r, n))
			continue;
		if (e->id < id)
			break;
		if (e->change == CRN_MAP_BREAK && crn_memory_break(0) < e->addr)
			crn_break_told(crn_memory_break(e->addr));
		if (e->change == CRN_MAP_PROTECTED)
			(void)crn_memory_protect((void *)e->addr, e->len, PROT_READ | PROT_WRITE);
		/* Now: it may have had content before it was closed. */
		if (e->change == CRN_MAP_OPENED)
			(void)crn_memory_advise((void *)e->addr, e->len, MADV_DONTNEED);
	}
	unlock(locked);
}

static void undo(const struct entry *e)
{
	switch (e->change) {
	case CRN_MAP_NEW:
		if (e->len)
			unmap(e);
		break;
	case CRN_MAP_OPENED:
		(void)crn_memory_protect((void *)e->addr, e->len, PROT_NONE);
		break;
	case CRN_MAP_PROTECTED:
		(void)crn_memory_protect((void *)e->addr, e->len, e->prot);
		break;
	case CRN_MAP_BREAK:
		/* At once to where it is to be: what lies between has been put back. */
		if (crn_memory_break(0) != deferred.break_end)
			crn_break_told(crn_memory_break(deferred.break_end));
		break;
	case CRN_TOLD:
		*(void **)e->addr = NULL;
		break;
	case CRN_WORD:
		/* Its thread may have gone since. */
		(void)crn_memory_poke((void *)e->addr, &e->len, sizeof(e->len));
		break;
	default:
		break;
	}
}

/* Newest first; blocks have nothing to undo. Signals wait. */
static void undo_ring(struct ring *r, uint64_t id)
{
	for (; r->end != r->begin; r->end--) {
		struct entry *e = entry_at(r, r->end - 1);

		if (is_filled(r, r->end - 1)) {
			if (e->id < id)
				break;
			undo(e);
		}
		e->number = 0;
	}
}

/* After it: the intervals from id on never were, nor the call that was interrupted. */
static void undone(uint64_t id)
{
	(void)lock();
	undo_ring(&deferred.maps, id);
	undo_ring(&deferred.blocks, id);
	unlock(true);
}

/* ---- The lists ------------------------------------------------------------------------------- */

static bool add_locked(struct ring *r, const struct entry *e)
{
	struct entry *to;
	void *at = NULL;
	uint32_t n;

	if (!r->list) {
		if (crn_memory_span(&at, COUNT_MAX * sizeof(*e)) < 0)
			return false;
		r->list = at;
	}
	do {
		n = r->end;
		if (n - r->begin == COUNT_MAX)
			return false;
	} while (!moves(&r->end, n, n + 1));
	to = entry_at(r, n);
	*to = *e;
	to->id = __cairn_rt.open;
	__atomic_store_n(&to->number, n + 1, __ATOMIC_RELEASE);
	return true;
}

static bool add(struct ring *r, struct entry e)
{
	bool locked = lock(), added = add_locked(r, &e);

	unlock(locked);
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
	struct entry e;
	bool locked, taken;

	if (crn_likely(r->begin == r->end))
		return NULL;
	locked = lock();
	taken = take_first(r, rt->active ? rt->oldest : UINT64_MAX, &e);
	unlock(locked);
	return taken ? (void *)e.addr : NULL;
}

/* The lists are the parent's, and so may be the lock. */
void crn_deferred_forked(void)
{
	deferred.blocks.begin = deferred.blocks.end = 0;
	deferred.maps.begin = deferred.maps.end = 0;
	deferred.lock.owner = 0;
}

#define SAME_MAX 8 /* entries that are looked at */

/* Libc's words change again and again; the first content of an interval is what counts. */
static bool is_known(const struct entry *e)
{
	const struct ring *r = &deferred.maps;

	for (uint32_t n = r->end, i = 0; n-- != r->begin && i < SAME_MAX; i++) {
		const struct entry *have = entry_at(r, n);

		if (is_filled(r, n) && have->change == e->change && have->addr == e->addr)
			return have->id == __cairn_rt.open;
	}
	return false;
}

bool crn_map_changed(enum crn_map_change change, uintptr_t addr, size_t len, int prot)
{
	struct entry e = { .addr = addr, .len = len, .change = (uint8_t)change,
		.prot = (uint8_t)prot };

	if (!__cairn_rt.active) {
		settled(UINT64_MAX);
		return false;
	}
	if ((change == CRN_WORD && is_known(&e)) || add(&deferred.maps, e))
		return true;
	crn_rt_give_up(addr, CAIRN_EMEMORY);
	return false;
}

bool crn_map_left(uintptr_t begin, uintptr_t end)
{
	struct ring *r = &deferred.maps;
	bool locked = lock();
	uintptr_t at = begin;

	for (uint32_t n = r->begin; n != r->end && at < end; n++) {
		const struct entry *e = entry_at(r, n);

		if (!is_filled(r, n) || e->change != CRN_MAP_LEFT || at - e->addr >= e->len)
			continue;
		at = e->addr + e->len;
		n = r->begin - 1; /* neighbours may have gone in any order */
	}
	unlock(locked);
	return at >= end;
}

void crn_map_replaced(uintptr_t addr, size_t len)
{
	struct ring *r = &deferred.maps;
	uintptr_t end = addr + len;
	bool locked = lock();

	for (uint32_t n = r->begin; n != r->end; n++) {
		struct entry *e = entry_at(r, n);
		uintptr_t stop = e->addr + e->len;

		if (!is_filled(r, n) || e->change != CRN_MAP_LEFT || stop <= addr ||
			e->addr >= end)
			continue;
		e->len = e->addr < addr ? addr - e->addr : 0;
		/* What lies behind goes with this interval: later than it could. */
		if (stop > end)
			(void)add_locked(r, &(struct entry){ .addr = end, .len = stop - end,
				.change = CRN_MAP_LEFT });
	}
	unlock(locked);
}
