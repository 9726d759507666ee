/* SPDX-License-Identifier: MIT */
#include "track/undo/guests.h"
#include <stddef.h>
#include "base/bits.h"
#include "os/thread.h"

_Static_assert(offsetof(struct crn_guest_visit, list) == 0, "kernel ABI");
_Static_assert(CRN_GUESTS_MAX <= 32, "bits of a word");

static uint32_t bit_of(const struct crn_guests *guests, const struct crn_guest *g)
{
	return 1u << (g - guests->at);
}

/* A handler of this very task, if it is in one. */
static struct crn_guest *already(struct crn_guests *guests, uintptr_t list)
{
	uint32_t present = list ? atomic_load(&guests->present) : 0;

	for (unsigned i = 0; present >> i; i++)
		if (present >> i & 1 && guests->at[i].list == list)
			return &guests->at[i];
	return NULL;
}

/* Whoever dies as soon as the word is its own is told of: the kernel looks at `pending`. */
static bool take(struct crn_guests *guests, struct crn_guest *g, struct crn_guest_visit *v,
	uint32_t tid)
{
	uint32_t was = atomic_load(&g->owner);

	if (was && !(was & CRN_GUEST_DIED && !(atomic_load(&guests->present) & bit_of(guests, g))))
		return false;
	v->list.pending = (void *)&g->owner;
	atomic_signal_fence(memory_order_seq_cst);
	if (!atomic_compare_exchange_strong(&g->owner, &was, tid))
		return false;
	if (was && atomic_load(&guests->present) & bit_of(guests, g)) {
		atomic_store(&g->owner, was); /* another one has been here, and died, since */
		return false;
	}
	g->list = (uintptr_t)&v->list;
	atomic_store(&g->inside, 0);
	for (int i = 0; i < CRN_GUEST_NOTES; i++)
		atomic_store(&g->notes[i], 0);
	atomic_fetch_or(&guests->present, bit_of(guests, g));
	return true;
}

struct crn_guest *crn_guest_enter(struct crn_guests *guests, struct crn_guest_visit *v)
{
	uint32_t tid = (uint32_t)crn_gettid();
	size_t len;

	*v = (struct crn_guest_visit){ .list = { .first = &v->list.first } };
	if (crn_robust_list_of(0, &v->before, &len) < 0)
		return NULL;
	v->guest = already(guests, v->before);
	v->nested = v->guest;
	if (v->nested || crn_robust_list_set((uintptr_t)&v->list) < 0)
		return v->guest;
	for (unsigned i = 0; i < CRN_GUESTS_MAX && !v->guest; i++)
		if (take(guests, &guests->at[i], v, tid))
			v->guest = &guests->at[i];
	if (!v->guest)
		(void)crn_robust_list_set(v->before);
	return v->guest;
}

void crn_guest_leave(struct crn_guests *guests, struct crn_guest_visit *v)
{
	if (v->nested)
		return;
	atomic_fetch_and(&guests->present, ~bit_of(guests, v->guest));
	v->guest->list = 0;
	atomic_store(&v->guest->owner, 0);
	(void)crn_robust_list_set(v->before);
}

void crn_guest_bury(struct crn_guests *guests, struct crn_guest *g)
{
	/* The word stays: as soon as the bit has gone it may be somebody else's. */
	atomic_fetch_and(&guests->present, ~bit_of(guests, g));
}
