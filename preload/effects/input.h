/* SPDX-License-Identifier: MIT */
/*
 * What the calls that take input share: reads in hooks_input.c, messages in hooks_message.c, and
 * bytes that never pass through the program in hooks_splice.c.
 */
#ifndef CRN_INPUT_H
#define CRN_INPUT_H

#include <limits.h>
#include "effects/effects.h"

/* The program's buffers, as one read names them; on the hooks' stack, never filled with zeros. */
struct crn_buffers {
	struct iovec iov[IOV_MAX];
	size_t count;
};
/* False: the array cannot be read, or is longer than the kernel takes. */
bool crn_buffers_load(struct crn_buffers *b, uintptr_t addr, size_t count);

/* Is a read of this descriptor one that must be kept? If not, what is to be done instead. */
bool crn_input_is_kept(struct crn_call *call, int fd, enum crn_verdict *verdict);
/* Give from the stream, if there is something: true, with the call's result. */
bool crn_input_give(struct crn_call *call, int fd, const struct iovec *iov, size_t count,
	unsigned how, struct crn_piece **piece);
/* The read has run, with call->result: keep what it brought. */
void crn_input_keep(struct crn_call *call, int fd, const struct crn_taken *taken);
/* The room that they have. */
size_t crn_buffers_space(const struct iovec *iov, size_t count);

/* An error that is reported once and then forgotten by the kernel. */
bool crn_is_taken_error(long result);

/* discarded_input.c. What is to be given by it counts as taken: the program has thrown it away. */
void crn_stream_pass(int fd);
/* A restore: what it has given since this offset of the pool it has not got any more. */
void crn_stream_cut(int fd, uint32_t from);

#endif
