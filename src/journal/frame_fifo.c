/* SPDX-License-Identifier: MIT */
#include "journal/frame_fifo.h"

#include "base/check.h"

_Static_assert(sizeof(struct crn_fifo_frame) % 8 == 0, "items are 8-byte aligned");

static int add_frame(struct crn_fifo *f)
{
	struct crn_fifo_frame *frame = crn_frame_alloc(f->arena);

	if (!frame)
		return CAIRN_EMEMORY;
	frame->next = NULL;
	frame->reserved = 0;
	if (f->tail) {
		crn_frame_open(f->arena, f->tail);
		f->tail->next = frame;
	} else {
		f->head = frame;
	}
	f->tail = frame;
	f->used = 0;
	f->frame_count++;
	return 0;
}

void *crn_fifo_rest(struct crn_fifo *f, size_t *room)
{
	*room = 0;
	if (!f->tail)
		return NULL;
	crn_frame_open(f->arena, f->tail);
	*room = CRN_FIFO_CAPACITY - f->used;
	return f->tail->bytes + f->used;
}

void *crn_fifo_room(struct crn_fifo *f, size_t size)
{
	size_t room;
	void *rest = crn_fifo_rest(f, &room);

	CRN_ASSERT(size <= CRN_FIFO_CAPACITY);
	if (size <= room)
		return rest;
	return add_frame(f) < 0 ? NULL : f->tail->bytes;
}

void crn_fifo_push(struct crn_fifo *f, size_t size)
{
	f->used += (size + 7) & ~(size_t)7;
	CRN_ASSERT(f->tail && f->used <= CRN_FIFO_CAPACITY);
}

struct crn_fifo_mark crn_fifo_tail(const struct crn_fifo *f)
{
	return (struct crn_fifo_mark){ f->tail, f->used };
}

static void free_chain(struct crn_fifo *f, struct crn_fifo_frame *frame)
{
	while (frame) {
		struct crn_fifo_frame *next = frame->next;

		crn_frame_free(f->arena, frame);
		f->frame_count--;
		frame = next;
	}
}

void crn_fifo_truncate(struct crn_fifo *f, struct crn_fifo_mark mark)
{
	if (!mark.frame) {
		crn_fifo_clear(f);
		return;
	}
	free_chain(f, mark.frame->next);
	crn_frame_open(f->arena, mark.frame);
	mark.frame->next = NULL;
	f->tail = mark.frame;
	f->used = mark.used;
}

void crn_fifo_evict(struct crn_fifo *f, struct crn_fifo_mark mark)
{
	if (!mark.frame)
		return;
	while (f->head != mark.frame) {
		struct crn_fifo_frame *next = f->head->next;

		CRN_ASSERT(next);
		crn_frame_free(f->arena, f->head);
		f->frame_count--;
		f->head = next;
	}
}

void crn_fifo_clear(struct crn_fifo *f)
{
	free_chain(f, f->head);
	f->head = f->tail = NULL;
	f->used = 0;
}
