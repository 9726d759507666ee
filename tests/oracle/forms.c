/* SPDX-License-Identifier: MIT */
/*
 * Linked with -Wl,--wrap=crn_hot_form_asks: hot pages change hands as a whole and as differences by
 * turns, instead of in the form that is cheaper.
 */
#include "oracle.h"
#include "track/hot_form.h"

bool __wrap_crn_hot_form_asks(const struct crn_hot_form *f);

/* By the number of the step: what counts would be rolled back. */
bool __wrap_crn_hot_form_asks(const struct crn_hot_form *f)
{
	return W->step * 0x9e3779b97f4a7c15 >> 62 & 1;
}
