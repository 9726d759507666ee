/* SPDX-License-Identifier: MIT */
/*
 * malloc and the like. The program's blocks come from a heap that is rolled back with everything
 * else (heap.h). Libraries go on using libc's heap, or what is preloaded in its place. Either side
 * may free what it got from the other: the program's wrappers, and the functions at the end of this
 * file, which libraries call in place of libc's, check where a block lies.
 *
 * If the program frees a block of libc's, it is really freed when no kept checkpoint may need it
 * any more. A program that has a malloc of its own gets its blocks there (lent_blocks.h).
 */
#include <dlfcn.h>
#include <limits.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <wchar.h>
#include "base/status.h"
#include "rt/deferred.h"
#include "rt/heap.h"
#include "rt/lent_blocks.h"
#include "rt/wrap/wrap.h"
#include "rt/wrap/wrap_format.h"
#include "rt/wrap/wrap_ended.h"

extern void __libc_free(void *block) __attribute__((weak));
extern void *__libc_realloc(void *block, size_t size) __attribute__((weak));
#pragma weak dlsym

/*
 * In a static program libc's own functions would be taken before ours: there lld's --wrap turns all
 * calls by these names to __wrap_*, and __real_* is what would have been called.
 */
void __real_free(void *block) __attribute__((weak));
void *__real_realloc(void *block, size_t size) __attribute__((weak));
size_t __real_malloc_usable_size(void *block) __attribute__((weak));

#define ALIGN 16

/* ---- Of libraries: what comes after this program in the order of the linker's search --------- */

static void *next_symbol(const char *name, void *other)
{
	void *found = dlsym ? dlsym(RTLD_NEXT, name) : NULL;

	return found ? found : other;
}

/* The run-time's own words: in a page that is not turned back. */
static struct {
	void (*free)(void *block);
	void *(*realloc)(void *block, size_t size);
	size_t (*usable)(void *block);
	char rest[4096 - 24];
} next CRN_RT_LASTING;

static void free_for_libraries(void *block);
static void *realloc_for_libraries(void *block, size_t size);
static size_t room_for_libraries(void *block);

/* Two names may be one function, which a compiler does not expect. */
#define LINKED(name)                                                            \
	({                                                                      \
		__typeof__(&name) linked_ = __real_##name ? __real_##name : name; \
                                                                                \
		__asm__("" : "+r"(linked_));                                    \
		linked_;                                                        \
	})

/* dlsym frees what it has had to say of an error, by this program's free: it is left to lie. */
static void leave(void *block)
{
}

/* Code without hooks that is linked into the program may have brought a malloc, too. */
static void free_foreign(void *block)
{
	if (crn_own_heap()) {
		__cairn_given_free(block);
		return;
	}
	if (!next.free) {
		next.free = leave;
		next.free = LINKED(free) != free_for_libraries ? LINKED(free)
			: (void (*)(void *))next_symbol("free", (void *)__libc_free);
	}
	if (next.free)
		next.free(block);
}

static size_t foreign_room(void *block)
{
	size_t room;

	if (!next.usable)
		next.usable = LINKED(malloc_usable_size) != room_for_libraries
			? LINKED(malloc_usable_size)
			: (size_t (*)(void *))next_symbol("malloc_usable_size", NULL);
	if (next.usable)
		return next.usable(block);
	/* A static program: glibc's word before the block. Bit 1: a mapping of its own. */
	room = ((const size_t *)block)[-1];
	return (room & ~7ul) - (room & 2 ? 16 : 8);
}

/* ---- The program's --------------------------------------------------------------------------- */

static void *checked(void *block)
{
	if (!block)
		errno = ENOMEM;
	return block;
}

static void *allocate(size_t size)
{
	void *old;

	while ((old = crn_deferred_next())) {
		struct crn_ended *ended = crn_ended(old);

		if (ended)
			ended->end(ended);
		else
			free_foreign(old);
	}
	return crn_own_heap() ? __cairn_own_malloc(size) : checked(crn_heap_alloc(size, ALIGN));
}

static void release(void *block)
{
	if (!block)
		return;
	if (crn_heap_holds(block))
		crn_heap_free(block);
	else if (crn_own_block(block))
		__cairn_own_free(block);
	else if (!crn_deferred_add(block))
		free_foreign(block);
}

static void *resize(void *block, size_t size)
{
	size_t room;
	void *to;

	if (crn_own_block(block) && __cairn_own_realloc)
		return __cairn_own_realloc(block, size);
	if (!block)
		return allocate(size);
	if (!size) {
		release(block);
		return NULL;
	}
	if (!crn_heap_holds(block) && LINKED(realloc) != realloc_for_libraries &&
		LINKED(realloc) != __libc_realloc && !crn_own_heap()) {
		/* How large it is is not known. */
		crn_rt_give_up((uintptr_t)block, CAIRN_EUNSUPPORTED);
		return LINKED(realloc)(block, size);
	}
	room = crn_heap_holds(block) ? crn_heap_room(block) : foreign_room(block);
	/* Not one that would waste more than half. */
	if (crn_heap_holds(block) && size <= room && (size > room / 2 || room <= 64))
		return block;
	to = allocate(size);
	if (!to)
		return NULL;
	place(to, block, CRN_MIN(size, room));
	release(block);
	return to;
}

WRAPPER(void *, malloc, size_t size)
{
	return allocate(size);
}

WRAPPER(void, free, void *block)
{
	release(block);
}

WRAPPER(void, cfree, void *block)
{
	release(block);
}

WRAPPER(void *, calloc, size_t count, size_t size)
{
	if (__cairn_own_calloc)
		return __cairn_own_calloc(count, size);
	return checked(__builtin_mul_overflow(count, size, &size) ? NULL : crn_heap_zeros(size));
}

WRAPPER(void *, realloc, void *block, size_t size)
{
	return resize(block, size);
}

WRAPPER(void *, reallocarray, void *block, size_t count, size_t size)
{
	return __builtin_mul_overflow(count, size, &size) ? checked(NULL) : resize(block, size);
}

static bool is_power(size_t align)
{
	return align && !(align & (align - 1));
}

WRAPPER(int, posix_memalign, void **to, size_t align, size_t size)
{
	void *block;

	if (__cairn_own_posix_memalign)
		return __cairn_own_posix_memalign(to, align, size);
	if (!is_power(align) || align % sizeof(void *))
		return EINVAL;
	block = crn_heap_alloc(size, align);
	if (!block)
		return ENOMEM;
	place(to, &block, sizeof(block));
	return 0;
}

WRAPPER(void *, aligned_alloc, size_t align, size_t size)
{
	if (__cairn_own_aligned_alloc)
		return __cairn_own_aligned_alloc(align, size);
	if (!is_power(align)) {
		errno = EINVAL;
		return NULL;
	}
	return checked(crn_heap_alloc(size, CRN_MAX(align, ALIGN)));
}

WRAPPER(void *, memalign, size_t align, size_t size)
{
	return __cairn_own_memalign ? __cairn_own_memalign(align, size)
				    : __cairn_wrap_aligned_alloc(align, size);
}

WRAPPER(void *, valloc, size_t size)
{
	return __cairn_own_valloc ? __cairn_own_valloc(size)
				  : checked(crn_heap_alloc(size, CRN_PAGE_SIZE));
}

WRAPPER(void *, pvalloc, size_t size)
{
	return __cairn_own_pvalloc ? __cairn_own_pvalloc(size)
				   : checked(crn_heap_alloc(crn_page_up(size), CRN_PAGE_SIZE));
}

WRAPPER(size_t, malloc_usable_size, void *block)
{
	if (!block)
		return 0;
	if (crn_own_block(block) && __cairn_own_malloc_usable_size)
		return __cairn_own_malloc_usable_size(block);
	return crn_heap_holds(block) ? crn_heap_room(block) : foreign_room(block);
}

WRAPPER(pid_t, fork, void)
{
	pid_t pid;

	crn_heap_fork_begin();
	pid = fork();
	crn_heap_fork_end();
	if (!pid)
		crn_deferred_forked();
	return pid;
}

/* ---- What libc would allocate for the program ------------------------------------------------ */

static void *copied(const void *from, size_t n, size_t room)
{
	char *to = allocate(room);

	if (to)
		place(to, from, n);
	return to;
}

WRAPPER(char *, strdup, const char *s)
{
	return copied(s, strlen(s) + 1, strlen(s) + 1);
}

WRAPPER(char *, __strdup, const char *s)
{
	return copied(s, strlen(s) + 1, strlen(s) + 1);
}

WRAPPER(char *, strndup, const char *s, size_t n)
{
	size_t len = strnlen(s, n);
	char *to = copied(s, len, len + 1);

	if (to)
		place(to + len, "", 1);
	return to;
}

WRAPPER(wchar_t *, wcsdup, const wchar_t *s)
{
	size_t n = (wcslen(s) + 1) * sizeof(*s);

	return copied(s, n, n);
}

static int print_new(char **to, const char *format, va_list ap)
{
	va_list again;
	char *text = NULL;
	int len;

	crn_keep_counts(format, ap);
	va_copy(again, ap);
	len = vsnprintf(NULL, 0, format, again);
	va_end(again);
	if (len >= 0)
		text = allocate((size_t)len + 1);
	if (!text)
		return -1;
	keep(text, (size_t)len + 1);
	vsnprintf(text, (size_t)len + 1, format, ap);
	place(to, &text, sizeof(text));
	return len;
}

WRAPPER(int, vasprintf, char **to, const char *format, va_list ap)
{
	return print_new(to, format, ap);
}

WRAPPER(int, __vasprintf_chk, char **to, int flag, const char *format, va_list ap)
{
	return print_new(to, format, ap);
}

WRAPPER(int, asprintf, char **to, const char *format, ...)
{
	va_list ap;
	int len;

	va_start(ap, format);
	len = print_new(to, format, ap);
	va_end(ap);
	return len;
}

WRAPPER(int, __asprintf_chk, char **to, int flag, const char *format, ...)
{
	va_list ap;
	int len;

	va_start(ap, format);
	len = print_new(to, format, ap);
	va_end(ap);
	return len;
}

/* ---- Libraries': in place of libc's, as the dynamic linker finds the program's first --------- */

#define INSTEAD(name) __attribute__((weak, visibility("default"), alias(#name)))
#define STATIC(name)  __attribute__((weak, visibility("hidden"), alias(#name)))

static void free_for_libraries(void *block)
{
	if (!block)
		return;
	if (crn_heap_holds(block))
		crn_heap_free(block);
	else
		free_foreign(block);
}

static void *realloc_for_libraries(void *block, size_t size)
{
	if (crn_own_heap())
		return __cairn_given_realloc(block, size);
	if (block && crn_heap_holds(block))
		return resize(block, size);
	if (!next.realloc)
		next.realloc = LINKED(realloc) != realloc_for_libraries ? LINKED(realloc)
			: (void *(*)(void *, size_t))next_symbol("realloc",
				(void *)__libc_realloc);
	return next.realloc ? next.realloc(block, size) : NULL;
}

static size_t room_for_libraries(void *block)
{
	return __cairn_wrap_malloc_usable_size(block);
}

void free(void *block) INSTEAD(free_for_libraries);
void *realloc(void *block, size_t size) INSTEAD(realloc_for_libraries);
size_t malloc_usable_size(void *block) INSTEAD(room_for_libraries);
void __wrap_free(void *block) STATIC(free_for_libraries);
void *__wrap_realloc(void *block, size_t size) STATIC(realloc_for_libraries);
size_t __wrap_malloc_usable_size(void *block) STATIC(room_for_libraries);
