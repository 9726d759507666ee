/* SPDX-License-Identifier: MIT */
#include "rt/program_maps.h"
#include "os/signal.h"
#include "os/thread.h"
#include "rt/rt.h"

/* The pass defines it in code that was made for it. */
extern const char __cairn_hybrid_on __attribute__((weak));

struct crn_program_maps crn_program_maps CRN_RT_LASTING;

/* For tests, which must see what is missing: bytes of the image that are left out at its end. */
#ifndef CRN_IMAGE_LESS
#define CRN_IMAGE_LESS 0
#endif

extern char __start_crn_lasting[] __attribute__((weak, visibility("hidden")));
extern char __stop_crn_lasting[] __attribute__((weak, visibility("hidden")));

bool crn_rt_hybrid(void)
{
	return &__cairn_hybrid_on;
}

/* No handler that restores may leave the table as it is meanwhile. Nothing faults here. */
static uint64_t lock(struct crn_program_maps *m)
{
	uint64_t mask = crn_signal_mask(SIG_BLOCK, ~CRN_SIGNALS_OF_FAULTS);

	while (__atomic_exchange_n(&m->locked, 1, __ATOMIC_ACQUIRE))
		crn_yield();
	return mask;
}

static void unlock(struct crn_program_maps *m, uint64_t mask)
{
	__atomic_store_n(&m->locked, 0, __ATOMIC_RELEASE);
	(void)crn_signal_mask(SIG_SETMASK, mask);
}

/* The first range that ends at or above addr. */
static uint32_t first_at(const struct crn_program_maps *m, uintptr_t addr)
{
	uint32_t i;

	CRN_FIRST(i, m->count, m->at[i].end >= addr);
	return i;
}

static bool insert(struct crn_program_maps *m, uint32_t i, struct crn_range r)
{
	if (m->count == CRN_PROGRAM_MAPS_MAX) {
		m->overflowed = true;
		return false;
	}
	for (uint32_t j = m->count++; j > i; j--)
		m->at[j] = m->at[j - 1];
	m->at[i] = r;
	return true;
}

static void take_out(struct crn_program_maps *m, uint32_t i)
{
	m->count--;
	for (; i < m->count; i++)
		m->at[i] = m->at[i + 1];
}

static void add_locked(struct crn_program_maps *m, uintptr_t begin, uintptr_t end)
{
	uint32_t i = first_at(m, begin);

	while (i < m->count && m->at[i].begin <= end) {
		begin = CRN_MIN(begin, m->at[i].begin);
		end = CRN_MAX(end, m->at[i].end);
		take_out(m, i);
	}
	(void)insert(m, i, (struct crn_range){ begin, end });
}

static void cut_locked(struct crn_program_maps *m, uintptr_t begin, uintptr_t end)
{
	uint32_t i = first_at(m, begin);

	while (i < m->count && m->at[i].begin < end) {
		struct crn_range *r = &m->at[i];
		struct crn_range tail = { end, r->end };

		m->upset++;
		if (r->end <= begin) {
			i++;
		} else if (r->begin < begin) {
			r->end = begin;
			/* Without room for it the tail is not tracked: overflowed. */
			if (tail.begin < tail.end && insert(m, i + 1, tail))
				i++;
			i++;
		} else if (r->end > end) {
			r->begin = end;
		} else {
			take_out(m, i);
		}
	}
}

void crn_program_maps_add(uintptr_t begin, uintptr_t end)
{
	uint64_t mask;

	if (!crn_rt_hybrid() || begin >= end)
		return;
	mask = lock(&crn_program_maps);
	add_locked(&crn_program_maps, crn_page_down(begin), crn_page_up(end));
	unlock(&crn_program_maps, mask);
}

void crn_program_maps_cut(uintptr_t begin, uintptr_t end)
{
	uint64_t mask;

	if (!crn_rt_hybrid() || begin >= end)
		return;
	mask = lock(&crn_program_maps);
	cut_locked(&crn_program_maps, crn_page_down(begin), crn_page_up(end));
	unlock(&crn_program_maps, mask);
}

void crn_program_maps_upset(void)
{
	__atomic_fetch_add(&crn_program_maps.upset, 1, __ATOMIC_RELAXED);
}

/* ---- The image ------------------------------------------------------------------------------- */

struct program_header {
	uint32_t type, flags;
	uint64_t offset, vaddr, paddr, filesz, memsz, align;
};

#define HEADER_LOAD 1
#define HEADER_TLS  7
#define CAN_WRITE   2

/* The header of the program's file, as the linker names it. */
extern const struct {
	uint8_t ident[16];
	uint16_t type, machine;
	uint32_t version;
	uint64_t entry, headers;
	uint64_t sections;
	uint32_t flags;
	uint16_t size, header_size, header_count;
} __ehdr_start __attribute__((weak, visibility("hidden")));

void crn_program_maps_start(void)
{
	uintptr_t base = (uintptr_t)&__ehdr_start;
	const struct program_header *h;

	if (!crn_rt_hybrid() || !base)
		return;
	h = (const struct program_header *)(base + (uintptr_t)__ehdr_start.headers);
	for (unsigned i = 0; i < __ehdr_start.header_count; i++, h++) {
		if (h->type == HEADER_LOAD && h->flags & CAN_WRITE)
			crn_program_maps_add(base + h->vaddr,
				base + h->vaddr + h->memsz - CRN_IMAGE_LESS);
		if (h->type == HEADER_TLS) {
			/* Where the linker has put them: the end is aligned, not the begin. */
			crn_program_maps.tls_below = (h->memsz + h->align - 1) & ~(h->align - 1);
			crn_program_maps.tls_size = h->memsz;
		}
	}
	crn_program_maps_cut((uintptr_t)&__cairn_rt, (uintptr_t)&__cairn_rt + CRN_PAGE_SIZE);
	crn_program_maps_cut((uintptr_t)__start_crn_lasting, (uintptr_t)__stop_crn_lasting);
}
