/* SPDX-License-Identifier: MIT */
/*
 * The heap of an instrumented program. libc's own would not do: its state is not restored, while
 * the regions that a restore puts back contain the headers that it has written between the blocks.
 * This heap keeps all that it overwrites with hooks. So a restore rolls it back with everything
 * else: memory that was freed is there again, and memory that was allocated is free.
 *
 *	base                     table_at            units_at (a multiple of UNIT from base)
 *	| struct heap, one page  | struct unit each  | units of 64 KiB: slabs, and runs of 2^n units |
 *
 * Blocks of up to 32 KiB lie in slabs of one size each. Larger ones are runs of units, by the buddy
 * system. Unit i is committed if i < heap->committed. Large free runs are given back to the kernel
 * when no checkpoint has needed them for a while, and are zeros when they come back.
 *
 * Threads: one lock. Forked children have the heap as it was. Not for signal handlers, like malloc.
 */
#ifndef CRN_RT_HEAP_H
#define CRN_RT_HEAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * A block of at least `size` bytes at a multiple of `align`; NULL: no memory. A power of two, up to
 * 1 GiB, and less where address space is short.
 */
void *crn_heap_alloc(size_t size, size_t align);
/* The same, with zeros. */
void *crn_heap_zeros(size_t size);
/* Give back a block; the program ends if it is none. */
void crn_heap_free(void *block);
/* Is the address of the heap? Then only crn_heap_free may give it back. */
bool crn_heap_holds(const void *block);
/* Is all of it memory of the heap, whoever uses it? */
bool crn_heap_spans(const void *at, size_t len);
/* Bytes that may be used at a block of the heap. */
size_t crn_heap_room(const void *block);

/*
 * The end of the free memory that an address lies in, of which no restore brings the content back;
 * 0: it is in use, or the heap's own. For oracles.
 */
uintptr_t crn_heap_free_until(const void *at);

/* Of the heap and of what libc has lent (lent_blocks.c). */
void crn_heap_lock(void);
void crn_heap_unlock(void);
/* fork(2) in between: a child must not find the lock taken. Who forks may allocate meanwhile. */
void crn_heap_fork_begin(void);
void crn_heap_fork_end(void);

#endif
