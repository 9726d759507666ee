/* SPDX-License-Identifier: MIT */
#include "track/hooked/tags.h"
#include "base/bits.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/memory.h"
#include "track/hooked/kept_intervals.h"

#define EPOCH_LAST 255

/* The two windows of addresses whose tags there are. */
static const struct {
	uintptr_t at;
	size_t len;
} windows[] = {
	{ CRN_RT_IMAGE_AT, CRN_RT_IMAGE_LEN },
	{ CRN_RT_MAPS_AT, CRN_RT_MAPS_LEN },
};

static uint32_t kind(void)
{
	return *__cairn_shape.tags;
}

static uint8_t *tags_of(size_t window, size_t *len)
{
	*len = windows[window].len >> __cairn_shape.shift;
	return crn_rt_tag(windows[window].at, __cairn_shape.shift);
}

static int give_back(void)
{
	for (size_t i = 0; i < CRN_ARRAY_SIZE(windows); i++) {
		size_t len;
		uint8_t *tags = tags_of(i, &len);

		CRN_TRY(crn_memory_advise(tags, len, MADV_DONTNEED));
	}
	return 0;
}

static int map_anew(void)
{
	for (size_t i = 0; i < CRN_ARRAY_SIZE(windows); i++) {
		size_t len;
		uint8_t *tags = tags_of(i, &len);

		CRN_TRY(crn_memory_renew(tags, len));
	}
	return 0;
}

static inline void clear_tags_of(uint64_t entry, uint32_t shift)
{
	uint8_t *tag = crn_rt_tag(entry & CRN_LIST_ADDR, shift);

	if (!shift) /* of a word, all of whose bytes that are saved are in the list */
		*(uint64_t *)tag = 0;
	else if (entry >> CRN_LIST_MASK) /* more than one */
		crn_tags_set(tag, crn_rt_run(entry), 0);
	else
		*tag = 0;
}

/* Its entries are zeros already. */
static void list_empty(struct crn_rt *rt)
{
	rt->dirty_cur = rt->dirty;
	rt->dirty_end = rt->dirty_limit;
	rt->blanks = 0;
}

/* And the list with them, which is in the cache now. */
static void clear_listed(void)
{
	uint32_t shift = __cairn_shape.shift;
	uint64_t *end = crn_rt()->dirty_cur;

	for (uint64_t *d = crn_rt()->dirty; d < end; d++) {
		if (!*d)
			continue;
		clear_tags_of(*d, shift);
		*d = 0;
	}
	list_empty(crn_rt());
}

void crn_tags_clear(void)
{
	for (const uint64_t *d = crn_rt()->dirty; d < crn_rt()->dirty_cur; d++)
		if (*d)
			clear_tags_of(*d, __cairn_shape.shift);
}

void crn_tags_forget_list(void)
{
	struct crn_rt *rt = crn_rt();

	crn_fill(rt->dirty, 0, (size_t)(rt->dirty_cur - rt->dirty) * sizeof(*rt->dirty));
	list_empty(rt);
}

static void clear_pages(void)
{
	for (const uint64_t *p = crn_rt()->tag_pages; p < crn_rt()->tag_pages_cur; p++)
		if (*p)
			crn_fill((void *)(uintptr_t)*p, 0, CRN_PAGE_SIZE);
}

void crn_tags_reset(void)
{
	int err = 0;

	switch (kind()) {
	case CRN_TAGS_ZERO:
		break;
	case CRN_TAGS_BZERO:
		clear_pages();
		break;
	case CRN_TAGS_EPOCH:
		if (crn_rt()->epoch == EPOCH_LAST) {
			clear_pages();
			crn_rt()->epoch = 0;
		}
		crn_rt()->epoch++;
		break;
	case CRN_TAGS_MMAP:
		err = map_anew();
		break;
	case CRN_TAGS_DONTNEED:
		err = give_back();
		break;
	}
	/* The kernel may refuse, and the list is never wrong. */
	if (kind() == CRN_TAGS_ZERO || err < 0)
		clear_listed();
	else
		crn_tags_forget_list();
}

void crn_tags_renew(void)
{
	struct crn_rt *rt = crn_rt();
	size_t len = (size_t)(rt->dirty_limit - rt->dirty) * sizeof(*rt->dirty);

	if (give_back() < 0)
		(void)map_anew();
	if (crn_memory_advise(rt->dirty, len, MADV_DONTNEED) < 0)
		crn_fill(rt->dirty, 0, len);
	list_empty(rt);
}

/* ---- The list of pages of tags --------------------------------------------------------------- */

static size_t list_size(void)
{
	size_t pages = 0, len;

	for (size_t i = 0; i < CRN_ARRAY_SIZE(windows); i++) {
		(void)tags_of(i, &len);
		pages += len / CRN_PAGE_SIZE;
	}
	/* Once each, and once more for each handler that interrupts another at that. */
	return crn_page_up((pages + CRN_PAGE_SIZE) * sizeof(uint64_t));
}

/* The byte map spans the gap between the windows, too: nothing of it is committed. */
static void *listed_place(size_t *len)
{
	size_t last;
	uint8_t *first = tags_of(0, &last), *end = tags_of(1, &last) + last;
	uintptr_t begin = crn_page_down((uintptr_t)crn_rt_tag_page_listed((uintptr_t)first));

	*len = crn_page_up((uintptr_t)crn_rt_tag_page_listed((uintptr_t)end)) - begin;
	return (void *)begin;
}

static void pages_close(void)
{
	size_t len;
	void *listed = listed_place(&len);

	crn_memory_leave(listed, len);
	crn_memory_leave((void *)CRN_RT_PAGES_AT, list_size());
	crn_rt()->tag_pages = crn_rt()->tag_pages_cur = crn_rt()->tag_pages_end = NULL;
}

static int pages_open(void)
{
	void *list, *listed;
	size_t len;
	int err;

	CRN_TRY(crn_kept_span(CRN_RT_PAGES_AT, CRN_RT_PAGES_MAX, list_size(), &list));
	listed = listed_place(&len);
	crn_memory_leave(listed, len);
	err = crn_memory_enter(listed, len);
	if (err < 0) {
		crn_memory_leave(list, list_size());
		return err;
	}
	crn_rt()->tag_pages_cur = list;
	crn_rt()->tag_pages_end = (uint64_t *)list + list_size() / sizeof(uint64_t);
	crn_rt()->tag_pages = list;
	return 0;
}

int crn_tags_open(void)
{
	/* Regions that were stored to while there was no session count as saved: not any more. */
	CRN_TRY(give_back());
	return kind() == CRN_TAGS_BZERO || kind() == CRN_TAGS_EPOCH ? pages_open() : 0;
}

void crn_tags_close(void)
{
	crn_rt()->epoch = 0;
	if (crn_rt()->tag_pages)
		pages_close();
	(void)give_back();
}
