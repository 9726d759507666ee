/* SPDX-License-Identifier: MIT */
/* Which programs `cairn run` takes, and how it says no to the others. */
#ifndef CRN_RUNNABLE_H
#define CRN_RUNNABLE_H

#define EXIT_REFUSED 126
#define EXIT_MISSING 127

/* A word for scripts and people alike: what, why. Returns `status`. */
int refuse(int status, const char *program, const char *why);

/*
 * Everything that would keep the agent out of the program `name`: setuid, static, 32 bits. 0 with
 * its path (PATH_MAX bytes; of a script its interpreter's), or the exit status after a message.
 */
int check_program(const char *name, char *path);

#endif
