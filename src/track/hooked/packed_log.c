/* SPDX-License-Identifier: MIT */
#include "track/hooked/packed_log.h"
#include "base/arena.h"
#include "base/bits.h"
#include "base/copy.h"
#include "base/status.h"
#include "rt/rt.h"

static size_t frame_count(const struct crn_packed_log *log)
{
	return crn_pages(log->size);
}

static size_t tail_size(const struct crn_packed_log *log)
{
	return log->size % CRN_PAGE_SIZE;
}

static char *byte_at(const struct crn_packed_log *log, size_t at)
{
	size_t frame = crn_pages(at);

	if (log->flat)
		return (char *)log->flat + at;
	return (frame < frame_count(log) ? (char *)log->frames[frame] : log->tail) +
		at % CRN_PAGE_SIZE;
}

int crn_packed_open(struct crn_packed_log *log, struct crn_arena *arena, size_t size)
{
	size_t count = crn_pages(size);

	*log = (struct crn_packed_log){ .size = size };
	if (count && crn_frame_reserve(arena, count) < 0)
		return CAIRN_EMEMORY;
	if (count)
		log->frames = crn_block_alloc(arena, count * sizeof(*log->frames));
	if (tail_size(log))
		log->tail = crn_block_alloc(arena, tail_size(log));
	if ((count && !log->frames) || (tail_size(log) && !log->tail)) {
		crn_block_free(arena, log->frames, count * sizeof(*log->frames));
		crn_block_free(arena, log->tail, tail_size(log));
		return CAIRN_EMEMORY;
	}
	for (size_t i = 0; i < count; i++)
		log->frames[i] = crn_frame_alloc(arena);
	return 0;
}

void crn_packed_close(struct crn_packed_log *log, struct crn_arena *arena)
{
	for (size_t i = 0; i < frame_count(log); i++)
		crn_frame_free(arena, log->frames[i]);
	crn_block_free(arena, log->frames, frame_count(log) * sizeof(*log->frames));
	crn_block_free(arena, log->tail, tail_size(log));
}

/* How much of `len` bytes from `at` on lies in one piece. */
static size_t piece(const struct crn_packed_log *log, size_t at, size_t len)
{
	return log->flat ? len : CRN_MIN(len, CRN_PAGE_SIZE - at % CRN_PAGE_SIZE);
}

void crn_packed_put(struct crn_packed_log *log, const void *from, size_t len)
{
	for (size_t done = 0, part; done < len; done += part, log->filled += part) {
		part = piece(log, log->filled, len - done);
		crn_copy(byte_at(log, log->filled), (const char *)from + done, part);
	}
}

int crn_packed_walk(const struct crn_packed_log *log, crn_undo_fn fn, void *ctx)
{
	for (size_t end = log->size; end;) {
		const struct crn_log_entry *e =
			(const void *)byte_at(log, end -= sizeof(struct crn_log_entry));
		uintptr_t addr = e->where & CRN_LOG_ADDR;
		size_t kind = e->where >> 56, len = kind < CRN_LOG_VOID ? kind : e->word;

		if (kind < CRN_LOG_VOID) {
			if (len)
				CRN_TRY(fn(ctx, addr, &e->word, len));
			continue;
		}
		end -= (len + 15) & ~15ul;
		for (size_t done = 0, part; kind == CRN_LOG_LONG && done < len; done += part) {
			part = piece(log, end + done, len - done);
			CRN_TRY(fn(ctx, addr + done, byte_at(log, end + done), part));
		}
	}
	return 0;
}
