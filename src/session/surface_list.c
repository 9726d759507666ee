/* SPDX-License-Identifier: MIT */
#include "session/surface_list.h"
#include "base/copy.h"

static const char *parse_hex(const char *s, uint64_t *out)
{
	uint64_t v = 0;
	const char *start;

	if (!crn_starts_with(s, "0x"))
		return NULL;
	for (start = s += 2;; s++) {
		unsigned digit;

		if (*s >= '0' && *s <= '9')
			digit = *s - '0';
		else if (*s >= 'a' && *s <= 'f')
			digit = *s - 'a' + 10;
		else
			break;
		if (v >> 60)
			return NULL;
		v = v << 4 | digit;
	}
	*out = v;
	return s == start ? NULL : s;
}

bool crn_surface_item_range(const char *s, const char *stop, struct crn_range *out)
{
	uint64_t begin, end;

	s = parse_hex(s, &begin);
	if (!s || *s != '-')
		return false;
	s = parse_hex(s + 1, &end);
	if (s != stop || begin >= end || begin & (CRN_PAGE_SIZE - 1) || end & (CRN_PAGE_SIZE - 1))
		return false;
	out->begin = begin;
	out->end = end;
	return true;
}

const char *crn_surface_item_end(const char *s)
{
	while (*s && *s != ',')
		s++;
	return s;
}

bool crn_surface_item_names(const char *item, const char *end, const char *name)
{
	size_t len = (size_t)(end - item), n = crn_strlen(name);

	if (!len || n < len)
		return false;
	if (n > len && name[n - len - 1] != '/')
		return false;
	for (size_t i = 0; i < len; i++) {
		if (item[i] != name[n - len + i])
			return false;
	}
	return true;
}

int crn_surface_check(const char *expr)
{
	for (const char *s = expr;; s++) {
		const char *end = crn_surface_item_end(s);
		struct crn_range range;

		if (s == end)
			return CAIRN_ESURFACE;
		if (crn_starts_with(s, "0x") && !crn_surface_item_range(s, end, &range))
			return CAIRN_ESURFACE;
		s = end;
		if (!*s)
			return 0;
	}
}

int crn_surface_parse(cairn_t *c, const char *expr)
{
	size_t len = crn_strlen(expr);

	if (!len || len >= sizeof(c->surface) || crn_surface_check(expr) < 0)
		return CAIRN_ESURFACE;
	crn_copy(c->surface, expr, len + 1);
	c->mode = CRN_SURFACE_LIST;
	if (crn_streq(expr, "none"))
		c->mode = CRN_SURFACE_NONE;
	else if (crn_streq(expr, "all"))
		c->mode = CRN_SURFACE_ALL;
	else if (crn_streq(expr, "program"))
		c->mode = CRN_SURFACE_PROGRAM;
	return 0;
}
