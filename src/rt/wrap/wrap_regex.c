/* SPDX-License-Identifier: MIT */
/*
 * Patterns, of which libc keeps a part in the program's memory: the pattern's head, its fastmap,
 * and the registers. What it keeps in its own heap is of use as long as a head may come back that
 * leads to it, so a pattern that is freed is put off.
 */
#include <regex.h>
#include <stdbool.h>
#include <stdlib.h>
#include "rt/deferred.h"
#include "rt/heap.h"
#include "rt/lent_blocks.h"
#include "rt/wrap/wrap.h"
#include "rt/wrap/wrap_ended.h"

#define FASTMAP 256

#pragma weak __cairn_wrap_free
void __cairn_wrap_free(void *block);
#pragma weak __cairn_wrap_realloc
void *__cairn_wrap_realloc(void *block, size_t size);

static void keep_pattern(struct re_pattern_buffer *re)
{
	OBJECT(re)
	SPAN(re->fastmap, FASTMAP)
}

/*
 * Registers that libc would allocate are blocks of the program's heap: what libc has, with its
 * headers around it, must not be turned back, nor freed while a restore may need it. They have room
 * for one more than there are groups, as libc has it.
 */
static bool give_registers(const struct re_pattern_buffer *re, struct re_registers *regs,
	bool fresh)
{
	size_t need = re->re_nsub + 2, size = need * sizeof(*regs->start);
	regoff_t *start = __cairn_wrap_realloc(fresh ? NULL : regs->start, size), *end = NULL;

	if (start)
		end = __cairn_wrap_realloc(fresh ? NULL : regs->end, size);
	if (start && (end || !fresh))
		regs->start = start;
	if (end) {
		regs->end = end;
		regs->num_regs = need;
	} else if (fresh) {
		__cairn_wrap_free(start);
	}
	return end;
}

/* What a match writes. */
struct match {
	struct re_pattern_buffer *re;
	struct re_registers *regs, before;
	bool fresh; /* they were allocated for it */
};

static struct match match_begin(struct re_pattern_buffer *re, struct re_registers *regs)
{
	struct match m = { .re = re, .regs = re->no_sub ? NULL : regs };

	keep_pattern(re);
	if (!m.regs)
		return m;
	OBJECT(regs)
	m.before = *regs;
	m.fresh = re->regs_allocated == REGS_UNALLOCATED && __cairn_wrap_realloc &&
		give_registers(re, regs, true);
	if (m.fresh)
		re->regs_allocated = REGS_REALLOCATE;
	else if (re->regs_allocated == REGS_REALLOCATE && regs->num_regs < re->re_nsub + 2 &&
		__cairn_wrap_realloc)
		(void)give_registers(re, regs, false);
	if (re->regs_allocated != REGS_UNALLOCATED) {
		ARRAY(regs->start, regs->num_regs)
		ARRAY(regs->end, regs->num_regs)
	}
	return m;
}

/* Without a match libc allocates none. */
static regoff_t match_end(const struct match *m, regoff_t result)
{
	if (!m->fresh || result >= 0)
		return result;
	__cairn_wrap_free(m->regs->start);
	__cairn_wrap_free(m->regs->end);
	*m->regs = m->before;
	m->re->regs_allocated = REGS_UNALLOCATED;
	return result;
}

WRAPPER(const char *, re_compile_pattern, const char *pattern, size_t n,
	struct re_pattern_buffer *re)
{
	keep_pattern(re);
	return re_compile_pattern(pattern, n, re);
}

WRAPPER(int, re_compile_fastmap, struct re_pattern_buffer *re)
{
	keep_pattern(re);
	return re_compile_fastmap(re);
}

WRAPPER(regoff_t, re_search, struct re_pattern_buffer *re, const char *s, regoff_t n,
	regoff_t from, regoff_t range, struct re_registers *regs)
{
	struct match match = match_begin(re, regs);

	return match_end(&match, re_search(re, s, n, from, range, regs));
}

WRAPPER(regoff_t, re_search_2, struct re_pattern_buffer *re, const char *s, regoff_t n,
	const char *t, regoff_t m, regoff_t from, regoff_t range, struct re_registers *regs,
	regoff_t stop)
{
	struct match match = match_begin(re, regs);

	return match_end(&match, re_search_2(re, s, n, t, m, from, range, regs, stop));
}

WRAPPER(regoff_t, re_match, struct re_pattern_buffer *re, const char *s, regoff_t n,
	regoff_t from, struct re_registers *regs)
{
	struct match match = match_begin(re, regs);

	return match_end(&match, re_match(re, s, n, from, regs));
}

WRAPPER(regoff_t, re_match_2, struct re_pattern_buffer *re, const char *s, regoff_t n,
	const char *t, regoff_t m, regoff_t from, struct re_registers *regs, regoff_t stop)
{
	struct match match = match_begin(re, regs);

	return match_end(&match, re_match_2(re, s, n, t, m, from, regs, stop));
}

WRAPPER(void, re_set_registers, struct re_pattern_buffer *re, struct re_registers *regs,
	__re_size_t n, regoff_t *starts, regoff_t *ends)
{
	keep_pattern(re);
	OBJECT(regs)
	re_set_registers(re, regs, n, starts, ends);
}

/* ---- Freeing --------------------------------------------------------------------------------- */

struct freed {
	struct crn_ended head;
	regex_t pattern;
};

static void end(struct crn_ended *e)
{
	struct freed *freed = (struct freed *)e;

	regfree(&freed->pattern);
	free(freed);
}

/* A block of the program's goes now, and comes back with an interval; others with the rest. */
static void *left(void *block)
{
	if (!block || (!crn_heap_holds(block) && !crn_own_block(block)))
		return block;
	__cairn_wrap_free(block);
	return NULL;
}

WRAPPER(void, regfree, regex_t *re)
{
	bool later = __cairn_rt.active && __cairn_wrap_free;
	struct freed *freed = later ? malloc(sizeof(*freed)) : NULL;

	OBJECT(re)
	if (!freed) {
		regfree(re);
		return;
	}
	*freed = (struct freed){ { end }, *re };
	freed->pattern.fastmap = left(re->fastmap);
	freed->pattern.translate = left(re->translate);
	re->buffer = NULL;
	re->allocated = 0;
	re->fastmap = NULL;
	re->translate = NULL;
	(void)crn_deferred_add(CRN_ENDED(freed));
}
