/* SPDX-License-Identifier: MIT */
/*
 * Surface expressions: "all", "program", "none", or a list of ranges and of mapping names.
 *
 *	0x1000-0x2000,[heap],libc.so.6
 *	^ item       ^ its end
 *
 * Only crn_surface_parse touches a session. Async-signal-safe.
 */
#ifndef CRN_SURFACE_LIST_H
#define CRN_SURFACE_LIST_H

#include "session/engine.h"

/* Fill c->surface and c->mode. 0 or CAIRN_ESURFACE. */
int crn_surface_parse(cairn_t *c, const char *expr);

/* The comma behind an item, or the end of the text. */
const char *crn_surface_item_end(const char *item);
/* Is the item, up to `stop`, a range of whole pages? Then *out is that. */
bool crn_surface_item_range(const char *item, const char *stop, struct crn_range *out);
/* Does the item, up to `end`, name a mapping: the whole name, or a path's last component? */
bool crn_surface_item_names(const char *item, const char *end, const char *name);

#endif
