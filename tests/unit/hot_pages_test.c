/* SPDX-License-Identifier: MIT */
/*
 * Hot pages against the model of a full copy, under a strategy that answers at random: nothing is
 * lost, the strategy is told the truth about every page, a hot page never faults and an evicted one
 * does. usage: hot_pages_test [SEED]
 */
#include <stdio.h>
#include <sys/random.h>
#include "track/hot_list.h"
#include "undo_model.h"

bool __wrap_crn_hot_form_hashes(size_t count);

bool __wrap_crn_hot_form_hashes(size_t count)
{
	return crn_guarded_registers == CRN_LINES_HASHED;
}

/* The strategy: page i has slot i, so that its map of changes is one word. */
struct chooser {
	struct crn_predictor predictor;
	uint64_t changed, hot, evict, promote, written, refused;
	uint64_t decisions, changes, promoted, evicted, granted, idle_grants;
	bool idle; /* decides nothing */
	uint8_t streak[PAGES];
};
static struct chooser chooser;
static struct rig *rig; /* the one that chooser works for */

static uint64_t bit(uintptr_t addr)
{
	return 1ull << ((addr - (uintptr_t)rig->live) / CRN_PAGE_SIZE);
}

static bool differs(size_t page)
{
	return memcmp(rig->live + page * CRN_PAGE_SIZE, rig->begin + page * CRN_PAGE_SIZE,
		       CRN_PAGE_SIZE) != 0;
}

static void on_written(struct crn_track_env *env, uintptr_t page)
{
	assert_false(chooser.hot & bit(page));
	assert_false(chooser.written & bit(page));
	chooser.written |= bit(page);
}

static void on_granted(struct crn_track_env *env, uintptr_t page, bool changed)
{
	assert_false((chooser.hot | chooser.written) & bit(page));
	chooser.written |= changed ? bit(page) : 0;
	chooser.granted++;
	chooser.idle_grants += !changed;
}

static uint64_t some(uint64_t of, uint32_t one_in)
{
	uint64_t out = 0;

	for (; of; of &= of - 1)
		out |= rnd(one_in) ? 0 : of & -of;
	return out;
}

static bool on_decide(struct crn_track_env *env)
{
	/* A hot page counts as changed if it differs, and only then; a cold one was told. */
	for (size_t p = 0; p < PAGES; p++) {
		uint64_t one = 1ull << p;

		if (!(chooser.hot & one))
			assert_true(chooser.written & one || !differs(p));
		else if (differs(p))
			assert_true(chooser.changed & one);
		else if (chooser.streak[p] < CRN_HOT_STREAK) /* else it may be taken for so */
			assert_false(chooser.changed & one);
		chooser.streak[p] = chooser.changed & one ? chooser.streak[p] + 1 : 0;
	}
	chooser.changes += (uint64_t)__builtin_popcountll(chooser.changed & chooser.hot);
	chooser.decisions++;
	chooser.evict = chooser.promote = 0;
	if (!chooser.idle && rnd(3)) {
		chooser.evict = some(chooser.hot, 3);
		chooser.promote = some(chooser.written, 2) |
			some(~chooser.hot | chooser.evict, 16);
	}
	chooser.evicted += (uint64_t)__builtin_popcountll(chooser.evict);
	chooser.promoted += (uint64_t)__builtin_popcountll(chooser.promote);
	chooser.promote &= ~(chooser.hot & ~chooser.evict);
	chooser.hot = (chooser.hot & ~chooser.evict) | chooser.promote;
	chooser.changed = chooser.written = 0;
	return chooser.evict || chooser.promote;
}

static bool on_cool(struct crn_track_env *env)
{
	chooser.evict = chooser.hot;
	chooser.promote = chooser.hot = 0;
	return chooser.evict;
}

/* The i-th bit that is set: its page. */
static bool nth(uint64_t set, size_t i, uintptr_t *page, size_t *index)
{
	for (; set && i; i--)
		set &= set - 1;
	if (!set)
		return false;
	*index = (size_t)__builtin_ctzll(set);
	*page = (uintptr_t)rig->live + *index * CRN_PAGE_SIZE;
	return true;
}

static bool on_evicted(struct crn_track_env *env, size_t i, uintptr_t *begin, uintptr_t *end)
{
	size_t index;

	if (!nth(chooser.evict, i, begin, &index))
		return false;
	*end = *begin + CRN_PAGE_SIZE;
	return true;
}

static bool on_promoted(struct crn_track_env *env, size_t i, uintptr_t *page, uint32_t *slot)
{
	size_t index;

	if (!nth(chooser.promote, i, page, &index))
		return false;
	*slot = (uint32_t)index;
	return true;
}

static size_t on_promotions(struct crn_track_env *env)
{
	return (size_t)__builtin_popcountll(chooser.promote);
}

static void on_refused(struct crn_track_env *env, uintptr_t page)
{
	assert_true(chooser.hot & bit(page));
	chooser.hot &= ~bit(page);
	chooser.refused |= bit(page);
}

static bool on_near(struct crn_track_env *env, uintptr_t page, uintptr_t *begin, uintptr_t *end)
{
	*begin = page - page / CRN_PAGE_SIZE % 3 * CRN_PAGE_SIZE;
	*end = page + 3 * CRN_PAGE_SIZE;
	return true;
}

static struct rig *rig_with_chooser(const struct crn_tracker_ops *ops, uint32_t keep,
	uint64_t memory_max)
{
	struct rig *r = rig_new(ops, 0, memory_max);

	rig = r;
	chooser = (struct chooser){ .predictor = {
		.written = on_written, .granted = on_granted, .decide = on_decide, .cool = on_cool,
		.evicted = on_evicted, .promoted = on_promoted, .promotions = on_promotions,
		.refused = on_refused,
	} };
	chooser.predictor.changed = &chooser.changed;
	r->env.predictor = &chooser.predictor;
	r->env.keep = keep;
	if (keep > 16)
		sink_absorbs(&r->sink);
	else
		r->sink.exchange = keep > 1 ? sink_exchange : sink_exchange_last;
	memcpy(r->before, r->begin, BYTES);
	return r;
}

/* Stores to hot pages go by unnoticed, the first one to any other page does not. */
static void faults_only_when_cold(struct rig *r)
{
	uint64_t before = r->ops->faults(r->t), cold = 0;

	for (size_t p = 0; p < PAGES; p++) {
		r->live[p * CRN_PAGE_SIZE + rnd(CRN_PAGE_SIZE)]++;
		cold += !(chooser.hot >> p & 1);
	}
	if (r->ops->caps & CRN_TRACK_MIRROR)
		return; /* the kernel serves them */
	if (!chooser.predictor.near)
		assert_int_equal(r->ops->faults(r->t) - before, cold);
	else
		assert_true(r->ops->faults(r->t) - before <= cold);
}

static void model(const struct crn_tracker_ops *ops, uint32_t keep, bool near)
{
	struct rig *r = rig_with_chooser(ops, keep, 64 << 20);

	chooser.predictor.near = near ? on_near : NULL;
	for (int round = 0; round < 2000; round++) {
		random_stores(r);
		switch (rnd(16)) {
		case 0:
			rewind_interval(r);
			break;
		case 1:
			rewind_further(r);
			break;
		case 2:
			look_everywhere(r);
			break;
		case 3:
			assert_int_equal(r->ops->page.unprotect(r->t,
						 (uintptr_t)r->live + rnd(BYTES / 2), 9000),
				0);
			break;
		case 4:
			end_interval(r);
			faults_only_when_cold(r);
			break;
		default:
			end_interval(r);
		}
		assert_int_equal(r->lost, 0);
		chooser.idle = round / 100 % 2;
	}
	assert_true(chooser.changes > 500 && chooser.evicted > 500 && chooser.promoted > 500);
	assert_int_equal(chooser.refused, 0);
	assert_true(!near || (chooser.granted > 500 && chooser.idle_grants > 100));
	assert_true(r->ops->eager(r->t) >= chooser.changes);
	r->env.predictor = NULL;
	rig_free(r);
}

static void model_mprotect(void **state)
{
	model(&crn_tracker_mprotect, 1, false);
	model(&crn_tracker_mprotect, 8, false);
	model(&crn_tracker_mprotect, 1000, true);
}

static void model_uffd(void **state)
{
	model(&crn_tracker_uffd, 1, true);
	model(&crn_tracker_uffd, 8, false);
	model(&crn_tracker_uffd, 1000, false);
}

static void model_async(void **state)
{
	model(&crn_tracker_async, 1, false);
	model(&crn_tracker_async, 8, false);
	model(&crn_tracker_async, 1000, false);
}

/* A hot page that nobody wrote is neither copied nor handed over. */
static void unchanged(void **state)
{
	struct rig *r = rig_with_chooser(&crn_tracker_mprotect, 1, 64 << 20);

	chooser.idle = true;
	chooser.hot = chooser.promote = 0;
	for (int p = 0; p < 8; p++)
		r->live[p * CRN_PAGE_SIZE]++;
	chooser.idle = false;
	while (!chooser.hot)
		end_interval(r);
	chooser.idle = true;
	end_interval(r);
	r->taken = 0;
	end_interval(r);
	assert_int_equal(r->taken, 0);
	assert_int_equal(r->prepared, 0);
	r->live[(size_t)__builtin_ctzll(chooser.hot) * CRN_PAGE_SIZE + 4095]++;
	end_interval(r);
	assert_int_equal(r->taken, 1);
	r->env.predictor = NULL;
	rig_free(r);
}

/*
 * A restore goes back by more than the page has been the same for, and the program does again what
 * it has done: the page is as it was when it was last looked at, but not as its checkpoint has it.
 */
static void done_again(const struct crn_tracker_ops *ops)
{
	struct rig *r = rig_with_chooser(ops, 1, 64 << 20);
	size_t page;
	uint8_t *live;

	for (int p = 0; p < 8; p++)
		r->live[p * CRN_PAGE_SIZE] = 1;
	while (!chooser.hot)
		end_interval(r);
	chooser.idle = true;
	page = (size_t)__builtin_ctzll(chooser.hot);
	live = r->live + page * CRN_PAGE_SIZE;
	*live = 2;
	for (int i = 0; i < 3; i++)
		end_interval(r);
	*live = 1;
	memcpy(r->begin + page * CRN_PAGE_SIZE, live, CRN_PAGE_SIZE);
	assert_int_equal(r->ops->rebase(r->t, (uintptr_t)live, live), 0);
	*live = 2;
	r->taken = 0;
	end_interval(r);
	assert_int_equal(r->taken, 1);
	assert_int_equal(r->lost, 0);
	r->env.predictor = NULL;
	rig_free(r);
}

static void all_done_again(void **state)
{
	done_again(&crn_tracker_mprotect);
	done_again(&crn_tracker_uffd);
	done_again(&crn_tracker_async);
}

/* Protections are priced, and what a handler does; nothing is where there is neither. */
static void priced(const struct crn_tracker_ops *ops)
{
	struct rig *r = rig_with_chooser(ops, 1, 64 << 20);
	struct crn_predictor *p = &chooser.predictor;
	bool served = !(ops->caps & CRN_TRACK_MIRROR);

	chooser.idle = true;
	end_interval(r);
	for (int round = 0; round < 3; round++) {
		p->price_protect = p->price_serve = 0;
		for (int i = 0; i < 16; i += 2)
			r->live[i * CRN_PAGE_SIZE]++;
		end_interval(r);
		assert_true(p->price_protect);
		assert_int_equal(served, p->price_serve != 0);
		p->price_protect = p->price_serve = 0;
		end_interval(r);
		assert_true(!p->price_protect && !p->price_serve);
	}
	r->env.predictor = NULL;
	rig_free(r);
}

static void all_priced(void **state)
{
	priced(&crn_tracker_mprotect);
	priced(&crn_tracker_uffd);
	priced(&crn_tracker_async);
}

/* Where there is no memory for a checkpoint, the copies of unchanged hot pages are given back. */
static void cooled(void **state)
{
	struct rig *r = rig_with_chooser(&crn_tracker_mprotect, 2, 512 << 10);
	void *frames[256];
	size_t count = 0;

	for (int p = 0; p < 16; p++)
		r->live[p * CRN_PAGE_SIZE]++;
	while (__builtin_popcountll(chooser.hot) < 12)
		end_interval(r);
	chooser.idle = true;
	end_interval(r);
	for (int p = 40; p < 46; p++)
		r->live[p * CRN_PAGE_SIZE]++;
	while (count < 256 && (frames[count] = crn_frame_alloc(r->arena)))
		count++;
	end_interval(r);
	assert_int_equal(chooser.hot, 0);
	while (count)
		crn_frame_free(r->arena, frames[--count]);
	for (int round = 0; round < 50; round++) {
		random_stores(r);
		chooser.idle = round % 2;
		end_interval(r);
	}
	assert_int_equal(r->lost, 0);
	r->env.predictor = NULL;
	rig_free(r);
}

/* ---- Neighbours of a fault ---- */

static void eat(struct rig *r, void **frames, size_t *count, bool all)
{
	while (*count < 256 && (all || crn_frames_plenty(r->arena)) &&
		(frames[*count] = crn_frame_alloc(r->arena)))
		++*count;
	assert_in_range(*count, 1, 255);
}

static void store_to_some(struct rig *r)
{
	for (int p = 3; p < PAGES; p += 8)
		r->live[p * CRN_PAGE_SIZE]++;
}

/*
 * Where memory is short no neighbours are opened; and where there is none for a checkpoint, those
 * that nobody has written go back.
 */
static void near_gives_way_on(const struct crn_tracker_ops *ops)
{
	struct rig *r = rig_with_chooser(ops, 2, 512 << 10);
	uint64_t used = crn_arena_frames_used(r->arena);
	void *frames[256];
	size_t count = 0;

	chooser.idle = true;
	chooser.predictor.near = on_near;
	store_to_some(r);
	assert_in_range(crn_arena_frames_used(r->arena) - used, PAGES / 8 * 3, PAGES / 8 * 5);
	eat(r, frames, &count, true);
	end_interval(r);
	assert_int_equal(r->prepared, PAGES / 8);
	assert_int_equal(r->taken, PAGES / 8);
	while (count)
		crn_frame_free(r->arena, frames[--count]);

	eat(r, frames, &count, false);
	used = crn_arena_frames_used(r->arena);
	store_to_some(r);
	assert_int_equal(crn_arena_frames_used(r->arena) - used, PAGES / 8);
	end_interval(r);
	while (count)
		crn_frame_free(r->arena, frames[--count]);
	assert_int_equal(r->lost, 0);
	r->env.predictor = NULL;
	rig_free(r);
}

static void near_gives_way(void **state)
{
	near_gives_way_on(&crn_tracker_mprotect);
	near_gives_way_on(&crn_tracker_uffd);
}

/* Of pages that stay open at the limit of mappings it is told nothing. */
static bool decide_nothing(struct crn_track_env *env)
{
	chooser.written = 0;
	return false;
}

/*
 * The neighbours lie in several mappings, and the limit of these is reached in the midst of opening
 * them: those that are open are known to be.
 */
static void near_in_part(void **state)
{
	size_t limit = (size_t)host.max_map_count, count = 0, room = 12;
	const size_t pair = 2 * CRN_PAGE_SIZE;
	uint8_t *filler, *page;
	struct rig *r;

	if (host.max_map_count < 0 || limit > 200000)
		skip();
	r = rig_with_chooser(&crn_tracker_mprotect, 2, 64 << 20);
	chooser.predictor.decide = decide_nothing;
	chooser.predictor.near = on_near;
	page = r->live + CRN_PAGE_SIZE;
	while ((uintptr_t)page / CRN_PAGE_SIZE % 3) /* the first of three */
		page += CRN_PAGE_SIZE;
	madvise(page + CRN_PAGE_SIZE, CRN_PAGE_SIZE, MADV_DONTDUMP);
	filler = mmap(NULL, limit * pair, PROT_READ,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	while (count < limit && mprotect(filler + count * pair, CRN_PAGE_SIZE, PROT_NONE) == 0)
		count++;
	assert_true(count < limit);
	for (size_t i = 0; i < room; i++)
		munmap(filler + i * pair, CRN_PAGE_SIZE);
	do {
		for (size_t i = 0; i < 3; i++)
			page[i * CRN_PAGE_SIZE]++;
		end_interval(r);
	} while (room-- && mmap(filler + room * pair, CRN_PAGE_SIZE, PROT_NONE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
	munmap(filler, limit * pair);
	assert_int_equal(r->lost, 0);
	r->env.predictor = NULL;
	rig_free(r);
}

/*
 * Pages that have changed for long are looked at once in so many intervals, then in twice and in
 * four times as many, not all of them in the same one; and one that rests is seen to do so at its
 * next look, and looked at each time.
 */
static void looks_are_spread(void **state)
{
	enum { COUNT = CRN_HOT_LOOKS, LAST = CRN_HOT_LOOKS << CRN_HOT_TRUST };
	struct crn_hot_entry e[COUNT] = { 0 };
	const struct crn_hot_list list = { .at = e, .count = COUNT };
	uint8_t *live = aligned_alloc(CRN_PAGE_SIZE, COUNT * CRN_PAGE_SIZE);
	uint8_t *old = aligned_alloc(CRN_PAGE_SIZE, CRN_PAGE_SIZE);
	unsigned looks[COUNT] = { 0 };

	memset(live, 1, COUNT * CRN_PAGE_SIZE);
	memset(old, 0, CRN_PAGE_SIZE);
	for (size_t i = 0; i < COUNT; i++)
		e[i].page = (uintptr_t)live + i * CRN_PAGE_SIZE;
	/* The first look, spread over as many; one each after 64 and 128; and after 128 again. */
	for (unsigned turn = 0; turn < CRN_HOT_STREAK + COUNT + 2 * COUNT + 2 * LAST; turn++) {
		unsigned looked = 0;

		for (size_t i = 0; i < COUNT; i++) {
			unsigned before = e[i].streak;

			assert_true(crn_hot_look(&list, &e[i], old));
			if (turn >= CRN_HOT_STREAK && e[i].streak <= before) {
				looked++;
				looks[i]++;
			}
		}
		assert_true(looked <= 1);
	}
	memset(live, 0, COUNT * CRN_PAGE_SIZE);
	for (size_t i = 0; i < COUNT; i++) {
		unsigned turns = 0;

		assert_in_range(looks[i], 4, 4 + (i == 0));
		while (crn_hot_look(&list, &e[i], old))
			assert_true(++turns < LAST);
		memset(live + i * CRN_PAGE_SIZE, 1, CRN_PAGE_SIZE);
		assert_true(crn_hot_look(&list, &e[i], old));
		memset(live + i * CRN_PAGE_SIZE, 0, CRN_PAGE_SIZE);
		assert_false(crn_hot_look(&list, &e[i], old));
	}
	free(live);
	free(old);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(model_mprotect),
		cmocka_unit_test(model_uffd),
		cmocka_unit_test(model_async),
		cmocka_unit_test(unchanged),
		cmocka_unit_test(all_done_again),
		cmocka_unit_test(cooled),
		cmocka_unit_test(all_priced),
		cmocka_unit_test(near_gives_way),
		cmocka_unit_test(near_in_part),
		cmocka_unit_test(looks_are_spread),
	};

	cmocka_set_test_filter(getenv("FILTER"));
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	printf("seed %llu\n", (unsigned long long)seed);
	crn_host_probe(&host);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
