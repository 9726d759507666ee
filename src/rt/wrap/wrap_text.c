/* SPDX-License-Identifier: MIT */
/* Wide and multibyte characters, character sets, regular expressions. */
#include <iconv.h>
#include <limits.h>
#include <regex.h>
#include <time.h>
#include <uchar.h>
#include <unistd.h>
#include <wchar.h>
#include <stdio.h>
#include <stdlib.h>
#define WRAPPED_text CRN_WRAPPER
#include "rt/wrap/wrap.h"
#include "rt/wrap/wrap_format.h"

wchar_t *__wmemcpy_chk(wchar_t *to, const wchar_t *from, size_t n, size_t size);
wchar_t *__wmemmove_chk(wchar_t *to, const wchar_t *from, size_t n, size_t size);
wchar_t *__wmemset_chk(wchar_t *to, wchar_t c, size_t n, size_t size);
wchar_t *__wcscpy_chk(wchar_t *to, const wchar_t *from, size_t size);
wchar_t *__wcsncpy_chk(wchar_t *to, const wchar_t *from, size_t n, size_t size);
wchar_t *__wcscat_chk(wchar_t *to, const wchar_t *from, size_t size);
int __vswprintf_chk(wchar_t *to, size_t n, int flag, size_t size, const wchar_t *format,
	va_list ap);
int __wctomb_chk(char *to, wchar_t c, size_t size);
size_t __wcrtomb_chk(char *to, wchar_t c, mbstate_t *state, size_t size);
size_t __mbstowcs_chk(wchar_t *to, const char *from, size_t n, size_t size);
size_t __wcstombs_chk(char *to, const wchar_t *from, size_t n, size_t size);
size_t __confstr_chk(int name, char *to, size_t n, size_t size);
wchar_t *__wmempcpy_chk(wchar_t *to, const wchar_t *from, size_t n, size_t size);
wchar_t *__wcpcpy_chk(wchar_t *to, const wchar_t *from, size_t size);
wchar_t *__wcpncpy_chk(wchar_t *to, const wchar_t *from, size_t n, size_t size);
wchar_t *__wcsncat_chk(wchar_t *to, const wchar_t *from, size_t n, size_t size);
size_t __mbsrtowcs_chk(wchar_t *to, const char **from, size_t n, mbstate_t *state, size_t size);
size_t __mbsnrtowcs_chk(wchar_t *to, const char **from, size_t most, size_t n, mbstate_t *state,
	size_t size);
size_t __wcsrtombs_chk(char *to, const wchar_t **from, size_t n, mbstate_t *state, size_t size);
size_t __wcsnrtombs_chk(char *to, const wchar_t **from, size_t most, size_t n, mbstate_t *state,
	size_t size);
int __xpg_strerror_r(int code, char *to, size_t n);

/* wcstok ends the token with one character. */
static void wide_token(wchar_t *s, const wchar_t *delimiters)
{
	if (!s)
		return;
	s += wcsspn(s, delimiters);
	s += wcscspn(s, delimiters);
	if (*s)
		OBJECT(s)
}

#include "rt/wrap/wrapped.def"

WRAPPER(int, swprintf, wchar_t *to, size_t n, const wchar_t *format, ...)
{
	va_list ap;
	int len;

	ARRAY(to, n)
	va_start(ap, format);
	crn_keep_wide_counts(format, ap);
	len = vswprintf(to, n, format, ap);
	va_end(ap);
	return len;
}

WRAPPER(int, __swprintf_chk, wchar_t *to, size_t n, int flag, size_t size, const wchar_t *format,
	...)
{
	va_list ap;
	int len;

	ARRAY(to, CRN_MIN(n, size))
	va_start(ap, format);
	crn_keep_wide_counts(format, ap);
	len = __vswprintf_chk(to, n, flag, size, format, ap);
	va_end(ap);
	return len;
}

/* To a stream: nothing of the program's is written but what %n stores. */
#define PRINT_LIST(name, given, ...)                                                \
	int name(__VA_ARGS__ const wchar_t *format, va_list ap);                    \
	WRAPPER(int, name, __VA_ARGS__ const wchar_t *format, va_list ap)           \
	{                                                                           \
		crn_keep_wide_counts(format, ap);                                   \
		return name(given format, ap);                                      \
	}
#define PRINT(name, list, given, ...)                                               \
	WRAPPER(int, name, __VA_ARGS__ const wchar_t *format, ...)                  \
	{                                                                           \
		va_list ap;                                                         \
		int len;                                                            \
                                                                                    \
		va_start(ap, format);                                               \
		len = __cairn_wrap_##list(given format, ap);                        \
		va_end(ap);                                                         \
		return len;                                                         \
	}
#define NONE
#define STREAM f,
#define FLAG flag,
#define STREAM_FLAG f, flag,

PRINT_LIST(vwprintf, NONE,)
PRINT_LIST(vfwprintf, STREAM, FILE *f,)
PRINT_LIST(__vwprintf_chk, FLAG, int flag,)
PRINT_LIST(__vfwprintf_chk, STREAM_FLAG, FILE *f, int flag,)
PRINT(wprintf, vwprintf, NONE,)
PRINT(fwprintf, vfwprintf, STREAM, FILE *f,)
PRINT(__wprintf_chk, __vwprintf_chk, FLAG, int flag,)
PRINT(__fwprintf_chk, __vfwprintf_chk, STREAM_FLAG, FILE *f, int flag,)
