/* SPDX-License-Identifier: MIT */
/*
 * Private memory that code without hooks writes (memory that a library keeps, or fills for the
 * program), under a tracker to which the program reports its stores. A range that cairn_area_add
 * names is also watched by a page tracker, which holds its content at the start of the open
 * interval.
 *
 *	restore:  first what hooks kept of an interval, then its pages. The pages are right whoever
 *		  stored first, because they are from the start of the interval
 *
 * So hooks need not know which memory this is. The program's image cannot be such an area, because
 * the variables of the run-time and the engine lie in it. Not together with page mode
 * (page_mode.h): a page has one watcher.
 */
#ifndef CRN_PAGE_AREAS_H
#define CRN_PAGE_AREAS_H

#include "os/maps.h"
#include "track/hooked/inner_pages.h"
#include "track/hooked/packed_log.h"

/* A part of what was added: of one mapping. */
struct crn_page_area {
	struct crn_area part; /* first */
	uintptr_t begin, end; /* all that was added */
};

struct crn_page_areas {
	struct crn_inner_pages inner;
	struct crn_page_area **at;
	size_t count, capacity;
	struct crn_maps maps;
	char *maps_buffer; /* NULL: nothing is open */
	bool told; /* one has gone, which is said once */
};

/* All are called with the session's lock. */

/*
 * From checkpoint `born` on. CAIRN_EUNMAPPED (not all of it is there, and private), CAIRN_EOVERLAP
 * (the image, the mapping of this stack, or an area has some of it), CAIRN_ENOTRACK,
 * CAIRN_EUNSUPPORTED, CAIRN_EMEMORY or -errno: as if it had not been called.
 */
int crn_page_areas_add(struct crn_page_areas *p, struct crn_track_env *env, uintptr_t begin,
	uintptr_t end, uint64_t born);
/* Exactly as it was added, or CAIRN_ENOTAREA. */
int crn_page_areas_remove(struct crn_page_areas *p, uintptr_t begin, uintptr_t end);
void crn_page_areas_close(struct crn_page_areas *p, struct crn_track_env *env);
/* 0, or CAIRN_ELAYOUT (the log says where): one cannot be looked at, or put back. */
int crn_page_areas_whole(struct crn_page_areas *p);
/* The interval ends, or has been undone: what memory is now is the content at its begin. */
int crn_page_areas_turn(struct crn_page_areas *p);
/*
 * What undoes the open interval, which began at `id`. No page of one area twice; `old` is never
 * NULL.
 */
int crn_page_areas_walk(struct crn_page_areas *p, uint64_t id, crn_undo_fn fn, void *ctx);
/* Is addr in an area now that checkpoint `id` covers? */
bool crn_page_areas_have(const struct crn_page_areas *p, uintptr_t addr, uint64_t id);
uint64_t crn_page_areas_bytes(const struct crn_page_areas *p);

#endif
