/* SPDX-License-Identifier: MIT */
/* Functions of libc that call the program back: a checkpoint may be taken inside. */
#include <obstack.h>
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#include <threads.h>
#define WRAPPED_callback CRN_WRAPPER
#include "rt/wrap/wrap.h"
#undef obstack_free
#include "rt/wrap/wrapped.def"
