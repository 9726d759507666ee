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

static void *take(long n)
{
	return malloc((size_t)n);
}

/* With an object, for which its first chunk stays. */
static void begun(char *at)
{
	memset(at, 0, sizeof(*OBSTACK));
	_obstack_begin(OBSTACK, 0, 0, take, free);
	CHECK(obstack_alloc(OBSTACK, 16));
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

#endif
