/* SPDX-License-Identifier: MIT */
/*
 * Functions of libstdc++ for streams that no template in its headers replaces. They write to the
 * stream, its buffer, and the caller's memory. Sizes and places are part of the C++ ABI. (The rest
 * is compiled with the program: compiler/cxx/.)
 */
#include <stddef.h>
#include <wchar.h>
#include "rt/wrap/wrap.h"

#define BASE_SIZE   (sizeof(long) == 8 ? 216 : 112) /* std::ios_base */
#define STATE_SIZE  (sizeof(long) == 8 ? 264 : 136) /* std::ios, which begins with one */
#define BUFFER_AT   (BASE_SIZE + 2 * sizeof(long))  /* in a std::ios */
#define WIDE_MORE   (sizeof(long) == 8 ? 0 : 4)     /* std::wios: there and in all */
#define BUFFER_SIZE (8 * sizeof(long))              /* std::streambuf */
#define BASE_OFFSET -3 /* word of a table of virtual functions: how far the std::ios lies away */

/* A std::istream: that table, and how many characters were read last. */
struct input {
	const ptrdiff_t *table;
	ptrdiff_t count;
};

static void keep_input(const struct input *in, size_t more)
{
	const char *state = (const char *)in + in->table[BASE_OFFSET];

	keep(in, sizeof(*in));
	keep(state, STATE_SIZE + more);
	keep(*(void *const *)(state + BUFFER_AT + more), BUFFER_SIZE);
}

/* Of the headers in compiler/cxx/, which call virtual functions of libstdc++. */
__attribute__((visibility("default"))) void __cairn_keep(const void *at, size_t size);
void __cairn_keep(const void *at, size_t size)
{
	keep(at, size);
}

static void keep_text(void *to, ptrdiff_t count, size_t each)
{
	keep(to, count > 0 ? (size_t)count * each : each);
}

#define IGNORE(name, more)                                               \
	struct input *name(struct input *in, ptrdiff_t count);           \
	WRAPPER(struct input *, name, struct input *in, ptrdiff_t count) \
	{                                                                \
		keep_input(in, more);                                    \
		return name(in, count);                                  \
	}
#define IGNORE_UNTIL(name, type, more)                                             \
	struct input *name(struct input *in, ptrdiff_t count, type end);           \
	WRAPPER(struct input *, name, struct input *in, ptrdiff_t count, type end) \
	{                                                                          \
		keep_input(in, more);                                              \
		return name(in, count, end);                                       \
	}
#define GET_LINE(name, type, more)                                                           \
	struct input *name(struct input *in, type *to, ptrdiff_t count, type end);           \
	WRAPPER(struct input *, name, struct input *in, type *to, ptrdiff_t count, type end) \
	{                                                                                    \
		keep_input(in, more);                                                        \
		keep_text(to, count, sizeof(type));                                          \
		return name(in, to, count, end);                                             \
	}
#define READ_FILE(name)                                                 \
	ptrdiff_t name(void *file, char *to, ptrdiff_t count);          \
	WRAPPER(ptrdiff_t, name, void *file, char *to, ptrdiff_t count) \
	{                                                               \
		keep_text(to, count, 1);                                \
		return name(file, to, count);                           \
	}

/* Their names have the letter of std::streamsize. */
#ifdef __i386__
IGNORE(_ZNSi6ignoreEi, 0)
IGNORE_UNTIL(_ZNSi6ignoreEii, int, 0)
GET_LINE(_ZNSi7getlineEPcic, char, 0)
IGNORE(_ZNSt13basic_istreamIwSt11char_traitsIwEE6ignoreEi, WIDE_MORE)
IGNORE_UNTIL(_ZNSt13basic_istreamIwSt11char_traitsIwEE6ignoreEij, wint_t, WIDE_MORE)
GET_LINE(_ZNSt13basic_istreamIwSt11char_traitsIwEE7getlineEPwiw, wchar_t, WIDE_MORE)
READ_FILE(_ZNSt12__basic_fileIcE6xsgetnEPci)
#else
IGNORE(_ZNSi6ignoreEl, 0)
IGNORE_UNTIL(_ZNSi6ignoreEli, int, 0)
GET_LINE(_ZNSi7getlineEPclc, char, 0)
IGNORE(_ZNSt13basic_istreamIwSt11char_traitsIwEE6ignoreEl, WIDE_MORE)
IGNORE_UNTIL(_ZNSt13basic_istreamIwSt11char_traitsIwEE6ignoreElj, wint_t, WIDE_MORE)
GET_LINE(_ZNSt13basic_istreamIwSt11char_traitsIwEE7getlineEPwlw, wchar_t, WIDE_MORE)
READ_FILE(_ZNSt12__basic_fileIcE6xsgetnEPcl)
#endif
