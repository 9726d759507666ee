/* SPDX-License-Identifier: MIT */
/*
 * Live memory: putting old content back around the bytes that must survive, and reading memory that
 * the program has closed.
 */
#include "session/engine.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/guarded.h"
#include "os/memory.h"
#include "os/thread.h"
#include "rt/rt.h"
#include "session/ended_threads.h"

/* ---- What survives a restore ---------------------------------------------------------------- */

static int exempt_words(cairn_t *c, const struct crn_thread_words *w)
{
	if (w->clear_tid)
		CRN_TRY(crn_ranges_add(c, &c->builtin, w->clear_tid, w->clear_tid + 4));
	if (w->robust_list)
		CRN_TRY(crn_ranges_add(
			c, &c->builtin, w->robust_list, w->robust_list + w->robust_len));
	if (w->rseq)
		CRN_TRY(crn_ranges_add(c, &c->builtin, w->rseq, w->rseq + w->rseq_len));
	return 0;
}

int crn_exempt_self(cairn_t *c)
{
	struct crn_thread_words w;
	uintptr_t self = crn_self(c);

	if (c->thread_seen == self)
		return 0;
	/* The words of the thread before may be gone with it, and their place be an area now. */
	c->builtin.count = 0;
	c->thread_seen = 0;
	crn_thread_words(&w);
	CRN_TRY(exempt_words(c, &w));
	c->thread_seen = self;
	return 0;
}

struct exempt {
	cairn_t *c;
	struct crn_thread_words mine;
	int self;
};

/*
 * Only the robust list of another thread can be asked for; libc keeps the other words in the same
 * structure at the same distances.
 */
static int exempt_other(void *ctx, int tid)
{
	struct exempt *e = ctx;
	struct crn_thread_words w = e->mine;
	uintptr_t head = 0, shift;
	size_t len = 0;

	if (tid == e->self || crn_robust_list_of(tid, &head, &len) < 0 || !head)
		return 0;
	shift = head - e->mine.robust_list;
	w.robust_list = head;
	w.robust_len = len;
	w.clear_tid += w.clear_tid ? shift : 0;
	w.rseq += w.rseq ? shift : 0;
	return exempt_words(e->c, &w);
}

int crn_exempt_all(cairn_t *c)
{
	struct exempt e = { .c = c, .self = crn_gettid() };

	c->builtin.count = 0;
	c->thread_seen = crn_self(c);
	crn_thread_words(&e.mine);
	CRN_TRY(exempt_words(c, &e.mine));
	/* What a call of another thread brings is of now, however long ago the call was begun. */
	CRN_TRY(crn_in_flight_add(c, &c->builtin, true));
	return e.mine.robust_list ? crn_thread_each(exempt_other, &e) : 0;
}

/* ---- Closed memory --------------------------------------------------------------------------- */

static const struct crn_piece *awkward_at(const cairn_t *c, uintptr_t addr)
{
	size_t i;

	CRN_FIRST(i, c->awkward.count, c->awkward.at[i].end > addr);
	return i < c->awkward.count && c->awkward.at[i].begin <= addr ? &c->awkward.at[i] : NULL;
}

void crn_closed_end(cairn_t *c)
{
	if (crn_fd_is(c->closed_memory, &c->closed_memory_id))
		crn_fd_close(c->closed_memory);
	c->closed_memory = -1;
}

/*
 * There is no descriptor to be had: the page is opened for a moment, if nobody else runs who would
 * find it so. `err` if it cannot be.
 */
static int load_opened(cairn_t *c, void *dst, uintptr_t addr, size_t len, int err)
{
	void *page = (void *)crn_page_down(addr);
	struct crn_mapping m;
	int found = crn_maps_find(&c->maps, addr, &m);
	bool closed;

	if (found <= 0)
		return found < 0 ? err : -EFAULT;
	closed = !(m.prot & PROT_READ);
	if (closed && !crn_memory_alone())
		return err;
	if (closed && crn_memory_protect(page, CRN_PAGE_SIZE, m.prot | PROT_READ) < 0)
		return err;
	err = crn_guarded_copy(dst, (const void *)addr, len) < 0 ? -EFAULT : 0;
	if (closed)
		(void)crn_memory_protect(page, CRN_PAGE_SIZE, m.prot);
	return err;
}

/*
 * The descriptor is opened by the first of a call that needs it, and closed with the session's
 * lock: a child that is born later could read our memory by it. In the library another thread of
 * the program may close it meanwhile, and have its number for a file of its own.
 */
static int load_closed(cairn_t *c, void *dst, uintptr_t addr, size_t len)
{
	int err;

	if (c->closed_memory < 0) {
		c->closed_memory = crn_memory_force_open();
		if (crn_unlikely(c->closed_memory < 0))
			return load_opened(c, dst, addr, len, c->closed_memory);
		err = crn_fd_identify(c->closed_memory, &c->closed_memory_id);
		if (err < 0) {
			c->closed_memory = -1;
			return err;
		}
	}
	err = crn_memory_force_read_by(c->closed_memory, dst, addr, len);
	if (crn_likely(crn_fd_is(c->closed_memory, &c->closed_memory_id)))
		return err;
	c->closed_memory = -1;
	err = crn_memory_force_read(dst, addr, len);
	return err < 0 && !crn_is_bare(err) ? load_opened(c, dst, addr, len, err) : err;
}

static bool is_unreadable(const cairn_t *c, uintptr_t page)
{
	const struct crn_piece *p = c->unreadable ? awkward_at(c, page) : NULL;

	return p && !(p->prot & PROT_READ);
}

int crn_load(struct crn_track_env *env, void *dst, uintptr_t addr, size_t len)
{
	cairn_t *c = (cairn_t *)env;
	bool closed = is_unreadable(c, addr);
	int err;

	crn_own_calls(c, true);
	err = closed ? load_closed(c, dst, addr, len) : -EFAULT;
	if (err < 0 && crn_memory_peek(dst, (const void *)addr, len) == (long)len)
		err = 0;
	else if (err < 0 && !closed)
		err = load_closed(c, dst, addr, len);
	crn_own_calls(c, false);
	return err;
}

bool crn_closed_at(const struct crn_track_env *env, uintptr_t page)
{
	const cairn_t *c = (const cairn_t *)env;

	return c->cut || is_unreadable(c, page);
}

/* What the program has closed is there all the same. */
static bool is_any_cut(cairn_t *c, const uintptr_t *last, size_t n)
{
	uint8_t byte;
	bool all;

	crn_own_calls(c, true);
	all = crn_memory_readable(last, n) == n;
	crn_own_calls(c, false);
	for (size_t i = 0; i < n && !all; i++)
		if (crn_load(&c->env, &byte, last[i], 1) < 0)
			return true;
	return false;
}

void crn_cut_look(cairn_t *c)
{
	uintptr_t last[CRN_PROBE_MAX];
	size_t n = 0;

	if (crn_likely(!c->cuttable && !c->cut)) {
		c->env.closed = c->unreadable;
		return;
	}
	c->cut = false;
	for (size_t i = 0; i <= c->area_count && !c->cut; i++) {
		if (n == CRN_PROBE_MAX || (n && i == c->area_count)) {
			c->cut = is_any_cut(c, last, n);
			n = 0;
		}
		/* Whatever is cut off a file, the end of the mapping goes first. */
		if (i < c->area_count && crn_area_cuttable(c->areas[i]))
			last[n++] = c->areas[i]->end - 1;
	}
	c->env.closed = c->unreadable || c->cut;
	c->env.dropped |= c->cut;
}

bool crn_page_cuttable(const cairn_t *c, uintptr_t page)
{
	const struct crn_area *area = c->cuttable ? crn_area_at(c, page) : NULL;

	return area && crn_area_cuttable(area);
}

bool crn_cut_page(const cairn_t *c, uintptr_t page)
{
	const struct crn_area *area = c->cut ? crn_area_at(c, page) : NULL;
	uint8_t byte;

	return area && area->flags & CRN_AREA_FILE &&
		c->env.load((struct crn_track_env *)&c->env, &byte, page, 1) < 0;
}

/*
 * Where the kernel does not write around a protection (shared memory, a sandbox): open the page for
 * a moment. Where nothing is mapped any more, or the file ends before, another thread has done that
 * just now: then there is nothing left to put back, as if it had been done a moment later.
 */
static void put_opened(cairn_t *c, uintptr_t addr, const void *from, size_t len)
{
	void *page = (void *)crn_page_down(addr);
	struct crn_mapping m;

	if (crn_maps_find(&c->maps, addr, &m) <= 0)
		return;
	if (crn_memory_protect(page, CRN_PAGE_SIZE, m.prot | PROT_READ | PROT_WRITE) < 0) {
		crn_error("cannot put back %zx: protected", addr);
		return;
	}
	(void)crn_guarded_copy((void *)addr, from, len);
	(void)crn_memory_protect(page, CRN_PAGE_SIZE, m.prot);
}

/* What the program has made unwritable meanwhile is written all the same; a guard page goes. */
static void put_forced(cairn_t *c, uintptr_t addr, const void *from, size_t len)
{
	if (crn_memory_force_write(addr, from, len) >= 0)
		return;
	if (crn_memory_unguard((void *)crn_page_down(addr)) < 0 ||
		crn_memory_force_write(addr, from, len) < 0)
		put_opened(c, addr, from, len);
}

static const uint8_t zeros[CRN_PAGE_SIZE];

/* A guard page that has come since the checkpoint goes again. */
static void put(cairn_t *c, uintptr_t addr, const void *old, size_t len)
{
	const void *from = old ? old : zeros;

	if (crn_likely(crn_guarded_copy((void *)addr, from, len) >= 0))
		return;
	if (crn_memory_unguard((void *)crn_page_down(addr)) < 0 ||
		crn_guarded_copy((void *)addr, from, len) < 0)
		put_forced(c, addr, from, len);
}

static void put_bytes(cairn_t *c, uintptr_t addr, const void *old, size_t len)
{
	const struct crn_piece *p = c->awkward.count ? awkward_at(c, addr) : NULL;
	const void *from = old ? old : zeros;

	if (p && !(p->prot & PROT_WRITE))
		put_forced(c, addr, from, len);
	else if (!crn_page_cuttable(c, crn_page_down(addr)))
		put(c, addr, old, len);
	else if (crn_memory_poke((void *)addr, from, len) < 0)
		put_forced(c, addr, from, len);
}

/* ---- Storing --------------------------------------------------------------------------------- */

/* The next byte range within [*at, end) that may be written; false if there is none. */
static bool next_open(const cairn_t *c, uintptr_t *at, uintptr_t end, uintptr_t *stop)
{
	const struct crn_ranges *lists[] = { &c->excluded, &c->builtin, &c->shared };

again:
	*stop = end;
	if (c->skip && *at < c->skip->end && end > c->skip->begin) {
		if (*at >= c->skip->begin) {
			*at = c->skip->end;
			if (*at >= end)
				return false;
			goto again;
		}
		*stop = c->skip->begin;
	}
	for (size_t k = 0; k < CRN_ARRAY_SIZE(lists); k++) {
		size_t i = crn_ranges_from(lists[k], *at);
		const struct crn_range *r = &lists[k]->at[i];

		if (i == lists[k]->count || r->begin >= *stop)
			continue;
		if (r->begin <= *at) {
			*at = r->end;
			if (*at >= end)
				return false;
			goto again;
		}
		*stop = r->begin;
	}
	return *at < end;
}

bool crn_survives(const cairn_t *c, uintptr_t page)
{
	uintptr_t at = page, stop;

	return !next_open(c, &at, page + CRN_PAGE_SIZE, &stop) ||
		(c->skip && c->skip->begin < page + CRN_PAGE_SIZE && c->skip->end > page);
}

bool crn_may_put(const cairn_t *c, uintptr_t page)
{
	const struct crn_area *area;

	if (crn_likely(!c->filter))
		return true;
	area = crn_area_at(c, page);
	return area && area->born <= c->target;
}

static void widen(cairn_t *c, uintptr_t begin, uintptr_t end)
{
	if (begin >= end)
		return;
	c->quiet_below = CRN_MIN(c->quiet_below, crn_page_down(begin));
	c->quiet_from = CRN_MAX(c->quiet_from, end);
}

/* Each loaded object has some, which hardly ever change: a store that faults finds them. */
static bool is_constant(const struct crn_piece *p)
{
	return p->flags & CRN_AREA_FILE && p->prot & PROT_READ;
}

void crn_store_plan(cairn_t *c)
{
	const struct crn_ranges *lists[] = { &c->excluded, &c->builtin };

	c->quiet_below = UINTPTR_MAX;
	c->quiet_from = 0;
	if (c->filter || c->cut)
		widen(c, 0, UINTPTR_MAX);
	if (c->skip)
		widen(c, c->skip->begin, c->skip->end);
	for (size_t k = 0; k < CRN_ARRAY_SIZE(lists); k++) {
		if (lists[k]->count)
			widen(c, lists[k]->at[0].begin, lists[k]->at[lists[k]->count - 1].end);
	}
	for (size_t i = 0; i < c->awkward.count; i++)
		if (!is_constant(&c->awkward.at[i]))
			widen(c, c->awkward.at[i].begin, c->awkward.at[i].end);
	for (size_t i = 0; i < c->area_count && c->cuttable; i++)
		if (crn_page_cuttable(c, c->areas[i]->begin))
			widen(c, c->areas[i]->begin, c->areas[i]->end);
}

static void store_page(cairn_t *c, uintptr_t page, const void *old)
{
	uintptr_t at = page, end = page + CRN_PAGE_SIZE, stop;

	if (crn_likely(old && crn_page_quiet(c, page))) {
		c->put++;
		put(c, page, old, CRN_PAGE_SIZE);
		return;
	}
	/* It was no more there then than it is now, or the restore would have been refused. */
	if (!crn_may_put(c, page) || (!old && crn_cut_page(c, page)))
		return;
	c->put++;
	for (; next_open(c, &at, end, &stop); at = stop)
		put_bytes(c, at, old ? (const char *)old + (at - page) : NULL, stop - at);
}

/*
 * Of one page. Memory that is closed to stores has not been written, though it was saved: before a
 * system call that the kernel then refused.
 */
static void store_changed(cairn_t *c, uintptr_t addr, const void *old, size_t len)
{
	size_t same;

	if (__cairn_shape.threads && crn_unlikely(crn_ended_with_thread(c, addr, len)))
		return;
	same = crn_first_other((const void *)addr, old, len);
	if (same < len)
		crn_store_bytes(c, addr + same, (const char *)old + same, len - same);
}

void crn_store(struct crn_track_env *env, uintptr_t addr, const void *old, size_t len)
{
	cairn_t *c = (cairn_t *)env;

	if (c->ops->caps & CRN_TRACK_STORES) {
		c->put++;
		for (size_t at = 0, n; at < len; at += n) {
			n = CRN_MIN(len - at, CRN_PAGE_SIZE - ((addr + at) & (CRN_PAGE_SIZE - 1)));
			store_changed(c, addr + at, (const char *)old + at, n);
		}
		return;
	}
	CRN_DASSERT(!(addr & (CRN_PAGE_SIZE - 1)) && !(len & (CRN_PAGE_SIZE - 1)));
	for (size_t at = 0; at < len; at += CRN_PAGE_SIZE)
		store_page(c, addr + at, old ? (const char *)old + at : NULL);
}

void crn_store_bytes(cairn_t *c, uintptr_t addr, const void *old, size_t len)
{
	uintptr_t at = addr, end = addr + len, stop;

	for (; at < end && next_open(c, &at, end, &stop); at = stop)
		crn_copy((void *)at, (const char *)old + (at - addr), stop - at);
}

/* SAFETY: called from write-fault handlers: one store, no lock. */
void crn_lost(struct crn_track_env *env, uintptr_t addr, int why)
{
	cairn_t *c = (cairn_t *)env;

	__atomic_store_n(&c->control->lost, why, __ATOMIC_RELAXED);
	if (why == CAIRN_ELAYOUT) /* a mapping is not what it was: look */
		__atomic_store_n(&c->control->maps_stale, true, __ATOMIC_RELEASE);
}
