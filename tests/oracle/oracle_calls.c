/* SPDX-License-Identifier: MIT */
/*
 * The calls under test, each followed by its check: checkpoint, restore, rewind, and what may be
 * asked of them. The model of the journal is W->kept, oldest first.
 */
#include <string.h>
#include "oracle.h"

static void model_forget(uint32_t count)
{
	memmove(W->kept, W->kept + count, (W->kept_count - count) * sizeof(W->kept[0]));
	W->kept_count -= count;
}

/*
 * Under a memory limit the engine may evict early; never more than it says, and never the newest.
 */
static void model_evict(void)
{
	uint64_t oldest;

	if (W->kept_count > W->keep)
		model_forget(W->kept_count - W->keep);
	if (!(W->row->flags & ROW_MEMORY_MAX) && !W->rules->may_lose)
		return;
	CHECK_OK(cairn_range(W->c, &oldest, NULL));
	while (W->kept_count > 1 && W->kept[0]->id < oldest)
		model_forget(1);
}

void check_range(void)
{
	uint64_t oldest = ~0ull, newest = ~0ull;

	model_evict(); /* a restore, too, takes memory from the past */
	CHECK_OK(cairn_range(W->c, &oldest, &newest));
	CHECK_U64(newest, W->kept[W->kept_count - 1]->id);
	CHECK_U64(oldest, W->kept[0]->id);
}

static void checkpoint_taken(uint64_t id, uintptr_t frame)
{
	struct snapshot *s;

	if (W->torn) {
		s = world_alloc(sizeof(*s), 64);
		memset(s, 0, sizeof(*s));
		s->frame = frame;
		s->torn = true;
		memcpy(s->constants, W->constant_states, sizeof(s->constants));
	} else {
		s = snapshot_take(frame, W->open);
		W->open = s;
	}
	s->id = id;
	if (id <= W->id_max && W->checkpoints)
		test_fail("checkpoint id %llu after %llu", (unsigned long long)id,
			(unsigned long long)W->id_max);
	oracle_say("checkpoint", id);
	W->id_max = id;
	W->checkpoints++;
	if (W->kept_count == KEPT_MAX)
		test_fail("the model's journal is full");
	W->kept[W->kept_count++] = s;
	model_evict();
	check_range();
}

static void checkpoint_restored(uint64_t id, uintptr_t frame)
{
	struct snapshot *want;

	if (W->pending != id + 1)
		test_fail("restored to %llu, asked for %llu", (unsigned long long)id,
			(unsigned long long)W->pending - 1);
	W->pending = 0;
	while (W->kept_count && W->kept[W->kept_count - 1]->id > id)
		W->kept_count--;
	CHECK(W->kept_count);
	want = W->kept[W->kept_count - 1];
	CHECK_U64(want->id, id);
	snapshot_compare(want, W->before, frame, COMPARE_RESTORED);
	constants_check(want->id, want->constants);
	W->pool_used = W->before_mark;
	W->restores++;
	regions_refresh();
	check_range();
}

static void checkpoint_failed(int rc)
{
	uint64_t before = W->id_max;

	if (!(W->row->flags & ROW_MEMORY_MAX) || rc != CAIRN_EMEMORY)
		test_fail("cairn_checkpoint: %d (%s)", rc, cairn_strerror(rc));
	W->failed_id = W->id_max = before + 1; /* the id is used up */
	W->failed++;
	model_evict();
	check_range();
}

/* The frame of a caller is what both returns must agree on; ours holds what differs. */
__attribute__((noinline, noclone)) void do_checkpoint(void)
{
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0) + 2 * sizeof(void *);
	uint64_t id = ~0ull;
	int rc = cairn_checkpoint(W->c, &id);

	if (rc == CAIRN_TAKEN)
		checkpoint_taken(id, frame);
	else if (rc == CAIRN_RESTORED)
		checkpoint_restored(id, frame);
	else
		checkpoint_failed(rc);
}

static struct snapshot *kept_any(void)
{
	return W->kept[rnd_below(W->kept_count)];
}

/* Every copy that a restore takes of the present goes back to the pool: it is needed only once. */
static size_t present_copy(uintptr_t frame)
{
	size_t mark = W->pool_used;

	W->before = snapshot_take(frame, W->open);
	return mark;
}

static bool refusal_allowed(int rc, const struct snapshot *want)
{
	if (rc == CAIRN_ELAYOUT && !snapshot_mapped(want)) {
		W->layout_refusals++;
		return true;
	}
	if (rc == CAIRN_EFAILED && W->rules->may_lose) {
		W->lost++;
		return true;
	}
	/*
	 * Old contents that could not be kept at the stores, or frames to go back with: it says so.
	 */
	if (W->row->flags & ROW_MEMORY_MAX)
		return rc == CAIRN_EMEMORY || (rc == CAIRN_EFAILED && W->rules->touch_first);
	return false;
}

__attribute__((noinline, noclone)) void do_restore(void)
{
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0) + 2 * sizeof(void *);
	struct snapshot *want = kept_any();
	size_t mark = present_copy(frame);
	int rc;

	oracle_say("restore", want->id);
	W->pending = want->id + 1;
	W->before_mark = mark; /* checkpoint_restored gives the copy back */
	rc = cairn_restore(W->c, want->id);
	W->pending = 0;
	if (rc >= 0)
		test_fail("cairn_restore returned %d", rc);
	if (!(rc == CAIRN_EUNSUPPORTED && want->no_return) && !refusal_allowed(rc, want))
		test_fail("cairn_restore(%llu): %d (%s)", (unsigned long long)want->id, rc,
			cairn_strerror(rc));
	snapshot_compare(want, W->before, frame, COMPARE_REFUSED);
	constants_check(want->id, W->constant_states);
	check_range();
	W->refused++;
	W->pool_used = mark;
}

__attribute__((noinline, noclone)) void do_rewind(void)
{
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0) + 2 * sizeof(void *);
	struct snapshot *want = kept_any();
	size_t mark = present_copy(frame);
	int rc;

	oracle_say("rewind", want->id);
	rc = cairn_rewind(W->c, want->id);

	if (rc < 0) {
		if (!refusal_allowed(rc, want))
			test_fail("cairn_rewind(%llu): %d (%s)", (unsigned long long)want->id, rc,
				cairn_strerror(rc));
		snapshot_compare(want, W->before, frame, COMPARE_REFUSED);
		constants_check(want->id, W->constant_states);
		W->refused++;
	} else {
		while (W->kept[W->kept_count - 1]->id > want->id)
			W->kept_count--;
		snapshot_compare(want, W->before, frame, COMPARE_REWOUND);
		constants_check(want->id, want->constants);
		W->rewinds++;
		regions_refresh();
	}
	check_range();
	W->pool_used = mark;
}

/*
 * `also` is a second code that cairn.h allows (0: none). A failed checkpoint has no defined tag
 * error.
 */
static void expect_id_refused(uint64_t id, int want, int also)
{
	uint64_t word = 0x1122334455667788ull;
	int rc[6];

	rc[0] = cairn_restore(W->c, id);
	rc[1] = cairn_rewind(W->c, id);
	rc[2] = cairn_peek(W->c, id, W->regions[0].addr, &word, sizeof(word));
	rc[3] = cairn_checkpoint_tag(W->c, id, &word, sizeof(word));
	rc[4] = cairn_checkpoint_tag_get(W->c, id, &word, sizeof(word));
	rc[5] = cairn_changes(W->c, id, CAIRN_NOW, (cairn_change_fn)(uintptr_t)1, NULL);
	for (size_t i = 0; i < 6; i++)
		if (rc[i] != want && rc[i] != also && !(want == CAIRN_EFAILED && i >= 3) &&
			!(i == 5 && rc[i] == CAIRN_EUNSUPPORTED && W->rules->keeps))
			test_fail("call %zu with bad id %llu: %d (%s), expected %s", i,
				(unsigned long long)id, rc[i], cairn_strerror(rc[i]),
				cairn_strerror(want));
	CHECK_U64(word, 0x1122334455667788ull);
}

__attribute__((noinline, noclone)) void do_bad_ids(void)
{
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0) + 2 * sizeof(void *);
	uint64_t oldest = W->kept[0]->id, newest = W->kept[W->kept_count - 1]->id;
	size_t mark = present_copy(frame);

	expect_id_refused(W->id_max + 1 + rnd_below(1000), CAIRN_ENOCKPT, 0);
	expect_id_refused(UINT64_MAX - 1, CAIRN_ENOCKPT, 0);
	if (oldest > 0 && !W->failed)
		expect_id_refused(rnd_below(oldest), CAIRN_EEVICTED, 0);
	if (newest < W->id_max && W->id_max != W->failed_id) /* dropped by a restore */
		expect_id_refused(W->id_max, CAIRN_EEVICTED, CAIRN_ENOCKPT);
	if (W->failed_id > newest)
		expect_id_refused(W->failed_id, CAIRN_EFAILED, 0);
	snapshot_compare(W->before, W->before, frame, COMPARE_REFUSED);
	check_range();
	W->refused++;
	W->pool_used = mark;
}

/*
 * While the session rests nothing can be named and nothing taken, whatever the program does; then
 * memory as it is begins it anew.
 */
__attribute__((noinline, noclone)) void do_pause(void)
{
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0) + 2 * sizeof(void *);
	uint64_t id = ~0ull;

	CHECK_OK(cairn_pause(W->c));
	oracle_say("pause", W->id_max);
	for (uint64_t n = rnd_below(8); n > 0; n--)
		run_op();
	expect_id_refused(W->kept[rnd_below(W->kept_count)]->id, CAIRN_EEVICTED, 0);
	CHECK_RC(cairn_range(W->c, &id, &id), CAIRN_EPAUSED);
	CHECK_RC(cairn_checkpoint(W->c, &id), CAIRN_EPAUSED);
	CHECK_OK(cairn_pause(W->c));
	CHECK_U64(id, ~0ull);
	CHECK_OK(cairn_resume(W->c));
	W->open = snapshot_take(frame, W->open);
	W->open->no_return = true;
	CHECK_OK(cairn_range(W->c, &W->open->id, NULL));
	CHECK(W->open->id > W->id_max);
	W->id_max = W->open->id;
	model_forget(W->kept_count);
	W->kept[W->kept_count++] = W->open;
	check_range();
	CHECK_OK(cairn_resume(W->c)); /* it does not rest */
	W->pauses++;
}
