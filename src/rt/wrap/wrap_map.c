/* SPDX-License-Identifier: MIT */
/*
 * The program's own mappings. What it unmaps in an interval stays until no checkpoint needs it,
 * what it maps goes when the interval is undone, protections are restored, and pages that it drops
 * are kept before (deferred.h). Where none of this is possible, the interval cannot be restored.
 * Nothing is mapped where hooks have no tags: the first store there would raise SIGSEGV.
 */
#include <limits.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include "base/log.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/maps.h"
#include "os/memory.h"
#include "os/pagemap.h"
#include "rt/deferred.h"
#include "rt/program_maps.h"
#include "rt/wrap/reach.h"
#include "rt/wrap/wrap.h"
#include "rt/wrap/wrap_call.h"

#define PARTS_MAX 16
#define RUNS_MAX  16

#define READ_WRITE (PROT_READ | PROT_WRITE)

/* 32-bit programs give the offset in pages. */
#ifdef __i386__
#define NR_MMAP        SYS_mmap2
#define OFFSET(offset) ((long)((offset) >> CRN_PAGE_SHIFT))
#else
#define NR_MMAP        SYS_mmap
#define OFFSET(offset) (offset)
#endif

/* Mappings of [addr, addr+len). */
struct parts {
	struct part { uintptr_t begin, end; int prot; bool shared, anonymous; } part[PARTS_MAX];
	int count; /* PARTS_MAX + 1: more */
};

/* Of mappings that a tracker of pages has split, what lies side by side is one. */
static void add_part(struct parts *p, const struct crn_mapping *m, uintptr_t begin, uintptr_t end)
{
	struct part new = { CRN_MAX(m->begin, begin), CRN_MIN(m->end, end), m->prot, m->shared,
		!m->inode };
	struct part *last = p->count ? &p->part[p->count - 1] : NULL;

	if (last && last->end == new.begin && last->prot == new.prot && last->anonymous &&
		new.anonymous && last->shared == new.shared)
		last->end = new.end;
	else if (p->count++ < PARTS_MAX)
		p->part[p->count - 1] = new;
}

static void find_parts(struct parts *p, uintptr_t addr, size_t len)
{
	char buffer[CRN_MAPS_BUFFER];
	struct crn_maps maps;
	struct crn_mapping m;

	*p = (struct parts){ .count = PARTS_MAX + 1 }; /* if it cannot be told */
	if (crn_maps_open(&maps, buffer) < 0)
		return;
	if (crn_maps_begin(&maps, addr, CRN_MAPS_NO_NAMES) >= 0) {
		p->count = 0;
		while (p->count <= PARTS_MAX && crn_maps_next(&maps, &m) > 0 &&
			m.begin < addr + len)
			add_part(p, &m, addr, addr + len);
	}
	crn_maps_close(&maps);
}

/* [begin, end) of part i. What cannot be read is opened for as long as it takes. */
static void keep_run(const struct parts *p, int i, uintptr_t begin, uintptr_t end)
{
	int prot = p->part[i].prot;

	if (!(prot & PROT_READ))
		(void)crn_memory_protect((void *)begin, end - begin, PROT_READ);
	keep((void *)begin, end - begin);
	if (!(prot & PROT_READ))
		(void)crn_memory_protect((void *)begin, end - begin, prot);
}

/*
 * Pages that were never used, or are the file's, come back by themselves. A restore stores to the
 * others, which the program may have closed before.
 */
static bool keep_part(const struct parts *p, int i, int pagemap)
{
	uintptr_t at = p->part[i].begin, end = p->part[i].end;
	struct crn_page_run runs[RUNS_MAX];
	bool found = false;

	while (at < end) {
		long n = p->part[i].anonymous
			? crn_pagemap_populated(pagemap, &at, end, runs, RUNS_MAX)
			: crn_pagemap_own(pagemap, &at, end, runs, RUNS_MAX);

		if (n < 0)
			return false;
		for (long k = 0; k < n; k++)
			keep_run(p, i, (uintptr_t)runs[k].begin, (uintptr_t)runs[k].end);
		found |= n > 0;
	}
	if (found && !(p->part[i].prot & PROT_WRITE))
		(void)crn_map_changed(CRN_MAP_PROTECTED, p->part[i].begin,
			end - p->part[i].begin, p->part[i].prot);
	return true;
}

/* Their content, which is about to go, is kept. False: it cannot be. */
static bool keep_content(const struct parts *p)
{
	int pagemap = crn_pagemap_open();
	bool kept = pagemap >= 0 && p->count <= PARTS_MAX;

	for (int i = 0; kept && i < p->count; i++)
		kept = p->part[i].shared || keep_part(p, i, pagemap);
	if (pagemap >= 0)
		crn_fd_close(pagemap);
	return kept;
}

/* Something new takes the place of what was there: memory, both times. */
static bool replace(const struct parts *p, int flags)
{
	if (!(flags & MAP_ANONYMOUS) || (flags & MAP_TYPE) != MAP_PRIVATE)
		return false;
	for (int i = 0; i < p->count && i < PARTS_MAX; i++)
		if (p->part[i].shared || !p->part[i].anonymous)
			return false;
	return keep_content(p);
}

/* Between the parts, from `at` to `end`, there was nothing. */
static void note_replaced(const struct parts *p, uintptr_t at, uintptr_t end, int prot)
{
	for (int i = 0; i < p->count && i < PARTS_MAX; i++) {
		uintptr_t begin = p->part[i].begin;
		size_t size = p->part[i].end - begin;

		if (begin > at)
			(void)crn_map_changed(CRN_MAP_NEW, at, begin - at, 0);
		if (prot && !p->part[i].prot)
			(void)crn_map_changed(CRN_MAP_OPENED, begin, size, 0);
		else if (prot != p->part[i].prot)
			(void)crn_map_changed(CRN_MAP_PROTECTED, begin, size, p->part[i].prot);
		at = p->part[i].end;
	}
	if (at < end)
		(void)crn_map_changed(CRN_MAP_NEW, at, end - at, 0);
}

/* All that is there is what the program has unmapped, which it does not know. */
static bool only_left(const struct parts *p)
{
	for (int i = 0; i < p->count && i < PARTS_MAX; i++)
		if (!crn_map_left(p->part[i].begin, p->part[i].end))
			return false;
	return p->count <= PARTS_MAX;
}

/* ---- The calls: arguments and results are the kernel's --------------------------------------- */

static bool failed(long result)
{
	return (unsigned long)result > -4096ul;
}

static long map(const long args[6])
{
	uintptr_t at = (uintptr_t)args[0];
	size_t len = crn_page_up((size_t)args[1]);
	int prot = (int)args[2], flags = (int)args[3];
	struct parts p = { .count = 0 };
	bool replaced = true;
	long got;

	if (flags & (MAP_FIXED | MAP_FIXED_NOREPLACE))
		find_parts(&p, at, len);
	if (flags & MAP_FIXED_NOREPLACE) {
		if (p.count && only_left(&p))
			flags = (flags & ~MAP_FIXED_NOREPLACE) | MAP_FIXED;
		else
			p.count = 0; /* if something is there, it fails */
	}
	if (p.count)
		replaced = replace(&p, flags);
	got = crn_memory_call(NR_MMAP,
		(const long[6]){ args[0], args[1], prot, flags, args[4], args[5] });
	if (failed(got))
		return got;
	if (p.count)
		crn_map_replaced((uintptr_t)got, len);
	else
		(void)crn_map_changed(CRN_MAP_NEW, (uintptr_t)got, len, 0);
	if (p.count && replaced)
		note_replaced(&p, at, at + len, prot);
	else if (p.count)
		crn_rt_give_up((uintptr_t)got, CAIRN_ELAYOUT);
	return got;
}

static bool covered(uintptr_t at, size_t len)
{
	return crn_rt_covers(at) && crn_rt_covers(at + crn_page_up(len) - 1);
}

/* An address that is only a hint is not taken. */
static long map_covered(const long args[6])
{
	long given[6] = { args[0], args[1], args[2], args[3], args[4], args[5] };
	bool fixed = args[3] & (MAP_FIXED | MAP_FIXED_NOREPLACE), low = false;

#ifndef __i386__
	low = args[3] & MAP_32BIT;
#endif
	if (!covered((uintptr_t)args[0], (size_t)args[1])) {
		low |= fixed;
		given[0] = 0;
	}
	if (low) {
		crn_warn("mmap at %p: hooks cover no such memory, nor that of MAP_32BIT",
			(void *)args[0]);
		return -ENOMEM;
	}
	return __cairn_rt.active ? map(given) : crn_memory_call(NR_MMAP, given);
}

static long unmap(uintptr_t at, size_t len)
{
	const long args[6] = { (long)at, (long)len };

	if (at & (CRN_PAGE_SIZE - 1) || !len ||
		!crn_map_changed(CRN_MAP_LEFT, at, crn_page_up(len), 0)) {
		crn_program_maps_cut(at, at + len);
		return crn_memory_call(SYS_munmap, args);
	}
	return 0;
}

static long protect(long nr, const long args[6])
{
	struct parts p;
	long result;

	find_parts(&p, (uintptr_t)args[0], crn_page_up((size_t)args[1]));
	result = crn_memory_call(nr, args);
	for (int i = 0; !result && i < p.count && i < PARTS_MAX; i++)
		(void)crn_map_changed(CRN_MAP_PROTECTED, p.part[i].begin,
			p.part[i].end - p.part[i].begin, p.part[i].prot);
	if (p.count > PARTS_MAX)
		crn_rt_give_up((uintptr_t)args[0], CAIRN_ELAYOUT);
	return result;
}

/* Of a call that nothing undoes, unless it fails. */
static long not_undone(long nr, const long args[6])
{
	long got = crn_memory_call(nr, args);

	if (!failed(got))
		crn_rt_give_up((uintptr_t)args[0], CAIRN_ELAYOUT);
	return got;
}

static bool guards(int advice)
{
	return advice == MADV_GUARD_INSTALL || advice == MADV_GUARD_REMOVE;
}

static bool drops(int advice)
{
	return advice == MADV_DONTNEED || advice == MADV_DONTNEED_LOCKED || advice == MADV_FREE ||
		advice == MADV_REMOVE;
}

/* process_madvise: if it is of another process, nothing is lost by keeping these places. */
static long advise_parts(const long args[6])
{
	const struct iovec *at = (const struct iovec *)args[1];
	size_t count = (size_t)args[2];
	bool kept = !guards((int)args[3]);
	struct parts p;
	long got;

	if (drops((int)args[3]) && count <= IOV_MAX && crn_reach_there(at, count * sizeof(*at)))
		for (size_t i = 0; i < count; i++) {
			find_parts(&p, (uintptr_t)at[i].iov_base, crn_page_up(at[i].iov_len));
			kept &= keep_content(&p);
		}
	got = crn_memory_call(SYS_process_madvise, args);
	if (!failed(got) && !kept)
		crn_rt_give_up((uintptr_t)at, CAIRN_ELAYOUT);
	return got;
}

static long advise(const long args[6])
{
	struct parts p;

	if (guards((int)args[2]))
		return not_undone(SYS_madvise, args);
	if (drops((int)args[2])) {
		find_parts(&p, (uintptr_t)args[0], crn_page_up((size_t)args[1]));
		if (!keep_content(&p))
			return not_undone(SYS_madvise, args);
	}
	return crn_memory_call(SYS_madvise, args);
}

/* Elsewhere, as a copy: the old place is needed if the interval is undone. */
static long move(const long args[6], size_t old)
{
	uintptr_t at = (uintptr_t)args[0];
	struct parts p;
	long got;

	find_parts(&p, at, old);
	if (p.count != 1 || p.part[0].shared || !p.part[0].anonymous ||
		(p.part[0].prot & READ_WRITE) != READ_WRITE)
		return not_undone(SYS_mremap, args);
	got = map((const long[6]){ 0, args[2], p.part[0].prot, MAP_PRIVATE | MAP_ANONYMOUS, -1 });
	if (failed(got))
		return got;
	place((void *)got, (void *)at, old);
	(void)unmap(at, old);
	return got;
}

static long remap(const long args[6])
{
	uintptr_t at = (uintptr_t)args[0];
	size_t old = crn_page_up((size_t)args[1]), len = crn_page_up((size_t)args[2]);
	int flags = (int)args[3];
	struct parts p;
	long got;

	if (flags & ~MREMAP_MAYMOVE || !old)
		return not_undone(SYS_mremap, args);
	if (len < old && len) {
		find_parts(&p, at, CRN_PAGE_SIZE);
		if (!p.count) /* it fails */
			return crn_memory_call(SYS_mremap, args);
		got = unmap(at + len, old - len);
		return failed(got) ? got : (long)at;
	}
	got = crn_memory_call(SYS_mremap, (const long[6]){ (long)at, (long)old, args[2] });
	if (got == (long)at && len > old)
		(void)crn_map_changed(CRN_MAP_NEW, at + old, len - old, 0);
	if (!failed(got) || !(flags & MREMAP_MAYMOVE))
		return got;
	return move(args, old);
}

/* A segment of System V, which goes with the interval like a mapping that is new. */
static long attach(const long args[6])
{
	long got = crn_memory_call(SYS_shmat, args);
	struct parts p;

	if (failed(got))
		return got;
	find_parts(&p, (uintptr_t)got, UINTPTR_MAX - (uintptr_t)got);
	if (p.count && p.part[0].shared && !(args[2] & SHM_REMAP))
		(void)crn_map_changed(CRN_MAP_NEW, (uintptr_t)got,
			p.part[0].end - (uintptr_t)got, 0);
	else
		crn_rt_give_up((uintptr_t)got, CAIRN_ELAYOUT);
	return got;
}

/* Others count who is attached: it is not put off. */
static long detach(const long args[6])
{
	return not_undone(SYS_shmdt, args);
}

/* What lies above a new, lower end is gone, and zeros when the end rises again. */
static long move_break(uintptr_t end)
{
	uintptr_t old = crn_memory_break(0), now;

	if (__cairn_rt.active && end && end < old)
		keep((void *)end, old - end);
	now = crn_memory_break(end);
	if (__cairn_rt.active && now != old)
		(void)crn_map_changed(CRN_MAP_BREAK, old, now - old, 0);
	crn_break_told(now);
	crn_program_maps_add(old, now);
	crn_program_maps_cut(now, old);
	return (long)now;
}

bool crn_call_maps(long nr)
{
	return nr == NR_MMAP || nr == SYS_munmap || nr == SYS_mprotect || nr == SYS_madvise ||
		nr == SYS_mremap || nr == SYS_brk || nr == SYS_shmat || nr == SYS_shmdt ||
		nr == SYS_pkey_mprotect || nr == SYS_process_madvise;
}

static bool protects(long nr)
{
	return nr == SYS_mprotect || nr == SYS_pkey_mprotect;
}

static long call_map(long nr, const long args[6])
{
	if (nr == SYS_brk)
		return move_break((uintptr_t)args[0]);
	if (nr == SYS_munmap)
		return unmap((uintptr_t)args[0], (size_t)args[1]);
	if (nr == NR_MMAP)
		return map_covered(args);
	if (!__cairn_rt.active)
		return crn_memory_call(nr, args);
	switch (nr) {
	case SYS_mprotect:
		return protect(nr, args);
	case SYS_pkey_mprotect: /* a key would stay */
		return (int)args[3] == -1 ? protect(nr, args) : not_undone(nr, args);
	case SYS_process_madvise:
		return advise_parts(args);
	case SYS_madvise:
		return advise(args);
	case SYS_shmat:
		return attach(args);
	case SYS_shmdt:
		return detach(args);
	default:
		return remap(args);
	}
}

/* What page mode has to know (program_maps.h); of the heap's end and of munmap it does. */
static void note_memory(long nr, const long args[6], uintptr_t got)
{
	uintptr_t at = (uintptr_t)args[0];

	if (protects(nr) || nr == SYS_shmat || nr == SYS_shmdt ||
		(nr == SYS_mmap && args[3] & MAP_FIXED))
		crn_program_maps_upset();
	if (nr == SYS_mmap)
		crn_program_maps_add(got, got + (size_t)args[1]);
	if (nr != SYS_mremap)
		return;
	/* What an open session has left where it was is still the program's. */
	if (got != at && !__cairn_rt.active)
		crn_program_maps_cut(at, at + (size_t)args[1]);
	crn_program_maps_upset();
	crn_program_maps_add(got, got + (size_t)args[2]);
}

long crn_call_map(long nr, const long args[6])
{
	long result = call_map(nr, args);

	if (failed(result))
		return result;
	note_memory(nr, args, (uintptr_t)result);
	if (protects(nr) || nr == SYS_munmap || (nr == NR_MMAP && args[3] & MAP_FIXED))
		crn_reach_doubt((void *)args[0], (size_t)args[1]);
	return result;
}

/* ---- libc's names for them ------------------------------------------------------------------- */

static long told(long result)
{
	if (!failed(result))
		return result;
	errno = (int)-result;
	return -1;
}

#define CALL(nr, ...) told(crn_call_map(nr, (const long[6]){ __VA_ARGS__ }))

WRAPPER(void *, mmap64, void *at, size_t len, int prot, int flags, int fd, off64_t offset)
{
	return (void *)CALL(NR_MMAP, (long)at, (long)len, prot, flags, fd, OFFSET(offset));
}

WRAPPER(void *, mmap, void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	return (void *)CALL(NR_MMAP, (long)at, (long)len, prot, flags, fd, OFFSET(offset));
}

WRAPPER(int, munmap, void *at, size_t len)
{
	return (int)CALL(SYS_munmap, (long)at, (long)len);
}

WRAPPER(int, mprotect, void *at, size_t len, int prot)
{
	return (int)CALL(SYS_mprotect, (long)at, (long)len, prot);
}

WRAPPER(int, pkey_mprotect, void *at, size_t len, int prot, int key)
{
	return (int)CALL(SYS_pkey_mprotect, (long)at, (long)len, prot, key);
}

WRAPPER(ssize_t, process_madvise, int fd, const struct iovec *parts, size_t n, int advice,
	unsigned flags)
{
	return CALL(SYS_process_madvise, fd, (long)parts, (long)n, advice, flags);
}

WRAPPER(int, madvise, void *at, size_t len, int advice)
{
	return (int)CALL(SYS_madvise, (long)at, (long)len, advice);
}

WRAPPER(void *, mremap, void *at, size_t old, size_t len, int flags, ...)
{
	va_list ap;
	void *to;

	va_start(ap, flags);
	to = flags & MREMAP_FIXED ? va_arg(ap, void *) : NULL;
	va_end(ap);
	return (void *)CALL(SYS_mremap, (long)at, (long)old, (long)len, flags, (long)to);
}

WRAPPER(void *, shmat, int id, const void *at, int flags)
{
	return (void *)CALL(SYS_shmat, id, (long)at, flags);
}

WRAPPER(int, shmdt, const void *at)
{
	return (int)CALL(SYS_shmdt, (long)at);
}

WRAPPER(int, brk, void *end)
{
	if (move_break((uintptr_t)end) == (long)end)
		return 0;
	errno = ENOMEM;
	return -1;
}

WRAPPER(void *, sbrk, intptr_t by)
{
	uintptr_t old = crn_memory_break(0);

	if (by && move_break(old + (uintptr_t)by) != (long)(old + (uintptr_t)by)) {
		errno = ENOMEM;
		return (void *)-1;
	}
	return (void *)old;
}
