/* SPDX-License-Identifier: MIT */
/*
 * The layout: the mappings of the surface, in pieces, as they were when last looked at. How they
 * change between checkpoints, and how a restore undoes that. With the session's lock held.
 */
#ifndef CRN_MAP_LAYOUT_H
#define CRN_MAP_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "cairn/cairn.h"
#include "os/maps.h"

/* A run of pages whose mapping has one kind, for the surface. */
struct crn_piece {
	uintptr_t begin, end;
	uint32_t flags; /* enum crn_area_flags | enum crn_piece_flags */
	int prot;
	/* of a file: its inode and device, and the offset minus the address */
	uint64_t inode, base, device;
	/* of those beside the surface (files.c): which file it is, or NULL */
	struct crn_file_name *file;
	/* id of the first checkpoint that it was there at; CRN_AREA_REMOVED: at which it was so */
	uint64_t born;
	uint64_t sure; /* id of a checkpoint at which all of it was the file's bytes */
};

#define CRN_AREA_FLAGS 0xffffu /* of a piece's flags, those of an area */

enum crn_piece_flags {
	CRN_PIECE_HEAP = 1u << 16,    /* grows and shrinks by brk */
	CRN_PIECE_REFUSED = 1u << 17, /* the tracker cannot take it (said once in the log) */
	CRN_PIECE_NOTED = 1u << 18,   /* in a change: born just before a restore, not tracked yet */
	CRN_PIECE_DOUBT = 1u << 19,   /* of a file: it may have been written since it was scanned */
	CRN_PIECE_STAYS = 1u << 20,   /* noted, and tracked for a restore that is prepared */
};

struct crn_pieces {
	struct crn_piece *at;
	size_t count, capacity;
};

/* An explicit area as the program has added it; the table of areas has its parts. */
struct crn_added {
	uintptr_t begin, end;
	uint64_t born; /* id of the first checkpoint that covers it */
	bool mapped;   /* some of it, when last looked at */
};

/* One change of the layout within an interval. */
struct crn_change {
	struct crn_piece piece; /* as it was before; as it is, if BORN */
	struct crn_added added; /* of an explicit area: of which one */
	enum {
		CRN_CHANGE_GONE,
		CRN_CHANGE_BORN,
		CRN_CHANGE_PROT,
		CRN_CHANGE_RESERVED, /* addresses that were reserved are so no more */
		CRN_CHANGE_OPENED,   /* a mapping of a file beside the surface: can be written */
		CRN_CHANGE_FILE,     /* is not there, or its protection is another one */
	} kind;
};

struct crn_changes {
	struct crn_change *at;
	size_t count, capacity;
};

/* ---- mapping_kind.c */
uint32_t crn_mapping_flags(const struct crn_mapping *m);
/*
 * Do they map the same shared memory, in part, at two places? A store to one of them shows at both,
 * and is noticed at one.
 */
bool crn_pieces_alias(const struct crn_piece *a, const struct crn_piece *b);
/* Does the piece alias one of the list? It may be in the list itself. */
bool crn_piece_aliases(const struct crn_pieces *l, const struct crn_piece *p);
/* All of it, as a piece without a name or a birth. */
struct crn_piece crn_piece_of(const struct crn_mapping *m, uint32_t flags);
bool crn_mapping_special(const struct crn_mapping *m);
/* Anonymous memory of the process without any access: a reservation, as far as it holds nothing. */
bool crn_mapping_closed(const struct crn_mapping *m);

/* ---- map_layout.c */
/* No longer tracked, which is not the same as gone: if it is there, the next look finds it. */
void crn_layout_leave_out(cairn_t *c, uintptr_t begin, uintptr_t end);
/* Find anew c->awkward, and what the tracker could not take. 0 or CAIRN_EMEMORY. */
int crn_layout_awkward(cairn_t *c);
/* For crn_layout_learn: there is room, and the files of c->fresh keep their numbers. */
int crn_layout_reserve(cairn_t *c);
/* [begin, end) is c->fresh from now on. Before it is tracked. */
void crn_layout_learn(cairn_t *c, uintptr_t begin, uintptr_t end);

enum crn_follow {
	CRN_FOLLOW_ADOPT, /* bring new mappings under tracking */
	CRN_FOLLOW_NOTE,  /* a restore is coming: only note them */
};
/* Bring layout and areas up to date; changes go to the newest mark. */
int crn_layout_follow(cairn_t *c, enum crn_follow how);
/* May that be done of [begin, end) alone? If it fails, everything has to be looked at. */
bool crn_layout_has_parts(const cairn_t *c, uintptr_t begin, uintptr_t end);
int crn_layout_follow_part(cairn_t *c, uintptr_t begin, uintptr_t end);
/* Are these parts of one mapping, as far as a layout knows? */
bool crn_same_kind(const struct crn_piece *a, const struct crn_piece *b);
/*
 * Was the page, which an area has now or had, a part of the surface at `id`? If not, what is kept
 * of it says nothing of what was there.
 */
bool crn_layout_held(const cairn_t *c, uint64_t id, uintptr_t page);
/* The fresh layout is the layout from now on. */
int crn_layout_replace(cairn_t *c);
/* Track the parts of a new piece that no area covers yet. */
int crn_layout_adopt(cairn_t *c, const struct crn_piece *p);
/* Cut [begin, end) out; room for one piece more has been reserved. */
void crn_pieces_cut(struct crn_pieces *l, uintptr_t begin, uintptr_t end);

/* ---- layout_undo.c */
/*
 * Can all changes since `id` be undone? 0, CAIRN_ELAYOUT or CAIRN_EMEMORY; sets c->place_frames.
 * After CRN_FOLLOW_NOTE.
 */
int crn_layout_undoable(cairn_t *c, uint64_t id);
/* After a restore that was refused: what it had begun to track is only noted again. */
int crn_layout_unprepare(cairn_t *c);
/* Does a restore to `id` free what is mapped in [begin, end)? */
bool crn_place_frees(const cairn_t *c, uint64_t id, uintptr_t begin, uintptr_t end);
/*
 * Somebody still needs it: a thread's stack, memory that is to survive, the stack that must not be
 * touched.
 */
bool crn_must_stay(const cairn_t *c, const struct crn_piece *p);
/* Has any mapping changed since `id`, as far as we know? */
bool crn_layout_changed(const cairn_t *c, uint64_t id);
/*
 * Mappings as they were: first the places, then, when the content is back, the protections. Ends
 * the process if it cannot be finished.
 */
void crn_layout_undo_places(cairn_t *c, uint64_t id);
void crn_layout_undo_protections(cairn_t *c, uint64_t id);

/* ---- layout_room.c */
/* Do the limits of the process leave room for what a restore to `id` maps again? 0 or -ENOMEM. */
int crn_layout_room(const cairn_t *c, uint64_t id);

#endif
