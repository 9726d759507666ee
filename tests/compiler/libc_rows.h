/* SPDX-License-Identifier: MIT */
/* Of libc_rows.c: functions that no header names, and what the rows share. */
#ifndef CRN_TESTS_LIBC_ROWS_H
#define CRN_TESTS_LIBC_ROWS_H

#include <crypt.h>
#include <fenv.h>
#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <math.h>
#include <regex.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>
#include <uchar.h>
#include <wchar.h>
#include "libc_run.h"

/* ---- By their names: what headers name under _FORTIFY_SOURCE, or for other standards ------ */

char *__strtok_r(char *s, const char *delimiters, char **rest);
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
int __xpg_strerror_r(int code, char *to, size_t n);
size_t __confstr_chk(int name, char *to, size_t n, size_t size);
wchar_t *__wmemcpy_chk(wchar_t *to, const wchar_t *from, size_t n, size_t size);
wchar_t *__wmemmove_chk(wchar_t *to, const wchar_t *from, size_t n, size_t size);
wchar_t *__wmempcpy_chk(wchar_t *to, const wchar_t *from, size_t n, size_t size);
wchar_t *__wmemset_chk(wchar_t *to, wchar_t c, size_t n, size_t size);
wchar_t *__wcscpy_chk(wchar_t *to, const wchar_t *from, size_t size);
wchar_t *__wcpcpy_chk(wchar_t *to, const wchar_t *from, size_t size);
wchar_t *__wcsncpy_chk(wchar_t *to, const wchar_t *from, size_t n, size_t size);
wchar_t *__wcpncpy_chk(wchar_t *to, const wchar_t *from, size_t n, size_t size);
wchar_t *__wcscat_chk(wchar_t *to, const wchar_t *from, size_t size);
wchar_t *__wcsncat_chk(wchar_t *to, const wchar_t *from, size_t n, size_t size);
int __wctomb_chk(char *to, wchar_t c, size_t size);
size_t __wcrtomb_chk(char *to, wchar_t c, mbstate_t *state, size_t size);
size_t __mbstowcs_chk(wchar_t *to, const char *from, size_t n, size_t size);
size_t __wcstombs_chk(char *to, const wchar_t *from, size_t n, size_t size);
size_t __mbsrtowcs_chk(wchar_t *to, const char **from, size_t n, mbstate_t *state, size_t size);
size_t __mbsnrtowcs_chk(wchar_t *to, const char **from, size_t most, size_t n, mbstate_t *state,
	size_t size);
size_t __wcsrtombs_chk(char *to, const wchar_t **from, size_t n, mbstate_t *state, size_t size);
size_t __wcsnrtombs_chk(char *to, const wchar_t **from, size_t most, size_t n, mbstate_t *state,
	size_t size);
long __isoc23_strtol(const char *s, char **end, int base);
long long __isoc23_strtoll(const char *s, char **end, int base);
unsigned long __isoc23_strtoul(const char *s, char **end, int base);
unsigned long long __isoc23_strtoull(const char *s, char **end, int base);

/* ---- What rows write to: places that are in no region together ------------------------------- */

#define AT(place)    (at + 512 * (place))
#define WIDE(place)  ((wchar_t *)AT(place))
#define STATE(place) ((mbstate_t *)AT(place))
#define END          ((char **)at)
#define WIDE_END     ((wchar_t **)at)
#define PATTERN      ((struct re_pattern_buffer *)at)
#define REGISTERS    ((struct re_registers *)AT(1))

static const char *const digits = "12x", *const umlauts = "\xc3\xa4\xc3\xb6\xc3\xbc";
static const wchar_t *const wide_digits = L"12x", *const wide_text = L"\xe4 wide text of words";
static const struct tm some_day = { .tm_year = 99, .tm_mon = 4, .tm_mday = 9 };
static const struct timespec past;
static locale_t place;

/* Pointers, and what nobody has defined, are not the same in each program. */
static void blank(char *at, size_t n)
{
	memset(at, 0, n);
}

/* Of a pointer into `from` that libc has stored: how far it is. NULL stays. */
static long ended(void *at, const void *from)
{
	ptrdiff_t n = *(char **)at ? *(const char **)at - (const char *)from : -1;

	memcpy(at, &n, sizeof(n));
	return (long)n;
}

/* The last bits are the library's business. */
static void rounded_float(char *at)
{
	float x;

	memcpy(&x, at, sizeof(x));
	x = (float)lroundf(x * 1000);
	memcpy(at, &x, sizeof(x));
}

static void rounded(char *at)
{
	blank(at, 3);
}

#define SEEDED ((struct drand48_data *)at)
#define DRAWN  ((struct random_data *)at)

static unsigned short seeds[7] = { 1, 2, 3, 4, 5, 6, 7 };

static void seeded(char *at)
{
	memset(at, 0, sizeof(*SEEDED));
	memcpy(AT(1), seeds, 6);
	srand48_r(9, SEEDED);
}

/* Two tables, of which the one at AT(1) is in use. */
static void drawn(char *at)
{
	memset(at, 0, sizeof(*DRAWN));
	CHECK(!initstate_r(8, AT(2), 128, DRAWN) && !initstate_r(9, AT(1), 64, DRAWN));
}

static void pattern(char *at)
{
	memset(at, 0, sizeof(*PATTERN));
	re_syntax_options = RE_SYNTAX_POSIX_EXTENDED;
	CHECK(!re_compile_pattern("a(b+)c", 6, PATTERN));
}

static void registers(char *at)
{
	pattern(at);
	re_set_registers(PATTERN, REGISTERS, 3, (regoff_t *)AT(2), (regoff_t *)AT(3));
}

#endif
