/* SPDX-License-Identifier: MIT */
/* What the program asked for with sigaction, as opposed to what the kernel was told. */
#ifndef CRN_ACTIONS_H
#define CRN_ACTIONS_H

#include "agent.h"

/* The action for a signal about to be delivered; SA_RESETHAND takes effect. */
void crn_action_take(int sig, struct crn_ksigaction *out);

/*
 * In a child that is born with CLONE_CLEAR_SIGHAND: what has a handler has its default action. Who
 * does not own the table (a child of vfork) changes the kernel's alone.
 */
void crn_actions_clear(bool own);

/* Does its default action end the process? */
bool crn_signal_is_deadly(int sig);

#endif
