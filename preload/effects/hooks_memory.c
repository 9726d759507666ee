/* SPDX-License-Identifier: MIT */
/*
 * Calls that change the process's mappings. A new mapping is removed again by a restore. An munmap
 * is deferred until the next checkpoint, so its memory is still there; so is the fall of the break
 * (hooks_break.c), and what mremap leaves (hooks_remap.c). Everything that loses content at once
 * (MAP_FIXED over something) is done and followed by a checkpoint.
 *
 * A call that takes memory away is made inside its hook, between checkpoints: a checkpoint that
 * another thread is taking would otherwise read into a hole.
 */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include "effects/effects.h"
#include "effects/hooks.h"
#include "base/copy.h"
#include "os/memory.h"
#include "session/session.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

bool crn_memory_given_up(uintptr_t addr, size_t len)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < e->delayed_count; i++)
		if (e->delayed[i].addr < addr + len &&
			addr < e->delayed[i].addr + e->delayed[i].len)
			return true;
	return crn_break_overlaps(addr, len);
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
void crn_memory_settle_for(struct crn_call *call, uintptr_t addr, size_t len)
{
	if (!crn_memory_given_up(addr, len))
		return;
	crn_effects_settle();
	crn_effects_cannot_undo("memory that was given up is in use again");
	crn_call_raise(call);
}

/* Unmap at once what the program has given up. Did anything wait for that? */
static bool give_back(struct crn_call *call)
{
	if (!crn_effects_settle())
		return false;
	crn_call_raise(call);
	return true;
}

/* Locked memory that was given up counts against RLIMIT_MEMLOCK until it is gone. */
static enum crn_verdict lock_before(struct crn_call *call)
{
	return give_back(call) ? CRN_CALL_RUN_THEN : CRN_CALL_RUN;
}
const struct crn_hook crn_hook_lock = {lock_before, NULL};

enum crn_verdict crn_memory_sealed(struct crn_call *call)
{
	give_back(call);
	crn_call_raise(call);
	return CRN_CALL_RUN_THEN;
}

static enum crn_verdict mmap_before(struct crn_call *call)
{
	uintptr_t addr = (uintptr_t)call->args[0];
	size_t len = crn_page_up((size_t)call->args[1]);
	int flags = (int)call->args[3];

	if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) {
		crn_memory_settle_for(call, addr, len);
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

/*
 * Is there a program in it? Whoever writes one by a mapping keeps it open for writing with that,
 * and nobody can execute it.
 */
static bool maps_program(uintptr_t addr, size_t len)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_mapping m;
	struct stat st;

	if (e->maps.fd < 0 || !e->maps.query || crn_maps_begin(&e->maps, addr, 0) < 0)
		return false;
	while (crn_maps_next(&e->maps, &m) == 1 && m.begin < addr + len)
		if (m.shared && m.name[0] == '/' &&
			crn_sys4(SYS_newfstatat, AT_FDCWD, m.name, &st, 0) == 0 &&
			S_ISREG(st.st_mode) && st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH))
			return true;
	return false;
}

bool crn_unmap_later(struct crn_call *call, uintptr_t addr, size_t len)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_inverse *inv;

	if (e->delayed_count == CRN_DELAYED_MAX || len > CRN_DELAYED_BYTES - e->delayed_bytes ||
	    e->inverse_count == CRN_INVERSES_MAX || maps_program(addr, len)) {
		crn_effects_settle();
		crn_effects_cannot_undo("too much memory has been given up, or a program's file");
		crn_call_raise(call);
		return false;
	}
	inv = crn_inverse_add(call, CRN_INV_KEEP, -1);
	inv->a = addr;
	inv->b = len;
	e->delayed[e->delayed_count++] = (struct crn_delayed){addr, len};
	e->delayed_bytes += len;
	return true;
}

static enum crn_verdict munmap_before(struct crn_call *call)
{
	uintptr_t addr = (uintptr_t)call->args[0];
	size_t len = crn_page_up((size_t)call->args[1]);

	if ((addr & (CRN_PAGE_SIZE - 1)) || !call->args[1] || len < (size_t)call->args[1] ||
		addr + len < addr || addr + len > (1ul << 47))
		return CRN_CALL_RUN; /* EINVAL, the kernel says so itself */
	if (!crn_unmap_later(call, addr, len))
		return CRN_CALL_RUN_THEN;
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

	crn_memory_settle_for(call, addr, len);
	/* Before the look: some trackers take permissions away, and the map then shows theirs. */
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

/* ---- Making the call in the hook ----------------------------------------------------------- */

/* Can memory that is there be gone, or unreadable, after the call? */
static bool takes_away(const struct crn_call *call)
{
	switch (call->nr) {
	case SYS_munmap:
	case SYS_mremap:
	case SYS_mprotect:
	case SYS_pkey_mprotect:
	case SYS_shmdt:
	case SYS_remap_file_pages:
		return true;
	case SYS_brk:
		return call->args[0] != 0;
	case SYS_mmap:
		return call->args[3] & MAP_FIXED;
	case SYS_shmat:
		return call->args[2] & SHM_REMAP;
	}
	return false;
}

/* Is the session better off if it is told before the call what it is about? */
static bool told_before(const struct crn_call *call)
{
	const cairn_t *session = crn_agent->session;

	switch (session ? call->nr : -1) {
	case SYS_mmap:
		return crn_maps_of_file((int)call->args[2], (int)call->args[3]) ||
			(crn_maps_minds(session) && crn_maps_of_memory((int)call->args[3]));
	case SYS_madvise:
		return call->args[2] == MADV_DONTNEED && crn_maps_minds(session);
	}
	return false;
}

static enum crn_maps_kind kind_of(long nr)
{
	switch (nr) {
	case SYS_mprotect:
	case SYS_pkey_mprotect:
		return CRN_MAPS_PROTECTS;
	case SYS_munmap:
		return CRN_MAPS_UNMAPS;
	case SYS_mmap:
		return CRN_MAPS_MAPS;
	case SYS_mremap:
		return CRN_MAPS_MOVES;
	case SYS_brk:
		return CRN_MAPS_BREAK;
	case SYS_madvise:
		return CRN_MAPS_DROPS;
	}
	return CRN_MAPS_OTHER;
}

/* Whole pages; empty if the kernel will refuse them anyway. */
static struct crn_range pages_of(long addr, long len)
{
	uintptr_t begin = (uintptr_t)addr, end = begin + crn_page_up((size_t)len);

	return end < begin ? (struct crn_range){ 0, 0 } : (struct crn_range){ begin, end };
}

/*
 * What a call unmaps, moves, replaces or extends. Segments of shared memory are left out: their
 * lengths are not told, and they are no part of a surface unless it names them.
 */
static void ends_of(const struct crn_call *call, struct crn_range ends[2])
{
	const long *a = call->args;

	ends[0] = ends[1] = (struct crn_range){ 0, 0 };
	switch (call->nr) {
	case SYS_mmap:
		if (!(a[3] & MAP_FIXED))
			return;
		/* fallthrough */
	case SYS_munmap:
	case SYS_madvise:
	case SYS_remap_file_pages:
		ends[0] = pages_of(a[0], a[1]);
		return;
	case SYS_brk:
		ends[0].begin = crn_page_up((uintptr_t)a[0]);
		ends[0].end = (uintptr_t)crn_sys1(SYS_brk, 0);
		return;
	case SYS_mremap:
		if ((size_t)a[2] <= (size_t)a[1] && !(a[3] & (MREMAP_FIXED | MREMAP_DONTUNMAP)))
			ends[0] = pages_of(a[0] + a[2], a[1] - a[2]); /* it only shrinks */
		else
			ends[0] = pages_of(a[0], a[1] ? a[1] : a[2]);
		if (a[3] & MREMAP_FIXED)
			ends[1] = pages_of(a[4], a[2]);
	}
}

/* Has the kernel no memory to give, or the process no more of its limit? */
static bool lacks_memory(const struct crn_call *call)
{
	if (call->nr == SYS_brk)
		return (uintptr_t)call->result < (uintptr_t)call->args[0];
	return call->result == -ENOMEM || (call->nr == SYS_mmap && call->result == -EAGAIN);
}

bool crn_memory_found(struct crn_call *call)
{
	struct crn_effects *e = crn_agent->effects;
	bool found;

	if (!e || !e->open || !lacks_memory(call))
		return false;
	crn_effects_lock();
	found = give_back(call);
	crn_effects_unlock();
	return found;
}

void crn_map_call_make(struct crn_call *call)
{
	long a[6];
	struct crn_range ends[2];

	crn_copy(a, call->args, sizeof(a));
	if (call->nr == SYS_mprotect)
		a[3] = -1; /* as pkey_mprotect without a key */
	crn_maps_hold();
	ends_of(call, ends);
	call->result = crn_agent->session
		? crn_maps_call(crn_agent->session, call->nr, a, kind_of(call->nr), ends)
		: crn_sys6(call->nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	crn_maps_release();
}

bool crn_map_call(struct crn_call *call)
{
	if (!crn_agent->config.site_count || !(takes_away(call) || told_before(call)))
		return false;
	crn_map_call_make(call);
	if (call->nr != SYS_madvise && crn_memory_found(call))
		crn_map_call_make(call);
	return true;
}

/* The content of clean pages would go unsaved. */
static void save_dropped(uintptr_t addr, uintptr_t end)
{
	if (!crn_agent->effects->drops_need_saving) {
		crn_maps_drops(crn_agent->session, addr, end);
		return;
	}
	for (; addr < end; addr += CRN_PAGE_SIZE)
		(void)!cairn_area_touch(crn_agent->session, (void *)addr, CRN_PAGE_SIZE);
}

bool crn_memory_empty(uintptr_t begin, uintptr_t end)
{
	const long args[6] = { (long)begin, (long)(end - begin), MADV_DONTNEED };
	const struct crn_range ends[2] = { { begin, end } };

	if (crn_maps_minds(crn_agent->session))
		return crn_maps_call(crn_agent->session, SYS_madvise, args, CRN_MAPS_DROPS, ends) >=
			0;
	save_dropped(begin, end);
	return crn_sys3(SYS_madvise, args[0], args[1], args[2]) >= 0;
}

/* The kernel frees lazily up to the first mapping that is not private and anonymous. */
static uintptr_t freed_until(uintptr_t addr, uintptr_t end)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_mapping m;

	crn_effects_lock();
	if (e->maps.fd >= 0 && crn_maps_begin(&e->maps, addr, CRN_MAPS_NO_NAMES) >= 0)
		while (addr < end && crn_maps_next(&e->maps, &m) == 1 && m.begin < end) {
			addr = CRN_MAX(addr, m.begin);
			if (crn_sys3(SYS_madvise, (long)addr, (long)(CRN_MIN(m.end, end) - addr),
				MADV_FREE) < 0)
				break;
			addr = CRN_MIN(m.end, end);
		}
	crn_effects_unlock();
	return addr;
}

/*
 * A page that is freed lazily vanishes at a moment that nobody reports: drop it now, which is
 * allowed as well. But only what the kernel would have freed; other pages have content.
 */
static void free_at_once(struct crn_call *call, uintptr_t addr, uintptr_t end)
{
	long err;

	save_dropped(addr, end); /* first: what is freed may go at any time */
	err = crn_sys3(SYS_madvise, call->args[0], call->args[1], MADV_FREE);
	if (err >= 0 || err == -ENOMEM) { /* all that is mapped there */
		call->args[2] = MADV_DONTNEED;
		return;
	}
	if (err != -EINVAL || (call->args[0] & (long)(CRN_PAGE_SIZE - 1)) || end <= addr)
		return;
	end = freed_until(addr, end);
	if (end > addr)
		(void)crn_sys3(SYS_madvise, (long)addr, (long)(end - addr), MADV_DONTNEED);
}

void crn_madvise_prepare(struct crn_call *call)
{
	uintptr_t addr = crn_page_down((uintptr_t)call->args[0]),
		  end = addr + crn_page_up((size_t)call->args[1]);

	switch (call->args[2]) {
	case MADV_FREE:
		free_at_once(call, addr, end);
		return;
	case MADV_POPULATE_WRITE:
		crn_output_memory(addr, end - addr);
		return;
	case MADV_DONTNEED:
		if (told_before(call))
			return;
		/* fallthrough */
	case MADV_DONTNEED_LOCKED:
		save_dropped(addr, end);
	}
}

static enum crn_verdict madvise_before(struct crn_call *call)
{
	switch (call->args[2]) {
	case MADV_HUGEPAGE: /* tracked memory has none: granted, and ignored, as the kernel may */
	case MADV_MERGEABLE: /* what the kernel merges loses the protection of `uffd` */
		call->result = 0;
		return CRN_CALL_ANSWERED;
	case MADV_COLLAPSE:
		call->result = -EINVAL;
		return CRN_CALL_ANSWERED;
	case MADV_REMOVE:
	case MADV_DONTDUMP: /* these stay, and others see them: a core, a child */
	case MADV_DODUMP:
	case MADV_DONTFORK:
	case MADV_DOFORK:
	case MADV_WIPEONFORK:
	case MADV_KEEPONFORK:
		crn_call_raise(call);
		return CRN_CALL_RUN_THEN;
	}
	return CRN_CALL_RUN;
}
const struct crn_hook crn_hook_madvise = {madvise_before, NULL};
