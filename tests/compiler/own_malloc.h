/* SPDX-License-Identifier: MIT */
/* The allocator of own_allocator.c. */
#ifndef OWN_MALLOC_H
#define OWN_MALLOC_H

#include <stdbool.h>
#include <stddef.h>

extern size_t own_count; /* blocks that are in use */

/* Is it a block of this allocator? */
bool own_holds(const void *p);
/* A block of it that the caller must free. */
char *own_text(void);
/* Its lists are whole, or the program ends. */
void own_check(void);

#endif
