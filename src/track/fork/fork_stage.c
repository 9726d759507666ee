/* SPDX-License-Identifier: MIT */
/* Content that has been read from a child and will be stored. */
#include "base/arena.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/memory.h"
#include "track/fork/fork_tracker.h"

#define SHARE 4 /* of the engine's memory that may be used at most */

void fork_stage_begin(struct fork_tracker *t)
{
	t->stage.ready = true;
}

void fork_stage_end(struct fork_tracker *t)
{
	struct fork_stage *s = &t->stage;

	while (s->count) {
		void *frame = s->at[--s->count].frame;

		if (frame)
			crn_frame_free(t->env->arena, frame);
	}
	s->frames = 0;
	s->ready = false;
}

void fork_stage_close(struct fork_tracker *t)
{
	struct fork_stage *s = &t->stage;

	crn_block_free(t->env->arena, s->at, s->capacity * sizeof(*s->at));
}

int fork_stage_add(struct fork_tracker *t, uintptr_t page, const void *content)
{
	struct fork_stage *s = &t->stage;
	void *frame = NULL;

	CRN_TRY(crn_table_grow(t->env->arena, (void **)&s->at, &s->capacity, s->count, s->count + 1,
		sizeof(*s->at)));
	if (content) {
		if (s->frames >= crn_pages(t->env->memory_max / SHARE))
			return CAIRN_EMEMORY;
		frame = crn_frame_alloc(t->env->arena);
		if (!frame)
			return CAIRN_EMEMORY;
		crn_copy(frame, content, CRN_PAGE_SIZE);
		s->frames++;
	}
	s->at[s->count++] = (struct fork_staged){ .page = page, .frame = frame };
	return 0;
}

static const struct fork_range *range_to_store(
	const struct fork_tracker *t, const struct fork_range *last, uintptr_t page, uint64_t id)
{
	if (last && page >= last->begin && page < last->end)
		return last;
	for (size_t i = 0; i < t->range_count; i++) {
		const struct fork_range *r = &t->ranges[i];

		if (page >= r->begin && page < r->end && r->last == FORK_LAST_OPEN && r->born <= id)
			return r;
	}
	return NULL;
}

/* In memory that was mapped again: most of it has nothing but zeros then and now. */
static bool is_there(struct fork_tracker *t, const struct fork_staged *p)
{
	if (crn_memory_peek(t->mine, (void *)p->page, CRN_PAGE_SIZE) != (long)CRN_PAGE_SIZE)
		return !p->frame; /* not even there, like then */
	if (!p->frame)
		crn_fill(t->theirs, 0, CRN_PAGE_SIZE);
	return crn_same_words(t->mine, p->frame ? p->frame : t->theirs, CRN_PAGE_SIZE);
}

void fork_stage_store(struct fork_tracker *t, uint64_t id)
{
	const struct fork_range *r = NULL;

	for (size_t i = 0; i < t->stage.count; i++) {
		const struct fork_staged *p = &t->stage.at[i];

		r = range_to_store(t, r, p->page, id);
		if (r && !(r->placed && is_there(t, p)))
			t->env->store(t->env, p->page, p->frame, CRN_PAGE_SIZE);
	}
	fork_stage_end(t);
}
