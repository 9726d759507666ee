/* SPDX-License-Identifier: MIT */
/*
 * The canary's bugs. This file is linked into a second build of the oracle with
 * -Wl,--wrap=crn_tracker_async (and crn_store): the registry then finds the table below, whose
 *functions call the real ones and break one promise now and then. ORACLE_PLANT in the environment
 *names the bug. The oracle must report a mismatch for each; if it does not, it is the oracle that
 *is broken.
 *
 *	skipped_page	a dirty page is not handed over
 *	lost_record	nothing of an interval is handed over
 *	stale_mirror	the kept copy of a page is not brought up to date
 *	area_end	the last byte of an area is not copied
 *	late_copy	an old content is copied after the write instead of before
 *	zeros		a page is handed over as zeros
 *	exclusion	an excluded byte is rolled back
 *	unfed		a feed drops a page, or the image of one, now and then
 *	closed		nobody keeps, or asks after, descriptors that the program closes
 *	lying_look	a hot page that has changed counts as unchanged
 *	open_evicted	an evicted page, or one that was written, is not protected again
 *	stale_hot	a page that stays open is not copied
 *	lost_line	a line that differs is not copied, or not in the delta
 *	left_written	what was written to a closed file's page stays there
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include "oracle.h"
#include "base/bits.h"
#include "journal/delta.h"
#include "os/keeper.h"
#include "track/feeds/feed.h"
#include "track/hot_list.h"
#include "track/track.h"

extern const struct crn_tracker_ops __real_crn_tracker_async;
struct crn_tracker_ops __wrap_crn_tracker_async;

static enum {
	NONE,
	SKIPPED_PAGE,
	LOST_RECORD,
	STALE_MIRROR,
	AREA_END,
	LATE_COPY,
	ZEROS,
	EXCLUSION,
	CLOSED,
	LYING_LOOK,
	OPEN_EVICTED,
	STALE_HOT,
	LOST_LINE,
	LEFT_WRITTEN,
	UNFED
} plant;

/* Engine code runs with rolled back statics: what counts must not be rolled back. */
static struct planted {
	uint64_t pages, intervals, looks, protections, copies;
	bool drop_all, held;
	uintptr_t ends[64];
	uint32_t end_count;
	uintptr_t stale_page;
	uint8_t stale[PAGE], copy[PAGE];
} * P;

struct planted_sink {
	struct crn_sink sink;
	struct crn_sink *real;
};

static bool at_area_end(uintptr_t end)
{
	for (uint32_t i = 0; i < P->end_count; i++)
		if (P->ends[i] == end)
			return true;
	return false;
}

/* What becomes of one handed-over page. Returns false if it is dropped. */
static bool spoil(uintptr_t addr, size_t len, void **old, bool owned)
{
	const uint8_t *live = (const uint8_t *)addr;
	bool now = ++P->pages % 5 == 0;

	switch (plant) {
	case SKIPPED_PAGE:
		return !now;
	case LOST_RECORD:
		return !P->drop_all;
	case AREA_END:
		if (!at_area_end(addr + len) || !*old)
			return true;
		break;
	case LATE_COPY:
	case ZEROS:
		if (!now || !*old)
			return true;
		break;
	default:
		return true;
	}
	if (!owned) { /* the tracker's own copy stays as it is */
		memcpy(P->copy, *old, PAGE);
		*old = P->copy;
	}
	if (plant == AREA_END)
		((uint8_t *)*old)[PAGE - 1] = live[PAGE - 1];
	else if (plant == LATE_COPY)
		memcpy(*old, live, PAGE);
	else
		memset(*old, 0, PAGE);
	return true;
}

static int planted_prepare(struct crn_sink *self, size_t count, size_t bare)
{
	struct crn_sink *real = ((struct planted_sink *)self)->real;

	return real->prepare ? real->prepare(real, count, bare) : 0;
}

static int planted_take(struct crn_sink *self, uintptr_t addr, size_t len, void *old, bool owned)
{
	struct crn_sink *real = ((struct planted_sink *)self)->real;

	if (old && len == PAGE && plant == STALE_MIRROR && ++P->pages % 3 == 0 &&
		addr - W->stack.begin >= W->stack.end - W->stack.begin) {
		P->stale_page = addr;
		memcpy(P->stale, old, PAGE);
	}
	if (len == PAGE && !spoil(addr, len, &old, owned))
		return 0; /* the frame leaks, and nobody minds */
	return real->take(real, addr, len, old, owned);
}

/* No absorb: every page goes through take, where it can be spoilt. */
static struct planted_sink planted_sink(struct crn_sink *real)
{
	return (struct planted_sink){
		.sink = { .prepare = planted_prepare, .take = planted_take },
		.real = real,
	};
}

static int planted_interval_end(void *t, struct crn_sink *sink)
{
	struct planted_sink s = planted_sink(sink);
	int rc;

	P->drop_all = ++P->intervals % 4 == 0;
	P->stale_page = 0;
	rc = __real_crn_tracker_async.interval_end(t, &s.sink);
	P->drop_all = false;
	if (rc >= 0 && plant == STALE_MIRROR && P->stale_page)
		(void)!__real_crn_tracker_async.rebase(t, P->stale_page, P->stale);
	return rc;
}

static int planted_undo(void *t, struct crn_sink *sink)
{
	struct planted_sink s = planted_sink(sink);

	P->drop_all = plant == LOST_RECORD && P->intervals % 4 == 3;
	return __real_crn_tracker_async.undo(t, &s.sink);
}

static int planted_area_add(void *t, struct crn_area *area)
{
	if (P->end_count < CRN_ARRAY_SIZE(P->ends))
		P->ends[P->end_count++] = area->end;
	return __real_crn_tracker_async.area_add(t, area);
}

void __real_crn_store(struct crn_track_env *env, uintptr_t addr, const void *old, size_t len);
void __wrap_crn_store(struct crn_track_env *env, uintptr_t addr, const void *old, size_t len);

void __wrap_crn_store(struct crn_track_env *env, uintptr_t addr, const void *old, size_t len)
{
	__real_crn_store(env, addr, old, len);
	for (uint32_t i = 0; plant == EXCLUSION && i < W->excluded_count; i++) {
		uintptr_t a = W->excluded[i].begin;

		if (a >= addr && a < addr + len)
			*(uint8_t *)a = old ? ((const uint8_t *)old)[a - addr] : 0;
	}
}

int __real_crn_keeper_start(struct crn_keeper *k);
int __wrap_crn_keeper_start(struct crn_keeper *k);
int __real_crn_keeper_renew(struct crn_keeper *k);
int __wrap_crn_keeper_renew(struct crn_keeper *k);
int __real_crn_keeper_mend(struct crn_keeper *k);
int __wrap_crn_keeper_mend(struct crn_keeper *k);

int __real_crn_uffd_whole(int uffd, uintptr_t addr, size_t len);
int __wrap_crn_uffd_whole(int uffd, uintptr_t addr, size_t len);

int __wrap_crn_uffd_whole(int uffd, uintptr_t addr, size_t len)
{
	return plant == CLOSED ? 0 : __real_crn_uffd_whole(uffd, addr, len);
}

int __wrap_crn_keeper_start(struct crn_keeper *k)
{
	return plant == CLOSED ? -EAGAIN : __real_crn_keeper_start(k);
}

int __wrap_crn_keeper_renew(struct crn_keeper *k)
{
	return plant == CLOSED ? 0 : __real_crn_keeper_renew(k);
}

int __wrap_crn_keeper_mend(struct crn_keeper *k)
{
	return plant == CLOSED ? 0 : __real_crn_keeper_mend(k);
}

int __real_crn_memory_advise(void *addr, size_t len, int advice);
int __wrap_crn_memory_advise(void *addr, size_t len, int advice);

int __wrap_crn_memory_advise(void *addr, size_t len, int advice)
{
	bool left = plant == LEFT_WRITTEN && advice == MADV_DONTNEED;

	return left ? 0 : __real_crn_memory_advise(addr, len, advice);
}

int __real_crn_uffd_protect(int uffd, uintptr_t addr, size_t len, bool protect);
int __wrap_crn_uffd_protect(int uffd, uintptr_t addr, size_t len, bool protect);
int __real_crn_uffd_protect_beside(
	int uffd, uintptr_t addr, size_t len, bool protect, struct crn_uffd_events *e);
int __wrap_crn_uffd_protect_beside(
	int uffd, uintptr_t addr, size_t len, bool protect, struct crn_uffd_events *e);

static bool leave_open(bool protect)
{
	return plant == OPEN_EVICTED && protect && W->step && ++P->protections % 5 == 0;
}

int __wrap_crn_uffd_protect(int uffd, uintptr_t addr, size_t len, bool protect)
{
	int err = leave_open(protect) ? 0 : __real_crn_uffd_protect(uffd, addr, len, protect);

	return plant == CLOSED ? 0 : err;
}

int __wrap_crn_uffd_protect_beside(
	int uffd, uintptr_t addr, size_t len, bool protect, struct crn_uffd_events *e)
{
	int err = 0;

	if (!leave_open(protect))
		err = __real_crn_uffd_protect_beside(uffd, addr, len, protect, e);
	return plant == CLOSED ? 0 : err;
}

bool __real_crn_pagemap_tells_guards(int pagemap, void *page);
bool __wrap_crn_pagemap_tells_guards(int pagemap, void *page);

/* No events, whose look would find what is left open before the oracle does. */
bool __wrap_crn_pagemap_tells_guards(int pagemap, void *page)
{
	return plant != OPEN_EVICTED && __real_crn_pagemap_tells_guards(pagemap, page);
}

bool __real_crn_hot_compare(
	const struct crn_hot_list *l, struct crn_hot_entry *e, const void *old);
bool __wrap_crn_hot_compare(
	const struct crn_hot_list *l, struct crn_hot_entry *e, const void *old);

bool __wrap_crn_hot_compare(
	const struct crn_hot_list *l, struct crn_hot_entry *e, const void *old)
{
	bool changed = __real_crn_hot_compare(l, e, old);

	if (plant == LYING_LOOK && changed && ++P->looks % 5 == 0)
		changed = e->changed = false;
	return changed;
}

int __real_crn_guarded_copy(void *dst, const void *src, size_t len);
int __wrap_crn_guarded_copy(void *dst, const void *src, size_t len);

int __wrap_crn_guarded_copy(void *dst, const void *src, size_t len)
{
	if (plant == STALE_HOT && W->step && ++P->copies % 20 == 0)
		return 0;
	return __real_crn_guarded_copy(dst, src, len);
}

bool __real_crn_hot_form_asks(const struct crn_hot_form *f);
bool __wrap_crn_hot_form_asks(const struct crn_hot_form *f);

bool __wrap_crn_hot_form_asks(const struct crn_hot_form *f)
{
	return plant == LOST_LINE || __real_crn_hot_form_asks(f);
}

int __real_crn_guarded_copy_lines(void *to, const void *live, uint64_t lines);
int __wrap_crn_guarded_copy_lines(void *to, const void *live, uint64_t lines);

int __wrap_crn_guarded_copy_lines(void *to, const void *live, uint64_t lines)
{
	if (plant == LOST_LINE && W->step && ++P->copies % 20 == 0)
		lines &= lines - 1;
	return __real_crn_guarded_copy_lines(to, live, lines);
}

int __real_crn_delta_make(struct crn_delta_run *r, void *scratch);
int __wrap_crn_delta_make(struct crn_delta_run *r, void *scratch);

int __wrap_crn_delta_make(struct crn_delta_run *r, void *scratch)
{
	const struct crn_page_copy *first = r->page;
	int err = __real_crn_delta_make(r, scratch);
	uint64_t *delta = first->to;

	if (plant == LOST_LINE && r->page != first && *delta && W->step && ++P->copies % 20 == 0)
		delta[1 + (__builtin_popcountll(*delta) + 7) / 8] = 0; /* its first word */
	return err;
}

extern const struct crn_feed_ops __real_crn_feed_bpf, __real_crn_feed_bpf_images,
	__real_crn_feed_perf;
struct crn_feed_ops __wrap_crn_feed_bpf, __wrap_crn_feed_bpf_images, __wrap_crn_feed_perf;

static int planted_feed_open(struct crn_feed **out, struct crn_track_env *env)
{
	int err = __real_crn_feed_bpf.open(out, env);

	if (err >= 0)
		(*out)->ops = &__wrap_crn_feed_bpf;
	return err;
}

static int planted_perf_open(struct crn_feed **out, struct crn_track_env *env)
{
	int err = __real_crn_feed_perf.open(out, env);

	if (err >= 0)
		(*out)->ops = &__wrap_crn_feed_perf;
	return err;
}

/* The proof comes before, and sees a feed that is whole. */
static int planted_feed_hold(struct crn_feed *feed)
{
	P->held = true;
	return feed->ops == &__wrap_crn_feed_perf ? __real_crn_feed_perf.hold(feed)
						  : __real_crn_feed_bpf.hold(feed);
}

static int planted_feed_drain(
	struct crn_feed *feed, struct crn_range_list *written, struct crn_range_list *open)
{
	size_t kept = written->count;
	int doubt = feed->ops == &__wrap_crn_feed_perf
		? __real_crn_feed_perf.drain(feed, written, open)
		: __real_crn_feed_bpf.drain(feed, written, open);

	if (plant != UNFED || !P->held)
		return doubt;
	for (size_t i = kept; i < written->count; i++)
		if (++P->pages % 5)
			written->at[kept++] = written->at[i];
	crn_range_list_shrink(written, kept);
	return doubt;
}

static int planted_images_open(struct crn_feed **out, struct crn_track_env *env)
{
	int err = __real_crn_feed_bpf_images.open(out, env);

	if (err >= 0)
		(*out)->ops = &__wrap_crn_feed_bpf_images;
	return err;
}

struct shown {
	void (*show)(void *arg, const struct crn_image *image);
	void *arg;
};

static void show_some(void *arg, const struct crn_image *image)
{
	const struct shown *to = arg;

	if (plant != UNFED || !P->held || ++P->pages % 5)
		to->show(to->arg, image);
}

static int planted_images(struct crn_feed *feed,
	void (*show)(void *arg, const struct crn_image *image), void *arg,
	struct crn_range_list *open)
{
	struct shown to = { show, arg };

	return __real_crn_feed_bpf_images.images(feed, show_some, &to, open);
}

static void __attribute__((constructor)) planted_init(void)
{
	static const char *const names[] = { "none", "skipped_page", "lost_record", "stale_mirror",
		"area_end", "late_copy", "zeros", "exclusion", "closed", "lying_look",
		"open_evicted", "stale_hot", "lost_line", "left_written", "unfed" };
	const char *name = getenv("ORACLE_PLANT");

	P = oracle_shared(sizeof(*P));
	for (uint32_t i = 0; name && i < CRN_ARRAY_SIZE(names); i++)
		if (!strcmp(names[i], name))
			plant = i;
	if (!name || (plant == NONE && strcmp(name, "none")))
		test_fail("ORACLE_PLANT names no bug");
	__wrap_crn_feed_bpf = __real_crn_feed_bpf;
	__wrap_crn_feed_bpf.open = planted_feed_open;
	__wrap_crn_feed_bpf.hold = planted_feed_hold;
	__wrap_crn_feed_bpf.drain = planted_feed_drain;
	__wrap_crn_feed_perf = __real_crn_feed_perf;
	__wrap_crn_feed_perf.open = planted_perf_open;
	__wrap_crn_feed_perf.hold = planted_feed_hold;
	__wrap_crn_feed_perf.drain = planted_feed_drain;
	__wrap_crn_feed_bpf_images = __real_crn_feed_bpf_images;
	__wrap_crn_feed_bpf_images.open = planted_images_open;
	__wrap_crn_feed_bpf_images.hold = planted_feed_hold;
	__wrap_crn_feed_bpf_images.images = planted_images;
	__wrap_crn_tracker_async = __real_crn_tracker_async;
	__wrap_crn_tracker_async.interval_end = planted_interval_end;
	__wrap_crn_tracker_async.undo = planted_undo;
	__wrap_crn_tracker_async.area_add = planted_area_add;
}
