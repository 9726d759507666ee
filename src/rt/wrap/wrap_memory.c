/* SPDX-License-Identifier: MIT */
/* Bytes and strings: what is written is measured before the call. */
#include <unistd.h>
#define WRAPPED_memory CRN_WRAPPER
#include "rt/wrap/wrap.h"

size_t strlcpy(char *to, const char *from, size_t n);
size_t strlcat(char *to, const char *from, size_t n);
void *__memcpy_chk(void *to, const void *from, size_t n, size_t size);
void *__memmove_chk(void *to, const void *from, size_t n, size_t size);
void *__mempcpy_chk(void *to, const void *from, size_t n, size_t size);
void *__memset_chk(void *to, int byte, size_t n, size_t size);
void __explicit_bzero_chk(void *to, size_t n, size_t size);
char *__strcpy_chk(char *to, const char *from, size_t size);
char *__stpcpy_chk(char *to, const char *from, size_t size);
char *__strncpy_chk(char *to, const char *from, size_t n, size_t size);
char *__stpncpy_chk(char *to, const char *from, size_t n, size_t size);
char *__strcat_chk(char *to, const char *from, size_t size);
char *__strncat_chk(char *to, const char *from, size_t n, size_t size);

/* Bytes up to and with the first that is `end`. */
static size_t until(const void *from, int end, size_t n)
{
	const char *at = memchr(from, end, n);

	return at ? (size_t)(at + 1 - (const char *)from) : n;
}

#include "rt/wrap/wrapped.def"

/* ---- Tokens: one byte each, at its end ------------------------------------------------------ */

static char *next_token(char *s, const char *delimiters, char **rest)
{
	char *end;

	keep(rest, sizeof(*rest));
	if (!s)
		s = *rest;
	if (s)
		s += strspn(s, delimiters);
	if (!s || !*s) {
		*rest = s;
		return NULL;
	}
	end = s + strcspn(s, delimiters);
	if (*end) {
		keep(end, 1);
		*end++ = 0;
	}
	*rest = end;
	return s;
}

/* libc's own place would not come back. */
static char *token_rest;

WRAPPER(char *, strtok, char *s, const char *delimiters)
{
	return next_token(s, delimiters, &token_rest);
}

WRAPPER(char *, strtok_r, char *s, const char *delimiters, char **rest)
{
	return next_token(s, delimiters, rest);
}

WRAPPER(char *, __strtok_r, char *s, const char *delimiters, char **rest)
{
	return next_token(s, delimiters, rest);
}

WRAPPER(char *, strsep, char **at, const char *delimiters)
{
	char *s = *at, *end;

	keep(at, sizeof(*at));
	if (!s)
		return NULL;
	end = s + strcspn(s, delimiters);
	if (*end) {
		keep(end, 1);
		*end++ = 0;
		*at = end;
	} else {
		*at = NULL;
	}
	return s;
}
