/* SPDX-License-Identifier: MIT */
/*
 * Wrappers of libc's functions that write a run of bytes whose length is known before: the program
 * calls these in their place (wrapped.def), so that what they overwrite is kept.
 */
#include "rt/rt.h"

void *memcpy(void *to, const void *from, size_t n);
void *memmove(void *to, const void *from, size_t n);
void *memset(void *to, int byte, size_t n);
void bzero(void *to, size_t n);
char *strcpy(char *to, const char *from);
char *stpcpy(char *to, const char *from);
char *strncpy(char *to, const char *from, size_t n);
char *strcat(char *to, const char *from);
char *strncat(char *to, const char *from, size_t n);
size_t strlen(const char *s);
size_t strnlen(const char *s, size_t n);

/* The pass inserts calls by these names; nothing else declares them. */
#define WRAPPER(type, name, ...)                                                    \
	__attribute__((visibility("default"))) type __cairn_wrap_##name(__VA_ARGS__); \
	type __cairn_wrap_##name(__VA_ARGS__)

WRAPPER(void *, memcpy, void *to, const void *from, size_t n)
{
	crn_rt_range((uintptr_t)to, n);
	return memcpy(to, from, n);
}

WRAPPER(void *, memmove, void *to, const void *from, size_t n)
{
	crn_rt_range((uintptr_t)to, n);
	return memmove(to, from, n);
}

WRAPPER(void *, memset, void *to, int byte, size_t n)
{
	crn_rt_range((uintptr_t)to, n);
	return memset(to, byte, n);
}

WRAPPER(void, bzero, void *to, size_t n)
{
	crn_rt_range((uintptr_t)to, n);
	bzero(to, n);
}

WRAPPER(char *, strcpy, char *to, const char *from)
{
	crn_rt_range((uintptr_t)to, strlen(from) + 1);
	return strcpy(to, from);
}

WRAPPER(char *, stpcpy, char *to, const char *from)
{
	crn_rt_range((uintptr_t)to, strlen(from) + 1);
	return stpcpy(to, from);
}

/* It fills with zeros all of the n bytes that are left. */
WRAPPER(char *, strncpy, char *to, const char *from, size_t n)
{
	crn_rt_range((uintptr_t)to, n);
	return strncpy(to, from, n);
}

WRAPPER(char *, strcat, char *to, const char *from)
{
	crn_rt_range((uintptr_t)to + strlen(to), strlen(from) + 1);
	return strcat(to, from);
}

WRAPPER(char *, strncat, char *to, const char *from, size_t n)
{
	crn_rt_range((uintptr_t)to + strlen(to), strnlen(from, n) + 1);
	return strncat(to, from, n);
}
