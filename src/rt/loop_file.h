/* SPDX-License-Identifier: MIT */
/*
 * The file in which a program that was built with -fcairn-profile counts its loops. All of its
 * processes map it and count in place, so one that is killed leaves its figures. It is written by
 * loop_counts.c and read by `cairn profile report`. Little endian; times in ns of CLOCK_MONOTONIC.
 *
 *	0               struct crn_loop_head
 *	text_at         one line for each point (a loop, or a call that forks), in the order of their
 *	                numbers: "loop FILE FUNCTION static|global LINE COLUMN INDEX COUNT DEPTH SHAPE",
 *	                "fork FILE FUNCTION LINE", between tabs
 *	section_at      head.rooms sections of head.section_size bytes, of which the first `taken` are
 *	                used: struct crn_loop_section, and a struct crn_loop_counts for each point
 */
#ifndef CRN_LOOP_FILE_H
#define CRN_LOOP_FILE_H

#include <stdint.h>

#define CRN_LOOP_MAGIC   0x31736f6c63726e63ull
#define CRN_LOOP_VERSION 3u
#define CRN_LOOP_ROOMS   64u   /* sections of a new file; doubled when they are taken */
#define CRN_LOOP_MAX     4096u /* sections of any file */

struct crn_loop_head {
	uint64_t magic;
	uint32_t version, point_count;
	uint64_t text_at, text_len;
	uint64_t text_sum;     /* crn_loop_sum of the text: which build it is */
	uint64_t section_at;   /* a whole page */
	uint64_t section_size; /* whole pages, and more than what is in them */
	uint32_t rooms, taken; /* `taken` may be beyond `rooms`: the rest is lost */
	uint32_t lost;         /* processes that found no room */
	uint32_t late;         /* points of libraries that were loaded after the start */
	char program[256];     /* the file that was executed */
};

/* One process. `born_at`: 1 + the point of the call that forked it; 0: unknown, or executed. */
struct crn_loop_section {
	uint32_t pid, parent; /* parent: 1 + its section; 0: none */
	uint32_t born_at;
	uint32_t ready;       /* 1: all above is filled in */
	uint64_t began_ns, last_ns; /* last_ns: when it was seen last */
	/* Calls that may wait, in no loop that is counted; which: as wait_kinds below. */
	uint64_t outside_waits, outside_kinds;
};

/*
 * One point of one process. Of a call that forks only `entries` counts.
 *	activations under way = entries - exits
 *	time inside = inside_ns + (entries - exits) * now - entered_ns
 *	time waited = waited_ns + waiting * now
 */
struct crn_loop_counts {
	uint64_t passes;     /* its top was reached; known to the pass: the first word */
	uint64_t entries, exits; /* known to the pass: the second and the third */
	uint64_t entered_ns; /* the sum of when its present activations began */
	uint64_t inside_ns;  /* of those that have ended */
	uint64_t longest_ns; /* the longest of those */
	uint64_t waits, waited_ns; /* calls that may wait, made inside, by callees too */
	uint64_t wait_kinds; /* which: bits in the order of blocking_calls.def */
	uint64_t outer;      /* 1 + the loop that it was last entered in */
	uint64_t foreign;    /* entries by threads that are not their process's first */
	uint64_t outside;    /* entries by threads that were in no loop */
	uint64_t waiting;    /* waits that go on: waited_ns has when they began, negative */
};

static inline uint64_t crn_loop_sum(uint64_t sum, const char *text, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		sum = (sum ^ (unsigned char)text[i]) * 0x100000001b3ull;
	return sum;
}
#define CRN_LOOP_SUM_START 0xcbf29ce484222325ull

#endif
