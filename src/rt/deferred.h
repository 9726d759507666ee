/* SPDX-License-Identifier: MIT */
/*
 * Resources that the program gives back and that a restore would need. They are really given back
 * when the last kept checkpoint that may need them is gone or, if their interval is undone, not at
 * all. Also what the program adds to or changes in its address space, which a restore of the
 * interval undoes.
 *
 * Intervals are named by the checkpoint that begins them. Memory: two lists of a million entries.
 */
#ifndef CRN_RT_DEFERRED_H
#define CRN_RT_DEFERRED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Put off; false: no session is open, so it can be done now. Beyond a million some are lost. */
bool crn_deferred_add(void *what);

/* The next one that nobody needs any more, or NULL. In the program's context. */
void *crn_deferred_next(void);

/* In a forked child, which has nothing to give back: other threads are gone, and their lock. */
void crn_deferred_forked(void);

enum crn_map_change {
	CRN_MAP_NEW,       /* [addr, addr+len) was mapped: an undone interval unmaps it */
	CRN_MAP_LEFT,      /* it was unmapped: it stays until no checkpoint needs it */
	CRN_MAP_OPENED,    /* it was closed (PROT_NONE), and was mapped anew: closed again */
	CRN_MAP_PROTECTED, /* it had the protection `prot` */
	CRN_MAP_BREAK,     /* the heap's end (brk) was moved from addr by len, up or down */
	CRN_TOLD,          /* libc was told of what the pointer at addr refers to: not any more */
	CRN_WORD,          /* a word of libc's, at addr, of this thread, was len */
};

/* Note a change, after it was made. False: no session is open, or there is no room (said). */
bool crn_map_changed(enum crn_map_change change, uintptr_t addr, size_t len, int prot);

/* Has all of it been unmapped by the program, and stays for checkpoints? */
bool crn_map_left(uintptr_t begin, uintptr_t end);

/* Something else is mapped there now: what was to be unmapped of it later is not. */
void crn_map_replaced(uintptr_t addr, size_t len);

/* The heap's end has been moved: libc is told, if it keeps a copy. */
void crn_break_told(uintptr_t end);

#endif
