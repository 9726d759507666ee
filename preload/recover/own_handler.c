/* SPDX-License-Identifier: MIT */
/*
 * Faults that are no crashes, because the program counts on them: null checks, polls and stack
 * checks of a Java virtual machine, bounds checks of WebAssembly, write barriers. Once the program
 * has continued from a handler, that handler gets all its faults from then on, without a word and
 * without a restore. Before that, a fault in code that no file holds is special: the program has
 * generated that code and knows best what its faults mean, so a program that has a handler is asked
 * first.
 *
 * That the program has continued is seen at the return from the handler's frame or, if siglongjmp
 * has left the handler, at the next checkpoint that the thread takes. But siglongjmp is also how a
 * program saves itself from a crash that could not be recovered from, and the next crash may be
 * recoverable: such a handler stays the last resort.
 *
 * Our timers do not interrupt a handler: redis tests all memory in its handler, ours too, which
 * holds its test patterns meanwhile.
 */
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "effects/effects.h"
#include "os/descriptor.h"
#include "recover/recover.h"

static uintptr_t own_handler(const struct crn_thread *t, int sig)
{
	struct crn_ksigaction act;

	crn_sigaction_get(sig, &act);
	if (act.handler <= (uintptr_t)SIG_IGN || (t->program_blocked & 1ull << (sig - 1)))
		return 0;
	return act.handler;
}

static bool resumes(uintptr_t handler)
{
	for (unsigned i = 0; i < CRN_ARRAY_SIZE(crn_agent->resuming); i++)
		if (__atomic_load_n(&crn_agent->resuming[i], __ATOMIC_RELAXED) == handler)
			return true;
	return false;
}

bool crn_fault_is_own(const struct crn_thread *t, int sig)
{
	uintptr_t handler = own_handler(t, sig);

	return handler && resumes(handler);
}

bool crn_fault_is_generated(const struct crn_crash *crash)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_mapping m;

	return own_handler(crash->thread, crash->sig) && e->maps.fd >= 0 &&
		crn_maps_find(&e->maps, crash->pc, &m) == 1 && (m.prot & PROT_EXEC) &&
		(!m.inode || crn_starts_with(m.name, "/memfd:")) &&
		!crn_starts_with(m.name, "[v"); /* vdso, vsyscall */
}

void crn_fault_forwarded(
	struct crn_thread *t, int sig, uintptr_t handler, uintptr_t pc, uintptr_t frame)
{
	if (!crn_agent || !crn_agent->config.recover || resumes(handler))
		return;
	t->fault = (struct crn_forwarded){
		.handler = handler, .frame = frame, .pc = pc, .sig = sig,
		.unasked = t->fault_unasked,
	};
	crn_late_timer_stop(t);
	crn_timer_thread_ends(t);
}

/* Is this place on its stacks still inside the handler? */
static bool is_inside(const struct crn_thread *t, uintptr_t rsp)
{
	return crn_on_program_altstack(t, t->fault.frame) ? crn_on_program_altstack(t, rsp)
							  : rsp <= t->fault.frame;
}

bool crn_fault_handled_at(const struct crn_thread *t, uintptr_t rsp)
{
	return t->fault.frame && is_inside(t, rsp);
}

static void note_resumed(struct crn_thread *t)
{
	const struct crn_forwarded f = t->fault;
	uintptr_t none;

	t->fault.frame = 0;
	if (!f.handler || resumes(f.handler))
		return;
	for (unsigned i = 0; i < CRN_ARRAY_SIZE(crn_agent->resuming); i++) {
		none = 0;
		if (!__atomic_compare_exchange_n(&crn_agent->resuming[i], &none, f.handler, false,
			    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			continue;
		crn_report_own(f.sig, f.pc);
		return;
	}
}

void crn_fault_returns(struct crn_thread *t, uintptr_t frame, uintptr_t pc)
{
	if (crn_likely(t->fault.frame != frame) || t->in_vfork)
		return;
	/* Who puts the default action in place, and has the instruction run again, dies of it. */
	if (pc != t->fault.pc || own_handler(t, t->fault.sig))
		note_resumed(t);
	t->fault.frame = 0;
}

void crn_fault_passed(struct crn_thread *t, uintptr_t rsp)
{
	if (is_inside(t, rsp))
		return;
	if (t->fault.unasked)
		note_resumed(t);
	t->fault.frame = 0;
}
