/* SPDX-License-Identifier: MIT */
/*
 * stdio: what it writes to the program's buffers. How much that is turns out only during the call.
 * So the call writes to a buffer on the stack, and from there the bytes are copied to their place.
 * FILEs themselves are libc's and are not restored.
 */
#include <stdio.h>
#include <wchar.h>
#define WRAPPED_stdio CRN_WRAPPER
#include "rt/wrap/wrap_stream_lock.h"
#include "rt/wrap/wrap.h"
#include "rt/wrap/wrap_format.h"

wchar_t *__fgetws_chk(wchar_t *to, size_t size, int n, FILE *f);

#include "rt/wrap/wrapped.def"

#define BOUNCE 512

/* ---- printf ---------------------------------------------------------------------------------- */

/* Of what failed: what came before the character that cannot be printed. */
static void place_part(char *to, size_t n, char bounce[BOUNCE])
{
	bounce[CRN_MIN(n, BOUNCE) - 1] = 0;
	place(to, bounce, strlen(bounce) + 1);
}

/*
 * What is longer than the bounce is printed twice; its length is known then. n is SIZE_MAX for
 * vsprintf, which prints the second time, too: unlike vsnprintf, it leaves alone what is at `to`
 * until it is there, and that may be an argument.
 */
static int print(char *to, size_t n, const char *format, va_list ap)
{
	char bounce[BOUNCE];
	va_list again;
	int len;

	crn_keep_counts(format, ap);
	va_copy(again, ap);
	len = vsnprintf(bounce, CRN_MIN(n, sizeof(bounce)), format, ap);
	if (len < 0 && n) {
		place_part(to, n, bounce);
	} else if (n) {
		size_t written = CRN_MIN((size_t)len + 1, n);

		if (written <= sizeof(bounce)) {
			place(to, bounce, written);
		} else {
			keep(to, written);
			len = n == SIZE_MAX ? vsprintf(to, format, again)
					    : vsnprintf(to, n, format, again);
		}
	}
	va_end(again);
	return len;
}

WRAPPER(int, vsnprintf, char *to, size_t n, const char *format, va_list ap)
{
	return print(to, n, format, ap);
}

WRAPPER(int, vsprintf, char *to, const char *format, va_list ap)
{
	return print(to, SIZE_MAX, format, ap);
}

WRAPPER(int, snprintf, char *to, size_t n, const char *format, ...)
{
	va_list ap;
	int len;

	va_start(ap, format);
	len = print(to, n, format, ap);
	va_end(ap);
	return len;
}

WRAPPER(int, sprintf, char *to, const char *format, ...)
{
	va_list ap;
	int len;

	va_start(ap, format);
	len = print(to, SIZE_MAX, format, ap);
	va_end(ap);
	return len;
}

/* Of _FORTIFY_SOURCE: libc's look at the length and at %n, and end the program if they must. */
int __vsprintf_chk(char *to, int flag, size_t size, const char *format, va_list ap);
int __vsnprintf_chk(char *to, size_t n, int flag, size_t size, const char *format, va_list ap);

static int print_checked(char *to, size_t n, int flag, size_t size, const char *format, va_list ap)
{
	char bounce[BOUNCE];
	va_list again;
	int len;

	crn_keep_counts(format, ap);
	va_copy(again, ap);
	len = __vsnprintf_chk(bounce, sizeof(bounce), flag, sizeof(bounce), format, ap);
	if (len < 0 && n && size && (n == SIZE_MAX || n <= size)) {
		place_part(to, CRN_MIN(n, size), bounce);
	} else {
		keep(to, CRN_MIN(CRN_MIN((size_t)len + 1, n), size));
		len = n == SIZE_MAX ? __vsprintf_chk(to, flag, size, format, again)
				    : __vsnprintf_chk(to, n, flag, size, format, again);
	}
	va_end(again);
	return len;
}

WRAPPER(int, __vsnprintf_chk, char *to, size_t n, int flag, size_t size, const char *format,
	va_list ap)
{
	return print_checked(to, n, flag, size, format, ap);
}

WRAPPER(int, __vsprintf_chk, char *to, int flag, size_t size, const char *format, va_list ap)
{
	return print_checked(to, SIZE_MAX, flag, size, format, ap);
}

WRAPPER(int, __snprintf_chk, char *to, size_t n, int flag, size_t size, const char *format, ...)
{
	va_list ap;
	int len;

	va_start(ap, format);
	len = print_checked(to, n, flag, size, format, ap);
	va_end(ap);
	return len;
}

WRAPPER(int, __sprintf_chk, char *to, int flag, size_t size, const char *format, ...)
{
	va_list ap;
	int len;

	va_start(ap, format);
	len = print_checked(to, SIZE_MAX, flag, size, format, ap);
	va_end(ap);
	return len;
}

/* To a stream or a descriptor: nothing of the program's is written but what %n stores. */
#define PRINT_LIST(name, ...)                                                       \
	WRAPPER(int, name, __VA_ARGS__ const char *format, va_list ap)              \
	{                                                                           \
		crn_keep_counts(format, ap);                                        \
		return name(PRINT_##name format, ap);                               \
	}
#define PRINT(name, list, ...)                                                      \
	WRAPPER(int, name, __VA_ARGS__ const char *format, ...)                     \
	{                                                                           \
		va_list ap;                                                         \
		int len;                                                            \
                                                                                    \
		va_start(ap, format);                                               \
		len = __cairn_wrap_##list(PRINT_##list format, ap);                 \
		va_end(ap);                                                         \
		return len;                                                         \
	}
#define PRINT_vprintf
#define PRINT_vfprintf f,
#define PRINT_vdprintf fd,
#define PRINT___vprintf_chk flag,
#define PRINT___vfprintf_chk f, flag,
#define PRINT___vdprintf_chk fd, flag,

int __vprintf_chk(int flag, const char *format, va_list ap);
int __vfprintf_chk(FILE *f, int flag, const char *format, va_list ap);
int __vdprintf_chk(int fd, int flag, const char *format, va_list ap);

PRINT_LIST(vprintf,)
PRINT_LIST(vfprintf, FILE *f,)
PRINT_LIST(vdprintf, int fd,)
PRINT_LIST(__vprintf_chk, int flag,)
PRINT_LIST(__vfprintf_chk, FILE *f, int flag,)
PRINT_LIST(__vdprintf_chk, int fd, int flag,)
PRINT(printf, vprintf,)
PRINT(fprintf, vfprintf, FILE *f,)
PRINT(dprintf, vdprintf, int fd,)
PRINT(__printf_chk, __vprintf_chk, int flag,)
PRINT(__fprintf_chk, __vfprintf_chk, FILE *f, int flag,)
PRINT(__dprintf_chk, __vdprintf_chk, int fd, int flag,)

/* ---- Reading --------------------------------------------------------------------------------- */

/*
 * Piece by piece: items that come only in part are stored, too. A short piece is the end or an
 * error; to ask again would wait, or forget it.
 */
static size_t read_items(void *to, size_t size, size_t count, FILE *f)
{
	char bounce[BOUNCE * 8];
	size_t want, ask, n, done = 0;

	if (__builtin_mul_overflow(size, count, &want) || !want)
		return 0;
	do {
		ask = CRN_MIN(want - done, sizeof(bounce));
		n = fread_unlocked(bounce, 1, ask, f);
		place((char *)to + done, bounce, n);
		done += n;
	} while (n == ask && done < want);
	return done == want ? count : done / size;
}

/*
 * A buffer of the program's would be written by libc at any call for the stream, and a restore of
 * what lies beside it would turn back its ends: the stream gets one of libc's.
 */
WRAPPER(int, setvbuf, FILE *f, char *buffer, int mode, size_t n)
{
	return setvbuf(f, NULL, mode, buffer ? 0 : n);
}

WRAPPER(void, setbuffer, FILE *f, char *buffer, size_t n)
{
	(void)setvbuf(f, NULL, buffer ? _IOFBF : _IONBF, 0);
}

WRAPPER(void, setbuf, FILE *f, char *buffer)
{
	(void)setvbuf(f, NULL, buffer ? _IOFBF : _IONBF, 0);
}

WRAPPER(size_t, fread_unlocked, void *to, size_t size, size_t count, FILE *f)
{
	return read_items(to, size, count, f);
}

WRAPPER(size_t, fread, void *to, size_t size, size_t count, FILE *f)
{
	LOCKED(f);

	return read_items(to, size, count, locked);
}

_Noreturn void __chk_fail(void);

static void check_room(size_t room, size_t size, size_t count)
{
	size_t want;

	if (__builtin_mul_overflow(size, count, &want) || want > room)
		__chk_fail();
}

WRAPPER(size_t, __fread_chk, void *to, size_t room, size_t size, size_t count, FILE *f)
{
	check_room(room, size, count);
	return __cairn_wrap_fread(to, size, count, f);
}

WRAPPER(size_t, __fread_unlocked_chk, void *to, size_t room, size_t size, size_t count, FILE *f)
{
	check_room(room, size, count);
	return read_items(to, size, count, f);
}

/*
 * A line may hold zeros, so that its length cannot be told afterwards. The mark of an error may be
 * an old one: if it is not the end that stopped this line, an error did. glibc hands out what came
 * before EAGAIN.
 */
static char *read_line(char *to, int n, FILE *f)
{
	char bounce[BOUNCE];
	size_t done = 0, here = 0;
	bool failed;
	int c = 0;

	if (n <= 0)
		return NULL;
	while (done + here < (size_t)n - 1 && c != '\n' && (c = getc_unlocked(f)) != EOF) {
		bounce[here++] = (char)c;
		if (here == sizeof(bounce)) {
			place(to + done, bounce, here);
			done += here;
			here = 0;
		}
	}
	failed = c == EOF && (!(done + here) || (!feof_unlocked(f) && errno != EAGAIN));
	if (!failed)
		bounce[here++] = 0;
	if (here)
		place(to + done, bounce, here);
	return failed ? NULL : to;
}

WRAPPER(char *, fgets_unlocked, char *to, int n, FILE *f)
{
	return read_line(to, n, f);
}

WRAPPER(char *, fgets, char *to, int n, FILE *f)
{
	LOCKED(f);

	return read_line(to, n, locked);
}

WRAPPER(char *, __fgets_chk, char *to, size_t room, int n, FILE *f)
{
	check_room(room, 1, n > 0 ? (size_t)n : 0);
	return __cairn_wrap_fgets(to, n, f);
}

WRAPPER(char *, __fgets_unlocked_chk, char *to, size_t room, int n, FILE *f)
{
	check_room(room, 1, n > 0 ? (size_t)n : 0);
	return __cairn_wrap_fgets_unlocked(to, n, f);
}
