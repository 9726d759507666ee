/* SPDX-License-Identifier: MIT */
/*
 * Copying, filling and comparing without libc: these run in signal handlers, before libc is
 * initialised and after fork. `rep movsb` is fast for whole pages and leaves the vector registers
 * of the interrupted program alone; os/guarded.h copies many pages faster.
 */
#ifndef CRN_COPY_H
#define CRN_COPY_H

#include <stddef.h>
#include <stdint.h>
#include "base/bits.h"

static inline void crn_copy(void *dst, const void *src, size_t n)
{
	__asm__ volatile("rep movsb" : "+D"(dst), "+S"(src), "+c"(n) : : "memory");
}

/*
 * The same, quicker for a few hundred bytes, for which `rep movsb` takes a hundred cycles. Hidden
 * from the compiler, which would call memcpy, and from sanitizers: it copies stacks.
 */
static inline void crn_copy_short(void *dst, const void *src, size_t n)
{
	enum { WORD = sizeof(long), BLOCK = 8 * WORD };
	unsigned long a, b;

	if (n > 1024) {
		crn_copy(dst, src, n);
		return;
	}
#define CRN_COPY_TWO(at)                                           \
	"mov " #at " * %c[word](%[src]), %[a]\n\t"                  \
	"mov (" #at " + 1) * %c[word](%[src]), %[b]\n\t"            \
	"mov %[a], " #at " * %c[word](%[dst])\n\t"                  \
	"mov %[b], (" #at " + 1) * %c[word](%[dst])\n\t"
	for (; n >= BLOCK; n -= BLOCK) {
		__asm__ volatile(CRN_COPY_TWO(0) CRN_COPY_TWO(2) CRN_COPY_TWO(4) CRN_COPY_TWO(6)
				 : [a] "=&r"(a), [b] "=&r"(b)
				 : [src] "r"(src), [dst] "r"(dst), [word] "i"(WORD)
				 : "memory");
		src = (const char *)src + BLOCK;
		dst = (char *)dst + BLOCK;
	}
#undef CRN_COPY_TWO
	for (; n >= WORD; n -= WORD) {
		__asm__ volatile("mov (%[src]), %[a]\n\tmov %[a], (%[dst])"
				 : [a] "=&r"(a)
				 : [src] "r"(src), [dst] "r"(dst)
				 : "memory");
		src = (const char *)src + WORD;
		dst = (char *)dst + WORD;
	}
	for (; n; n--) {
		__asm__ volatile("movb (%[src]), %b[a]\n\tmovb %b[a], (%[dst])"
				 : [a] "=&q"(a)
				 : [src] "r"(src), [dst] "r"(dst)
				 : "memory");
		src = (const char *)src + 1;
		dst = (char *)dst + 1;
	}
}

static inline void crn_fill(void *dst, int byte, size_t n)
{
	__asm__ volatile("rep stosb" : "+D"(dst), "+c"(n) : "a"(byte) : "memory");
}

/* One page; both page aligned. */
static inline void crn_copy_page(void *dst, const void *src)
{
	crn_copy(dst, src, CRN_PAGE_SIZE);
}

/* True if the n bytes (a multiple of 8, 8-aligned) are the same. */
static inline bool crn_same_words(const void *a, const void *b, size_t n)
{
	const uint64_t *x = a, *y = b;
	uint64_t diff = 0;

	for (size_t i = 0; i < n / 8; i += 8) {
		for (size_t j = i; j < CRN_MIN(i + 8, n / 8); j++)
			diff |= x[j] ^ y[j];
		if (diff)
			return false;
	}
	return true;
}

/* Where they differ first; n: nowhere. */
static inline size_t crn_first_other(const void *a, const void *b, size_t n)
{
	typedef uint64_t word __attribute__((may_alias, aligned(1)));
	size_t i = 0;

	while (i + 8 <= n && *(const word *)((const char *)a + i) ==
			*(const word *)((const char *)b + i))
		i += 8;
	while (i < n && ((const char *)a)[i] == ((const char *)b)[i])
		i++;
	return i;
}

static inline size_t crn_strlen(const char *s)
{
	size_t n = 0;

	while (s[n])
		n++;
	return n;
}

static inline bool crn_streq(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static inline bool crn_starts_with(const char *s, const char *prefix)
{
	while (*prefix)
		if (*s++ != *prefix++)
			return false;
	return true;
}

#endif
