/* SPDX-License-Identifier: MIT */
/* Files that options of `cairn run` name: what is wrong with them is said before it runs. */
#ifndef CRN_NAMED_FILES_H
#define CRN_NAMED_FILES_H

#include <stdbool.h>

struct crn_config;

/*
 * Has an oracle what it needs, a whole trace of such a run? False after a message. Other strategies
 * have it.
 */
bool check_oracle(const struct crn_config *c);

/* Could a trace be written there? False after a message. Creates nothing. */
bool check_trace(const char *path);

#endif
