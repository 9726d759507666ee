/* SPDX-License-Identifier: MIT */
/* Contexts, the turn of intervals, and what every strategy has in common. */
#include "speculate/speculate.h"
#include "speculate/strategy.h"

/* More keys than this share by turns: the context that was not current for longest goes. */
#define CONTEXTS_MAX 64

/* The weights of SMC 7.3, in hundredths. */
#define SMC_OVER     100u
#define SMC_OVER_CKS 250u
#define SMC_UNDER    800u

/* ---- Contexts -------------------------------------------------------------------------------- */

static void context_free(struct crn_speculation *s, struct crn_working_set *ws)
{
	if (ws->state)
		s->port->free(s->port, ws->state, ws->state_size);
	s->stats.alloc_failures += ws->failures;
	crn_ws_fini(ws);
	s->port->free(s->port, ws, sizeof(*ws));
	s->context_count--;
}

static struct crn_working_set *context_new(struct crn_speculation *s, uint64_t key)
{
	struct crn_working_set *ws = s->port->alloc(s->port, sizeof(*ws));

	if (!ws)
		return NULL;
	crn_ws_init(ws, s->port, key);
	if (s->ops->state_size) {
		ws->state_size = s->ops->state_size;
		ws->state = s->port->alloc(s->port, ws->state_size);
		if (!ws->state) {
			s->port->free(s->port, ws, sizeof(*ws));
			return NULL;
		}
		if (s->ops->context_open)
			s->ops->context_open(s, ws);
	}
	ws->next = s->contexts;
	s->contexts = ws;
	s->context_count++;
	return ws;
}

static void drop_oldest(struct crn_speculation *s)
{
	struct crn_working_set **oldest = NULL, *gone;

	for (struct crn_working_set **at = &s->contexts; *at; at = &(*at)->next)
		if (*at != s->current && (!oldest || (*at)->used < (*oldest)->used))
			oldest = at;
	gone = *oldest;
	*oldest = gone->next;
	context_free(s, gone);
}

/* The working set of the key; the current one if there is no memory for a new one. */
static struct crn_working_set *context_of(struct crn_speculation *s, uint64_t key)
{
	struct crn_working_set *ws = s->contexts;

	while (ws && ws->key != key)
		ws = ws->next;
	if (ws)
		return ws;
	if (s->context_count >= CONTEXTS_MAX)
		drop_oldest(s);
	ws = context_new(s, key);
	if (!ws)
		s->stats.alloc_failures++;
	return ws ? ws : s->current;
}

void crn_speculation_context(struct crn_speculation *s, uint64_t key)
{
	if (!(s->ops->flags & CRN_STRATEGY_ONE_CONTEXT))
		s->key_next = key;
}

/* ---- Open and close -------------------------------------------------------------------------- */

int crn_speculation_open(struct crn_speculation **out, const struct crn_port *port,
	const char *spec, char *why, size_t why_size)
{
	struct crn_text reason = { why, why_size, 0 };
	const struct crn_strategy_ops *ops;
	uint64_t values[CRN_PARAMETERS_MAX];
	struct crn_speculation *s;
	int err = CRN_PORT_ENOMEM;

	crn_text_add(&reason, "");
	ops = crn_strategy_parse(spec, values, why, why_size);
	if (!ops)
		return CRN_PORT_EINVAL;
	if (ops->flags & CRN_STRATEGY_PROFILE && !port->profile) {
		crn_text_add(&reason, "strategy ");
		crn_text_add(&reason, ops->name);
		crn_text_add(&reason, " needs the profile (a trace) of an earlier run");
		return CRN_PORT_EINVAL;
	}
	s = port->alloc(port, sizeof(*s));
	if (!s)
		goto err_memory;
	*s = (struct crn_speculation){ .port = port, .ops = ops };
	for (size_t i = 0; i < CRN_PARAMETERS_MAX; i++)
		s->values[i] = values[i];
	if (ops->common_size) {
		s->common = port->alloc(port, ops->common_size);
		if (!s->common)
			goto err_common;
	}
	if (ops->open) {
		err = ops->open(s);
		if (err < 0)
			goto err_open;
	}
	s->current = context_new(s, 0);
	if (!s->current) {
		err = CRN_PORT_ENOMEM;
		goto err_context;
	}
	s->current->now = 1;
	*out = s;
	return 0;

err_context:
	if (ops->close)
		ops->close(s);
err_open:
	if (s->common)
		port->free(port, s->common, ops->common_size);
err_common:
	port->free(port, s, sizeof(*s));
err_memory:
	crn_text_add(&reason, "no memory for the strategy");
	return err;
}

void crn_speculation_close(struct crn_speculation *s)
{
	const struct crn_port *port = s->port;

	while (s->contexts) {
		struct crn_working_set *ws = s->contexts;

		s->contexts = ws->next;
		context_free(s, ws);
	}
	if (s->ops->close)
		s->ops->close(s);
	if (s->common)
		port->free(port, s->common, s->ops->common_size);
	crn_hot_free(s);
	if (s->written.pages)
		port->free(port, s->written.pages,
			s->written.capacity * sizeof(*s->written.pages));
	port->free(port, s, sizeof(*s));
}

/* ---- The turn of intervals ------------------------------------------------------------------- */

/* Until the checkpoint: a restore would make it untrue, and hooks may rely on all that is known. */
static void note_written(struct crn_speculation *s, uintptr_t page)
{
	struct crn_written *w = &s->written;

	if (w->count == w->capacity) {
		size_t capacity = w->capacity ? w->capacity * 2 : 128;
		uintptr_t *pages = crn_port_resize(s->port, w->pages,
			w->capacity * sizeof(*pages), capacity * sizeof(*pages));

		if (!pages) {
			s->stats.alloc_failures++;
			w->lost++;
			return;
		}
		w->pages = pages;
		w->capacity = capacity;
	}
	w->pages[w->count++] = page;
}

/* The strategy learns of the pages written while cold; they are open until the next interval. */
static void show_written(struct crn_speculation *s)
{
	s->stats.written += s->written.count + s->written.lost;
	for (size_t i = 0; s->ops->fault && i < s->written.count; i++) {
		uint32_t index;

		s->ops->fault(s, s->current, s->written.pages[i]);
		index = crn_ws_find(s->current, s->written.pages[i]);
		if (index != CRN_WS_NONE)
			s->current->entries[index].faulted = s->clock;
	}
}

void crn_speculation_written(struct crn_speculation *s, uintptr_t page)
{
	s->stats.undercopied++;
	note_written(s, page);
}

void crn_speculation_granted(struct crn_speculation *s, uintptr_t page, bool changed)
{
	s->stats.granted++;
	if (changed)
		note_written(s, page);
	else
		s->stats.overcopied++;
}

bool crn_speculation_near(
	const struct crn_speculation *s, uintptr_t page, uintptr_t *begin, uintptr_t *end)
{
	return s->ops->near && s->ops->near(s, page, begin, end);
}

static void count_hot(struct crn_speculation *s)
{
	uint64_t changed = 0;

	for (size_t i = 0; i < crn_hot_words(&s->hot); i++)
		changed += crn_popcount(s->hot.changed[i] & s->hot.used[i]);
	s->stats.hot += s->hot.count;
	s->stats.overcopied += s->hot.count - changed;
	s->stats.written += changed;
}

static void clear_changed(struct crn_hot_table *h)
{
	/* All of it: slots above the limit may have been freed since the tracker set their bits. */
	for (size_t i = 0; i < h->capacity / 64; i++)
		h->changed[i] = 0;
}

void crn_speculation_checkpoint(struct crn_speculation *s)
{
	struct crn_working_set *from = s->current, *to = from;

	s->hot.evicted_count = s->hot.promoted_count = 0;
	s->stats.intervals++;
	s->clock++;
	if (s->hot.count)
		count_hot(s);
	if (!s->given_up)
		show_written(s);
	if (s->ops->checkpoint && !s->given_up)
		s->ops->checkpoint(s, from);
	clear_changed(&s->hot);
	s->written.count = s->written.lost = 0;
	if (s->key_next != from->key && !s->given_up)
		to = context_of(s, s->key_next);
	to->used = s->clock;
	to->now++;
	if (s->ops->begin && !s->given_up)
		s->ops->begin(s, to);
	if (to != from) {
		s->current = to;
		crn_hot_switch(s, from, to);
	}
	crn_hot_settle(s, from);
}

void crn_speculation_restore(struct crn_speculation *s, uint64_t intervals)
{
	clear_changed(&s->hot);
	s->written.count = s->written.lost = 0;
	if (s->ops->restore && !s->given_up)
		s->ops->restore(s, intervals);
}

static void forget_range(
	struct crn_speculation *s, struct crn_working_set *ws, uintptr_t begin, uintptr_t end)
{
	uint32_t next;

	for (uint32_t at = ws->first; at != CRN_WS_NONE; at = next) {
		struct crn_ws_entry *e = &ws->entries[at];

		next = e->next;
		if (e->page < begin || e->page >= end)
			continue;
		if (e->slot != CRN_SLOT_NONE)
			crn_hot_drop(s, ws, at);
		crn_ws_remove(ws, at);
	}
}

void crn_speculation_area_removed(struct crn_speculation *s, uintptr_t begin, uintptr_t end)
{
	for (struct crn_working_set *ws = s->contexts; ws; ws = ws->next) {
		/* One page, the usual case, is found without a walk. */
		if (end - begin <= CRN_PORT_PAGE && crn_ws_find(ws, begin) == CRN_WS_NONE)
			continue;
		forget_range(s, ws, begin, end);
	}
	if (s->ops->removed)
		s->ops->removed(s, begin, end);
}

void crn_speculation_cool(struct crn_speculation *s)
{
	struct crn_working_set *ws = s->current;

	s->hot.evicted_count = s->hot.promoted_count = 0;
	if (s->ops->leave && !s->given_up)
		s->ops->leave(s, ws);
	for (uint32_t at = ws->first; at != CRN_WS_NONE; at = ws->entries[at].next) {
		crn_ws_set_hot(ws, at, false);
		if (ws->entries[at].slot != CRN_SLOT_NONE)
			crn_hot_evict(s, ws, at);
	}
	crn_hot_settle(s, ws);
}

static void say_where(struct crn_text *t, const struct crn_speculation *s, const char *why,
	uint64_t interval, uintptr_t page)
{
	crn_text_add(t, s->ops->name);
	crn_text_add(t, ": interval ");
	crn_text_number(t, interval, 10);
	if (page) {
		crn_text_add(t, ", page 0x");
		crn_text_number(t, page, 16);
	}
	crn_text_add(t, ": ");
	crn_text_add(t, why);
}

void crn_strategy_doubt(const struct crn_speculation *s, const char *why, uint64_t interval,
	uintptr_t page)
{
	char text[sizeof(s->trouble)];
	struct crn_text t = { text, sizeof(text), 0 };

	say_where(&t, s, why, interval, page);
	if (s->port->log)
		s->port->log(s->port, text);
}

void crn_strategy_give_up(
	struct crn_speculation *s, const char *why, uint64_t interval, uintptr_t page)
{
	struct crn_text t = { s->trouble, sizeof(s->trouble), 0 };

	say_where(&t, s, why, interval, page);
	s->given_up = true;
	s->dummies = 0;
	for (uint32_t at = s->current->first; at != CRN_WS_NONE; at = s->current->entries[at].next)
		crn_ws_set_hot(s->current, at, false);
	if (s->port->log)
		s->port->log(s->port, s->trouble);
}

/* ---- Replays --------------------------------------------------------------------------------- */

/* The fault hook's answer for one page: all of the run counts as open in this interval. */
static void grant(struct crn_speculation *s, uintptr_t page)
{
	struct crn_working_set *ws = s->current;
	struct crn_ws_entry *e;
	uintptr_t begin, end;

	if (!s->port->at_fault || !crn_speculation_near(s, page, &begin, &end))
		return;
	for (uintptr_t at = begin; at < end; at += CRN_PORT_PAGE) {
		uint32_t index = crn_ws_add(ws, at);

		if (index == CRN_WS_NONE)
			continue;
		e = &ws->entries[index];
		/* It is open already when the run of a later fault comes by. */
		if (at == page)
			e->faulted = s->clock + 1;
		if (e->faulted == s->clock + 1 || e->granted == ws->now ||
			e->slot != CRN_SLOT_NONE)
			continue;
		e->granted = ws->now;
		s->stats.granted++;
		s->stats.overcopied++;
	}
}

static void replay_page(struct crn_speculation *s, uintptr_t page)
{
	struct crn_working_set *ws = s->current;
	uint32_t index = crn_ws_find(ws, page);
	uint32_t slot = index == CRN_WS_NONE ? CRN_SLOT_NONE : ws->entries[index].slot;

	if (slot != CRN_SLOT_NONE) {
		s->hot.changed[slot / 64] |= 1ull << slot % 64;
	} else if (index != CRN_WS_NONE && ws->entries[index].granted == ws->now) {
		/* Opened for a neighbour's sake, and rightly so. */
		s->stats.overcopied--;
		note_written(s, page);
	} else {
		grant(s, page);
		crn_speculation_written(s, page);
	}
}

void crn_speculation_replay(struct crn_speculation *s, const uintptr_t *pages, size_t count)
{
	if (s->ops->flags & CRN_STRATEGY_BOUND && !s->given_up) {
		/* Nothing faults, and as many pages are copied as it said. */
		s->stats.hot += s->dummies;
		s->stats.overcopied += s->dummies > count ? s->dummies - count : 0;
		s->stats.written += count;
	} else {
		for (size_t i = 0; i < count; i++)
			replay_page(s, pages[i]);
	}
	crn_speculation_checkpoint(s);
}

/* ---- Questions ------------------------------------------------------------------------------- */

const char *crn_speculation_name(const struct crn_speculation *s)
{
	return s->ops->name;
}

uint32_t crn_speculation_flags(const struct crn_speculation *s)
{
	return s->ops->flags;
}

uint64_t *crn_speculation_changed(struct crn_speculation *s)
{
	return s->hot.changed;
}

size_t crn_speculation_slots(const struct crn_speculation *s)
{
	return s->hot.limit;
}

const struct crn_hot_run *crn_speculation_evicted(const struct crn_speculation *s, size_t *count)
{
	*count = s->hot.evicted_count;
	return s->hot.evicted;
}

const struct crn_hot_page *crn_speculation_promoted(const struct crn_speculation *s, size_t *count)
{
	*count = s->hot.promoted_count;
	return s->hot.promoted;
}

size_t crn_speculation_hot(const struct crn_speculation *s)
{
	return s->hot.count;
}

size_t crn_speculation_dummies(const struct crn_speculation *s)
{
	return s->dummies;
}

bool crn_speculation_is_hot(const struct crn_speculation *s, uintptr_t page)
{
	uint32_t index = crn_ws_find(s->current, page);

	return index != CRN_WS_NONE && s->current->entries[index].slot != CRN_SLOT_NONE;
}

const char *crn_speculation_trouble(const struct crn_speculation *s)
{
	return s->given_up ? s->trouble : NULL;
}

void crn_speculation_stats(const struct crn_speculation *s, struct crn_speculation_stats *out)
{
	*out = s->stats;
	out->contexts = s->context_count;
	out->memory = sizeof(*s) + s->ops->common_size + s->hot.block_size +
		s->written.capacity * sizeof(*s->written.pages);
	for (const struct crn_working_set *ws = s->contexts; ws; ws = ws->next) {
		out->pages_known += ws->count;
		out->alloc_failures += ws->failures;
		out->memory += sizeof(*ws) + ws->state_size + crn_ws_bytes(ws);
	}
	if (s->ops->bytes)
		out->memory += s->ops->bytes(s);
}

void crn_speculation_stats_reset(struct crn_speculation *s)
{
	s->stats = (struct crn_speculation_stats){ 0 };
	for (struct crn_working_set *ws = s->contexts; ws; ws = ws->next)
		ws->failures = 0;
}

uint64_t crn_speculation_weighted(const struct crn_speculation *s,
	const struct crn_speculation_stats *stats, const struct crn_costs *costs)
{
	uint64_t over = s->ops == &crn_strategy_active_cks ? SMC_OVER_CKS : SMC_OVER;
	uint64_t pair;

	if (!costs)
		return stats->overcopied * over + stats->undercopied * SMC_UNDER;
	pair = (uint64_t)costs->fault + costs->protect;
	return stats->overcopied * 100 +
		stats->undercopied * pair * 100 / (costs->copy ? costs->copy : 1);
}

uint64_t crn_speculation_cycles(
	const struct crn_speculation_stats *stats, const struct crn_costs *costs)
{
	/*
	 * A page that faulted is protected again unless it was made hot while it was open. One that
	 * was opened with it goes by the same call, and is compared.
	 */
	uint64_t kept = stats->promotions - stats->reopened;
	uint64_t cold = stats->undercopied > kept ? stats->undercopied - kept : 0;

	return stats->hot * costs->copy + stats->undercopied * costs->fault +
		(cold + stats->evictions) * costs->protect + stats->reopened * costs->open +
		stats->granted * 2 * costs->copy;
}
