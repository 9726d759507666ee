/* SPDX-License-Identifier: MIT */
/*
 * scanf. The format tells what each conversion stores, except for %s without a width. From a
 * string, that is at most its longest word, and for %[ its length. From a stream, SCAN_STRING bytes
 * are kept, and an interval that stores more cannot be restored.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>
#include "base/status.h"
#include "rt/wrap/reach.h"
#include "rt/wrap/wrap.h"
#include "rt/wrap/wrap_format.h"

#define SCAN_STRING 4096
#define POINTERS    64
#define FORMAT_MAX  1024 /* characters of a wide format */
#define PAGE        4096ul

/*
 * A name that a header gives scanf stands for a standard. glibc's own is older than C99: there
 * %as, %aS and %a[ allocate.
 */
struct dialect {
	int (*text)(const char *from, const char *format, va_list ap);
	int (*stream)(FILE *f, const char *format, va_list ap);
	int (*wide_text)(const wchar_t *from, const wchar_t *format, va_list ap);
	int (*wide_stream)(FILE *f, const wchar_t *format, va_list ap);
	bool a_allocates;
};

#define DIALECT(prefix, symbol, a_allocates)                                                  \
	int prefix##text(const char *, const char *, va_list) __asm__(symbol "vsscanf");      \
	int prefix##stream(FILE *, const char *, va_list) __asm__(symbol "vfscanf");          \
	int prefix##wide_text(const wchar_t *, const wchar_t *, va_list)                      \
		__asm__(symbol "vswscanf");                                                   \
	int prefix##wide_stream(FILE *, const wchar_t *, va_list) __asm__(symbol "vfwscanf"); \
	static const struct dialect prefix##dialect = { prefix##text, prefix##stream,         \
		prefix##wide_text, prefix##wide_stream, a_allocates };

DIALECT(gnu_, "", true)
DIALECT(c99_, "__isoc99_", false)
#if __GLIBC_PREREQ(2, 38)
DIALECT(c23_, "__isoc23_", false)
#else
#define c23_dialect c99_dialect
#endif

/* One conversion: what it stores, and by which argument. */
struct conversion {
	char kind;      /* its letter, '[' for a set */
	bool assigns;
	bool allocates; /* m: a pointer is stored */
	bool wide;      /* of characters: wide ones */
	size_t size;    /* of a number */
	size_t width;   /* 0: none given */
	unsigned place; /* of its argument; 0: the next one */
};

/* hh h l ll q L j z t, and what they make of a number's size. */
static const char *read_size(const char *at, struct conversion *c)
{
	static const struct { char letters[3]; size_t size; } sizes[] = {
		{ "hh", 1 }, { "h", 2 }, { "ll", 8 }, { "l", 8 }, { "q", 8 }, { "L", 16 },
		{ "j", 8 }, { "z", 8 }, { "t", 8 },
	};

	c->size = 4;
	for (size_t i = 0; i < CRN_ARRAY_SIZE(sizes); i++) {
		size_t n = strlen(sizes[i].letters);

		if (!strncmp(at, sizes[i].letters, n)) {
			c->size = sizes[i].size;
			c->wide = n == 1 && *at == 'l';
			return at + n;
		}
	}
	return at;
}

static const char *skip_set(const char *at)
{
	at += *at == '^';
	at += *at == ']';
	while (*at && *at != ']')
		at++;
	return at;
}

/* The conversion at `at`, behind its percent sign. Returns what is behind it. */
static const char *read_conversion(const char *at, struct conversion *c, const struct dialect *d)
{
	size_t number;
	const char *rest = crn_read_number(at, &number);

	*c = (struct conversion){ .assigns = true };
	if (*rest == '$' && number) {
		c->place = (unsigned)number;
		at = rest + 1;
	}
	for (; *at == '*' || *at == '\'' || *at == 'I'; at++)
		c->assigns &= *at != '*';
	at = crn_read_number(at, &c->width);
	if (*at == 'm' || (*at == 'a' && at[1] && strchr("sS[", at[1]) && d->a_allocates)) {
		c->allocates = true;
		at++;
	}
	at = read_size(at, c);
	c->kind = *at;
	if (c->kind == 'C' || c->kind == 'S') {
		c->wide = true;
		c->kind = c->kind == 'C' ? 'c' : 's';
	}
	if (c->kind == '[')
		at = skip_set(at + 1);
	return *at ? at + 1 : at;
}

/* What a string holds, in characters. SIZE_MAX, both: it is a stream. */
struct supply {
	size_t length, word; /* of all; of what is longest without white space */
};

/* At least so many: where a locale has more white space, words are shorter. */
static size_t longest_word(const char *at)
{
	size_t longest = 0;

	for (; *at; at += *at != 0) {
		size_t n = strcspn(at, " \t\n\v\f\r");

		longest = CRN_MAX(longest, n);
		at += n;
	}
	return longest;
}

static size_t longest_wide_word(const wchar_t *at)
{
	size_t longest = 0;

	for (; *at; at += *at != 0) {
		size_t n = wcscspn(at, L" \t\n\v\f\r");

		longest = CRN_MAX(longest, n);
		at += n;
	}
	return longest;
}

/*
 * Bytes that the conversion may store; `most`: characters that there may be to read; `unit`: bytes
 * that each becomes, at most.
 */
static size_t stored(const struct conversion *c, size_t most, size_t unit)
{
	size_t character = c->wide ? sizeof(wchar_t) : unit;

	if (c->allocates)
		return sizeof(void *);
	switch (c->kind) {
	case 'c':
		return (c->width ? c->width : 1) * character;
	case 's':
	case '[':
		return ((c->width ? CRN_MIN(c->width, most) : most) + 1) * character;
	case 'p':
		return sizeof(void *);
	case 'e':
	case 'E':
	case 'f':
	case 'F':
	case 'g':
	case 'G':
	case 'a':
	case 'A':
		return c->size == 8 && !c->wide ? 16 : c->size;
	default:
		return c->size;
	}
}

struct scan {
	void *strings[POINTERS]; /* where strings of any length go */
	size_t count;
};

/* A guess must not read beyond what is mapped: the page that it begins in is. */
static void keep_guess(void *to)
{
	keep(to, CRN_MIN(SCAN_STRING, PAGE - ((uintptr_t)to & (PAGE - 1))));
}

static bool is_text(const struct conversion *c)
{
	return (c->kind == 's' || c->kind == '[') && !c->allocates;
}

/* Of what a text may need at most not all need be there, nor be the program's. */
static void keep_some(const struct conversion *c, void *to, size_t n, size_t unit)
{
	uintptr_t own = (uintptr_t)&__cairn_rt;

	if (unit == 1 && !is_text(c)) {
		keep(to, n);
		return;
	}
	if ((uintptr_t)to < own)
		n = CRN_MIN(n, own - (uintptr_t)to);
	crn_reach_keep(to, n);
}

static bool is_guess(const struct conversion *c, size_t most)
{
	return is_text(c) && !c->width && most == SIZE_MAX;
}

static void keep_scan(struct scan *s, const char *format, va_list ap, const struct supply *from,
	size_t unit, const struct dialect *d)
{
	void *pointers[POINTERS]; /* by number, which may come in any order */
	size_t fetched = 0;

	s->count = 0;
	while ((format = strchr(format, '%'))) {
		struct conversion c;
		size_t most;
		void *to;

		format++;
		if (*format == '%') {
			format++;
			continue;
		}
		format = read_conversion(format, &c, d);
		if (!c.assigns || !c.kind)
			continue;
		if (c.place > POINTERS) {
			crn_rt_give_up(0, CAIRN_EUNSUPPORTED);
			return;
		}
		for (; fetched < c.place; fetched++)
			pointers[fetched] = va_arg(ap, void *);
		to = c.place ? pointers[c.place - 1] : va_arg(ap, void *);
		most = c.kind == 's' ? from->word : from->length;
		if (!is_guess(&c, most)) {
			keep_some(&c, to, stored(&c, most, unit), unit);
			continue;
		}
		keep_guess(to);
		if (s->count < POINTERS)
			s->strings[s->count++] = to;
		else
			crn_rt_give_up((uintptr_t)to, CAIRN_EMEMORY);
	}
}

/* Strings of a stream that were longer than the guess. */
static void check_guesses(const struct scan *s)
{
	for (size_t i = 0; i < s->count; i++) {
		uintptr_t at = (uintptr_t)s->strings[i];
		size_t kept = CRN_MIN(SCAN_STRING, PAGE - (at & (PAGE - 1)));

		if (!memchr(s->strings[i], 0, kept))
			crn_rt_give_up(at, CAIRN_EMEMORY);
	}
}

static const struct supply endless = { SIZE_MAX, SIZE_MAX };

static int scan_string(const struct dialect *d, const char *from, const char *format, va_list ap)
{
	bool texts = __cairn_rt.active && strpbrk(format, "sS[");
	struct supply supply = { texts ? strlen(from) : 0, texts ? longest_word(from) : 0 };
	struct scan s;
	va_list again;

	va_copy(again, ap);
	keep_scan(&s, format, again, &supply, 1, d);
	va_end(again);
	return d->text(from, format, ap);
}

static int scan_stream(const struct dialect *d, FILE *f, const char *format, va_list ap)
{
	struct scan s;
	va_list again;
	int count;

	va_copy(again, ap);
	keep_scan(&s, format, again, &endless, 1, d);
	va_end(again);
	count = d->stream(f, format, ap);
	if (count > 0)
		check_guesses(&s);
	return count;
}

/* ---- Wide characters ------------------------------------------------------------------------- */

/* What conversions are made of is ASCII; anything else is any one character. */
static void keep_wide(struct scan *s, const wchar_t *format, va_list ap,
	const struct supply *from, const struct dialect *d)
{
	char narrow[FORMAT_MAX];
	size_t n = 0;

	s->count = 0;
	for (; format[n] && n < FORMAT_MAX - 1; n++)
		narrow[n] = format[n] < 128 ? (char)format[n] : '?';
	narrow[n] = 0;
	if (format[n])
		crn_rt_give_up((uintptr_t)format, CAIRN_EMEMORY);
	else
		keep_scan(s, narrow, ap, from, MB_CUR_MAX, d);
}

static int scan_wide_string(const struct dialect *d, const wchar_t *from, const wchar_t *format,
	va_list ap)
{
	struct supply supply = { wcslen(from), longest_wide_word(from) };
	struct scan s;
	va_list again;

	va_copy(again, ap);
	keep_wide(&s, format, again, &supply, d);
	va_end(again);
	return d->wide_text(from, format, ap);
}

static int scan_wide_stream(const struct dialect *d, FILE *f, const wchar_t *format, va_list ap)
{
	struct scan s;
	va_list again;
	int count;

	va_copy(again, ap);
	keep_wide(&s, format, again, &endless, d);
	va_end(again);
	count = d->wide_stream(f, format, ap);
	if (count > 0)
		check_guesses(&s);
	return count;
}

/* ---- By the names that headers give them ----------------------------------------------------- */

/* None calls what has its own name; a static program must have those functions that are called. */
#undef WRAPPER
#define WRAPPER(type, name, ...)                          \
	CRN_EXPORT type __cairn_wrap_##name(__VA_ARGS__); \
	type __cairn_wrap_##name(__VA_ARGS__)

/* `from` is what is read; then, with a comma behind it, the parameter that it is, if it is one. */
#define FROM(d, name, type, how, from, ...)                     \
	WRAPPER(int, name, __VA_ARGS__ const type *format, ...) \
	{                                                       \
		va_list ap;                                     \
		int count;                                      \
                                                                \
		va_start(ap, format);                           \
		count = how(&d, from, format, ap);              \
		va_end(ap);                                     \
		return count;                                   \
	}

#define BY_LIST(d, name, type, from_type, how)                             \
	WRAPPER(int, name, from_type from, const type *format, va_list ap) \
	{                                                                  \
		return how(&d, from, format, ap);                          \
	}
#define BY_LIST_OF_INPUT(d, name, type, how)               \
	WRAPPER(int, name, const type *format, va_list ap) \
	{                                                  \
		return how(&d, stdin, format, ap);         \
	}

#define EACH_NAME(d, prefix)                                                     \
	FROM(d, prefix##sscanf, char, scan_string, s, const char *s,)            \
	FROM(d, prefix##swscanf, wchar_t, scan_wide_string, s, const wchar_t *s,) \
	FROM(d, prefix##fscanf, char, scan_stream, f, FILE *f,)                  \
	FROM(d, prefix##fwscanf, wchar_t, scan_wide_stream, f, FILE *f,)         \
	FROM(d, prefix##scanf, char, scan_stream, stdin, )                       \
	FROM(d, prefix##wscanf, wchar_t, scan_wide_stream, stdin, )              \
	BY_LIST(d, prefix##vsscanf, char, const char *, scan_string)             \
	BY_LIST(d, prefix##vswscanf, wchar_t, const wchar_t *, scan_wide_string) \
	BY_LIST(d, prefix##vfscanf, char, FILE *, scan_stream)                   \
	BY_LIST(d, prefix##vfwscanf, wchar_t, FILE *, scan_wide_stream)          \
	BY_LIST_OF_INPUT(d, prefix##vscanf, char, scan_stream)                   \
	BY_LIST_OF_INPUT(d, prefix##vwscanf, wchar_t, scan_wide_stream)

EACH_NAME(gnu_dialect,)
EACH_NAME(c99_dialect, __isoc99_)
EACH_NAME(c23_dialect, __isoc23_)
