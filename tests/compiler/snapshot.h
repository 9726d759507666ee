/* SPDX-License-Identifier: MIT */
/*
 * A copy of all memory of a process that a restore of an instrumented program must bring back, for
 * the oracles that are linked into such programs. Not copied:
 *
 *	- the engine's and the run-time's (MADV_WIPEONFORK: "wf" in smaps; all that lies below the image)
 *	- segments of shared libraries, which have no hooks, and what lies right behind them (.bss)
 *	- what the run-time keeps across restores (CRN_RT_LASTING)
 *	- where the kernel notes the processor that the thread is on (rseq), not compared
 *	- the stack below a frame
 *
 * Nor is free memory of the run-time's heap compared with -fcairn-fresh=on.
 *
 * What the program had unmapped, and has gone since, is not compared.
 *
 * No stdio, no malloc: their memory is the process's.
 */
#ifndef CRN_TESTS_SNAPSHOT_H
#define CRN_TESTS_SNAPSHOT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../lib/harness.h"
#include "smaps.h"

#define RANGES_MAX 512
#ifdef __i386__
#define LOWEST 0ul
#else
#define LOWEST 0x550000000000ul
#endif

struct range {
	char *begin, *end;
	size_t at;      /* of its copy */
	bool libc_heap; /* "[heap]" */
};

struct snapshot {
	uint64_t id;
	struct range ranges[RANGES_MAX];
	size_t count, used, copy_max;
	char *copy;
};

static inline void add_range(struct snapshot *s, char *begin, char *end, bool libc_heap)
{
	size_t len = (size_t)(end - begin);

	CHECK(s->count < RANGES_MAX && s->used + len <= s->copy_max);
	s->ranges[s->count++] = (struct range){ begin, end, s->used, libc_heap };
	memcpy(s->copy + s->used, begin, len);
	s->used += len;
}

/* Whole pages; absent where the program has none. */
extern char __start_crn_lasting[] __attribute__((weak, visibility("hidden")));
extern char __stop_crn_lasting[] __attribute__((weak, visibility("hidden")));

static inline void add_ranges(struct snapshot *s, char *begin, char *end, bool libc_heap)
{
	if (__start_crn_lasting < begin || __start_crn_lasting >= end) {
		add_range(s, begin, end, libc_heap);
		return;
	}
	add_range(s, begin, __start_crn_lasting, libc_heap);
	if (__stop_crn_lasting < end)
		add_range(s, __stop_crn_lasting, end, libc_heap);
}

static inline void take_snapshot(struct snapshot *s, struct smaps *m, char *frame)
{
	char self[512], *text = m->text, *line, *library_end = NULL;
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const char *flags;

	CHECK(len > 0);
	self[len] = 0;
	read_smaps(m);
	s->count = s->used = 0;
	while ((line = next_mapping(&text, &flags))) {
		char *rest, *begin = (char *)strtoul(line, &rest, 16);
		char *end = (char *)strtoul(rest + 1, &rest, 16);
		char *path = strchr(rest, '/');
		bool other = path && strcmp(path, self);
		bool library = other || (!path && !strchr(rest, '[') && begin == library_end);

		if (other)
			library_end = end;
		if (!strncmp(rest, " rw-p", 5) && !library && !strstr(flags, " wf") &&
			(uintptr_t)begin >= LOWEST)
			add_ranges(s, frame > begin && frame < end ? frame : begin, end,
				strstr(rest, "[heap]"));
	}
}

/*
 * Is all of it mapped? What the program had unmapped stays until no checkpoint needs it, and was
 * copied till then. errno may be memory that is compared.
 */
static inline bool is_mapped(char *at, size_t len)
{
	int kept = errno;
	bool mapped = !msync(at, len, MS_ASYNC) || errno != ENOMEM;

	errno = kept;
	return mapped;
}

/* The run-time's: the end of the free memory that an address lies in, or 0 (rt/heap.h). */
extern uintptr_t crn_heap_free_until(const void *at) __attribute__((weak));
extern const char __cairn_fresh_on __attribute__((weak));

/* What glibc 2.35 and later tell of their registration. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

/* The end of the thread's rseq area that an address lies in, or NULL. */
static inline char *rseq_until(const char *at)
{
	char *begin, *end;

	if (!&__rseq_offset || !&__rseq_size || !__rseq_size)
		return NULL;
#ifdef __i386__
	__asm__("mov %%gs:0, %0" : "=r"(begin));
#else
	__asm__("mov %%fs:0, %0" : "=r"(begin));
#endif
	begin += __rseq_offset;
	end = begin + (__rseq_size > 32 ? __rseq_size : 32);
	return at >= begin && at < end ? end : NULL;
}

static inline char *first_other(char *at, const char *was, size_t len)
{
	char *end = at + len, *until;

	while (memcmp(at, was, (size_t)(end - at))) {
		while (*at == *was)
			at++, was++;
		until = rseq_until(at);
		if (!until && &__cairn_fresh_on && crn_heap_free_until)
			until = (char *)crn_heap_free_until(at);
		if (!until)
			return at;
		if (until >= end)
			break;
		was += until - at;
		at = until;
	}
	return NULL;
}

/* The first byte that is another; NULL if all are as they were. */
static inline char *find_difference(const struct snapshot *s, const struct range **where)
{
	for (const struct range *r = s->ranges; r < s->ranges + s->count; r++) {
		bool whole = is_mapped((char *)((uintptr_t)r->begin & -4096ul),
			(size_t)(r->end - r->begin) + ((uintptr_t)r->begin & 4095));
		size_t step = whole ? (size_t)(r->end - r->begin) : 4096;

		*where = r;
		for (char *p = r->begin; p < r->end; p += step) {
			char *found = whole || is_mapped(p, step)
				? first_other(p, s->copy + r->at + (p - r->begin), step)
				: NULL;

			if (found)
				return found;
		}
	}
	return NULL;
}

#endif
