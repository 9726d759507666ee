/* SPDX-License-Identifier: MIT */
/* Runs in memory, and reading them from traces. */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "recorded_run.h"
#include "speculate/trace.h"

static void *grown(void *at, size_t *room, size_t need, size_t item)
{
	if (need <= *room)
		return at;
	*room = *room * 2 > need ? *room * 2 : need + 1024;
	at = reallocarray(at, *room, item);
	if (!at)
		err(2, "no memory for the run");
	return at;
}

void run_begin_interval(struct run *r, uint64_t key)
{
	r->intervals = grown(r->intervals, &r->interval_room, r->interval_count + 1,
		sizeof(*r->intervals));
	r->intervals[r->interval_count++] =
		(struct interval){ .key = key, .first = r->page_count };
}

void run_add_page(struct run *r, uintptr_t page)
{
	r->pages = grown(r->pages, &r->page_room, r->page_count + 1, sizeof(*r->pages));
	r->pages[r->page_count++] = page;
	r->intervals[r->interval_count - 1].count++;
}

void run_free(struct run *r)
{
	free(r->intervals);
	free(r->pages);
	*r = (struct run){ 0 };
}

uint64_t run_random(uint64_t *seed)
{
	uint64_t z = *seed += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static int by_address(const void *a, const void *b)
{
	const uintptr_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

void run_sort_pages(uintptr_t *pages, size_t count)
{
	qsort(pages, count, sizeof(*pages), by_address);
}

/* The chain may hold and the interval be none that a session writes. */
static bool repeats_a_page(const uintptr_t *pages, size_t count)
{
	uintptr_t *sorted;
	bool found = false;

	if (count < 2)
		return false;
	sorted = malloc(count * sizeof(*sorted));
	if (!sorted)
		err(2, "no memory for the run");
	memcpy(sorted, pages, count * sizeof(*sorted));
	run_sort_pages(sorted, count);
	for (size_t i = 1; i < count && !found; i++)
		found = sorted[i] == sorted[i - 1];
	free(sorted);
	return found;
}

static bool read_intervals(struct run *r, struct crn_trace_reader *reader, bool cut)
{
	for (;;) {
		size_t count = 0, offset = reader->offset;
		uint64_t key;
		int got;

		got = crn_trace_next(reader, &key, r->pages + r->page_count,
			r->page_room - r->page_count, &count);
		if (got == CRN_TRACE_END || (got < 0 && reader->cut && cut))
			return true;
		if (got < 0)
			return false;
		if (got == CRN_TRACE_ROOM) {
			r->pages = grown(r->pages, &r->page_room, r->page_count + count,
				sizeof(*r->pages));
			continue;
		}
		if (repeats_a_page(r->pages + r->page_count, count)) {
			reader->offset = offset;
			reader->intervals--;
			reader->error = "the interval names a page twice";
			return false;
		}
		run_begin_interval(r, key);
		r->intervals[r->interval_count - 1].count = count;
		r->page_count += count;
	}
}

bool run_load(struct run *r, const char *path, bool cut, char *why, size_t why_size)
{
	struct crn_trace_reader reader = { 0 };
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	void *bytes = NULL;
	struct stat st;
	bool good;

	*r = (struct run){ 0 };
	snprintf(r->name, sizeof(r->name), "%s", path);
	if (fd < 0 || fstat(fd, &st) < 0) {
		snprintf(why, why_size, "%s: %s", path, strerror(errno));
		if (fd >= 0)
			close(fd);
		return false;
	}
	if (!S_ISREG(st.st_mode)) {
		snprintf(why, why_size, "%s: not a regular file", path);
		close(fd);
		return false;
	}
	if (st.st_size)
		bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (bytes == MAP_FAILED) {
		snprintf(why, why_size, "%s: %s", path, strerror(errno));
		return false;
	}
	good = crn_trace_open(&reader, bytes, (size_t)st.st_size) == 0 &&
		read_intervals(r, &reader, cut);
	if (bytes)
		munmap(bytes, (size_t)st.st_size);
	if (good)
		return true;
	snprintf(why, why_size, "%s: byte %zu: %s (%llu intervals before it are good)", path,
		reader.offset, reader.error, (unsigned long long)reader.intervals);
	run_free(r);
	return false;
}
