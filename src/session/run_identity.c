/* SPDX-License-Identifier: MIT */
#include "session/run_identity.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/program_id.h"

#define LINE_SHOWN 320

/* A line; what would end it early becomes a blank. */
static size_t put(char *out, size_t used, const char *key, const char *value)
{
	size_t at = used + crn_strlen(key) + 1;

	used += crn_format(out + used, CRN_IDENTITY_MAX - used, "%s %s\n", key, value);
	used = CRN_MIN(used, (size_t)CRN_IDENTITY_MAX - 1);
	for (; at + 1 < used; at++)
		out[at] = out[at] == '\n' ? ' ' : out[at];
	return used;
}

void crn_identity_planned(const char *surface, const char *sites, char out[CRN_IDENTITY_MAX])
{
	size_t used = put(out, 0, "surface", surface);

	(void)put(out, used, "sites", sites[0] ? sites : "the program's own");
}

void crn_identity_here(const cairn_t *c, char out[CRN_IDENTITY_MAX])
{
	char text[CRN_IDENTITY_MAX / 2] = "";
	size_t used;

	crn_program_id(text, sizeof(text) / 2);
	used = put(out, 0, "program", text);
	used = put(out, used, "surface", c->surface);
	text[0] = 0;
	if (crn_agent_sites)
		crn_agent_sites(text, sizeof(text));
	(void)put(out, used, "sites", text[0] ? text : "the program's own");
}

static bool same(const char *a, const char *b, size_t len)
{
	return crn_first_other(a, b, len) == len;
}

static size_t line_length(const char *at, size_t size)
{
	size_t len = 0;

	while (len < size && at[len] && at[len] != '\n')
		len++;
	return len;
}

/* The line of `recorded` with the same key as that of `line`; *len 0: there is none. */
static const char *same_key(const char *recorded, size_t size, const char *line, size_t *len)
{
	size_t key = 0;

	while (line[key] && line[key] != ' ')
		key++;
	for (size_t at = 0; at < size; at += *len + 1) {
		*len = line_length(recorded + at, size - at);
		if (*len > key && same(recorded + at, line, key + 1))
			return recorded + at;
	}
	*len = 0;
	return recorded;
}

bool crn_identity_same(const char *recorded, size_t size, const char *here, char *why,
	size_t why_size)
{
	char its[LINE_SHOWN], ours[LINE_SHOWN];

	for (size_t len; size && *here; here += len + !!here[len]) {
		size_t its_len;
		const char *line = same_key(recorded, size, here, &its_len);

		len = line_length(here, CRN_IDENTITY_MAX);
		if (its_len == len && same(line, here, len))
			continue;
		its_len = CRN_MIN(its_len, sizeof(its) - 1);
		crn_copy(its, line, its_len);
		its[its_len] = 0;
		(void)crn_format(ours, CRN_MIN(len + 1, sizeof(ours)), "%s", here);
		(void)crn_format(why, why_size, "recorded with '%s', and this run has '%s'",
			its_len ? its : "nothing about that", ours);
		return false;
	}
	return true;
}
