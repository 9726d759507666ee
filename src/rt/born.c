/* SPDX-License-Identifier: MIT */
#include "rt/born.h"
#include <stddef.h>
#include "rt/rt.h"

struct crn_birth crn_births[CRN_BIRTHS] CRN_RT_LASTING;
uint32_t crn_births_count;

/* libc gives the descriptors of threads that have ended to new ones. */
void crn_birth(uintptr_t thread)
{
	struct crn_birth *to = NULL;

	if (!__cairn_shape.threads)
		return;
	crn_rt_keep((uintptr_t)&crn_births_count, sizeof(crn_births_count));
	for (struct crn_birth *b = crn_births; b < crn_births + CRN_BIRTHS; b++) {
		uintptr_t of = __atomic_load_n(&b->thread, __ATOMIC_RELAXED);

		if (of == thread) {
			to = b;
			break;
		}
		if (!to || (to->thread && (!of || b->number < to->number)))
			to = b;
	}
	to->number = __atomic_add_fetch(&crn_births_count, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&to->thread, thread, __ATOMIC_RELEASE);
}
