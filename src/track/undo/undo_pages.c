/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include "base/arena.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/host.h"
#include "os/keeper.h"
#include "os/memory.h"
#include "os/pagemap.h"
#include "os/signal.h"
#include "os/thread.h"
#include "track/undo/undo_pages.h"

/* ---- The gate ----------------------------------------------------------------- */

void undo_gate_pass(struct crn_undo_pages *u, struct crn_guest *guest)
{
	if (guest)
		atomic_store(&guest->inside, 1);
	else
		atomic_fetch_add(&u->inside, 1);
}

bool undo_gate_enter(struct crn_undo_pages *u, struct crn_guest *guest)
{
	unsigned round = 0;
	uint32_t seen;

	undo_gate_pass(u, guest);
	if (crn_likely(!atomic_load(&u->closed)))
		return true;
	undo_gate_leave(u, guest);
	while (round < 66 && (seen = atomic_load(&u->closed)))
		crn_wait_while(&u->closed, seen, &round);
	if (undo_closer_died(u, atomic_load(&u->closed))) {
		undo_gate_shut(u, UNDO_CLOSED_BY_HANDLER, guest);
		undo_gate_unshut(u);
	}
	return false;
}

void undo_gate_leave(struct crn_undo_pages *u, struct crn_guest *guest)
{
	if (guest)
		atomic_store(&guest->inside, 0);
	else
		atomic_fetch_sub(&u->inside, 1);
}

uintptr_t undo_thread_pointer(const struct crn_undo_pages *u)
{
	uintptr_t pointer = 0;

	if (u->env->host->fsgsbase)
		__asm__ volatile("rdfsbase %0" : "=r"(pointer));
	return pointer;
}

/*
 * Ends: who has closed the gate holds the session's lock, or is a handler at one page, and comes to
 * its end without a store to a closed one. Who is inside waits for nobody but for a page that
 * another handler is at (UNDO_BUSY), and no signal handler of the program's runs in its midst: what
 * could not be blocked is held (faults.c). Threads do not die alone. Who may (a child of vfork) is
 * known, and when it has, the next one puts right what it has left (undo_guests.c).
 */
void undo_gate_shut(struct crn_undo_pages *u, enum undo_closed how, struct crn_guest *guest)
{
	uint32_t seen, open = 0, value = undo_closed_by(u, how, guest);
	unsigned round = 0;

	for (; !atomic_compare_exchange_weak(&u->closed, &open, value); open = 0) {
		if (undo_closer_died(u, open) &&
			atomic_compare_exchange_strong(&u->closed, &open, value))
			break;
		if (open)
			crn_wait_while(&u->closed, open, &round);
	}
	/* A guest has the thread pointer of its parent, which would take itself for the closer. */
	atomic_store_explicit(&u->closer, guest ? 0 : undo_thread_pointer(u), memory_order_relaxed);
	for (round = 0; (seen = atomic_load(&u->inside));)
		crn_wait_while(&u->inside, seen, &round);
	if (crn_unlikely(atomic_load(&u->guests->present)))
		undo_guests_settle(u, guest);
}

void undo_gate_unshut(struct crn_undo_pages *u)
{
	atomic_store_explicit(&u->closer, 0, memory_order_relaxed);
	atomic_store(&u->closed, 0);
}

/*
 * A signal handler of the program that interrupts us and stores to a clean page could neither be
 * served nor wait. Under the agent there is none: it holds signals back while a call runs.
 */
static void hold_signals(struct crn_undo_pages *u)
{
	const uint64_t faults = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1);

	if (u->env->faults_forwarded)
		return;
	u->signals = crn_signal_mask(SIG_BLOCK, ~faults);
	u->signals_held = true;
	u->faults_held = crn_faults_hold(u->handler);
}

void undo_own(struct crn_undo_pages *u, bool begin)
{
	if (u->feed && (begin ? u->own_depth++ == 0 : --u->own_depth == 0))
		u->feed->ops->own(u->feed, begin);
}

void undo_gate_close(struct crn_undo_pages *u)
{
	if (u->depth++ == 0) {
		hold_signals(u);
		undo_gate_shut(u, UNDO_CLOSED_BY_CALL, NULL);
		u->hot.stale = true;
		undo_own(u, true);
		u->owns = true;
	}
}

void undo_gate_close_to_read(struct crn_undo_pages *u)
{
	if (u->depth++)
		return; /* closed altogether already */
	/* A handler could not tell that it interrupts us. */
	if (!u->env->host->fsgsbase)
		hold_signals(u);
	else
		atomic_store(&u->reader, undo_thread_pointer(u));
	undo_gate_shut(u, UNDO_CLOSED_BY_CALL, NULL);
}

bool undo_gate_is_mine(const struct crn_undo_pages *u)
{
	uintptr_t reader = atomic_load(&((struct crn_undo_pages *)u)->reader);

	return reader && reader == undo_thread_pointer(u) &&
		atomic_load(&((struct crn_undo_pages *)u)->closed) == UNDO_CLOSED_BY_CALL;
}

void undo_gate_open(struct crn_undo_pages *u)
{
	if (--u->depth)
		return;
	if (u->owns)
		undo_own(u, false);
	u->owns = false;
	undo_gate_unshut(u);
	atomic_store(&u->reader, 0);
	if (u->signals_held) {
		u->signals_held = false;
		if (u->faults_held)
			crn_faults_release(u->handler);
		u->faults_held = false;
		crn_signal_mask(SIG_SETMASK, u->signals);
	}
}

void undo_hold(void *t, bool on)
{
	if (on)
		undo_gate_close(t);
	else
		undo_gate_open(t);
}

/* ---- Tables --------------------------------------------------------------------- */

size_t undo_area_from(const struct crn_undo_pages *u, uintptr_t addr)
{
	size_t i;

	CRN_FIRST(i, u->area_count, u->areas[i]->end > addr);
	return i;
}

void undo_frame_drop(struct crn_undo_pages *u, uintptr_t word)
{
	if (!undo_frame(word))
		return;
	crn_frame_free(u->env->arena, undo_frame(word));
	atomic_fetch_sub(&u->frame_count, 1);
}

struct undo_area *undo_find(const struct crn_undo_pages *u, uintptr_t addr)
{
	size_t i = undo_area_from(u, addr);

	return i < u->area_count && u->areas[i]->begin <= addr ? u->areas[i] : NULL;
}

/* saved[] grows by replacement, like a table, but handlers write to it: it is an open block. */
static int grow_saved(struct crn_undo_pages *u, size_t want)
{
	size_t size = sizeof(*u->saved), cap = CRN_MAX(want, CRN_MAX(u->saved_cap * 2, (size_t)64));
	void *grown;

	if (want <= u->saved_cap)
		return 0;
	grown = crn_block_alloc_open(u->env->arena, cap * size);
	if (!grown)
		return CAIRN_EMEMORY;
	crn_copy(grown, (void *)u->saved, atomic_load(&u->saved_count) * size);
	crn_block_free(u->env->arena, (void *)u->saved, u->saved_cap * size);
	u->saved = grown;
	u->saved_cap = cap;
	return 0;
}

static int make_room(struct crn_undo_pages *u, size_t pages)
{
	struct crn_arena *arena = u->env->arena;

	CRN_TRY(crn_table_grow(arena, (void **)&u->areas, &u->area_cap, u->area_count,
		u->area_count + 1, sizeof(*u->areas)));
	return grow_saved(u, u->page_count + pages);
}

static void insert(struct crn_undo_pages *u, struct undo_area *a)
{
	size_t at = undo_area_from(u, a->begin);

	for (size_t i = u->area_count; i > at; i--)
		u->areas[i] = u->areas[i - 1];
	u->areas[at] = a;
	u->area_count++;
	u->page_count += crn_pages(a->end - a->begin);
	u->hot_area_count += a->hot;
}

static void take_out(struct crn_undo_pages *u, struct undo_area *a)
{
	size_t at = undo_area_from(u, a->begin);

	CRN_ASSERT(u->areas[at] == a);
	u->area_count--;
	for (size_t i = at; i < u->area_count; i++)
		u->areas[i] = u->areas[i + 1];
	u->page_count -= crn_pages(a->end - a->begin);
	u->hot_area_count -= a->hot;
}

/* ---- Areas ------------------------------------------------------------------------ */

/* Note what the program may do with each page, as the map shows it. */
static int read_protections(struct crn_undo_pages *u, struct undo_area *a)
{
	struct crn_mapping m;
	int got = crn_maps_begin(&u->maps, a->begin, CRN_MAPS_NO_NAMES);

	for (uintptr_t at = a->begin; at < a->end; at += CRN_PAGE_SIZE)
		atomic_store_explicit(undo_word_of(a, at), UNDO_SEALED, memory_order_relaxed);
	if (got < 0)
		return got;
	while ((got = crn_maps_next(&u->maps, &m)) > 0 && m.begin < a->end) {
		uintptr_t begin = CRN_MAX(m.begin, a->begin), end = CRN_MIN(m.end, a->end);
		uintptr_t word = (m.prot & PROT_WRITE ? 0 : UNDO_SEALED) |
			(m.prot & PROT_EXEC ? UNDO_EXEC : 0);

		for (uintptr_t at = begin; at < end; at += CRN_PAGE_SIZE)
			atomic_store_explicit(undo_word_of(a, at), word, memory_order_relaxed);
	}
	return got < 0 ? got : 0;
}

bool undo_in_flight(const struct crn_undo_pages *u, uintptr_t page)
{
	const struct crn_range *r = u->env->in_flight;
	size_t i;

	if (u->open.count && crn_range_list_meets(&u->open, page, page + CRN_PAGE_SIZE))
		return true;
	CRN_FIRST(i, u->env->in_flight_count, r[i].end > page);
	return i < u->env->in_flight_count && r[i].begin < page + CRN_PAGE_SIZE;
}

/* Memory that turns out to be ours while a call of some thread has its buffer there. */
static void open_in_flight(struct crn_undo_pages *u, struct undo_area *a)
{
	if (!u->env->in_flight_count && !u->open.count)
		return;
	for (uintptr_t page = a->begin; page < a->end; page += CRN_PAGE_SIZE)
		if (!(atomic_load(undo_word_of(a, page)) & UNDO_SEALED) && undo_in_flight(u, page))
			undo_save_page(u, undo_word_of(a, page), page, 0);
}

int undo_protect_closed(
	struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end, bool exec)
{
	uintptr_t at = begin;

	while (begin < end) {
		while (at < end && !(atomic_load(undo_word_of(a, at)) & UNDO_OPEN))
			at += CRN_PAGE_SIZE;
		if (at > begin)
			CRN_TRY(a->guard->protect(u, begin, at, exec));
		while (at < end && atomic_load(undo_word_of(a, at)) & UNDO_OPEN)
			at += CRN_PAGE_SIZE;
		begin = at;
	}
	return 0;
}

void undo_resemble(void *t, uintptr_t addr, size_t len)
{
	struct crn_undo_pages *u = t;

	(void)crn_memory_advise((void *)addr, len, MADV_NOHUGEPAGE);
	if (u->guard != &undo_guard_mprotect)
		(void)crn_uffd_register(u->uffd, addr, len);
}

static int area_begin(struct crn_undo_pages *u, struct undo_area *a)
{
	bool plain = !(a->area->flags & (CRN_AREA_FILE | CRN_AREA_SHARED));
	int err;

	if (a->hot)
		return undo_hot_area_begin(u, a);
	/* Without the map in hand we could not know what to give back. */
	err = read_protections(u, a);
	if (err < 0)
		return err;
	if (plain)
		crn_memory_advise((void *)a->begin, a->end - a->begin, MADV_NOHUGEPAGE);
	open_in_flight(u, a);
	a->guard = plain || u->guard->whole_kinds ? u->guard : &undo_guard_mprotect;
	if (a->guard == &undo_guard_mprotect) {
		CRN_TRY(undo_data_limit(u));
		CRN_TRY(undo_object_note(u, a));
	}
	err = a->guard->begin(u, a);
	/*
	 * userfaultfd takes anonymous memory that nobody else has registered; mprotect takes the
	 * rest.
	 */
	if (err < 0 && err != CAIRN_EMEMORY && a->guard != &undo_guard_mprotect &&
		!a->guard->whole_kinds) {
		a->guard = &undo_guard_mprotect;
		err = a->guard->begin(u, a);
	}
	if (err >= 0 && undo_cut_begin(u, a) < 0) {
		a->guard->end(u, a);
		err = CAIRN_EMEMORY;
	}
	return err;
}

static void free_area(struct crn_undo_pages *u, struct undo_area *a)
{
	struct crn_arena *arena = u->env->arena;

	undo_object_forget(u, a);
	undo_cut_end(u, a);
	crn_block_free(arena, a->words, a->word_bytes);
	crn_block_free(arena, a, sizeof(*a));
}

static void drop_pages(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end)
{
	size_t count = atomic_load(&u->saved_count), kept = 0;

	for (size_t i = 0; i < count; i++)
		if (u->saved[i] < begin || u->saved[i] >= end)
			u->saved[kept++] = u->saved[i];
	atomic_store(&u->saved_count, kept);
	crn_hot_list_drop(&u->hot, begin, end);
}

/* None of its pages is listed any more, and their frames are free. */
static void drop_content(struct crn_undo_pages *u, struct undo_area *a)
{
	for (size_t i = 0; i < crn_pages(a->end - a->begin); i++)
		undo_frame_drop(u, atomic_load_explicit(&a->words[i], memory_order_relaxed));
	drop_pages(u, a->begin, a->end);
}

int undo_area_add(void *t, struct crn_area *area)
{
	struct crn_undo_pages *u = t;
	size_t pages = crn_pages(area->end - area->begin);
	struct undo_area *a = crn_block_alloc(u->env->arena, sizeof(*a));
	int err = CAIRN_EMEMORY;

	if (!a)
		return CAIRN_EMEMORY;
	a->begin = area->begin;
	a->end = area->end;
	a->area = area;
	a->hot = area->flags & CRN_AREA_HOT;
	a->word_bytes = pages * sizeof(*a->words);
	a->words = crn_block_alloc_open(u->env->arena, a->word_bytes);
	if (!a->words)
		goto err_area;
	/*
	 * The gate stays closed until the area can be found: a store that is refused meanwhile
	 * waits.
	 */
	undo_gate_close(u);
	err = make_room(u, pages);
	/*
	 * Frames have a mapping of their own from now on, also if the limit of mappings is reached
	 * later.
	 */
	if (err == 0)
		err = crn_frame_reserve(u->env->arena, 1);
	if (err == 0)
		err = area_begin(u, a);
	if (err == 0) {
		insert(u, a);
		area->priv = a;
	} else {
		drop_content(u, a);
	}
	undo_gate_open(u);
	if (err == 0)
		return 0;
err_area:
	free_area(u, a);
	return err;
}

void undo_area_drop(void *t, struct crn_area *area)
{
	struct crn_undo_pages *u = t;
	struct undo_area *a = area->priv;

	if (!a)
		return;
	undo_gate_close(u);
	if (a->guard)
		a->guard->end(u, a);
	drop_content(u, a);
	take_out(u, a);
	undo_gate_open(u);
	area->priv = NULL;
	free_area(u, a);
}

/* ---- Life --------------------------------------------------------------------------- */

int undo_open(
	struct crn_undo_pages **out, struct crn_track_env *env, const struct undo_guard *guard)
{
	/* Handlers write to all of these, at any moment. */
	struct crn_undo_pages *u = crn_block_alloc_open(env->arena, sizeof(*u));
	int err = CAIRN_EMEMORY;

	if (!u)
		return err;
	u->env = env;
	crn_hot_list_open(&u->hot, env, &undo_hot_owner, u);
	u->guard = guard;
	u->uffd = u->told_fd = -1;
	crn_range_list_open(&u->open, env->arena);
	u->maps_buffer = crn_block_alloc_open(env->arena, CRN_MAPS_BUFFER);
	if (!u->maps_buffer)
		goto err_block;
	err = crn_maps_open(&u->maps, u->maps_buffer);
	if (err < 0)
		goto err_buffer;
	/* Only hot areas want it, and they manage without. */
	u->pagemap = crn_pagemap_open();
	(void)crn_keeper_hold(env->keeper, &u->pagemap, crn_pagemap_open);
	err = crn_faults_open(&u->handler, env, undo_store_fault, u);
	if (err < 0)
		goto err_maps;
	u->guests = crn_faults_guests(u->handler);
	*out = u;
	return 0;

err_maps:
	crn_keeper_drop(env->keeper, &u->pagemap);
	crn_maps_close(&u->maps);
err_buffer:
	crn_block_free(env->arena, u->maps_buffer, CRN_MAPS_BUFFER);
err_block:
	crn_block_free(env->arena, u, sizeof(*u));
	return err;
}

void undo_close(void *t)
{
	struct crn_undo_pages *u = t;
	struct crn_arena *arena = u->env->arena;

	while (u->area_count)
		undo_area_drop(u, u->areas[u->area_count - 1]->area);
	crn_faults_close(u->handler);
	undo_told_close(u);
	crn_range_list_close(&u->open);
	crn_keeper_drop(u->env->keeper, &u->uffd);
	crn_keeper_drop(u->env->keeper, &u->pagemap);
	crn_maps_close(&u->maps);
	crn_block_free(arena, u->maps_buffer, CRN_MAPS_BUFFER);
	crn_block_free(arena, u->areas, u->area_cap * sizeof(*u->areas));
	crn_block_free(arena, (void *)u->saved, u->saved_cap * sizeof(*u->saved));
	crn_hot_list_close(&u->hot);
	crn_block_free(arena, u, sizeof(*u));
}

uint64_t undo_bytes(const void *t)
{
	const struct crn_undo_pages *u = t;

	return atomic_load(&((struct crn_undo_pages *)u)->frame_count) << CRN_PAGE_SHIFT;
}

uint64_t undo_faults(const void *t)
{
	const struct crn_undo_pages *u = t;

	return atomic_load(&((struct crn_undo_pages *)u)->faults);
}

uint64_t undo_eager(const void *t)
{
	return ((const struct crn_undo_pages *)t)->eager;
}
