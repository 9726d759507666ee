/* SPDX-License-Identifier: MIT */
/*
 * Where stores go back one by one, threads may have ended since they were saved. What these stored
 * to their stacks and thread-local variables is nobody's, and libc has its own data between.
 */
#include "session/ended_threads.h"
#include "base/log.h"
#include "os/thread.h"
#include "rt/rt.h"
#include "session/engine.h"

#define DESCRIPTOR_ALIGN 64
#define DESCRIPTORS	 64 /* for so many there is room before memory changes */

int crn_ended_threads_begin(cairn_t *c)
{
	struct crn_ranges *kept = &c->builtin;

	c->ended = (struct crn_ended_threads){0};
	if (!__cairn_shape.threads)
		return 0;
	c->ended.robust_list_at = crn_thread_list_at();
	return crn_grow(c, (void **)&kept->at, &kept->capacity, kept->count + DESCRIPTORS,
		sizeof(*kept->at));
}

/* Behind it there may be memory of the program's, if that has given the stack. */
static uintptr_t descriptor_end(uintptr_t at, uintptr_t head)
{
	uintptr_t end = crn_page_up(at + head);
	struct crn_range block;

	return crn_thread_block(at, &block) ? CRN_MIN(end, block.end) : end;
}

/*
 * Libc keeps the stacks of some threads that have ended, and goes on from their descriptors when it
 * makes new ones. Each begins with its own address, and its robust list is empty: it names itself.
 */
static void exempt_descriptors(cairn_t *c, uintptr_t addr, size_t len)
{
	const struct crn_ended_threads *e = &c->ended;
	uintptr_t head = e->robust_list_at, begin, end;

	if (!head || e->end - e->begin < head + sizeof(head))
		return;
	begin = CRN_MAX(e->begin, (addr & -DESCRIPTOR_ALIGN) - CRN_PAGE_SIZE);
	end = CRN_MIN(addr + len, e->end - head - sizeof(head));
	for (uintptr_t at = begin; at < end; at += DESCRIPTOR_ALIGN)
		if (*(const volatile uintptr_t *)at == at &&
			*(const volatile uintptr_t *)(at + head) == at + head &&
			crn_ranges_add(c, &c->builtin, at, descriptor_end(at, head)) < 0)
			crn_error("no memory to leave out a thread of libc's that has ended");
}

/* Of most of them libc has unmapped both. */
bool crn_ended_with_thread(cairn_t *c, uintptr_t addr, size_t len)
{
	struct crn_mapping m;
	int found;

	if (addr - CRN_RT_IMAGE_AT < CRN_RT_IMAGE_LEN)
		return false;
	if (addr < c->ended.begin || addr >= c->ended.end) {
		found = crn_maps_find(&c->maps, addr, &m);
		if (found <= 0)
			return !found;
		if (m.name[0] || m.shared || !(m.prot & PROT_READ))
			return false; /* no stack */
		c->ended.begin = m.begin;
		c->ended.end = m.end;
	}
	exempt_descriptors(c, addr, len);
	return false;
}
