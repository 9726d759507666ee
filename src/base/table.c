/* SPDX-License-Identifier: MIT */
/* Tables in the arena that grow: arena.h says how they are used. */
#include "base/arena.h"
#include "base/copy.h"

int crn_table_grow(struct crn_arena *a, void **table, size_t *capacity, size_t count, size_t need,
	size_t item_size)
{
	size_t room = *capacity ? *capacity : 64;
	void *grown;

	if (crn_likely(need <= *capacity))
		return 0;
	while (room < need)
		room *= 2;
	grown = crn_block_alloc(a, room * item_size);
	if (!grown)
		return CAIRN_EMEMORY;
	if (*table) {
		crn_copy(grown, *table, count * item_size);
		crn_block_free(a, *table, *capacity * item_size);
	}
	*table = grown;
	*capacity = room;
	return 0;
}
