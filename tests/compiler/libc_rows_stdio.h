/* SPDX-License-Identifier: MIT */
/* Of libc_rows.c: streams, and functions that take a list of arguments. */
#ifndef CRN_TESTS_LIBC_ROWS_STDIO_H
#define CRN_TESTS_LIBC_ROWS_STDIO_H

#include "libc_rows.h"

static FILE *reading, *reading_wide, *null, *null_wide, *buffered;

static void open_streams(void)
{
	reading = fdopen(dup(file), "r");
	reading_wide = fdopen(dup(file), "r");
	null = fopen("/dev/null", "w");
	null_wide = fopen("/dev/null", "w");
	CHECK(reading && reading_wide && null && null_wide);
}

/* The standard input is `file`, and neither narrow nor wide. */
static void input(void)
{
	char path[32];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	CHECK(freopen(path, "r", stdin) == stdin);
}

/* As the standard output. */
#define TO_STREAM(f, call)       \
	FILE *was = stdout;      \
	stdout = f;              \
	n = call;                \
	stdout = was

/* name_of(arguments...) calls name, which has a list of them. */
#define PARAMETERS(...) __VA_ARGS__
#define OF_LIST(name, last, parameters, ...)  \
	static int name##_of(parameters, ...) \
	{                                     \
		va_list ap;                   \
		int n;                        \
                                              \
		va_start(ap, last);           \
		n = name(__VA_ARGS__, ap);    \
		va_end(ap);                   \
		return n;                     \
	}

int __sprintf_chk(char *to, int flag, size_t size, const char *format, ...);
int __vsprintf_chk(char *to, int flag, size_t size, const char *format, va_list ap);
int __snprintf_chk(char *to, size_t n, int flag, size_t size, const char *format, ...);
int __vsnprintf_chk(char *to, size_t n, int flag, size_t size, const char *format, va_list ap);
int __printf_chk(int flag, const char *format, ...);
int __vprintf_chk(int flag, const char *format, va_list ap);
int __fprintf_chk(FILE *f, int flag, const char *format, ...);
int __vfprintf_chk(FILE *f, int flag, const char *format, va_list ap);
int __dprintf_chk(int fd, int flag, const char *format, ...);
int __vdprintf_chk(int fd, int flag, const char *format, va_list ap);
int __swprintf_chk(wchar_t *to, size_t n, int flag, size_t size, const wchar_t *format, ...);
int __vswprintf_chk(wchar_t *to, size_t n, int flag, size_t size, const wchar_t *format,
	va_list ap);
int __wprintf_chk(int flag, const wchar_t *format, ...);
int __vwprintf_chk(int flag, const wchar_t *format, va_list ap);
int __fwprintf_chk(FILE *f, int flag, const wchar_t *format, ...);
int __vfwprintf_chk(FILE *f, int flag, const wchar_t *format, va_list ap);
size_t __fread_chk(void *to, size_t room, size_t size, size_t count, FILE *f);
size_t __fread_unlocked_chk(void *to, size_t room, size_t size, size_t count, FILE *f);
char *__fgets_chk(char *to, size_t room, int n, FILE *f);
char *__fgets_unlocked_chk(char *to, size_t room, int n, FILE *f);
wchar_t *__fgetws_chk(wchar_t *to, size_t room, int n, FILE *f);

OF_LIST(vsprintf, format, PARAMETERS(char *to, const char *format), to, format)
OF_LIST(vsnprintf, format, PARAMETERS(char *to, size_t n_max, const char *format), to, n_max,
	format)
OF_LIST(__vsprintf_chk, format,
	PARAMETERS(char *to, int flag, size_t size, const char *format), to, flag, size, format)
OF_LIST(__vsnprintf_chk, format,
	PARAMETERS(char *to, size_t n_max, int flag, size_t size, const char *format), to, n_max,
	flag, size, format)
OF_LIST(vprintf, format, const char *format, format)
OF_LIST(vfprintf, format, PARAMETERS(FILE *f, const char *format), f, format)
OF_LIST(vdprintf, format, PARAMETERS(int fd, const char *format), fd, format)
OF_LIST(__vprintf_chk, format, PARAMETERS(int flag, const char *format), flag, format)
OF_LIST(__vfprintf_chk, format, PARAMETERS(FILE *f, int flag, const char *format), f, flag, format)
OF_LIST(__vdprintf_chk, format, PARAMETERS(int fd, int flag, const char *format), fd, flag, format)
OF_LIST(vswprintf, format, PARAMETERS(wchar_t *to, size_t n_max, const wchar_t *format), to, n_max,
	format)
OF_LIST(__vswprintf_chk, format,
	PARAMETERS(wchar_t *to, size_t n_max, int flag, size_t size, const wchar_t *format), to,
	n_max, flag, size, format)
OF_LIST(vwprintf, format, const wchar_t *format, format)
OF_LIST(vfwprintf, format, PARAMETERS(FILE *f, const wchar_t *format), f, format)
OF_LIST(__vwprintf_chk, format, PARAMETERS(int flag, const wchar_t *format), flag, format)
OF_LIST(__vfwprintf_chk, format, PARAMETERS(FILE *f, int flag, const wchar_t *format), f, flag,
	format)

/* A header gives scanf's the names of one standard: here are those of each. */
#define SCANNERS(prefix, symbol)                                                              \
	int prefix##sscanf(const char *, const char *, ...) __asm__(#symbol "sscanf");        \
	int prefix##vsscanf(const char *, const char *, va_list) __asm__(#symbol "vsscanf");  \
	int prefix##fscanf(FILE *, const char *, ...) __asm__(#symbol "fscanf");              \
	int prefix##vfscanf(FILE *, const char *, va_list) __asm__(#symbol "vfscanf");        \
	int prefix##scanf(const char *, ...) __asm__(#symbol "scanf");                        \
	int prefix##vscanf(const char *, va_list) __asm__(#symbol "vscanf");                  \
	int prefix##swscanf(const wchar_t *, const wchar_t *, ...)                            \
		__asm__(#symbol "swscanf");                                                   \
	int prefix##vswscanf(const wchar_t *, const wchar_t *, va_list)                       \
		__asm__(#symbol "vswscanf");                                                  \
	int prefix##fwscanf(FILE *, const wchar_t *, ...) __asm__(#symbol "fwscanf");         \
	int prefix##vfwscanf(FILE *, const wchar_t *, va_list) __asm__(#symbol "vfwscanf");   \
	int prefix##wscanf(const wchar_t *, ...) __asm__(#symbol "wscanf");                   \
	int prefix##vwscanf(const wchar_t *, va_list) __asm__(#symbol "vwscanf");             \
	OF_LIST(prefix##vsscanf, format, PARAMETERS(const char *from, const char *format),    \
		from, format)                                                                 \
	OF_LIST(prefix##vfscanf, format, PARAMETERS(FILE *f, const char *format), f, format)  \
	OF_LIST(prefix##vscanf, format, const char *format, format)                           \
	OF_LIST(prefix##vswscanf, format,                                                     \
		PARAMETERS(const wchar_t *from, const wchar_t *format), from, format)         \
	OF_LIST(prefix##vfwscanf, format, PARAMETERS(FILE *f, const wchar_t *format), f,      \
		format)                                                                       \
	OF_LIST(prefix##vwscanf, format, const wchar_t *format, format)

SCANNERS(plain_,)
SCANNERS(__isoc99_, __isoc99_)
#if __GLIBC_PREREQ(2, 38)
SCANNERS(__isoc23_, __isoc23_)
#endif

#endif
