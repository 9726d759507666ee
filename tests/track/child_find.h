/* SPDX-License-Identifier: MIT */
/* Processes of the engine, found by name in /proc: they are made so as not to be met otherwise. */
#ifndef TEST_CHILD_FIND_H
#define TEST_CHILD_FIND_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CHILDREN_MAX 64
#define PATIENCE_MS  60000

extern const char *child_name; /* which ones: cairn-frozen, cairn-keeper */

/* Children of this process that live. Their number. */
size_t children_find(pid_t pids[CHILDREN_MAX]);
/* Not there, or dead and waiting to be collected. */
bool is_dead(pid_t pid);
/* Fails the test unless all die soon. */
void expect_deaths(const pid_t *pids, size_t count);

/* Counted by a handler that a case installs. */
extern volatile sig_atomic_t sigchlds;
void on_sigchld(int sig);
/* No wait sees any child. */
void expect_no_children(void);

#endif
