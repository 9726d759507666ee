/* SPDX-License-Identifier: MIT */
/* Taking checkpoints, and the marks that name them. */
#include <errno.h>
#include "session/engine.h"
#include "rt/rt.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/descriptor.h"
#include "os/limits.h"
#include "os/signal.h"
#include "os/thread.h"

#define STACK_IMAGE_MIN 512ul /* most callers are near the end of the stack; K may be large */
#define STACK_IMAGE_MAX (64ul << 20)

/* ---- Marks ------------------------------------------------------------------------------- */

struct crn_mark *crn_mark_at(const cairn_t *c, size_t i)
{
	return &c->marks.at[(c->marks.first + i) & (c->marks.capacity - 1)];
}

struct crn_mark *crn_mark_newest(const cairn_t *c)
{
	CRN_DASSERT(c->marks.count);
	return crn_mark_at(c, c->marks.count - 1);
}

struct crn_mark *crn_mark_find(const cairn_t *c, uint64_t id)
{
	size_t i;

	CRN_FIRST(i, c->marks.count, crn_mark_at(c, i)->id >= id);
	return i < c->marks.count && crn_mark_at(c, i)->id == id ? crn_mark_at(c, i) : NULL;
}

/* Its record may have gone for memory: then the mark is a name without content. */
static bool has_content(const cairn_t *c, const struct crn_mark *m)
{
	uint64_t oldest;

	return m == crn_mark_newest(c) || c->ops->caps & CRN_TRACK_KEEPS ||
		(crn_journal_oldest(c->journal, &oldest) && m->id >= oldest);
}

int crn_mark_usable(const cairn_t *c, uint64_t id)
{
	const struct crn_mark *m = crn_mark_find(c, id);

	if (id > c->last_id)
		return CAIRN_ENOCKPT;
	if (c->ops->caps & CRN_TRACK_NOTHING) {
		crn_error("strategy %s keeps no checkpoints: nothing can be restored or looked at",
			c->strategy);
		return CAIRN_EUNSUPPORTED;
	}
	if (m && has_content(c, m) && !c->paused)
		return c->control->lost ? CAIRN_EFAILED : 0;
	for (size_t i = 0; i < CRN_MIN(c->failed_count, (size_t)CRN_FAILED_KEPT); i++) {
		if (c->failed[i] == id)
			return CAIRN_EFAILED;
	}
	return CAIRN_EEVICTED;
}

static int marks_reserve(cairn_t *c)
{
	struct crn_marks *m = &c->marks;
	size_t capacity = m->capacity ? m->capacity * 2 : 2;
	struct crn_mark *at;

	if (m->count < m->capacity)
		return 0;
	at = crn_block_alloc(c->arena, capacity * sizeof(*at));
	if (!at)
		return CAIRN_EMEMORY;
	for (size_t i = 0; i < m->count; i++)
		at[i] = *crn_mark_at(c, i);
	crn_block_free(c->arena, m->at, m->capacity * sizeof(*at));
	m->at = at;
	m->capacity = capacity;
	m->first = 0;
	return 0;
}

/*
 * The slot behind the newest mark, emptied. Its buffers are kept for the next user. Room has been
 * reserved.
 */
static struct crn_mark *next_slot(cairn_t *c)
{
	struct crn_mark *m = crn_mark_at(c, c->marks.count);

	m->id_out = NULL;
	m->thread = 0;
	m->mask_known = false;
	m->stack_len = m->tag_len = 0;
	m->changes.count = 0;
	return m;
}

int crn_marks_push(cairn_t *c, uint64_t id)
{
	CRN_TRY(marks_reserve(c));
	next_slot(c)->id = id;
	c->marks.count++;
	return 0;
}

void crn_marks_drop_oldest(cairn_t *c)
{
	c->marks.first = (c->marks.first + 1) & (c->marks.capacity - 1);
	c->marks.count--;
}

void crn_past_forget(cairn_t *c, size_t marks_left)
{
	while (c->journal && crn_journal_evict(c->journal))
		;
	while (c->marks.count > marks_left)
		crn_marks_drop_oldest(c);
}

void crn_marks_truncate(cairn_t *c, uint64_t id)
{
	while (c->marks.count && crn_mark_newest(c)->id > id)
		c->marks.count--;
}

static void drop_unusable(cairn_t *c)
{
	while (c->marks.count > c->keep || !has_content(c, crn_mark_at(c, 0)))
		crn_marks_drop_oldest(c);
}

static int marks_make_room(cairn_t *c)
{
	int err = marks_reserve(c);

	return err == CAIRN_EMEMORY && crn_give_up_oldest(c) ? 0 : err;
}

/* ---- The active stack ------------------------------------------------------------------------ */

/*
 * Where the kernel put the main thread's first frame: above it there are only arguments and
 * environment.
 */
uintptr_t crn_stack_start(void)
{
	char text[1024];
	long n = crn_file_read("/proc/self/stat", text, sizeof(text));
	uintptr_t value = 0;
	const char *s;

	if (n < 0)
		return 0;
	for (s = text + n; s > text && *s != ')'; s--)
		; /* the program's name may hold anything */
	for (unsigned field = 2; *s && field < 28; s++)
		field += *s == ' ';
	for (; *s >= '0' && *s <= '9'; s++)
		value = value * 10 + (uintptr_t)(*s - '0');
	return value;
}

/*
 * libc puts a thread's descriptor above its stack. The main thread's is elsewhere, perhaps in a
 * mapping that the kernel has joined with a stack of the program's own making: if that is an area,
 * it is known to be one.
 */
static bool is_below_descriptor(cairn_t *c, uintptr_t rsp, uintptr_t descriptor, uintptr_t end)
{
	if (descriptor <= rsp || descriptor >= end)
		return false;
	return !crn_added_meets(c, rsp, rsp + 1) || crn_gettid() != crn_getpid();
}

/* Where it begins: memory of the program's own, or other mappings, may lie right below. */
static uintptr_t stack_bottom(uintptr_t rsp, uintptr_t descriptor, uintptr_t mapping)
{
	struct crn_range block;

	if (!crn_thread_block(descriptor, &block) || block.begin > rsp)
		return mapping;
	return CRN_MAX(block.begin, mapping);
}

int crn_stack_find(cairn_t *c, uintptr_t rsp, struct crn_range *out)
{
	uintptr_t self = crn_self(c), top, low;
	enum crn_stack_kind kind;
	struct crn_mapping m;
	int found;

	/* Another than the thread's own may be joined with what is mapped beside it, or parted. */
	if (c->stack_thread != self || c->stack_kind != CRN_STACK_OWN || rsp < c->stack_low ||
		rsp >= c->stack_top) {
		crn_own_calls(c, true);
		found = crn_maps_find(&c->maps, rsp, &m);
		crn_own_calls(c, false);
		if (found <= 0)
			return found < 0 ? found : -EFAULT;
		top = m.end;
		low = m.begin;
		kind = crn_streq(m.name, "[heap]") ? CRN_STACK_IN_HEAP : CRN_STACK_OTHER;
		c->stack_grows = crn_streq(m.name, "[stack]");
		if (c->stack_grows) {
			uintptr_t start = crn_stack_start();

			kind = CRN_STACK_OWN;
			if (start > rsp && start < m.end)
				top = start;
		} else if (kind != CRN_STACK_IN_HEAP &&
			is_below_descriptor(c, rsp, self & ~1ul, m.end)) {
			kind = CRN_STACK_OWN;
			/* The variables above it are memory like any other. */
			top = crn_thread_locals(self & ~1ul, rsp);
			low = stack_bottom(rsp, self & ~1ul, low);
		}
		c->stack_kind = kind;
		c->stack_thread = self;
		c->stack_low = low;
		c->stack_top = top;
	}
	out->begin = c->stack_low;
	out->end = c->stack_top;
	return 0;
}

/* As it was found to be, on a stack that is an area? */
static bool on_registered(const cairn_t *c, uintptr_t rsp)
{
	return c->stack_thread == crn_self(c) && c->stack_kind != CRN_STACK_OWN &&
		rsp >= c->stack_low && rsp < c->stack_top && crn_area_at(c, rsp);
}

/* Room for an image, at the price of old checkpoints if need be. */
static int image_room(cairn_t *c, struct crn_mark *m, size_t len)
{
	size_t size = STACK_IMAGE_MIN;

	while (size < len)
		size *= 2;
	while (m->stack_size < len) {
		struct crn_mark *oldest = crn_mark_at(c, 0), old = *oldest;

		crn_block_free(c->arena, m->stack, m->stack_size);
		m->stack = crn_block_alloc(c->arena, size);
		m->stack_size = m->stack ? size : 0;
		if (m->stack)
			break;
		if (!crn_give_up_oldest(c))
			return CAIRN_EMEMORY;
		m->stack = old.stack;
		m->stack_size = old.stack_size;
		oldest->stack = NULL;
		oldest->stack_size = 0;
	}
	return 0;
}

/*
 * With a large K, what one checkpoint writes was last touched by one long ago: it is fetched while
 * there is other work.
 */
#define FETCHED_MAX 1024ul

static void fetch_to_write(const void *at, size_t len)
{
	for (size_t i = 0; i < len; i += 64)
		__builtin_prefetch((const char *)at + i, 1);
}

/* What the next checkpoint will want. */
static void fetch_next(const cairn_t *c)
{
	fetch_to_write(crn_mark_at(c, c->marks.count), sizeof(struct crn_mark));
	__builtin_prefetch(&crn_mark_at(c, 1)->id);
}

/* Room for the image of the stack from rsp up, if the surface does not hold it. */
static int reserve_image(cairn_t *c, struct crn_mark *m, uintptr_t rsp, size_t *len)
{
	struct crn_range stack, made;

	*len = 0;
	/* Grown since it was asked for, it is still the same stack: only its upper end matters. */
	if (c->mode != CRN_SURFACE_NONE && crn_area_at(c, rsp))
		return 0;
	if (on_registered(c, rsp))
		return 0;
	CRN_TRY(crn_stack_find(c, rsp, &stack));
	/* A stack of the program's own making that it has registered ends with the area. */
	if (crn_areas_cover(c, rsp, stack.end) ||
		(c->stack_kind != CRN_STACK_OWN && crn_area_at(c, rsp)))
		return 0;
	/* Nobody can tell where it ends, and what lies above it is not to be put back. */
	if (c->stack_kind == CRN_STACK_IN_HEAP)
		return CAIRN_EUNSUPPORTED;
	/* In the heap of a program with hooks: what lies above it has its own. */
	if (c->stack_kind != CRN_STACK_OWN && c->ops->caps & CRN_TRACK_STORES &&
		__cairn_shape.stack(rsp, &made))
		stack = made;
	*len = stack.end - rsp;
	if (*len > STACK_IMAGE_MAX)
		return CAIRN_EMEMORY;
	CRN_TRY(image_room(c, m, *len));
	fetch_to_write(m->stack, CRN_MIN(*len, FETCHED_MAX));
	return 0;
}

/* ---- Taking ---------------------------------------------------------------------------------- */

static void note_failed(cairn_t *c, uint64_t id)
{
	c->failed[c->failed_count++ % CRN_FAILED_KEPT] = id;
}

/* *lost is set if the past of the interval could not be kept; the new checkpoint is good. */
static int end_interval(cairn_t *c, int *lost)
{
	struct crn_sink *sink;
	bool discards = c->outgrown;
	uint64_t pages;
	int err;

	if (c->ops->caps & CRN_TRACK_KEEPS)
		return c->ops->interval_end(c->tracker, NULL);
	pages = crn_journal_pages(c->journal);
	sink = crn_journal_begin(c->journal, crn_mark_newest(c)->id, discards);
	err = c->ops->interval_end(c->tracker, crn_tracing_wrap(c->tracing, sink));
	if (err < 0) {
		crn_journal_abort(c->journal);
		c->outgrows = *lost || err == CAIRN_EMEMORY;
		return err;
	}
	if (discards)
		*lost = CAIRN_EMEMORY;
	while ((err = crn_journal_commit(c->journal)) == CAIRN_EMEMORY) {
		if (crn_journal_evict(c->journal))
			continue;
		/*
		 * A tracker that did not prepare: this interval's past is lost, the new checkpoint
		 * is not.
		 */
		crn_journal_abort(c->journal);
		*lost = CAIRN_EMEMORY;
		err = 0;
		break;
	}
	crn_tracing_interval(c->tracing, c->context);
	c->context = c->context_next;
	c->figures.pages_saved += crn_journal_pages(c->journal) - pages;
	return err;
}

static void fill_mark(
	cairn_t *c, struct crn_mark *m, uint64_t *id_out, const struct crn_jump *jump, size_t image)
{
	m->id_out = id_out;
	m->thread = crn_self(c);
	m->jump = *jump;
	m->keys = c->control->keys_before;
	m->stack_len = image;
	crn_copy_short(m->stack, (const void *)jump->rsp, image);
	/*
	 * Where a checkpoint makes system calls anyway, one more makes restores from handlers
	 * exact. With hot pages alone it makes none.
	 */
	if (c->ops->caps & CRN_TRACK_SEES_KERNEL && !c->speculation) {
		m->signals = crn_signal_mask_get();
		m->mask_known = true;
	}
}

/* The limit may be met at every checkpoint: once is enough. */
static void tell_of_memory(cairn_t *c, uint64_t id, int err)
{
	if (!c->memory_told)
		crn_warn("checkpoint %lu is marked failed: %s%s", (unsigned long)id,
			cairn_strerror(err),
			crn_limits_data() ? "; there is an RLIMIT_DATA (ulimit -d)" : "");
	c->memory_told = true;
}

/* It was good when it was taken; what is older is evicted. */
static void lost_to_memory(cairn_t *c, uint64_t id)
{
	tell_of_memory(c, id, CAIRN_EMEMORY);
	note_failed(c, id);
	c->figures.failed++;
}

static int take(cairn_t *c, uint64_t *id_out, const struct crn_jump *jump)
{
	struct crn_mark *m;
	size_t image = 0;
	bool past_lost;
	int lost, err;

	CRN_TRY(crn_settle(c)); /* a tracker may have found out that there is something to follow */
	CRN_TRY(crn_layout_follow(c, CRN_FOLLOW_ADOPT));
	CRN_TRY(marks_make_room(c));
	m = next_slot(c);
	if (jump)
		CRN_TRY(reserve_image(c, m, jump->rsp, &image));
	CRN_TRY(crn_settle(c));
	/* Before the interval ends: what handlers lose afterwards belongs to the next one. */
	lost = __atomic_load_n(&c->control->lost, __ATOMIC_RELAXED);
	if (crn_unlikely(lost))
		lost = __atomic_exchange_n(&c->control->lost, 0, __ATOMIC_RELAXED);
	if (c->ops->past_gone && c->ops->past_gone(c->tracker))
		lost = CAIRN_ELAYOUT;
	err = end_interval(c, &lost);
	past_lost = lost || c->control->lost;
	if (err >= 0 && c->ops->caps & CRN_TRACK_KEEPS)
		err = c->ops->kept_take(c->tracker, c->last_id + 1);
	if (err < 0) {
		c->control->lost = lost ? lost : c->control->lost;
		return err;
	}
	if (crn_unlikely(past_lost)) {
		struct crn_mark keep = *m;

		if (lost == CAIRN_EMEMORY)
			lost_to_memory(c, crn_mark_newest(c)->id);
		/* The interval that just ended cannot be undone: neither can all before it. */
		crn_past_forget(c, 0);
		m = next_slot(c);
		m->stack = keep.stack;
		m->stack_size = keep.stack_size;
	}
	m->id = c->last_id + 1;
	if (jump)
		fill_mark(c, m, id_out, jump, image);
	c->marks.count++;
	drop_unusable(c);
	fetch_next(c);
	return c->ops->caps & CRN_TRACK_KEEPS ? 0 : c->ops->interval_begin(c->tracker);
}

void crn_id_told(cairn_t *c, const struct crn_mark *m, uint64_t *to)
{
	if ((uintptr_t)to - m->jump.rsp >= m->stack_len) /* else of the image */
		crn_result(c, to, sizeof(*to));
	*to = m->id;
}

/*
 * What memory_max has no room for is tried again when some has been made. An interval that has none
 * itself lets one checkpoint fail.
 */
static int take_in_bounds(cairn_t *c, uint64_t *id, const struct crn_jump *jump)
{
	bool outgrown = c->outgrown;
	int err;

	for (unsigned i = 0; i < CRN_BLOCK_TRIES; i++) {
		c->outgrows = false;
		crn_blocks_forget_refusal(c->arena);
		err = take(c, id, jump);
		outgrown |= c->outgrows;
		if (err != CAIRN_EMEMORY)
			break;
		if (crn_blocks_made(c, c->last_id + 1))
			continue;
		if (c->outgrows && !c->outgrown)
			break;
		if (!crn_give_up_open(c) || !crn_blocks_made(c, c->last_id + 1))
			break;
	}
	c->outgrown = err < 0 && outgrown;
	return err;
}

int crn_checkpoint_timed(cairn_t *c, uint64_t *id, const struct crn_jump *jump)
{
	uint64_t start = crn_timing_begin(&c->timing, &c->host.clock);
	int err = crn_in_flight_begin(c);

	if (err >= 0)
		err = take_in_bounds(c, id, jump);
	crn_in_flight_end(c);
	c->last_id++;
	c->figures.checkpoints++;
	if (err < 0) {
		if (err == CAIRN_EMEMORY || err == -ENOMEM)
			tell_of_memory(c, c->last_id, err);
		c->figures.failed++;
		note_failed(c, c->last_id);
	} else {
		crn_id_told(c, crn_mark_newest(c), id);
	}
	c->figures.checkpoint_ns += crn_timing_end(&c->timing, &c->host.clock, start);
	return err;
}

/* From registers.S, with the caller's registers. */
int crn_checkpoint_take(cairn_t *c, uint64_t *id, const struct crn_jump *jump)
{
	int err;

	if (!id)
		return -EINVAL;
	CRN_TRY(crn_lock(c));
	err = c->paused ? CAIRN_EPAUSED : crn_checkpoint_timed(c, id, jump);
	crn_unlock(c);
	return err < 0 ? err : CAIRN_TAKEN;
}

int crn_memory_checkpoint(cairn_t *c, uint64_t *id)
{
	int err;

	CRN_TRY(crn_lock(c));
	err = c->paused ? CAIRN_EPAUSED : crn_checkpoint_timed(c, id, NULL);
	crn_unlock(c);
	return err;
}

/* ---- Tags ------------------------------------------------------------------------------------ */

#define TAG_MAX 4096

static int tag_locked(cairn_t *c, uint64_t id, const void *blob, size_t len)
{
	struct crn_mark *m;
	void *block;

	CRN_TRY(crn_mark_usable(c, id));
	m = crn_mark_find(c, id);
	if (len > m->tag_size) {
		block = crn_block_alloc(c->arena, len);
		if (!block)
			return CAIRN_EMEMORY;
		crn_block_free(c->arena, m->tag, m->tag_size);
		m->tag = block;
		m->tag_size = len;
	}
	crn_copy(m->tag, blob, len);
	m->tag_len = len;
	return 0;
}

int cairn_checkpoint_tag(cairn_t *c, uint64_t id, const void *blob, size_t len)
{
	int err;

	if (len > TAG_MAX)
		return -E2BIG;
	if (len && !blob)
		return -EINVAL;
	CRN_TRY(crn_lock(c));
	err = tag_locked(c, id, blob, len);
	crn_unlock(c);
	return err;
}

int cairn_checkpoint_tag_get(cairn_t *c, uint64_t id, void *blob, size_t len)
{
	struct crn_mark *m;
	int err;

	if (len && !blob)
		return -EINVAL;
	CRN_TRY(crn_lock(c));
	err = crn_mark_usable(c, id);
	if (err >= 0) {
		m = crn_mark_find(c, id);
		crn_result(c, blob, CRN_MIN(len, m->tag_len));
		crn_copy(blob, m->tag, CRN_MIN(len, m->tag_len));
		err = (int)m->tag_len;
	}
	crn_unlock(c);
	return err;
}

int cairn_range(cairn_t *c, uint64_t *oldest, uint64_t *newest)
{
	int err;

	CRN_TRY(crn_lock(c));
	err = c->paused ? CAIRN_EPAUSED : 0;
	if (!err)
		drop_unusable(c);
	if (oldest && !err) {
		crn_result(c, oldest, sizeof(*oldest));
		*oldest = crn_mark_at(c, 0)->id;
	}
	if (newest && !err) {
		crn_result(c, newest, sizeof(*newest));
		*newest = crn_mark_newest(c)->id;
	}
	crn_unlock(c);
	return err;
}
