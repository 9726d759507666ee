/* SPDX-License-Identifier: MIT */
/* What `cairn run --context` tells kinds of work apart by. */
#ifndef CRN_CONTEXT_OPTION_H
#define CRN_CONTEXT_OPTION_H

#include <stdbool.h>
#include "agent.h"

/* The argument of --context. False: it is none. */
bool context_option(struct crn_context_spec *c, const char *text);

#endif
