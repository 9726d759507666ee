/* SPDX-License-Identifier: MIT */
#include "rt/lent_blocks.h"
#include <errno.h>
#include <stdint.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/memory.h"
#include "rt/heap.h"
#include "rt/rt.h"

extern void *__libc_malloc(size_t size) __attribute__((weak));
extern void *__libc_calloc(size_t count, size_t size) __attribute__((weak));
extern void *__libc_realloc(void *block, size_t size) __attribute__((weak));
extern void *__libc_memalign(size_t align, size_t size) __attribute__((weak));
extern void __libc_free(void *block) __attribute__((weak));

/*
 * The blocks of libc's that libraries have, by address: a hash table, each entry at its place or
 * behind it, with nothing empty between. Not turned back. The heap's lock guards it.
 */
static struct {
	uintptr_t *at;
	size_t room, count; /* entries; room is a power of two, more than twice the count */
	char rest[4096 - 3 * sizeof(size_t)];
} lent CRN_RT_LASTING;

#define ROOM_LEAST 512u

static size_t place_of(uintptr_t block)
{
	return (size_t)((block >> 4) * 0x9e3779b1u) & (lent.room - 1);
}

static void insert(uintptr_t block)
{
	size_t i = place_of(block);

	while (lent.at[i] && lent.at[i] != block)
		i = (i + 1) & (lent.room - 1);
	lent.count += !lent.at[i];
	lent.at[i] = block;
}

static bool grow(void)
{
	size_t room = lent.room, more = room ? room * 2 : ROOM_LEAST;
	uintptr_t *old = lent.at;
	void *at;

	if (crn_memory_map(&at, more * sizeof(*old)) < 0)
		return false;
	lent.at = at;
	lent.room = more;
	lent.count = 0;
	for (size_t i = 0; i < room; i++)
		if (old[i])
			insert(old[i]);
	if (old)
		(void)crn_memory_unmap(old, room * sizeof(*old));
	return true;
}

/* Where it is in the table; `room`: it is not. */
static size_t find(uintptr_t block)
{
	size_t i;

	if (!lent.count)
		return lent.room;
	for (i = place_of(block); lent.at[i]; i = (i + 1) & (lent.room - 1))
		if (lent.at[i] == block)
			return i;
	return lent.room;
}

/* What stands behind moves up, if that is nearer to its place. */
static bool forget(uintptr_t block)
{
	size_t i = find(block), last = lent.room - 1;

	if (i == lent.room)
		return false;
	for (size_t next = (i + 1) & last; lent.at[next]; next = (next + 1) & last) {
		if (((next - place_of(lent.at[next])) & last) < ((next - i) & last))
			continue;
		lent.at[i] = lent.at[next];
		i = next;
	}
	lent.at[i] = 0;
	lent.count--;
	return true;
}

static bool is_lent(void *block)
{
	bool found;

	crn_heap_lock();
	found = find((uintptr_t)block) < lent.room;
	crn_heap_unlock();
	return found;
}

static bool taken_back(void *block)
{
	bool found;

	crn_heap_lock();
	found = forget((uintptr_t)block);
	crn_heap_unlock();
	return found;
}

/* What libc of a static program allocates before hooks can run is there for good. */
static _Alignas(16) char early[16384];
static size_t early_used;

static bool is_early(const void *block)
{
	return (uintptr_t)block - (uintptr_t)early < sizeof(early);
}

static void *early_block(size_t size)
{
	size_t at = early_used, more = (CRN_MIN(size, sizeof(early)) + 15) & ~15ul;

	if (more > sizeof(early) - at)
		return NULL;
	early_used += more;
	return early + at;
}

bool crn_own_block(void *block)
{
	return crn_own_heap() && !crn_heap_holds(block) && !is_early(block) && !is_lent(block);
}

void *crn_program_block(size_t size, size_t align)
{
	void *block = NULL;

	if (align <= 16 && crn_own_heap())
		return __cairn_own_malloc(size);
	if (__cairn_own_aligned_alloc)
		return __cairn_own_aligned_alloc(align, size);
	if (__cairn_own_memalign)
		return __cairn_own_memalign(align, size);
	if (__cairn_own_posix_memalign)
		return __cairn_own_posix_memalign(&block, align, size) ? NULL : block;
	return crn_heap_alloc(size, align);
}

static void *lend(void *block)
{
	bool room;

	if (!block)
		return NULL;
	crn_heap_lock();
	room = lent.count * 2 + 2 < lent.room || grow();
	if (room)
		insert((uintptr_t)block);
	crn_heap_unlock();
	if (room)
		return block;
	__libc_free(block);
	errno = ENOMEM;
	return NULL;
}

/*
 * There is no libc's malloc beside the program's: the block is the program's, and what is stored to
 * it has no hooks.
 */
static void *shared(void *block, size_t size)
{
	if (!block)
		return NULL;
	crn_rt_range((uintptr_t)block, size);
	crn_rt_give_up((uintptr_t)block, CAIRN_EUNSUPPORTED);
	return block;
}

#define GIVEN __attribute__((visibility("default")))

GIVEN void *__cairn_given_malloc(size_t size)
{
	if (__libc_malloc)
		return lend(__libc_malloc(size));
	return crn_rt_started ? shared(__cairn_own_malloc(size), size) : early_block(size);
}

GIVEN void *__cairn_given_calloc(size_t count, size_t size)
{
	void *block;

	if (__libc_calloc)
		return lend(__libc_calloc(count, size));
	if (__builtin_mul_overflow(count, size, &size)) {
		errno = ENOMEM;
		return NULL;
	}
	block = __cairn_given_malloc(size);
	if (block)
		crn_fill(block, 0, size);
	return block;
}

GIVEN void *__cairn_given_memalign(size_t align, size_t size)
{
	void *block;

	if (__libc_memalign)
		return lend(__libc_memalign(align, size));
	if (!crn_rt_started)
		return align <= 16 ? early_block(size) : NULL;
	block = crn_heap_alloc(size, CRN_MAX(align, 16));
	if (!block)
		errno = ENOMEM;
	return shared(block, size);
}

GIVEN void *__cairn_given_aligned_alloc(size_t align, size_t size)
{
	return __cairn_given_memalign(align, size);
}

GIVEN int __cairn_given_posix_memalign(void **to, size_t align, size_t size)
{
	void *block;

	if (!align || align & (align - 1) || align % sizeof(void *))
		return EINVAL;
	block = __cairn_given_memalign(align, size);
	if (!block)
		return ENOMEM;
	*to = block;
	return 0;
}

GIVEN void *__cairn_given_valloc(size_t size)
{
	return __cairn_given_memalign(CRN_PAGE_SIZE, size);
}

GIVEN void *__cairn_given_pvalloc(size_t size)
{
	return __cairn_given_memalign(CRN_PAGE_SIZE, crn_page_up(size));
}

GIVEN void __cairn_given_free(void *block)
{
	if (!block || is_early(block))
		return;
	if (crn_heap_holds(block))
		crn_heap_free(block);
	else if (taken_back(block))
		__libc_free(block);
	else
		__cairn_own_free(block);
}

/* A block of the program's stays one: the library stores behind what there was. */
GIVEN void *__cairn_given_realloc(void *block, size_t size)
{
	void *to;

	if (!block)
		return __cairn_given_malloc(size);
	if (crn_heap_holds(block) || is_early(block)) {
		size_t room = is_early(block) ? (size_t)(early + sizeof(early) - (char *)block)
					      : crn_heap_room(block);

		to = __cairn_given_malloc(size);
		if (to) {
			crn_copy(to, block, CRN_MIN(size, room));
			__cairn_given_free(block);
		}
		return to;
	}
	if (!taken_back(block)) {
		to = __cairn_own_realloc(block, size);
		if (to && size)
			crn_rt_range((uintptr_t)to, size);
		return to;
	}
	to = __libc_realloc(block, size);
	if (!to && size)
		(void)lend(block);
	return lend(to);
}

GIVEN void *__cairn_given_reallocarray(void *block, size_t count, size_t size)
{
	if (!__builtin_mul_overflow(count, size, &size))
		return __cairn_given_realloc(block, size);
	errno = ENOMEM;
	return NULL;
}
