/* SPDX-License-Identifier: MIT */
/*
 * The four functions to which a compiler may emit calls by itself. They are hidden in the agent,
 * which links no libc and runs before it, and compiled so that none of them becomes a call of
 * itself.
 */
#include <stddef.h>

void *memcpy(void *restrict dst, const void *restrict src, size_t n);
void *memmove(void *dst, const void *src, size_t n);
void *memset(void *dst, int byte, size_t n);
int memcmp(const void *a, const void *b, size_t n);

__attribute__((visibility("hidden"))) void *memcpy(
	void *restrict dst, const void *restrict src, size_t n)
{
	void *d = dst;

	__asm__ volatile("rep movsb" : "+D"(d), "+S"(src), "+c"(n) : : "memory");
	return dst;
}

__attribute__((visibility("hidden"))) void *memmove(void *dst, const void *src, size_t n)
{
	const char *s = (const char *)src + n - 1;
	char *d = (char *)dst + n - 1;

	if ((size_t)((char *)dst - (const char *)src) >= n)
		return memcpy(dst, src, n);
	__asm__ volatile("std; rep movsb; cld" : "+D"(d), "+S"(s), "+c"(n) : : "memory", "cc");
	return dst;
}

__attribute__((visibility("hidden"))) void *memset(void *dst, int byte, size_t n)
{
	void *d = dst;

	__asm__ volatile("rep stosb" : "+D"(d), "+c"(n) : "a"(byte) : "memory");
	return dst;
}

__attribute__((visibility("hidden"))) int memcmp(const void *a, const void *b, size_t n)
{
	const unsigned char *x = a, *y = b;

	while (n && *x == *y)
		x++, y++, n--;
	return n ? *x - *y : 0;
}
