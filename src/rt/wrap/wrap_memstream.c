/* SPDX-License-Identifier: MIT */
/*
 * Streams that write to memory (open_memstream, fmemopen). libc's would write to it without hooks,
 * at any call for the stream. Those of open_memstream have their blocks in the program's heap
 * (given.h). What the stream itself has buffered is libc's, as in any stream.
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

/* *to becomes a place from 0 to `most`. -1: there is none, and errno says so. */
static int find_place(off64_t *to, int whence, size_t pos, size_t end, off64_t most)
{
	off64_t from = whence == SEEK_SET ? 0 : (off64_t)(whence == SEEK_CUR ? pos : end), place;

	if (__builtin_add_overflow(from, *to, &place) || place < 0 || place > most) {
		errno = EINVAL;
		return -1;
	}
	*to = place;
	return 0;
}

static int seek_memory(void *cookie, off64_t *to, int whence)
{
	struct memory *m = cookie;

	if (find_place(to, whence, m->pos, m->used, INT64_MAX) < 0)
		return -1;
	OBJECT(m)
	m->pos = (size_t)*to;
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

/* ---- fmemopen: a buffer of the program ------------------------------------------------------- */

/* In libc's heap, as what else a stream knows. What is behind `used` cannot be read. */
struct buffer {
	char *at;
	size_t size, used, pos; /* bytes; used and pos <= size */
	bool appends;
};

static ssize_t read_buffer(void *cookie, char *to, size_t n)
{
	struct buffer *b = cookie;

	n = b->pos < b->used ? CRN_MIN(n, b->used - b->pos) : 0;
	memcpy(to, b->at + b->pos, n);
	b->pos += n;
	return (ssize_t)n;
}

/* A zero follows what makes the content longer, if there is room for it. */
static ssize_t write_buffer(void *cookie, const char *from, size_t n)
{
	struct buffer *b = cookie;
	size_t pos = b->appends ? b->used : b->pos;
	bool ends = n && !from[n - 1];

	if (n > b->size - pos) {
		if (b->pos + !ends >= b->size) { /* in libc, too, if it appends elsewhere */
			errno = ENOSPC;
			return 0;
		}
		n = b->size - pos;
	}
	place(b->at + pos, from, n);
	b->pos = pos + n;
	if (b->pos <= b->used)
		return (ssize_t)n;
	b->used = b->pos;
	if (!ends && (b->used < b->size || !b->appends))
		place(b->at + CRN_MIN(b->used, b->size - 1), "", 1);
	return (ssize_t)n;
}

static int seek_buffer(void *cookie, off64_t *to, int whence)
{
	struct buffer *b = cookie;

	if (find_place(to, whence, b->pos, b->used, (off64_t)b->size) < 0)
		return -1;
	b->pos = (size_t)*to;
	return 0;
}

static int close_buffer(void *cookie)
{
	free(cookie);
	return 0;
}

/* As in libc, all of a buffer that is read is content, whatever zeros are in it. */
static struct buffer *buffer_open(char *at, size_t size, const char *mode)
{
	struct buffer *b = malloc(sizeof(*b));

	if (!b)
		return NULL;
	*b = (struct buffer){ at, size, size, 0, *mode == 'a' };
	if (b->appends)
		b->pos = b->used = strnlen(at, size);
	else if (*mode == 'w')
		b->used = 0;
	if (mode[0] == 'w' && mode[1] == '+')
		place(at, "", 1);
	return b;
}

/* libc has the errors, memory of its own, and what is only read. */
WRAPPER(FILE *, fmemopen, void *at, size_t size, const char *mode)
{
	struct buffer *b;
	FILE *f;

	if (!at || size > -(uintptr_t)at || !strpbrk(mode, "wa+"))
		return fmemopen(at, size, mode);
	b = buffer_open(at, size, mode);
	f = b ? fopencookie(b, mode, (cookie_io_functions_t){ read_buffer, write_buffer,
			seek_buffer, close_buffer }) : NULL;
	if (!f)
		free(b);
	return f;
}
