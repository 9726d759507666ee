/* SPDX-License-Identifier: MIT */
/* Of libc_rows.c: what its rows of blocks call, and what calls back. */
#ifndef CRN_TESTS_LIBC_ROWS_HEAP_H
#define CRN_TESTS_LIBC_ROWS_HEAP_H

#include <glob.h>
#include <malloc.h>
#include <obstack.h>
#include <search.h>
#include "libc_rows_stdio.h"

#define OBSTACK ((struct obstack *)at)

char *__strdup(const char *s);
int __asprintf_chk(char **to, int flag, const char *format, ...);
int __vasprintf_chk(char **to, int flag, const char *format, va_list ap);
ssize_t __getdelim(char **line, size_t *room, int end, FILE *f);
int __obstack_printf_chk(struct obstack *o, int flag, const char *format, ...);
int __obstack_vprintf_chk(struct obstack *o, int flag, const char *format, va_list ap);

OF_LIST(obstack_vprintf, format, PARAMETERS(struct obstack *o, const char *format), o, format)
OF_LIST(__obstack_vprintf_chk, format, PARAMETERS(struct obstack *o, int flag, const char *format),
	o, flag, format)
OF_LIST(vasprintf, format, PARAMETERS(char **to, const char *format), to, format)
OF_LIST(__vasprintf_chk, format, PARAMETERS(char **to, int flag, const char *format), to, flag,
	format)

static void no_line(char *at)
{
	*(char **)at = NULL;
	*(size_t *)AT(1) = 0;
}

static int by_byte(const void *a, const void *b)
{
	return *(const char *)a - *(const char *)b;
}

static void count_visits(const void *node, VISIT which, void *count)
{
	(void)node;
	*(long *)count += 1 + (long)which;
}

static void *take(long n)
{
	return malloc((size_t)n);
}

static void *object;

/* With an object, for which its first chunk stays. */
static void begun(char *at)
{
	memset(at, 0, sizeof(*OBSTACK));
	_obstack_begin(OBSTACK, 0, 0, take, free);
	object = obstack_alloc(OBSTACK, 16);
}

/* With a chunk of 300 bytes at AT(1). */
static void *take_object(long n)
{
	return n > 0 ? object : NULL;
}

static void give_nothing(void *block)
{
	(void)block;
}

static void chunk_at(char *at)
{
	memset(at, 0, sizeof(*OBSTACK));
	object = AT(1);
	_obstack_begin(OBSTACK, 300, 0, take_object, give_nothing);
}

/* Its addresses, and those at the head of the chunk. */
static void lead_nowhere(char *at)
{
	blank(at, sizeof(*OBSTACK));
	blank(AT(1), 2 * sizeof(void *));
}

static void *take_for(void *who, long n)
{
	(void)who;
	return malloc((size_t)n);
}

static void give_for(void *who, void *block)
{
	(void)who;
	free(block);
}

/* ---- C++: a block that is deleted has its content again -------------------------------------- */

#ifdef OPERATORS
#define NEW(name)         \
	void *name(size_t n); \
	void *name##RKSt9nothrow_t(size_t n, const void *); \
	void *name##St11align_val_t(size_t n, size_t align); \
	void *name##St11align_val_tRKSt9nothrow_t(size_t n, size_t align, const void *);
#define DELETE(name, size) \
	void name(void *at); \
	void name##size(void *at, size_t n); \
	void name##St11align_val_t(void *at, size_t align); \
	void name##size##St11align_val_t(void *at, size_t n, size_t align); \
	void name##RKSt9nothrow_t(void *at, const void *); \
	void name##St11align_val_tRKSt9nothrow_t(void *at, size_t align, const void *);
#ifdef __LP64__
NEW(_Znwm)
NEW(_Znam)
DELETE(_ZdlPv, m)
DELETE(_ZdaPv, m)
#else
NEW(_Znwj)
NEW(_Znaj)
DELETE(_ZdlPv, j)
DELETE(_ZdaPv, j)
#endif

#if OPERATORS > 1
static char *block;

static char *new_block(size_t align)
{
#ifdef __LP64__
	return align ? _ZnwmSt11align_val_t(300, align) : _Znwm(300);
#else
	return align ? _ZnwjSt11align_val_t(300, align) : _Znwj(300);
#endif
}

static void full_block(size_t align)
{
	block = new_block(align);
	memset(block, 'b', 300);
}

static long full(void)
{
	long n = 0;

	for (int i = 0; i < 300; i++)
		n += block[i] == 'b';
	return n;
}

/* Where the next one lies; its content is another. */
static long next(size_t align)
{
	return (long)memset(new_block(align), 'n', 300);
}
#endif
#endif

#endif
