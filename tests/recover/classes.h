/* SPDX-License-Identifier: MIT */
/* One try of a system call (call_classes.c): it succeeds, and a checkpoint follows it or not. */
#ifndef CLASSES_H
#define CLASSES_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "stat_page.h"

#define PAGES 8
enum { QUIET, SEEN }; /* is a checkpoint to follow? */

extern const volatile struct crn_stat_page *figures;
extern char *buffer; /* PAGES, closed before each call */
extern char path[];  /* a file, */
extern int file;     /* which is open */

/* A checkpoint that finds the buffers written: they are closed now. */
void close_buffers(void);
/* `allowed`: what the call may fail with, where this host or user may not; else 0. */
void judge(const char *name, int class, uint64_t before, long result, int allowed);

#define TRY_UNLESS(allowed, class, name, call)                  \
	do {                                                    \
		uint64_t before_;                               \
		long result_;                                   \
		close_buffers();                                \
		before_ = figures->outputs;                     \
		result_ = (long)(call);                         \
		judge(name, class, before_, result_, allowed);  \
	} while (0)
#define TRY(class, name, call) TRY_UNLESS(0, class, name, call)
#define P(n) (buffer + (n) * 4096)

void try_names(void);
void try_identity(void);
void try_refused(void);

#endif
