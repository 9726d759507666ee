/* SPDX-License-Identifier: MIT */
/*
 * A program that has a malloc of its own keeps it: it has hooks, so its state comes back. But what
 * libraries store to their blocks has none, and what they keep, a stream that is open, must not be
 * turned back. So these get libc's blocks: the pass gives the program's functions other names
 * (compiler/own_heap.h), and libraries find those of lent_blocks.c. Either side may give back the
 * other's blocks: those of libraries are in a list.
 */
#ifndef CRN_RT_LENT_BLOCKS_H
#define CRN_RT_LENT_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>

/* The program's, under the names that the pass has given them; NULL: it has none. */
#define OWN(type, name, ...) extern type __cairn_own_##name(__VA_ARGS__) __attribute__((weak));
OWN(void *, malloc, size_t size)
OWN(void, free, void *block)
OWN(void *, calloc, size_t count, size_t size)
OWN(void *, realloc, void *block, size_t size)
OWN(void *, reallocarray, void *block, size_t count, size_t size)
OWN(int, posix_memalign, void **to, size_t align, size_t size)
OWN(void *, aligned_alloc, size_t align, size_t size)
OWN(void *, memalign, size_t align, size_t size)
OWN(void *, valloc, size_t size)
OWN(void *, pvalloc, size_t size)
OWN(size_t, malloc_usable_size, void *block)

static inline bool crn_own_heap(void)
{
	return __cairn_own_malloc != NULL;
}

/* Is it a block of the program's own malloc? Not one that libraries have of libc's. */
bool crn_own_block(void *block);

/* A block for the program, from its own malloc if it has one, else from the run-time's heap. */
void *crn_program_block(size_t size, size_t align);

/* What libraries call in place of the program's. */
void *__cairn_given_malloc(size_t size);
void __cairn_given_free(void *block);
void *__cairn_given_calloc(size_t count, size_t size);
void *__cairn_given_realloc(void *block, size_t size);
void *__cairn_given_reallocarray(void *block, size_t count, size_t size);
void *__cairn_given_memalign(size_t align, size_t size);
void *__cairn_given_aligned_alloc(size_t align, size_t size);
int __cairn_given_posix_memalign(void **to, size_t align, size_t size);
void *__cairn_given_valloc(size_t size);
void *__cairn_given_pvalloc(size_t size);

#endif
