/* SPDX-License-Identifier: MIT */
/* Input that parent and child of a fork may both still be given: inherited_input.c. */
#ifndef CRN_INHERITED_INPUT_H
#define CRN_INHERITED_INPUT_H

#include "effects/effects.h"

/* Has the other process taken it? */
bool crn_stream_is_gone(const struct crn_stream *s);
/* Before anything is taken from it; false: the other process was first. */
bool crn_stream_claim(struct crn_stream *s);

/* In the parent, before a fork: false if there is no memory. */
bool crn_input_leave(void);
/* In the child, when its session is opened. */
void crn_input_adopt(void);

#endif
