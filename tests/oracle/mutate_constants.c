/* SPDX-License-Identifier: MIT */
/*
 * Pages of a file that are mapped privately and read-only, and so no part of surface "all": opened
 * and written, unmapped, mapped again. The model is a state for each page. What is open is compared
 * with the rest of the surface; what was closed at a checkpoint is as the file has it after a
 * restore.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include "oracle.h"

/* Far from where the kernel maps by itself: a region in a hole of ours would be taken for ours. */
#define PLACE 0x200000000000ul

static uint8_t *page_at(size_t i)
{
	return W->constants + i * PAGE;
}

void constants_map(void)
{
	W->program = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (W->program < 0)
		return;
	W->constants = mmap((void *)PLACE, CONSTANTS * PAGE, PROT_READ,
		MAP_PRIVATE | MAP_FIXED_NOREPLACE, W->program, 0);
	if (W->constants != (void *)PLACE)
		test_fail("mmap of the program: errno %d", errno);
}

static void open_page(size_t i)
{
	if (mprotect(page_at(i), PAGE, PROT_READ | PROT_WRITE))
		test_fail("mprotect of a constant page: errno %d", errno);
	page_at(i)[rnd_below(PAGE)] = (uint8_t)rnd();
	W->constant_states[i] = CONSTANT_OPEN;
}

static void unmap_page(size_t i)
{
	note_gone(page_at(i), PAGE);
	if (munmap(page_at(i), PAGE))
		test_fail("munmap of a constant page: errno %d", errno);
	W->constant_states[i] = CONSTANT_GONE;
}

/* Fails where it is: what is mapped since a checkpoint may stay. */
static void map_page(size_t i)
{
	if (mmap(page_at(i), PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE, W->program,
		    (off_t)(i * PAGE)) == page_at(i))
		W->constant_states[i] = CONSTANT_CLOSED;
}

void op_constants(void)
{
	size_t first = rnd_below(CONSTANTS), end = first + 1 + rnd_below(CONSTANTS - first);
	uint64_t what = rnd_below(5);

	if (!W->all || W->program < 0)
		return;
	for (size_t i = first; i < end; i++) {
		uint8_t state = W->constant_states[i];

		if (what < 3 && state == CONSTANT_CLOSED)
			open_page(i);
		else if (what == 3 && state != CONSTANT_GONE)
			unmap_page(i);
		else if (what == 4 && state == CONSTANT_GONE)
			map_page(i);
	}
}

void constants_check(uint64_t id, const uint8_t states[CONSTANTS])
{
	for (size_t i = 0; i < CONSTANTS && W->program >= 0; i++) {
		uint8_t *page = page_at(i), *want = W->buf;

		W->constant_states[i] = states[i];
		if (states[i] != CONSTANT_CLOSED)
			continue;
		if (pread(W->program, want, PAGE, (off_t)(i * PAGE)) != (ssize_t)PAGE)
			test_fail("the program cannot be read: errno %d", errno);
		if (pwrite(W->copies, page, PAGE, 0) != (ssize_t)PAGE)
			test_fail("constant page %zu has gone", i);
		for (size_t k = 0; k < PAGE; k++)
			if (page[k] != want[k])
				oracle_mismatch("a file's bytes", id, (uintptr_t)page + k, want[k],
					page[k]);
		if (pread(W->program, page, 1, (off_t)(i * PAGE)) != -1)
			test_fail("constant page %zu can be written", i);
	}
}
