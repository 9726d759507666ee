/* SPDX-License-Identifier: MIT */
/* Lists of addresses and of files, and other blocks that libc allocates for the program. */
#include <dirent.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "rt/wrap/given.h"
#include "rt/heap.h"
#include "rt/lent_blocks.h"
#include "rt/wrap/wrap.h"

#define ALIGN 16

#pragma weak free
#pragma weak __cairn_wrap_free
void __cairn_wrap_free(void *block);

int crn_given_wanted(void)
{
	return __cairn_wrap_free != NULL;
}

void *crn_given(void *block, size_t size, size_t room)
{
	void *to = block && crn_given_wanted() ? crn_program_block(room, ALIGN) : NULL;

	if (!to)
		return block;
	place(to, block, size);
	free(block);
	return to;
}

/* ---- Addresses ------------------------------------------------------------------------------- */

static void free_address(struct addrinfo *a)
{
	if (a->ai_canonname)
		crn_heap_free(a->ai_canonname);
	crn_heap_free(a);
}

/* libc's own freeaddrinfo could free it, too: two blocks, and the address is in the first. */
static struct addrinfo *copy_of(const struct addrinfo *from)
{
	size_t name = from->ai_canonname ? strlen(from->ai_canonname) + 1 : 0;
	struct addrinfo *a = crn_heap_alloc(sizeof(*a) + from->ai_addrlen, ALIGN);

	if (!a)
		return NULL;
	place(a, from, sizeof(*a));
	keep(a + 1, from->ai_addrlen);
	if (from->ai_addr)
		a->ai_addr = memcpy(a + 1, from->ai_addr, from->ai_addrlen);
	a->ai_next = NULL;
	a->ai_canonname = name ? crn_heap_alloc(name, ALIGN) : NULL;
	if (a->ai_canonname)
		place(a->ai_canonname, from->ai_canonname, name);
	if (!name || a->ai_canonname)
		return a;
	free_address(a);
	return NULL;
}

WRAPPER(void, freeaddrinfo, struct addrinfo *list)
{
	struct addrinfo *next;

	for (; list && crn_heap_holds(list); list = next) {
		next = list->ai_next;
		free_address(list);
	}
	if (list)
		freeaddrinfo(list);
}

WRAPPER(int, getaddrinfo, const char *name, const char *service, const struct addrinfo *hints,
	struct addrinfo **to)
{
	struct addrinfo *found, *list = NULL, **end = &list;
	int err = getaddrinfo(name, service, hints, &found);

	if (err)
		return err;
	for (const struct addrinfo *from = found; from && crn_given_wanted();
		from = from->ai_next, end = &(*end)->ai_next) {
		*end = copy_of(from);
		if (*end)
			continue;
		__cairn_wrap_freeaddrinfo(list);
		freeaddrinfo(found);
		return EAI_MEMORY;
	}
	if (list)
		freeaddrinfo(found);
	place(to, list ? &list : &found, sizeof(*to));
	return 0;
}

/* ---- Files of a folder ----------------------------------------------------------------------- */

/* Their names lie where `name` says; the size of an entry lies three bytes before that. */
static int given_files(void *to, void **list, int n, size_t name)
{
	if (n < 0)
		return n;
	for (int i = 0; i < n; i++) {
		size_t size = name + strlen((char *)list[i] + name) + 1;
		uint16_t len;

		memcpy(&len, (char *)list[i] + name - 3, sizeof(len));
		list[i] = crn_given(list[i], size, CRN_MAX(size, len));
	}
	list = crn_given(list, (size_t)n * sizeof(*list), (size_t)n * sizeof(*list));
	place(to, &list, sizeof(list));
	return n;
}

#define SCAN_FOLDER(bits)								\
	WRAPPER(int, scandir##bits, const char *path, struct dirent##bits ***to,	\
		int (*wanted)(const struct dirent##bits *),				\
		int (*compare)(const struct dirent##bits **, const struct dirent##bits **)) \
	{										\
		struct dirent##bits **list;						\
		int n = scandir##bits(path, &list, wanted, compare);			\
											\
		return given_files(to, (void **)list, n, offsetof(struct dirent##bits, d_name)); \
	}										\
	WRAPPER(int, scandirat##bits, int at, const char *path, struct dirent##bits ***to, \
		int (*wanted)(const struct dirent##bits *),				\
		int (*compare)(const struct dirent##bits **, const struct dirent##bits **)) \
	{										\
		struct dirent##bits **list;						\
		int n = scandirat##bits(at, path, &list, wanted, compare);		\
											\
		return given_files(to, (void **)list, n, offsetof(struct dirent##bits, d_name)); \
	}

SCAN_FOLDER()
SCAN_FOLDER(64)

/* ---- Text ------------------------------------------------------------------------------------ */

static char *given_text(char *text)
{
	size_t size = text ? strlen(text) + 1 : 0;

	return crn_given(text, size, size);
}

WRAPPER(char *, get_current_dir_name, void)
{
	return given_text(get_current_dir_name());
}

WRAPPER(char *, canonicalize_file_name, const char *path)
{
	return given_text(canonicalize_file_name(path));
}

WRAPPER(char *, tempnam, const char *folder, const char *begin)
{
	return given_text(tempnam(folder, begin));
}
