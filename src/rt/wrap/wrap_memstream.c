/* SPDX-License-Identifier: MIT */
/*
 * Streams that write to memory (open_memstream). libc's would write to blocks of its own, without
 * hooks, at any call for the stream. These keep their blocks in the program's heap (given.h). What
 * the stream itself has buffered is libc's, as in any stream.
 */
#include <stdio.h>
#include <stdlib.h>
#include "rt/wrap/given.h"
#include "rt/heap.h"
#include "rt/lent_blocks.h"
#include "rt/wrap/wrap.h"

#define ALIGN 16
#define LEAST 128

/* It is there whenever the program has the run-time's heap (given.h). */
#pragma weak __cairn_wrap_free
void __cairn_wrap_free(void *block);

/* In the program's heap. pos may lie beyond used: what is between is zeros once it is written. */
struct memory {
	char **at; /* the program's variables */
	size_t *size;
	char *block;
	size_t room, used, pos; /* bytes; used < room, for the zero at its end */
};

/* What the program reads after a flush. */
static void tell(const struct memory *m)
{
	size_t size = CRN_MIN(m->pos, m->used);

	place(m->at, &m->block, sizeof(m->block));
	place(m->size, &size, sizeof(size));
}

static bool make_room(struct memory *m, size_t need)
{
	size_t room = CRN_MAX(need, m->room * 2);
	char *block;

	if (need <= m->room)
		return true;
	block = crn_program_block(room, ALIGN);
	if (!block)
		return false;
	place(block, m->block, m->used + 1);
	__cairn_wrap_free(m->block);
	m->block = block;
	m->room = room;
	return true;
}

static ssize_t write_memory(void *cookie, const char *from, size_t n)
{
	struct memory *m = cookie;
	size_t end;

	OBJECT(m)
	if (__builtin_add_overflow(m->pos, n, &end) || end == SIZE_MAX || !make_room(m, end + 1)) {
		errno = ENOSPC;
		return 0;
	}
	if (m->pos > m->used) {
		keep(m->block + m->used, m->pos - m->used);
		memset(m->block + m->used, 0, m->pos - m->used);
	}
	place(m->block + m->pos, from, n);
	m->pos = end;
	if (end > m->used) {
		m->used = end;
		place(m->block + end, "", 1);
	}
	tell(m);
	return (ssize_t)n;
}

static int seek_memory(void *cookie, off64_t *to, int whence)
{
	struct memory *m = cookie;
	off64_t from = whence == SEEK_SET ? 0 : (off64_t)(whence == SEEK_CUR ? m->pos : m->used);
	off64_t pos;

	if (__builtin_add_overflow(from, *to, &pos) || pos < 0) {
		errno = EINVAL;
		return -1;
	}
	OBJECT(m)
	m->pos = (size_t)pos;
	*to = pos;
	tell(m);
	return 0;
}

/* The block is the program's. */
static int close_memory(void *cookie)
{
	tell(cookie);
	crn_heap_free(cookie);
	return 0;
}

static struct memory *memory_open(char **at, size_t *size)
{
	struct memory *m = crn_heap_alloc(sizeof(*m), ALIGN);

	if (!m)
		return NULL;
	place(m, &(struct memory){ at, size, crn_program_block(LEAST, ALIGN), LEAST, 0, 0 },
		sizeof(*m));
	if (m->block) {
		place(m->block, "", 1);
		tell(m);
		return m;
	}
	crn_heap_free(m);
	return NULL;
}

WRAPPER(FILE *, open_memstream, char **at, size_t *size)
{
	struct memory *m;
	FILE *f;

	OBJECT(at)
	OBJECT(size)
	if (!crn_given_wanted())
		return open_memstream(at, size);
	m = memory_open(at, size);
	f = m ? fopencookie(m, "w", (cookie_io_functions_t){ NULL, write_memory, seek_memory,
			close_memory }) : NULL;
	if (!f && m) {
		__cairn_wrap_free(m->block);
		crn_heap_free(m);
	}
	return f;
}
