/* SPDX-License-Identifier: MIT */
/*
 * The program break. A fall is put off until the next checkpoint, like an munmap (hooks_memory.c):
 * the kernel's break stays, so that a restore finds the memory, and the program is told of its own.
 * If that rises again meanwhile, what it had given up is emptied first, because it must be zeros.
 *
 *	e->break_put_off == 0                    the program's break is the kernel's
 *	crn_agent->break_begin <= e->break_put_off < the kernel's   it is the program's
 */
#include "effects/effects.h"
#include "effects/hooks.h"
#include "os/memory.h"

void crn_break_settle(void)
{
	struct crn_effects *e = crn_agent->effects;
	long args[6] = { (long)e->break_put_off };
	struct crn_range ends[2] = { { 0 } };

	if (!e->break_put_off)
		return;
	ends[0] = (struct crn_range){ crn_page_up(e->break_put_off), crn_memory_break(0) };
	(void)crn_maps_call(crn_agent->session, SYS_brk, args, CRN_MAPS_BREAK, ends);
	e->break_put_off = 0;
}

bool crn_break_overlaps(uintptr_t addr, size_t len)
{
	uintptr_t begin = crn_page_up(crn_agent->effects->break_put_off);

	return begin && begin < addr + len && addr < crn_page_up(crn_memory_break(0));
}

/* The program's break is `to` from here on, 0: the kernel's; both until a restore. */
static void put_off(struct crn_call *call, uintptr_t to)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_inverse *inv = crn_inverse_add(call, CRN_INV_BREAK_KEPT, -1);

	if (inv)
		inv->a = e->break_put_off;
	e->break_put_off = to;
}

/* As the kernel sees it, which loses what is above the break. */
static enum crn_verdict at_once(struct crn_call *call)
{
	crn_effects_settle();
	crn_call_raise(call);
	call->scratch[0] = call->scratch[1] = crn_memory_break(0);
	return CRN_CALL_RUN_THEN;
}

static enum crn_verdict falls(struct crn_call *call, uintptr_t to)
{
	struct crn_effects *e = crn_agent->effects;
	uintptr_t kernel = call->scratch[0], end = crn_page_up(kernel);

	if (to < crn_agent->break_begin || end - crn_page_up(to) > CRN_DELAYED_BYTES ||
		e->inverse_count == CRN_INVERSES_MAX)
		return at_once(call);
	if (!e->break_put_off && crn_page_up(to) == end)
		return CRN_CALL_RUN_THEN; /* nothing is lost */
	put_off(call, to);
	call->result = (long)to;
	return CRN_CALL_ANSWERED;
}

static enum crn_verdict rises(struct crn_call *call, uintptr_t to)
{
	uintptr_t kernel = call->scratch[0], begin = crn_page_up(call->scratch[1]);
	uintptr_t end = crn_page_up(to < kernel ? to : kernel);

	if (begin < end && !crn_memory_empty(begin, end))
		return at_once(call);
	put_off(call, to < kernel ? to : 0);
	if (to > kernel)
		return CRN_CALL_RUN_THEN;
	call->result = (long)to;
	return CRN_CALL_ANSWERED;
}

static enum crn_verdict brk_before(struct crn_call *call)
{
	uintptr_t kernel = crn_memory_break(0), put_off = crn_agent->effects->break_put_off;
	uintptr_t now = put_off ? put_off : kernel, to = (uintptr_t)call->args[0];

	call->scratch[0] = kernel;
	call->scratch[1] = now;
	if (!to || to == now) {
		call->result = (long)now;
		return CRN_CALL_ANSWERED;
	}
	if (to < now)
		return falls(call, to);
	return put_off ? rises(call, to) : CRN_CALL_RUN_THEN;
}

static void brk_after(struct crn_call *call)
{
	uintptr_t old = call->scratch[0], was = call->scratch[1], now = (uintptr_t)call->result;
	struct crn_inverse *inv;

	if (now == old) { /* refused */
		if (was == old)
			return;
		crn_agent->effects->break_put_off = was;
		call->result = (long)was;
		return;
	}
	if (crn_page_up(now) < crn_page_up(old)) { /* content is gone */
		crn_call_raise(call);
		return;
	}
	inv = crn_inverse_add(call, CRN_INV_BREAK, -1);
	if (inv)
		inv->a = old;
}
const struct crn_hook crn_hook_brk = {brk_before, brk_after};
