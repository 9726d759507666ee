/* SPDX-License-Identifier: MIT */
/*
 * Traces: the pages that each interval of a real run wrote. `cairn run --trace FILE` writes them,
 * cairn-bench replays them, and the oracle strategies take them as profiles. Freestanding; nothing
 * here allocates.
 *
 * All numbers are little-endian. A varint has 7 bits to the byte, least significant first, the top
 * bit set in all but the last.
 *
 *	header		0  "cairntrc"
 *			8  u32 version (1)
 *			12 u32 page size in bytes
 *			16 u32 length of the identity, at most 1024
 *			20 u32 reserved, 0
 *			24 the identity: lines that say of which run this is
 *			   u64 chain
 *	interval	0  u8 'I'
 *			1  varint  length of what follows up to the chain
 *			   varint  context key
 *			   varint  number of pages
 *			   varints page number minus that of the page before (0 at first), zigzag
 *			   u64 chain
 *	trailer		0  u8 'E'
 *			1  u64 number of intervals
 *			9  u64 number of pages, all intervals together
 *			17 u64 chain
 *
 * The chain is FNV-1a (64 bits) over all bytes of the file before it, earlier chains included: one
 * byte that is flipped, lost or added anywhere is found where the next chain is. A file without its
 * trailer was cut short. Pages are in the order of their first write where the tracker knows it. No
 * page is at address 0, or at 2^56 and beyond.
 */
#ifndef CRN_TRACE_H
#define CRN_TRACE_H

#include "speculate/port.h"

#define CRN_TRACE_HEADER   24 /* bytes before the identity */
#define CRN_TRACE_IDENTITY 1024 /* its length at most */
#define CRN_TRACE_VERSION  1

/* Takes the next bytes of the file; 0 or negative, which ends the trace. */
typedef int (*crn_trace_write_fn)(void *owner, const void *bytes, size_t len);

struct crn_trace_writer {
	crn_trace_write_fn write;
	void *owner;
	uint64_t chain, intervals, pages;
	int error; /* of the first write that failed; nothing is written after it */
	size_t used;
	uint8_t buffer[4096];
};

/*
 * Each 0 or the writer's error. Intervals may stay in the buffer until crn_trace_flush or
 * crn_trace_end. An identity that is too long is cut.
 */
int crn_trace_begin(struct crn_trace_writer *w, crn_trace_write_fn write, void *owner,
	const char *identity);
int crn_trace_interval(
	struct crn_trace_writer *w, uint64_t key, const uintptr_t *pages, size_t count);
int crn_trace_flush(struct crn_trace_writer *w);
/* The trailer, and all that is in the buffer. */
int crn_trace_end(struct crn_trace_writer *w);

struct crn_trace_reader {
	const uint8_t *bytes;
	size_t size, offset; /* offset: of the next record */
	uint64_t chain, intervals, pages;
	const char *identity; /* among the bytes, without a NUL; once opened */
	size_t identity_size;
	const char *error; /* what is wrong at `offset`; NULL: nothing so far */
	bool cut;	   /* the error is that the file ends too soon */
};

enum crn_trace_result {
	CRN_TRACE_END = 0,
	CRN_TRACE_INTERVAL = 1,
	CRN_TRACE_ROOM = 2, /* *count pages do not fit: nothing was read */
};

/* 0, or CRN_PORT_EINVAL with r->error and r->offset set. The bytes stay the caller's. */
int crn_trace_open(struct crn_trace_reader *r, const void *bytes, size_t size);
/*
 * The next interval: enum crn_trace_result, or CRN_PORT_EINVAL with r->error and r->offset set.
 * pages[] has addresses; NULL, of any capacity: they are only checked. The end is answered only if
 * the trailer is there and right.
 */
int crn_trace_next(struct crn_trace_reader *r, uint64_t *key, uintptr_t *pages, size_t capacity,
	size_t *count);

#endif
