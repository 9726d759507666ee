/* SPDX-License-Identifier: MIT */
/* 32-bit programs have no tracker of pages: -fcairn-hybrid is refused for them. */
#include "base/status.h"
#include "track/page_mode.h"

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
