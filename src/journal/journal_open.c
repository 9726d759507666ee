/* SPDX-License-Identifier: MIT */
/* Opening and closing a journal, and what it holds. */
#include "base/arena.h"
#include "base/status.h"
#include "journal/delta.h"
#include "journal/journal.h"
#include "journal/record.h"

#define STAGING_FIRST 1024u /* entries; 16 KiB */
#define SPARES_FIRST  512u  /* pointers; 4 KiB */

static size_t tables_size(uint32_t keep, size_t *ring, size_t *cursors, size_t *heap)
{
	*ring = keep * sizeof(struct crn_record);
	*cursors = keep * sizeof(struct crn_cursor);
	*heap = keep * sizeof(uint32_t);
	return sizeof(struct crn_journal) + *ring + *cursors + *heap + 2 * CRN_PAGE_SIZE;
}

int crn_journal_open(struct crn_journal **out, struct crn_arena *arena, uint32_t keep)
{
	size_t ring, cursors, heap;
	struct crn_journal *j;

	if (!keep || keep > CRN_JOURNAL_KEEP_MAX)
		return CAIRN_EOPTION;
	(void)tables_size(keep, &ring, &cursors, &heap);
	j = crn_block_alloc(arena, sizeof(*j));
	if (!j)
		return CAIRN_EMEMORY;
	j->arena = j->entries.arena = j->deltas.arena = arena;
	j->keep = keep;
	j->staging_capacity = STAGING_FIRST;
	j->spare_capacity = SPARES_FIRST;
	j->ring = crn_block_alloc(arena, ring);
	j->cursors = crn_block_alloc(arena, cursors);
	j->heap = crn_block_alloc(arena, heap);
	j->staging = crn_block_alloc(arena, STAGING_FIRST * sizeof(struct crn_entry));
	j->scratch[0] = crn_block_alloc(arena, CRN_PAGE_SIZE);
	j->scratch[1] = crn_block_alloc(arena, CRN_DELTA_LONGEST);
	j->spares = crn_block_alloc(arena, SPARES_FIRST * sizeof(void *));
	if (!j->ring || !j->cursors || !j->spares || !j->heap || !j->staging || !j->scratch[0] ||
		!j->scratch[1]) {
		crn_journal_close(j);
		return CAIRN_EMEMORY;
	}
	*out = j;
	return 0;
}

static void block_drop(struct crn_journal *j, void *block, size_t size)
{
	if (block)
		crn_block_free(j->arena, block, size);
}

void crn_journal_close(struct crn_journal *j)
{
	size_t ring, cursors, heap;

	if (!j)
		return;
	if (j->open_kind != CRN_RECORD_NONE)
		crn_journal_abort(j);
	while (crn_journal_evict(j))
		;
	(void)tables_size(j->keep, &ring, &cursors, &heap);
	block_drop(j, j->ring, ring);
	block_drop(j, j->cursors, cursors);
	block_drop(j, j->heap, heap);
	while (j->spare_count)
		crn_frame_free(j->arena, j->spares[--j->spare_count]);
	block_drop(j, j->spares, j->spare_capacity * sizeof(void *));
	block_drop(j, j->staging, j->staging_capacity * sizeof(struct crn_entry));
	block_drop(j, j->scratch[0], CRN_PAGE_SIZE);
	block_drop(j, j->scratch[1], CRN_DELTA_LONGEST);
	crn_block_free(j->arena, j, sizeof(*j));
}

uint64_t crn_journal_bytes(const struct crn_journal *j)
{
	size_t ring, cursors, heap;
	size_t tables = tables_size(j->keep, &ring, &cursors, &heap);

	return tables + j->staging_capacity * sizeof(struct crn_entry) +
	       j->spare_capacity * sizeof(void *) +
	       (j->whole_count + j->spare_count + j->entries.frame_count + j->deltas.frame_count) *
		       CRN_PAGE_SIZE;
}

uint64_t crn_journal_pages(const struct crn_journal *j)
{
	return j->pages;
}
