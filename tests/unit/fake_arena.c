/* SPDX-License-Identifier: MIT */
#include "fake_arena.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/check.h"

_Noreturn void crn_check_failed(const char *cond, const char *file, int line)
{
	fprintf(stderr, "%s:%d: check failed: %s\n", file, line, cond);
	abort();
}

void *crn_block_alloc(struct crn_arena *a, size_t size)
{
	void *block =
		a->blocks < a->blocks_max ? aligned_alloc(64, (size + 63) & ~(size_t)63) : NULL;

	if (!block)
		return NULL;
	a->blocks++;
	a->block_bytes += size;
	return memset(block, 0, size);
}

void crn_block_free(struct crn_arena *a, void *block, size_t size)
{
	a->blocks--;
	a->block_bytes -= size;
	free(block);
}

void *crn_frame_alloc(struct crn_arena *a)
{
	if (a->frames >= a->frames_max)
		return NULL;
	a->frames++;
	return memset(aligned_alloc(CRN_PAGE_SIZE, CRN_PAGE_SIZE), 0xa5, CRN_PAGE_SIZE);
}

void crn_frame_free(struct crn_arena *a, void *frame)
{
	CRN_ASSERT(frame && a->frames);
	a->frames--;
	memset(frame, 0xdd, CRN_PAGE_SIZE);
	free(frame);
}

int crn_frame_reserve(struct crn_arena *a, size_t count)
{
	return a->frames + count <= a->frames_max ? 0 : CAIRN_EMEMORY;
}

/* Nothing is ever closed here. */
bool crn_frames_sealed(const struct crn_arena *a)
{
	return false;
}

void crn_frame_open(struct crn_arena *a, void *frame)
{
}
