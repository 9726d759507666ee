/* SPDX-License-Identifier: MIT */
/* Functions of libc that call the program back: a checkpoint may be taken inside. */
#include <pthread.h>
#include <search.h>
#include <stdlib.h>
#define WRAPPED_callback CRN_WRAPPER
#include "rt/wrap.h"
#include "rt/wrapped.def"
