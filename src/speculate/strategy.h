/* SPDX-License-Identifier: MIT */
/*
 * What a strategy is: one file, one ops table. It learns from the hooks and says by crn_ws_set_hot
 * what it wants hot in the interval that begins. Its own memory is `common` (one for the
 * speculation) and ws->state (one for each context).
 *
 * Order at a checkpoint: `fault` for each page written while cold; then `checkpoint`, which also
 * finds the hot pages that changed in s->hot.changed. If the key changes, `begin` of the next
 * working set, whose wishes are then taken whole. All hooks may be NULL.
 */
#ifndef CRN_STRATEGY_H
#define CRN_STRATEGY_H

#include "speculate/port.h"
#include "speculate/speculate.h"
#include "speculate/working_set.h"

#define CRN_PARAMETERS_MAX 8
#define CRN_ONE		   65536u /* the unit of fractions: 16 bits behind the point */

/* Values are whole numbers if unit is 1, else fractions in units of 1 / CRN_ONE. */
struct crn_parameter {
	const char *name, *help;
	uint32_t unit;
	uint64_t standard, min, max;
};

struct crn_strategy_ops {
	const char *name, *summary;
	uint32_t flags; /* enum crn_strategy_flags */
	struct crn_parameter parameters[CRN_PARAMETERS_MAX];
	size_t common_size, state_size;

	int (*open)(struct crn_speculation *s);
	void (*close)(struct crn_speculation *s);
	void (*context_open)(struct crn_speculation *s, struct crn_working_set *ws);

	void (*fault)(struct crn_speculation *s, struct crn_working_set *ws, uintptr_t page);
	void (*checkpoint)(struct crn_speculation *s, struct crn_working_set *ws);
	void (*begin)(struct crn_speculation *s, struct crn_working_set *ws);
	/*
	 * The hot pages of `ws` are about to lose their slots: what the strategy keeps by slot
	 * belongs into their entries.
	 */
	void (*leave)(struct crn_speculation *s, struct crn_working_set *ws);
	void (*restore)(struct crn_speculation *s, uint64_t intervals);
	/* Area removed; the working sets' entries have gone already. */
	void (*removed)(struct crn_speculation *s, uintptr_t begin, uintptr_t end);
	/* See crn_speculation_near. */
	bool (*near)(const struct crn_speculation *s, uintptr_t page, uintptr_t *begin,
		uintptr_t *end);
	/* At a change of context: shall this hot page stay hot although `ws` does not want it? */
	bool (*stay)(struct crn_speculation *s, struct crn_working_set *from, uint32_t index,
		struct crn_working_set *ws);
	uint64_t (*bytes)(const struct crn_speculation *s); /* of the strategy's own memory */
};

/*
 * The pages that are hot at the tracker, by slot. `changed` and `used` are bitmaps; a slot in use
 * belongs to entry[slot] of the current working set. The bitmap `steady` is the strategy's, zero
 * at promotion.
 */
struct crn_hot_table {
	uint32_t *entry;
	uintptr_t *page;
	uint64_t *used, *changed, *steady;
	struct crn_hot_run *evicted;
	struct crn_hot_page *promoted;
	size_t capacity, limit; /* limit: one above the highest slot in use */
	size_t count, evicted_count, promoted_count;
	void *block;
	size_t block_size;
};

/* The pages written while cold in the open interval, in order. */
struct crn_written {
	uintptr_t *pages;
	size_t count, capacity, lost; /* lost: there was no memory to note them */
};

struct crn_speculation {
	const struct crn_port *port;
	const struct crn_strategy_ops *ops;
	uint64_t values[CRN_PARAMETERS_MAX];
	struct crn_hot_table hot;
	struct crn_written written;
	struct crn_working_set *current, *contexts;
	uint64_t context_count, key_next, clock;
	void *common;
	size_t dummies;
	bool given_up;
	char trouble[160];
	struct crn_speculation_stats stats;
};

extern const struct crn_strategy_ops *const crn_strategies[]; /* NULL-terminated */
extern const struct crn_strategy_ops crn_strategy_active_cks, crn_strategy_active_fifo,
	crn_strategy_active_rnd, crn_strategy_decay, crn_strategy_gspec, crn_strategy_histase,
	crn_strategy_last, crn_strategy_meta, crn_strategy_none, crn_strategy_oracle,
	crn_strategy_oracle_count, crn_strategy_random;

/* Note the reason, log it, and behave like `none` from now on. */
void crn_strategy_give_up(struct crn_speculation *s, const char *why, uint64_t interval,
	uintptr_t page);

/* Log the same, and go on. */
void crn_strategy_doubt(const struct crn_speculation *s, const char *why, uint64_t interval,
	uintptr_t page);

/* ---- strategy_options.c */
const struct crn_strategy_ops *crn_strategy_parse(
	const char *spec, uint64_t *values, char *why, size_t why_size);

/* A text in a buffer that is never overrun and always ends in 0. */
struct crn_text {
	char *at;
	size_t size, used;
};
void crn_text_add(struct crn_text *t, const char *text);
void crn_text_number(struct crn_text *t, uint64_t number, unsigned base);

/* ---- hot_table.c */
/*
 * Bring the tracker's hot pages to what the current working set wants. `from` was the current one
 * in the interval that has ended: it knows which pages are open because they were just written.
 */
void crn_hot_settle(struct crn_speculation *s, const struct crn_working_set *from);
/* The current working set has become another one: compare all pages. */
void crn_hot_switch(
	struct crn_speculation *s, struct crn_working_set *from, struct crn_working_set *to);
/* Make entry `index`, hot at the tracker, cold there. */
void crn_hot_evict(struct crn_speculation *s, struct crn_working_set *ws, uint32_t index);
/* The same, unlisted: the tracker knows. */
void crn_hot_drop(struct crn_speculation *s, struct crn_working_set *ws, uint32_t index);
void crn_hot_free(struct crn_speculation *s);

static inline size_t crn_hot_words(const struct crn_hot_table *h)
{
	return (h->limit + 63) / 64;
}

/* Forget a page, whether it is hot or not. */
static inline void crn_strategy_drop(
	struct crn_speculation *s, struct crn_working_set *ws, uint32_t index)
{
	if (ws->entries[index].slot != CRN_SLOT_NONE)
		crn_hot_evict(s, ws, index);
	crn_ws_remove(ws, index);
}

static inline void *crn_port_resize(
	const struct crn_port *port, void *old, size_t old_size, size_t size)
{
	unsigned char *fresh = port->alloc(port, size);

	if (!fresh)
		return NULL;
	for (size_t i = 0; i < old_size; i++)
		fresh[i] = ((const unsigned char *)old)[i];
	if (old)
		port->free(port, old, old_size);
	return fresh;
}

#endif
