/* SPDX-License-Identifier: MIT */
/* What a mapping is, as the map shows it. */
#include "session/engine.h"
#include "base/copy.h"

bool crn_mapping_special(const struct crn_mapping *m)
{
	/* The kernel's own pages in the process. */
	return crn_starts_with(m->name, "[vvar") || crn_streq(m->name, "[vdso]") ||
		crn_streq(m->name, "[vsyscall]") || crn_streq(m->name, "[uprobes]");
}

uint32_t crn_mapping_flags(const struct crn_mapping *m)
{
	uint32_t flags = 0;

	if (m->shared)
		flags |= CRN_AREA_SHARED;
	/*
	 * The kernel's name for memory that is shared without a file: no descriptor leads to it. A
	 * mapping of it can be made longer than it is, but the rest never has any content.
	 */
	if (m->shared && crn_streq(m->name, "/dev/zero (deleted)"))
		flags |= CRN_AREA_UNCUT;
	if (m->inode || m->name[0] == '/')
		flags |= CRN_AREA_FILE;
	if (crn_streq(m->name, "[stack]"))
		flags |= CRN_AREA_STACK;
	if (crn_streq(m->name, "[heap]"))
		flags |= CRN_PIECE_HEAP;
	return flags;
}

struct crn_piece crn_piece_of(const struct crn_mapping *m, uint32_t flags)
{
	return (struct crn_piece){
		.begin = m->begin,
		.end = m->end,
		.flags = flags,
		.prot = m->prot,
		.inode = m->inode,
		.base = m->inode ? m->offset - m->begin : 0,
		.device = crn_mapping_device(m),
	};
}

bool crn_pieces_alias(const struct crn_piece *a, const struct crn_piece *b)
{
	const uint32_t shared = a->flags & b->flags & CRN_AREA_SHARED;
	bool apart = a->end <= b->begin || a->begin >= b->end;

	return shared && apart && a->inode && a->inode == b->inode && a->device == b->device &&
		a->begin + a->base < b->end + b->base && a->end + a->base > b->begin + b->base;
}

bool crn_piece_aliases(const struct crn_pieces *l, const struct crn_piece *p)
{
	for (size_t i = 0; p->flags & CRN_AREA_SHARED && i < l->count; i++)
		if (crn_pieces_alias(&l->at[i], p))
			return true;
	return false;
}

bool crn_mapping_closed(const struct crn_mapping *m)
{
	return m->prot == PROT_NONE && !m->shared && !crn_mapping_flags(m);
}
