/* SPDX-License-Identifier: MIT */
/*
 * A lifeline tells other processes that this one has ended or has executed another program, however
 * that happened, and whatever it has closed.
 *
 *	this process:       a mapping of a nameless file, whose open file is locked (flock). There is
 *	                    no descriptor that close_range could close. Not inherited by fork
 *	                    (MADV_DONTFORK).
 *	the other process:  a descriptor of the same file, opened anew. flock(fd, LOCK_SH) sleeps
 *	                    until the mapping is gone, which is when the address space is gone.
 *
 * If another thread forks between mmap and madvise, the child holds the lifeline until it ends, and
 * those who wait do so a little longer.
 */
#ifndef CRN_OS_LIFELINE_H
#define CRN_OS_LIFELINE_H

#include "os/descriptor.h"

struct crn_lifeline {
	void *mapping;
	struct crn_fd_identity id;
	int fd; /* for those who wait: high, close-on-exec */
};

/* 0 or -errno: no descriptor free, no memfd_create, no /proc. */
int crn_lifeline_open(struct crn_lifeline *l);
/* Close the descriptor, if it is still ours. Who waits goes on waiting. */
void crn_lifeline_close_fd(struct crn_lifeline *l);
/* Let go. Who waits wakes up. */
void crn_lifeline_end(void *mapping);

#endif
