/* SPDX-License-Identifier: MIT */
/*
 * mremap. What it cuts off is unmapped at the next checkpoint (hooks_memory.c). A small block that
 * may move, as realloc's, is copied to a new mapping, and the old one is unmapped then, so that a
 * restore finds both as they were. Everything else is done at once and followed by a checkpoint.
 */
#include <linux/prctl.h>
#include <sys/mman.h>
#include "base/bits.h"
#include "base/check.h"
#include "effects/effects.h"
#include "effects/hooks.h"
#include "session/session.h"

#define COPIED_MAX (1ul << 20) /* a checkpoint is cheaper than a longer copy */

void crn_memory_marked(const struct crn_call *call)
{
	bool marks = false;

	switch (call->nr) {
	case SYS_mlock:
	case SYS_mlock2:
	case SYS_mlockall:
	case SYS_mbind:
	case SYS_pkey_mprotect:
		marks = true;
		break;
	case SYS_mmap:
		marks = call->args[3] & (MAP_LOCKED | MAP_GROWSDOWN);
		break;
	case SYS_prctl:
		marks = call->args[0] == PR_SET_VMA;
		break;
	case SYS_madvise:
		marks = call->args[2] == MADV_DONTFORK || call->args[2] == MADV_WIPEONFORK ||
			call->args[2] == MADV_DONTDUMP;
	}
	if (marks)
		crn_agent->memory_marked = true;
}

static enum crn_verdict at_once(struct crn_call *call)
{
	const long *a = call->args;

	crn_memory_settle_for(call, (uintptr_t)a[0], CRN_MAX((size_t)a[1], (size_t)a[2]));
	if (a[3] & MREMAP_FIXED)
		crn_memory_settle_for(call, (uintptr_t)a[4], (size_t)a[2]);
	crn_call_raise(call);
	return CRN_CALL_RUN_THEN;
}

/* Is it one mapping of the program's own memory, to be read and written? */
static bool is_plain(uintptr_t addr, size_t len)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_mapping m;

	/* Before the look: some trackers take permissions away, and the map then shows theirs. */
	crn_protection_changing(crn_agent->session, addr, len);
	return e->maps.fd >= 0 && e->maps.query && crn_maps_find(&e->maps, addr, &m) == 1 &&
		m.begin <= addr && addr + len <= m.end && !m.shared && !m.inode && !m.name[0] &&
		m.prot == (PROT_READ | PROT_WRITE);
}

/* A new mapping like those that the program makes; or -errno. */
static long map_new(struct crn_thread *t, size_t len)
{
	struct crn_call map = { .nr = SYS_mmap, .thread = t,
		.args = { 0, (long)len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1 } };
	const long *a = map.args;

	if (crn_maps_minds(crn_agent->session)) {
		crn_map_call_make(&map);
		return map.result;
	}
	map.result = crn_sys6(SYS_mmap, a[0], a[1], a[2], a[3], a[4], a[5]);
	if ((unsigned long)map.result < -4095ul)
		crn_maps_added(crn_agent->session, (int)a[2], (int)a[3], (uintptr_t)map.result,
			len);
	return map.result;
}

static enum crn_verdict moves(struct crn_call *call, uintptr_t addr, size_t old, size_t new)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_inverse *inv;
	long to;

	if (e->inverse_count + 2 > CRN_INVERSES_MAX || e->delayed_count == CRN_DELAYED_MAX ||
		old > CRN_DELAYED_BYTES - e->delayed_bytes)
		return at_once(call);
	to = map_new(call->thread, new);
	if ((unsigned long)to >= -4095ul)
		return at_once(call);
	if (crn_user_copy((void *)to, (const void *)addr, old) < 0) {
		crn_sys2(SYS_munmap, to, new);
		crn_maps_changed(crn_agent->session);
		return at_once(call);
	}
	inv = crn_inverse_add(call, CRN_INV_UNMAP, -1);
	inv->a = (uint64_t)to;
	inv->b = new;
	CRN_ASSERT(crn_unmap_later(call, addr, old));
	call->result = to;
	return CRN_CALL_ANSWERED;
}

static enum crn_verdict mremap_before(struct crn_call *call)
{
	const long *a = call->args;
	uintptr_t addr = (uintptr_t)a[0];
	size_t old = crn_page_up((size_t)a[1]), new = crn_page_up((size_t)a[2]);
	bool cuts = new && new < old;

	if ((addr & (CRN_PAGE_SIZE - 1)) || !old || !new || old > 1ul << 46 || new > 1ul << 46 ||
		a[3] & ~MREMAP_MAYMOVE || crn_memory_given_up(addr, old) ||
		crn_agent->memory_marked || (!cuts && (!a[3] || old > COPIED_MAX)) ||
		!is_plain(addr, old))
		return at_once(call);
	if (!cuts)
		return moves(call, addr, old, new);
	if (!crn_unmap_later(call, addr + new, old - new))
		return CRN_CALL_RUN_THEN;
	call->result = (long)addr;
	return CRN_CALL_ANSWERED;
}
const struct crn_hook crn_hook_mremap = {mremap_before, NULL};
