/* SPDX-License-Identifier: MIT */
/*
 * The program's own mappings: what it unmaps in an interval stays until no checkpoint needs it,
 * what it maps goes when the interval is undone, protections come back, and pages that it throws
 * away are kept before (deferred.h). Where none of this is possible an interval is not restorable.
 */
#include <sys/mman.h>
#include "base/status.h"
#include "os/maps.h"
#include "rt/deferred.h"
#include "rt/wrap.h"

#define PARTS_MAX 16

/* Mappings of [addr, addr+len). */
struct parts {
	struct { uintptr_t begin, end; int prot; bool shared, anonymous; } part[PARTS_MAX];
	int count; /* PARTS_MAX + 1: more */
};

static void find_parts(struct parts *p, uintptr_t addr, size_t len)
{
	char buffer[CRN_MAPS_BUFFER];
	struct crn_maps maps;
	struct crn_mapping m;

	p->count = PARTS_MAX + 1;
	if (crn_maps_open(&maps, buffer) < 0)
		return;
	if (crn_maps_begin(&maps, addr, CRN_MAPS_NO_NAMES) >= 0) {
		p->count = 0;
		while (p->count <= PARTS_MAX && crn_maps_next(&maps, &m) > 0 &&
			m.begin < addr + len) {
			if (p->count < PARTS_MAX) {
				p->part[p->count].begin = CRN_MAX(m.begin, addr);
				p->part[p->count].end = CRN_MIN(m.end, addr + len);
				p->part[p->count].prot = m.prot;
				p->part[p->count].shared = m.shared;
				p->part[p->count].anonymous = !m.inode;
			}
			p->count++;
		}
	}
	crn_maps_close(&maps);
}

/* Their content, which is about to go, is kept. False: it cannot be. */
static bool keep_content(const struct parts *p)
{
	for (int i = 0; i < p->count && i < PARTS_MAX; i++)
		if (p->part[i].prot & PROT_READ && !p->part[i].shared)
			keep((void *)p->part[i].begin, p->part[i].end - p->part[i].begin);
	return p->count <= PARTS_MAX;
}

#define READ_WRITE (PROT_READ | PROT_WRITE)

/* Something new takes the place of what was there. */
static bool replace(const struct parts *p, int prot, int flags)
{
	bool plain = (prot & READ_WRITE) == READ_WRITE && flags & MAP_ANONYMOUS &&
		(flags & MAP_TYPE) == MAP_PRIVATE;

	for (int i = 0; i < p->count && i < PARTS_MAX; i++) {
		if (!plain || p->part[i].shared || !p->part[i].anonymous)
			return false;
		if (p->part[i].prot && (p->part[i].prot & READ_WRITE) != READ_WRITE)
			return false;
	}
	return keep_content(p);
}

static void note_replaced(const struct parts *p, uintptr_t addr, size_t len)
{
	crn_map_replaced(addr, len);
	for (int i = 0; i < p->count && i < PARTS_MAX; i++)
		if (!p->part[i].prot)
			(void)crn_map_changed(CRN_MAP_OPENED, p->part[i].begin,
				p->part[i].end - p->part[i].begin, 0);
}

static void *map(void *at, size_t len, int prot, int flags, int fd, off64_t offset)
{
	bool fixed = flags & MAP_FIXED && !(flags & MAP_FIXED_NOREPLACE);
	struct parts p = { .count = 0 };
	bool replaced = true;
	void *got;

	if (!__cairn_rt.active)
		return mmap64(at, len, prot, flags, fd, offset);
	if (fixed)
		find_parts(&p, (uintptr_t)at, crn_page_up(len));
	if (p.count)
		replaced = replace(&p, prot, flags);
	got = mmap64(at, len, prot, flags, fd, offset);
	if (got == MAP_FAILED)
		return got;
	if (!p.count)
		(void)crn_map_changed(CRN_MAP_NEW, (uintptr_t)got, crn_page_up(len), 0);
	else if (replaced)
		note_replaced(&p, (uintptr_t)got, crn_page_up(len));
	else
		crn_rt_give_up((uintptr_t)got, CAIRN_ELAYOUT);
	return got;
}

WRAPPER(void *, mmap64, void *at, size_t len, int prot, int flags, int fd, off64_t offset)
{
	return map(at, len, prot, flags, fd, offset);
}

WRAPPER(void *, mmap, void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	return map(at, len, prot, flags, fd, offset);
}

WRAPPER(int, munmap, void *at, size_t len)
{
	if ((uintptr_t)at & (CRN_PAGE_SIZE - 1) || !len ||
		!crn_map_changed(CRN_MAP_LEFT, (uintptr_t)at, crn_page_up(len), 0))
		return munmap(at, len);
	return 0;
}

WRAPPER(int, mprotect, void *at, size_t len, int prot)
{
	struct parts p;
	int result;

	if (!__cairn_rt.active)
		return mprotect(at, len, prot);
	find_parts(&p, (uintptr_t)at, crn_page_up(len));
	result = mprotect(at, len, prot);
	for (int i = 0; !result && i < p.count && i < PARTS_MAX; i++)
		(void)crn_map_changed(CRN_MAP_PROTECTED, p.part[i].begin,
			p.part[i].end - p.part[i].begin, p.part[i].prot);
	if (p.count > PARTS_MAX)
		crn_rt_give_up((uintptr_t)at, CAIRN_ELAYOUT);
	return result;
}

WRAPPER(int, madvise, void *at, size_t len, int advice)
{
	struct parts p;

	if (__cairn_rt.active &&
		(advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE)) {
		find_parts(&p, (uintptr_t)at, crn_page_up(len));
		if (!keep_content(&p))
			crn_rt_give_up((uintptr_t)at, CAIRN_ELAYOUT);
	}
	return madvise(at, len, advice);
}

/* Elsewhere, as a copy: the old place is needed if the interval is undone. */
static void *move(void *at, size_t old, size_t len)
{
	struct parts p;
	void *got;

	find_parts(&p, (uintptr_t)at, old);
	if (p.count != 1 || p.part[0].shared || !p.part[0].anonymous ||
		(p.part[0].prot & READ_WRITE) != READ_WRITE) {
		crn_rt_give_up((uintptr_t)at, CAIRN_ELAYOUT);
		return mremap(at, old, len, MREMAP_MAYMOVE);
	}
	got = map(NULL, len, p.part[0].prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (got == MAP_FAILED)
		return got;
	place(got, at, old);
	__cairn_wrap_munmap(at, old);
	return got;
}

WRAPPER(void *, mremap, void *at, size_t old, size_t len, int flags, ...)
{
	void *got, *to;
	va_list ap;

	va_start(ap, flags);
	to = flags & MREMAP_FIXED ? va_arg(ap, void *) : NULL;
	va_end(ap);
	if (!__cairn_rt.active)
		return mremap(at, old, len, flags, to);
	if (flags & ~MREMAP_MAYMOVE || !old) {
		crn_rt_give_up((uintptr_t)at, CAIRN_ELAYOUT);
		return mremap(at, old, len, flags, to);
	}
	old = crn_page_up(old);
	if (crn_page_up(len) < old && len) {
		to = (char *)at + crn_page_up(len);
		return __cairn_wrap_munmap(to, old - crn_page_up(len)) < 0 ? MAP_FAILED : at;
	}
	got = mremap(at, old, len, 0);
	if (got == at && crn_page_up(len) > old)
		(void)crn_map_changed(CRN_MAP_NEW, (uintptr_t)at + old, crn_page_up(len) - old, 0);
	if (got != MAP_FAILED || !(flags & MREMAP_MAYMOVE))
		return got;
	return move(at, old, len);
}
