/* SPDX-License-Identifier: MIT */
/*
 * Which frames of a thread never return? Those that do cannot hold the loop that the thread lives
 * in. The return addresses of the innermost frames that have not been seen to return are put into
 * the processor's debug registers; when one is reached, that activation (its function and its place
 * on the stack) is noted, and the watch moves outwards. After a few turns of the loop it rests on
 * the frames that stay. No code is changed and nothing is single-stepped.
 */
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include "profile.h"

#define COUNTER     PROFILE_WATCHES
#define COUNT_MAX   2000
#define IDLE_MAX    2000 /* hits of a watch by other activations before it is given up */
#define DEBUG(n)    (offsetof(struct user, u_debugreg) + (n) * sizeof(long))
#define ENABLE(n)   (1ul << (2 * (n))) /* in DR7; length and type 0: when executed */

static const struct profile_key *returned(
	const struct profile_loop *l, const struct profile_frame *f)
{
	for (unsigned i = 0; i < l->returned_count; i++)
		if (l->returned[i].cfa == f->cfa && l->returned[i].function == f->function)
			return &l->returned[i];
	return NULL;
}

static bool has_returned(const struct profile_loop *l, const struct profile_frame *f)
{
	return returned(l, f) != NULL;
}

static void note_return(struct profile_loop *l, const struct profile_frame *f)
{
	unsigned room = sizeof(l->returned) / sizeof(l->returned[0]);

	if (has_returned(l, f))
		return;
	/* Calls from ever new depths: the oldest go, and come again if they matter. */
	if (l->returned_count == room) {
		memmove(l->returned, l->returned + room / 2, room / 2 * sizeof(l->returned[0]));
		l->returned_count = room / 2;
	}
	l->returned[l->returned_count++] = (struct profile_key){ f->cfa, f->function, l->looks };
}

unsigned profile_loop_frame(const struct profile_task *t, const struct profile_stack *s)
{
	const struct profile_key *key;
	unsigned i = 0;

	/* What came back after the thread was last met came back because the program ended. */
	while (i < s->depth && (key = returned(&t->loop, &s->frames[i])) &&
		key->look < t->loop.looks)
		i++;
	return i;
}

/* DR7 goes off first: an address is taken only while its register is disabled. */
static void arm(struct profile_task *t, const uint64_t *wanted)
{
	struct profile_loop *l = &t->loop;
	unsigned long enabled = 0;

	if (l->broken || !memcmp(wanted, l->armed, sizeof(l->armed)))
		return;
	ptrace(PTRACE_POKEUSER, t->tid, DEBUG(7), 0);
	for (unsigned i = 0; i <= PROFILE_WATCHES; i++) {
		if (!wanted[i])
			continue;
		if (ptrace(PTRACE_POKEUSER, t->tid, DEBUG(i), wanted[i]) == 0)
			enabled |= ENABLE(i);
	}
	if (enabled && ptrace(PTRACE_POKEUSER, t->tid, DEBUG(7), enabled) < 0)
		l->broken = true;
	memcpy(l->armed, wanted, sizeof(l->armed));
}

/* Watch the innermost frames of `l->stack` that have not returned. */
static void watch(struct profile_task *t)
{
	struct profile_loop *l = &t->loop;
	const struct profile_stack *s = l->stack;
	uint64_t wanted[PROFILE_WATCHES + 1] = { 0 };
	unsigned n = 0;

	for (unsigned i = 0; s && i + 1 < s->depth && n < PROFILE_WATCHES; i++) {
		const struct profile_frame *f = &s->frames[i];

		if (!f->cfa || has_returned(l, f))
			continue;
		wanted[n] = s->frames[i + 1].pc;
		l->armed_cfa[n++] = f->cfa;
	}
	wanted[COUNTER] = l->armed[COUNTER];
	if (memcmp(wanted, l->armed, sizeof(wanted)) != 0)
		memset(l->idle, 0, sizeof(l->idle));
	arm(t, wanted);
}

void profile_loop_look(struct profile_task *t, const struct profile_stack *stack)
{
	t->loop.looks++;
	if (t->loop.stack == stack && t->loop.armed[0])
		return;
	t->loop.stack = stack;
	watch(t);
}

static void counter_hit(struct profile_task *t)
{
	if (++t->loop.count >= COUNT_MAX)
		profile_loop_count_end(t);
}

/* The frame whose return is at `cfa`, and all inside it. */
static void returned_at(struct profile_task *t, uint64_t cfa)
{
	const struct profile_stack *s = t->loop.stack;

	for (unsigned i = 0; s && i < s->depth && s->frames[i].cfa && s->frames[i].cfa <= cfa; i++)
		note_return(&t->loop, &s->frames[i]);
	watch(t);
}

bool profile_loop_trap(struct profile_task *t, const struct user_regs_struct *regs)
{
	struct profile_loop *l = &t->loop;
	bool ours = false;

	if (l->armed[COUNTER] && l->armed[COUNTER] == regs->rip) {
		counter_hit(t);
		ours = true;
	}
	for (unsigned i = 0; i < PROFILE_WATCHES; i++) {
		if (!l->armed[i] || l->armed[i] != regs->rip)
			continue;
		ours = true;
		if (l->armed_cfa[i] == regs->rsp) {
			returned_at(t, regs->rsp);
			break;
		}
		if (++l->idle[i] == IDLE_MAX) {
			uint64_t wanted[PROFILE_WATCHES + 1];

			memcpy(wanted, l->armed, sizeof(wanted));
			wanted[i] = 0;
			arm(t, wanted);
		}
	}
	return ours;
}

/* The thread's time on a processor: stops for counting do not make its functions rarer. */
static uint64_t cpu_ns(pid_t tid)
{
	char path[64];
	unsigned long ns;
	FILE *f;
	int n;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)tid);
	f = fopen(path, "re");
	if (!f)
		return profile_now();
	n = fscanf(f, "%lu", &ns);
	fclose(f);
	return n == 1 ? ns : profile_now();
}

/* The kernel clears the registers of a thread that executes another program. */
void profile_loop_exec(struct profile_task *t)
{
	memset(&t->loop, 0, sizeof(t->loop));
}

void profile_loop_count(struct profile_task *t, uint64_t function)
{
	struct profile_loop *l = &t->loop;
	uint64_t wanted[PROFILE_WATCHES + 1];

	memcpy(wanted, l->armed, sizeof(wanted));
	wanted[COUNTER] = function;
	l->counted = function;
	l->count = 0;
	l->count_began = cpu_ns(t->tid);
	l->count_since = profile_now();
	arm(t, wanted);
}

static void set_rate(struct profile_task *t)
{
	struct profile_loop *l = &t->loop;
	uint64_t now = cpu_ns(t->tid);

	if (l->count && now > l->count_began)
		l->rate = (double)l->count * 1e9 / (double)(now - l->count_began);
}

void profile_loop_settle(struct profile_task *t)
{
	if (t->loop.armed[COUNTER] && !(t->loop.rate > 0))
		set_rate(t);
}

void profile_loop_count_end(struct profile_task *t)
{
	struct profile_loop *l = &t->loop;
	uint64_t wanted[PROFILE_WATCHES + 1];

	memcpy(wanted, l->armed, sizeof(wanted));
	wanted[COUNTER] = 0;
	set_rate(t);
	arm(t, wanted);
}
