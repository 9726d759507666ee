/* SPDX-License-Identifier: MIT */
/*
 * Calls that change the process's mappings. A new mapping is taken away again; an munmap is put off
 * until the next checkpoint, so that what it would lose is still there; everything that loses
 * content at once (MAP_FIXED over something, mremap, brk shrink) is done and followed by a
 * checkpoint.
 */
#include <sys/mman.h>
#include "effects/effects.h"
#include "effects/hooks.h"
#include "session/session.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

static bool overlaps_delayed(uintptr_t addr, size_t len)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < e->delayed_count; i++)
		if (e->delayed[i].addr < addr + len &&
			addr < e->delayed[i].addr + e->delayed[i].len)
			return true;
	return false;
}

/* Something of [addr, addr+len) is mapped, or it cannot be told. */
static bool overlaps_mapping(uintptr_t addr, size_t len)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_mapping m;

	if (e->maps.fd < 0 || !e->maps.query)
		return true;
	if (crn_maps_begin(&e->maps, addr, CRN_MAPS_NO_NAMES) < 0)
		return true;
	return crn_maps_next(&e->maps, &m) != 0 ? m.begin < addr + len : false;
}

/*
 * The program believes that a delayed range is free and is about to use its addresses: unmap now
 * what it gave up. What was in it is lost, so the call is an output.
 */
static void settle_for(struct crn_call *call, uintptr_t addr, size_t len)
{
	if (!overlaps_delayed(addr, len))
		return;
	crn_effects_settle();
	crn_effects_cannot_undo("memory that was given up is in use again");
	crn_call_raise(call);
}

static enum crn_verdict mmap_before(struct crn_call *call)
{
	uintptr_t addr = (uintptr_t)call->args[0];
	size_t len = crn_page_up((size_t)call->args[1]);
	int flags = (int)call->args[3];

	if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
		settle_for(call, addr, len);
		if ((flags & MAP_FIXED) && !(flags & MAP_FIXED_NOREPLACE) &&
			overlaps_mapping(addr, len))
			crn_call_raise(call);
	}
	return CRN_CALL_RUN_THEN;
}

static void mmap_after(struct crn_call *call)
{
	struct crn_inverse *inv;

	if ((unsigned long)call->result >= -4095ul || call->effect == CRN_EFFECT_OUTPUT)
		return;
	inv = crn_inverse_add(call, CRN_INV_UNMAP, -1);
	if (!inv)
		return;
	inv->a = (uint64_t)call->result;
	inv->b = crn_page_up((size_t)call->args[1]);
}
const struct crn_hook crn_hook_mmap = {mmap_before, mmap_after};

static enum crn_verdict munmap_before(struct crn_call *call)
{
	struct crn_effects *e = crn_agent->effects;
	uintptr_t addr = (uintptr_t)call->args[0];
	size_t len = crn_page_up((size_t)call->args[1]);
	struct crn_inverse *inv;

	if ((addr & (CRN_PAGE_SIZE - 1)) || !call->args[1] || len < (size_t)call->args[1] ||
		addr + len < addr || addr + len > (1ul << 47))
		return CRN_CALL_RUN; /* EINVAL, the kernel says so itself */
	if (e->delayed_count == CRN_DELAYED_MAX || len > CRN_DELAYED_BYTES - e->delayed_bytes ||
	    e->inverse_count == CRN_INVERSES_MAX) {
		crn_effects_settle();
		crn_effects_cannot_undo("too much memory has been given up");
		crn_call_raise(call);
		return CRN_CALL_RUN_THEN;
	}
	inv = crn_inverse_add(call, CRN_INV_KEEP, -1);
	inv->a = addr;
	inv->b = len;
	e->delayed[e->delayed_count++] = (struct crn_delayed){addr, len};
	e->delayed_bytes += len;
	call->result = 0;
	return CRN_CALL_ANSWERED;
}
const struct crn_hook crn_hook_munmap = {munmap_before, NULL};

/* The present protection of a range that is one mapping, or -1. */
static int protection_of(uintptr_t addr, size_t len)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_mapping m;

	if (e->maps.fd < 0 || !e->maps.query || crn_maps_find(&e->maps, addr, &m) != 1)
		return -1;
	return m.begin <= addr && addr + len <= m.end ? m.prot : -1;
}

static enum crn_verdict mprotect_before(struct crn_call *call)
{
	uintptr_t addr = (uintptr_t)call->args[0];
	size_t len = crn_page_up((size_t)call->args[1]);
	int prot;

	/* First of all: some trackers take permissions away, and the map then shows theirs. */
	crn_protection_changing(crn_agent->session, addr, len);
	prot = protection_of(addr, len);
	call->scratch[0] = (uint64_t)prot;
	if (prot < 0)
		/* several mappings: a checkpoint is cheaper than their list */
		crn_call_raise(call);
	return CRN_CALL_RUN_THEN;
}

static void mprotect_after(struct crn_call *call)
{
	struct crn_inverse *inv;

	if (call->result < 0)
		return;
	crn_protection_changed(crn_agent->session, (uintptr_t)call->args[0],
		crn_page_up((size_t)call->args[1]), (int)call->args[2]);
	if (call->effect == CRN_EFFECT_OUTPUT || (int)call->scratch[0] == (int)call->args[2])
		return;
	inv = crn_inverse_add(call, CRN_INV_PROTECT, -1);
	if (!inv)
		return;
	inv->a = (uint64_t)call->args[0];
	inv->b = crn_page_up((size_t)call->args[1]);
	inv->c = call->scratch[0];
}
const struct crn_hook crn_hook_mprotect = {mprotect_before, mprotect_after};

static enum crn_verdict brk_before(struct crn_call *call)
{
	call->scratch[0] = (uint64_t)crn_sys1(SYS_brk, 0);
	return CRN_CALL_RUN_THEN;
}

static void brk_after(struct crn_call *call)
{
	uint64_t old = call->scratch[0], now = (uint64_t)call->result;
	struct crn_inverse *inv;

	if (now == old)
		return;
	if (now < old) { /* content is gone */
		crn_call_raise(call);
		return;
	}
	inv = crn_inverse_add(call, CRN_INV_BREAK, -1);
	if (inv)
		inv->a = old;
}
const struct crn_hook crn_hook_brk = {brk_before, brk_after};

static enum crn_verdict mremap_before(struct crn_call *call)
{
	settle_for(call, (uintptr_t)call->args[0], (size_t)call->args[1]);
	return CRN_CALL_RUN_THEN;
}
const struct crn_hook crn_hook_mremap = {mremap_before, NULL};

void crn_madvise_prepare(struct crn_call *call)
{
	struct crn_effects *e = crn_agent->effects;
	uintptr_t addr = crn_page_down((uintptr_t)call->args[0]),
		  end = addr + crn_page_up((size_t)call->args[1]);

	/*
	 * A page that is freed lazily vanishes at a moment that nobody reports: drop it now, which
	 * is allowed as well.
	 */
	if (call->args[2] == MADV_FREE)
		call->args[2] = MADV_DONTNEED;
	if (call->args[2] != MADV_DONTNEED && call->args[2] != MADV_DONTNEED_LOCKED)
		return;
	if (!e->drops_need_saving)
		return;
	for (; addr < end; addr += CRN_PAGE_SIZE)
		(void)!cairn_area_touch(crn_agent->session, (void *)addr, CRN_PAGE_SIZE);
}

static enum crn_verdict madvise_before(struct crn_call *call)
{
	switch (call->args[2]) {
	case MADV_HUGEPAGE: /* tracked memory has none: granted, and ignored, as the kernel may */
		call->result = 0;
		return CRN_CALL_ANSWERED;
	case MADV_COLLAPSE:
		call->result = -EINVAL;
		return CRN_CALL_ANSWERED;
	case MADV_REMOVE:
		crn_call_raise(call);
		return CRN_CALL_RUN_THEN;
	}
	return CRN_CALL_RUN;
}
const struct crn_hook crn_hook_madvise = {madvise_before, NULL};
