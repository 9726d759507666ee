/* SPDX-License-Identifier: MIT */
/* NAME:param=value,... : the table of strategies, and errors that say what would be right. */
#include "speculate/strategy.h"

const struct crn_strategy_ops *const crn_strategies[] = {
	&crn_strategy_none,
	&crn_strategy_last,
	&crn_strategy_active_rnd,
	&crn_strategy_active_fifo,
	&crn_strategy_active_cks,
	&crn_strategy_oracle,
	&crn_strategy_oracle_count,
	&crn_strategy_gspec,
	&crn_strategy_histase,
	&crn_strategy_decay,
	&crn_strategy_random,
	&crn_strategy_meta,
	NULL,
};

void crn_text_add(struct crn_text *t, const char *text)
{
	while (*text && t->used + 1 < t->size)
		t->at[t->used++] = *text++;
	if (t->size)
		t->at[t->used] = 0;
}

static void add_span(struct crn_text *t, const char *text, size_t len)
{
	char one[2] = { 0, 0 };

	/* What the caller typed is quoted, but not at any length. */
	for (size_t i = 0; i < len && i < 40; i++) {
		one[0] = text[i];
		crn_text_add(t, one);
	}
}

void crn_text_number(struct crn_text *t, uint64_t number, unsigned base)
{
	char digits[24], *at = digits + sizeof(digits) - 1;

	*at = 0;
	do {
		*--at = "0123456789abcdef"[number % base];
		number /= base;
	} while (number);
	crn_text_add(t, at);
}

/* In its unit: 3, or 0.0625 with as many digits as it needs (at most 5). */
static void add_value(struct crn_text *t, uint64_t value, uint32_t unit)
{
	uint64_t rest = (value % unit * 100000 + unit / 2) / unit;

	crn_text_number(t, value / unit, 10);
	if (!rest)
		return;
	crn_text_add(t, ".");
	for (uint64_t digit = 10000; rest; rest %= digit, digit /= 10)
		crn_text_number(t, rest / digit, 10);
}

static bool same(const char *name, const char *text, size_t len)
{
	size_t i = 0;

	while (i < len && name[i] && name[i] == text[i])
		i++;
	return i == len && !name[i];
}

/* A decimal number into `unit`s. false: not one, or far too large. */
static bool parse_value(const char *text, size_t len, uint32_t unit, uint64_t *out)
{
	uint64_t whole = 0, part = 0, scale = 1;
	size_t i = 0, digits = 0;

	for (; i < len && text[i] >= '0' && text[i] <= '9'; i++, digits++) {
		whole = whole * 10 + (uint64_t)(text[i] - '0');
		if (whole >> 40)
			return false;
	}
	if (i < len && text[i] == '.' && unit > 1) {
		for (i++; i < len && text[i] >= '0' && text[i] <= '9'; i++, digits++) {
			if (scale >= 1000000000)
				continue;
			part = part * 10 + (uint64_t)(text[i] - '0');
			scale *= 10;
		}
	}
	if (i < len || !digits)
		return false;
	*out = whole * unit + (part * unit + scale / 2) / scale;
	return true;
}

static bool set_parameter(const struct crn_strategy_ops *ops, uint64_t *values, const char *text,
	size_t len, struct crn_text *why)
{
	const struct crn_parameter *p = ops->parameters;
	bool profile = ops->flags & CRN_STRATEGY_PROFILE;
	size_t name = 0, at = 0;

	while (name < len && text[name] != '=')
		name++;
	/* A text, and the only one: a file, by its whole path, for the program may move. */
	if (profile && same("profile", text, name)) {
		if (len > name + 2 && text[name + 1] == '/')
			return true;
		crn_text_add(why, "strategy ");
		crn_text_add(why, ops->name);
		crn_text_add(why, ": profile= takes the whole path of a trace, from / on");
		return false;
	}
	while (at < CRN_PARAMETERS_MAX && p[at].name && !same(p[at].name, text, name))
		at++;
	if (at == CRN_PARAMETERS_MAX || !p[at].name) {
		crn_text_add(why, "strategy ");
		crn_text_add(why, ops->name);
		crn_text_add(why, " has no parameter '");
		add_span(why, text, name);
		crn_text_add(why, profile || p[0].name ? "'; it has" : "', nor any other");
		crn_text_add(why, profile ? " profile" : "");
		for (at = 0; at < CRN_PARAMETERS_MAX && p[at].name; at++) {
			crn_text_add(why, " ");
			crn_text_add(why, p[at].name);
		}
		return false;
	}
	if (name < len && parse_value(text + name + 1, len - name - 1, p[at].unit, &values[at]) &&
		values[at] >= p[at].min && values[at] <= p[at].max)
		return true;
	crn_text_add(why, "strategy ");
	crn_text_add(why, ops->name);
	crn_text_add(why, ": '");
	add_span(why, text, len);
	crn_text_add(why, "' is not a number from ");
	add_value(why, p[at].min, p[at].unit);
	crn_text_add(why, " to ");
	add_value(why, p[at].max, p[at].unit);
	return false;
}

static const struct crn_strategy_ops *find(const char *text, size_t len, struct crn_text *why)
{
	size_t at = 0;

	for (; crn_strategies[at]; at++)
		if (same(crn_strategies[at]->name, text, len))
			return crn_strategies[at];
	crn_text_add(why, "unknown strategy '");
	add_span(why, text, len);
	crn_text_add(why, "' (");
	for (at = 0; crn_strategies[at]; at++) {
		crn_text_add(why, at ? ", " : "");
		crn_text_add(why, crn_strategies[at]->name);
	}
	crn_text_add(why, ")");
	return NULL;
}

const struct crn_strategy_ops *crn_strategy_parse(
	const char *spec, uint64_t *values, char *why, size_t why_size)
{
	struct crn_text reason = { why, why_size, 0 };
	const struct crn_strategy_ops *ops;
	size_t len = 0;

	while (spec[len] && spec[len] != ':')
		len++;
	ops = find(spec, len, &reason);
	if (!ops)
		return NULL;
	for (size_t i = 0; i < CRN_PARAMETERS_MAX; i++)
		values[i] = ops->parameters[i].standard;
	for (spec += len; *spec; spec += len) {
		spec++;
		for (len = 0; spec[len] && spec[len] != ',';)
			len++;
		if (!set_parameter(ops, values, spec, len, &reason))
			return NULL;
	}
	return ops;
}

bool crn_strategy_describe(size_t index, const char **name, const char **summary)
{
	for (size_t i = 0; i <= index; i++)
		if (!crn_strategies[i])
			return false;
	*name = crn_strategies[index]->name;
	*summary = crn_strategies[index]->summary;
	return true;
}

bool crn_strategy_parameter(size_t index, size_t parameter, char *text, size_t size)
{
	const struct crn_parameter *p = crn_strategies[index]->parameters + parameter;
	struct crn_text t = { text, size, 0 };

	if (parameter >= CRN_PARAMETERS_MAX || !p->name)
		return false;
	crn_text_add(&t, p->name);
	crn_text_add(&t, "=");
	add_value(&t, p->standard, p->unit);
	crn_text_add(&t, " (");
	add_value(&t, p->min, p->unit);
	crn_text_add(&t, " to ");
	add_value(&t, p->max, p->unit);
	crn_text_add(&t, "): ");
	crn_text_add(&t, p->help);
	return true;
}

int crn_speculation_check(const char *spec, char *why, size_t why_size)
{
	uint64_t values[CRN_PARAMETERS_MAX];

	return crn_strategy_parse(spec, values, why, why_size) ? 0 : CRN_PORT_EINVAL;
}

bool crn_speculation_profile(const char *spec, char *path, size_t size)
{
	static const char name[] = "profile=";
	size_t used = 0, i = 0;

	while (*spec && *spec != ':')
		spec++;
	while (*spec) {
		spec++;
		for (i = 0; name[i] && spec[i] == name[i];)
			i++;
		if (!name[i])
			break;
		while (*spec && *spec != ',')
			spec++;
	}
	if (!*spec)
		return false;
	for (spec += i; *spec && *spec != ',' && used + 1 < size; spec++)
		path[used++] = *spec;
	path[used] = 0;
	return true;
}
