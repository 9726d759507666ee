/* SPDX-License-Identifier: MIT */
/*
 * Linked with -Wl,--wrap=crn_hot_form_asks and =crn_hot_form_hashes: hot pages change hands as a
 * whole and as differences, and have hashes or not, by turns, not in the form that is cheaper.
 */
#include "oracle.h"
#include "os/guarded.h"
#include "track/hot_form.h"

bool __wrap_crn_hot_form_asks(const struct crn_hot_form *f);
bool __wrap_crn_hot_form_hashes(size_t count);

/* By the number of the step: what counts would be rolled back. */
static bool by_turns(unsigned bit)
{
	return W->step * 0x9e3779b97f4a7c15 >> bit & 1;
}

bool __wrap_crn_hot_form_asks(const struct crn_hot_form *f)
{
	return by_turns(62);
}

/* More often than not: they outlive the turns without. */
bool __wrap_crn_hot_form_hashes(size_t count)
{
	return crn_guarded_registers == CRN_LINES_HASHED && (by_turns(61) || by_turns(60));
}
