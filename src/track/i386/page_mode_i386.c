/* SPDX-License-Identifier: MIT */
/*
 * 32-bit programs have no page tracker, so -fcairn-hybrid and areas of private memory are refused
 * there.
 */
#include "base/status.h"
#include "track/hooked/page_areas.h"
#include "track/hooked/page_mode.h"

void crn_page_mode_open(
	struct crn_page_mode *p, struct crn_track_env *env, const struct crn_hook_ops *hooks)
{
}

void crn_page_mode_close(struct crn_page_mode *p)
{
}

void crn_page_mode_disarm(struct crn_page_mode *p)
{
}

int crn_page_mode_switch(struct crn_page_mode *p, const struct crn_hook_ops *hooks)
{
	return CAIRN_EUNSUPPORTED;
}

void crn_page_mode_consider(struct crn_page_mode *p, const struct crn_hook_ops *hooks)
{
}

void crn_page_mode_merge(struct crn_page_mode *p)
{
}

void crn_page_mode_end(struct crn_page_mode *p, const struct crn_hook_ops *hooks, bool merge)
{
}

void crn_page_mode_begin(struct crn_page_mode *p, const struct crn_hook_ops *hooks)
{
}

uint64_t crn_page_mode_bytes(const struct crn_page_mode *p)
{
	return 0;
}

int crn_page_areas_add(struct crn_page_areas *p, struct crn_track_env *env, uintptr_t begin,
	uintptr_t end, uint64_t born)
{
	return CAIRN_ENOTRACK;
}

int crn_page_areas_remove(struct crn_page_areas *p, uintptr_t begin, uintptr_t end)
{
	return CAIRN_ENOTAREA;
}

void crn_page_areas_close(struct crn_page_areas *p, struct crn_track_env *env)
{
}

int crn_page_areas_whole(struct crn_page_areas *p)
{
	return 0;
}

int crn_page_areas_turn(struct crn_page_areas *p)
{
	return 0;
}

int crn_page_areas_walk(struct crn_page_areas *p, uint64_t id, crn_undo_fn fn, void *ctx)
{
	return 0;
}

bool crn_page_areas_have(const struct crn_page_areas *p, uintptr_t addr, uint64_t id)
{
	return false;
}

uint64_t crn_page_areas_bytes(const struct crn_page_areas *p)
{
	return 0;
}
