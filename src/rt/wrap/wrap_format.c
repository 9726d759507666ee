/* SPDX-License-Identifier: MIT */
/*
 * Reads the format of printf for the place and size of each %n. To reach an argument all arguments
 * before it must be taken, and only their conversions tell how.
 */
#include "rt/wrap/wrap_format.h"
#include <stdio.h>
#include "base/status.h"
#include "rt/wrap/wrap.h"

#define ARGUMENTS 64

int __vprintf_chk(int flag, const char *format, va_list ap);
int __vfprintf_chk(FILE *f, int flag, const char *format, va_list ap);
int __vdprintf_chk(int fd, int flag, const char *format, va_list ap);
int __vsprintf_chk(char *to, int flag, size_t size, const char *format, va_list ap);
int __vsnprintf_chk(char *to, size_t n, int flag, size_t size, const char *format, va_list ap);
int __vwprintf_chk(int flag, const wchar_t *format, va_list ap);
int __vfwprintf_chk(FILE *f, int flag, const wchar_t *format, va_list ap);
int __vswprintf_chk(wchar_t *to, size_t n, int flag, size_t size, const wchar_t *format,
	va_list ap);

/* Wrappers call these by weak names, which alone bring nothing into a static program. */
static const void *const called[] __attribute__((used)) = { vprintf, vfprintf, vdprintf, vsprintf,
	vsnprintf, __vprintf_chk, __vfprintf_chk, __vdprintf_chk, __vsprintf_chk, __vsnprintf_chk,
	vwprintf, vfwprintf, vswprintf, __vwprintf_chk, __vfwprintf_chk, __vswprintf_chk,
	fread_unlocked, setvbuf };

enum taken { WORD, DOUBLE, LONG_DOUBLE }; /* integers of any size and pointers are words */

struct arguments {
	unsigned char taken[ARGUMENTS]; /* enum taken */
	unsigned char count_size[ARGUMENTS]; /* what %n stores there; 0: it is none */
	size_t used, next;
	bool many; /* more than there is room for */
};

/* The next argument, or the one of that number. */
static size_t take(struct arguments *a, size_t number, enum taken how)
{
	size_t place = number ? number - 1 : a->next++;

	if (place >= ARGUMENTS) {
		a->many = true;
		return 0;
	}
	a->taken[place] = (unsigned char)how;
	a->used = CRN_MAX(a->used, place + 1);
	return place;
}

/* N$ of an argument; else what was read is left, for it is a width. */
static const char *read_place(const char *at, size_t *place)
{
	const char *rest = crn_read_number(at, place);

	if (*rest == '$' && *place)
		return rest + 1;
	*place = 0;
	return at;
}

/* A width or a precision: digits, or an argument. */
static const char *read_width(const char *at, struct arguments *a)
{
	size_t place;

	if (*at != '*')
		return crn_read_number(at, &place);
	at = read_place(at + 1, &place);
	(void)take(a, place, WORD);
	return at;
}

/* hh h l ll q L j z t. Of %n all but the first two and none of them store eight bytes. */
static const char *read_length(const char *at, size_t *size, bool *is_long)
{
	*size = 4;
	*is_long = false;
	for (; *at && strchr("hlqLjzt", *at); at++) {
		*size = *at == 'h' ? *size / 2 : 8;
		*is_long |= *at == 'L';
	}
	return at;
}

/* The conversion at `at`, behind its percent sign. Returns what is behind it. */
static const char *read_conversion(const char *at, struct arguments *a)
{
	size_t place, size;
	bool is_long;

	at = read_place(at, &place);
	while (*at && strchr("-+ #0'I", *at))
		at++;
	at = read_width(at, a);
	if (*at == '.')
		at = read_width(at + 1, a);
	at = read_length(at, &size, &is_long);
	if (!*at)
		return at;
	if (strchr("aAeEfFgG", *at))
		(void)take(a, place, is_long ? LONG_DOUBLE : DOUBLE);
	else if (*at == 'n')
		a->count_size[take(a, place, WORD)] = (unsigned char)size;
	else if (*at != '%' && *at != 'm')
		(void)take(a, place, WORD);
	return at + 1;
}

/* What stands between a percent sign and its conversion. */
static bool is_flag(char c)
{
	switch (c) {
	case '0' ... '9':
	case '$':
	case '-':
	case '+':
	case ' ':
	case '#':
	case '\'':
	case 'I':
	case '*':
	case '.':
	case 'h':
	case 'l':
	case 'q':
	case 'L':
	case 'j':
	case 'z':
	case 't':
		return true;
	default:
		return false;
	}
}

/* By hand: formats are short, and this is asked at each call. */
static bool may_count(const char *format)
{
	for (; *format; format++) {
		if (*format != '%')
			continue;
		do
			format++;
		while (is_flag(*format));
		if (*format == 'n')
			return true;
		if (!*format)
			return false;
	}
	return false;
}

/* Apart, so that what formats nearly never have costs their calls nothing. */
static __attribute__((noinline)) void keep_counts(const char *format, va_list ap)
{
	struct arguments a = { .used = 0 };
	va_list at;

	while ((format = strchr(format, '%')))
		format = read_conversion(format + 1, &a);
	if (a.many)
		crn_rt_give_up(0, CAIRN_EUNSUPPORTED);
	va_copy(at, ap);
	for (size_t i = 0; i < a.used; i++) {
		if (a.taken[i] == DOUBLE)
			(void)va_arg(at, double);
		else if (a.taken[i] == LONG_DOUBLE)
			(void)va_arg(at, long double);
		else
			keep(va_arg(at, void *), a.count_size[i]);
	}
	va_end(at);
}

void crn_keep_counts(const char *format, va_list ap)
{
	if (__cairn_rt.active && may_count(format))
		keep_counts(format, ap);
}

/* Its conversions alone, which are characters that any set has. */
void crn_keep_wide_counts(const wchar_t *format, va_list ap)
{
	char narrow[512];
	size_t used = 0;

	if (!__cairn_rt.active)
		return;
	while (*format) {
		if (*format++ != '%')
			continue;
		narrow[used++] = '%';
		while (used < sizeof(narrow) - 2 && *format < 128 && is_flag((char)*format))
			narrow[used++] = (char)*format++;
		if (*format)
			narrow[used++] = *format < 128 ? (char)*format++ : '?';
		if (used > sizeof(narrow) - 3) {
			crn_rt_give_up(0, CAIRN_EUNSUPPORTED);
			return;
		}
	}
	narrow[used] = 0;
	crn_keep_counts(narrow, ap);
}
