/* SPDX-License-Identifier: MIT */
/*
 * Lists that libc allocates for the program, of words and of network interfaces. They become blocks
 * of the program's heap (given.h).
 */
#include <execinfo.h>
#include <glob.h>
#include <ifaddrs.h>
#include <malloc.h>
#include <stdlib.h>
#include <wordexp.h>
#include "rt/wrap/given.h"
#include "rt/heap.h"
#include "rt/wrap/wrap.h"

#define ALIGN 16

#pragma weak malloc_usable_size

static void free_given(void *block)
{
	if (block && crn_heap_holds(block))
		crn_heap_free(block);
	else
		free(block);
}

/* ---- Words: `first` empty places, `count` words, and a NULL ---------------------------------- */

struct words {
	char **list;
	size_t first, count;
};

static void free_words(const struct words *w)
{
	for (size_t i = 0; w->list && i < w->count; i++)
		free_given(w->list[w->first + i]);
	free_given(w->list);
}

static char *copy_of(const char *word)
{
	size_t size = strlen(word) + 1;
	char *to = crn_heap_alloc(size, ALIGN);

	if (to)
		place(to, word, size);
	return to;
}

/* Those of `more` behind what there is. False: no memory, and nothing has changed. */
static bool append(struct words *w, const struct words *more)
{
	size_t total = w->first + w->count + more->count + 1, at = w->first + w->count;
	char **list = crn_heap_alloc(total * sizeof(*list), ALIGN);

	if (!list)
		return false;
	keep(list, total * sizeof(*list));
	memset(list, 0, total * sizeof(*list));
	if (w->list)
		memcpy(list + w->first, w->list + w->first, w->count * sizeof(*list));
	for (size_t i = 0; i < more->count; i++) {
		list[at + i] = copy_of(more->list[more->first + i]);
		if (list[at + i])
			continue;
		while (i--)
			crn_heap_free(list[at + i]);
		crn_heap_free(list);
		return false;
	}
	free_given(w->list);
	w->list = list;
	w->count += more->count;
	return true;
}

/* ---- Names of files -------------------------------------------------------------------------- */

typedef int find_fn(const char *pattern, int flags, int (*failed)(const char *, int), glob_t *to);

static int find(find_fn *in_libc, const char *pattern, int flags,
	int (*failed)(const char *, int), glob_t *to)
{
	struct words all = { .first = flags & GLOB_DOOFFS ? to->gl_offs : 0 }, more;
	glob_t found = *to; /* its functions, for GLOB_ALTDIRFUNC */
	int result;

	OBJECT(to)
	if (!crn_given_wanted())
		return in_libc(pattern, flags, failed, to);
	if (flags & GLOB_APPEND) {
		all.list = to->gl_pathv;
		all.count = to->gl_pathc;
	}
	found.gl_pathv = NULL;
	found.gl_pathc = found.gl_offs = 0;
	result = in_libc(pattern, flags & ~(GLOB_APPEND | GLOB_DOOFFS), failed, &found);
	more = (struct words){ found.gl_pathv, 0, found.gl_pathc };
	if (more.count && !append(&all, &more))
		result = GLOB_NOSPACE;
	free_words(&more);
	to->gl_offs = all.first;
	to->gl_pathc = all.count;
	to->gl_pathv = all.list;
	to->gl_flags = found.gl_flags | (flags & (GLOB_APPEND | GLOB_DOOFFS));
	return result;
}

WRAPPER(int, glob, const char *pattern, int flags, int (*failed)(const char *, int), glob_t *to)
{
	return find(glob, pattern, flags, failed, to);
}

/* The same structure, but for the types of functions in it. */
WRAPPER(int, glob64, const char *pattern, int flags, int (*failed)(const char *, int), glob64_t *to)
{
	return find((find_fn *)glob64, pattern, flags, failed, (glob_t *)to);
}

WRAPPER(void, globfree, glob_t *g)
{
	OBJECT(g)
	free_words(&(struct words){ g->gl_pathv, g->gl_offs, g->gl_pathc });
	g->gl_pathv = NULL;
}

WRAPPER(void, globfree64, glob64_t *g)
{
	__cairn_wrap_globfree((glob_t *)g);
}

/* ---- Words of a shell ------------------------------------------------------------------------ */

WRAPPER(void, wordfree, wordexp_t *w)
{
	OBJECT(w)
	free_words(&(struct words){ w->we_wordv, w->we_offs, w->we_wordc });
	w->we_wordv = NULL;
}

WRAPPER(int, wordexp, const char *text, wordexp_t *to, int flags)
{
	const int ours = WRDE_APPEND | WRDE_DOOFFS | WRDE_REUSE;
	struct words all = { .first = flags & WRDE_DOOFFS ? to->we_offs : 0 }, more;
	wordexp_t found = { 0 };
	int result;

	OBJECT(to)
	if (!crn_given_wanted())
		return wordexp(text, to, flags);
	result = wordexp(text, &found, flags & ~ours);
	if (result && result != WRDE_NOSPACE)
		return result;
	if (flags & WRDE_REUSE)
		__cairn_wrap_wordfree(to);
	if (flags & WRDE_APPEND) {
		all.list = to->we_wordv;
		all.count = to->we_wordv ? to->we_wordc : 0;
	}
	more = (struct words){ found.we_wordv, 0, found.we_wordc };
	if (!append(&all, &more))
		result = WRDE_NOSPACE;
	free_words(&more);
	to->we_offs = all.first;
	to->we_wordc = all.count;
	to->we_wordv = all.list;
	return result;
}

/* ---- One block with pointers into itself ----------------------------------------------------- */

static void move(void *pointer, ptrdiff_t by)
{
	if (*(char **)pointer)
		*(char **)pointer += by;
}

/* *by: how far it was moved. */
static void *moved(void *block, ptrdiff_t *by)
{
	size_t size = crn_given_wanted() ? malloc_usable_size(block) : 0;
	char *to = size ? crn_given(block, size, size) : block;

	*by = to - (char *)block;
	return to;
}

WRAPPER(int, getifaddrs, struct ifaddrs **to)
{
	struct ifaddrs *list;
	int result = getifaddrs(&list);
	ptrdiff_t by;

	if (result)
		return result;
	if (list)
		list = moved(list, &by);
	for (struct ifaddrs *i = list; i && by; i = i->ifa_next) {
		move(&i->ifa_next, by);
		move(&i->ifa_name, by);
		move(&i->ifa_addr, by);
		move(&i->ifa_netmask, by);
		move(&i->ifa_broadaddr, by);
		move(&i->ifa_data, by);
	}
	place(to, &list, sizeof(list));
	return 0;
}

WRAPPER(void, freeifaddrs, struct ifaddrs *list)
{
	if (list && crn_heap_holds(list))
		crn_heap_free(list);
	else
		freeifaddrs(list);
}

WRAPPER(char **, backtrace_symbols, void *const *frames, int count)
{
	char **names = backtrace_symbols(frames, count);
	ptrdiff_t by;

	if (!names)
		return NULL;
	names = moved(names, &by);
	for (int i = 0; i < count; i++)
		move(&names[i], by);
	return names;
}
