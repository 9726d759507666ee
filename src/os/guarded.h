/* SPDX-License-Identifier: MIT */
/*
 * Accessing the program's memory while it may vanish: another thread unmaps it, cuts a file short,
 * or adds a guard page. Each function has an instruction or two that may fault. The handler of
 * SIGSEGV and SIGBUS asks crn_guarded_resume, which lets the function return a failure. Without
 * such a handler (track/faults.h) the fault is the program's, like any other.
 *
 * No libc, no system calls. Any context.
 */
#ifndef CRN_OS_GUARDED_H
#define CRN_OS_GUARDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bits.h"
#include "base/sink.h"

/* 0, or -EFAULT with `to` undefined. Either side may be the program's. */
int crn_guarded_copy(void *to, const void *from, size_t len);

/*
 * Whole pages, one after the other, faster than one by one: how many were copied before one could
 * not be, whose copy is undefined then. Those after it have not been touched.
 */
size_t crn_guarded_copy_pages(const struct crn_page_copy *copies, size_t count);

/* Does a store to this byte go through? 0, or -EFAULT. It changes nothing, whoever else stores. */
int crn_guarded_store(void *at);

/* Two pages, 64-byte lines. Bit i of *lines: line i differs. 0, or -EFAULT. */
int crn_guarded_lines(const void *old, const void *live, uint64_t *lines);
/* Copy those lines of a page to the same places of another. 0, or -EFAULT. */
int crn_guarded_copy_lines(void *to, const void *live, uint64_t lines);
/* Does this line differ? 1, 0, or -EFAULT. */
int crn_guarded_line_differs(const void *old, const void *live, unsigned line);
/*
 * The index of the first line from `hint` on, and around, that differs; CRN_LINES if none does. A
 * page that cannot be read differs. What will be asked for next, if anything, is fetched meanwhile.
 */
unsigned crn_guarded_line(const void *old, const void *live, unsigned hint, const void *next_old,
	const void *next_live);

#define CRN_LINES 64u /* of a page */

/*
 * The registers by which pages are compared and copied, which the kernel keeps: set before the
 * first session, by crn_host_probe, and the same ever after.
 */
enum crn_registers {
	CRN_QUARTERS, /* of a line: SSE2, which is always there */
	CRN_HALVES,   /* AVX2 */
	CRN_LINES_WHOLE, /* AVX-512F, DQ and BW */
	CRN_LINES_HASHED, /* and VL and VPCLMULQDQ, and there are keys: crn_guarded_hash */
};
extern uint8_t crn_guarded_registers __attribute__((visibility("hidden")));
/* The widest that may be used. EBX and ECX of CPUID leaf 7, and what the kernel keeps (XCR0). */
enum crn_registers crn_registers_for(unsigned features, unsigned more, unsigned state);

/*
 * The hash of a page: two sums over its pairs of words (v, w), each with random keys of its own, of
 * (v + k) * (w + l) in GF(2^64) (NH of UMAC, in that field as CLHASH has it). Pages that differ in
 * a word have equal sums for one value only of the other word's key. So two different pages, chosen
 * by whoever does not know the keys, have the same hash with a probability of 2^-128.
 *
 * 0, or -EFAULT with `hash` as it was. The page at `next` is fetched meanwhile. Only where the
 * registers are CRN_LINES_HASHED.
 */
int crn_guarded_hash(const void *page, uint64_t hash[2], const void *next);
/* Random, drawn once for the process, by crn_host_probe. */
extern uint8_t crn_guarded_keys[2 * CRN_PAGE_SIZE] __attribute__((visibility("hidden")));

/* `old` NULL: zeros. */
bool crn_guarded_same(const void *old, const void *live);

/* In a handler: where does the function go on that was interrupted here? 0: it is none of these. */
uintptr_t crn_guarded_resume(uintptr_t pc);
/* Is it crn_guarded_store? Its fault is the answer, and is not to be served as a first store. */
bool crn_guarded_asks(uintptr_t pc);

#endif
