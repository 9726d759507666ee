/* SPDX-License-Identifier: MIT */
/* The three functions that compilers and run-times call, too: a file that needs nothing else. */
#define WRAPPED_bytes CRN_WRAPPER
#include "rt/wrap/wrap.h"
#include "rt/wrap/wrapped.def"
