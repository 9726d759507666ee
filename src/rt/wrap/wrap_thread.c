/* SPDX-License-Identifier: MIT */
/* Locks, semaphores and attributes, which libc keeps in memory of the program. */
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <threads.h>
#define WRAPPED_thread CRN_WRAPPER
#include "rt/wrap/wrap.h"
#include "rt/wrap/wrapped.def"
