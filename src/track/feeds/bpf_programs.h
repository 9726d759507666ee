/* SPDX-License-Identifier: MIT */
/*
 * What the programs on the kernel's tracepoints and feed_bpf.c share: one array of BPF, mapped by
 * us, that the programs write.
 *
 *	| head | tail | overflow | reads | writes | own | ident | tasks in faults | ring | images |
 *
 * Ring entry i has tag i + 1 when it is complete: address, task and image first, the tag last. The
 * tracepoint comes before the fault is served, with preemption off, so an entry is complete before
 * its page can be written.
 *
 * With images (there are none behind the ring of a feed of addresses) a program takes a number and
 * a slot, copies the page there and publishes both as a ring entry. (Other entries have a number,
 * too: all that has been begun is in the ring, sooner or later.) The order of the entries is
 * that of the publications. Of several images of a page the first is right: whoever opened the page
 * has published his before, and the first was complete when it was published.
 *
 * Programs serve one address space, whose number they contain, or all that are in a table
 * (bpf_hub.h). The latter note in `over` that an address space has gone: its lock is taken when
 * mm_users is 0.
 */
#ifndef CRN_BPF_PROGRAMS_H
#define CRN_BPF_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CRN_RING_ENTRIES 8192u
#define CRN_FAULT_SLOTS  64u
#define CRN_IMAGE_SLOTS  4096u /* at most */

struct crn_ring_entry {
	uint64_t address, task, tag;
	uint64_t image; /* flags, slot, number; `reads` at that time << 32 */
};

/* In place of an address: the task ends, or becomes another program; its faults are over. */
#define CRN_TASK_OVER UINT64_MAX

#define CRN_IMAGE_SLOT_SHIFT   2
#define CRN_IMAGE_NUMBER_SHIFT 14
#define CRN_IMAGE_NUMBERS      (1u << (32 - CRN_IMAGE_NUMBER_SHIFT)) /* then again from 0 */

enum crn_image_flags {
	CRN_IMAGE_FAILED = 1, /* the page could not be read: it was not there */
	CRN_IMAGE_NO_SLOT = 2, /* all are taken, or no area has the page */
};

/* Offsets are in the programs. Each counter has a cache line of its own. */
struct crn_bpf_shared {
	_Alignas(64) uint64_t head;     /* entries ever begun */
	_Alignas(64) uint64_t tail;     /* entries ever drained: ours */
	uint64_t freed;                 /* as many takings of slots are over: ours */
	uint64_t area_begin, area_end;  /* what images are of, and what must not be dropped: ours */
	uint64_t over;                  /* nothing is noted: the address space has gone, or ours */
	_Alignas(64) uint64_t overflow; /* entries that found no room */
	_Alignas(64) uint64_t reads;    /* the lock was taken by others, to read */
	uint64_t writes;                /* and to write, by anybody */
	_Alignas(64) uint64_t own_task; /* the engine's task; a thread with the id own_tid: ours */
	uint64_t own;                   /* it is in a call of the engine's */
	uint64_t ident_task, ident_mm;  /* what the ident program found */
	uint64_t own_tid;
	_Alignas(64) uint64_t begun;    /* images: numbers ever given */
	uint64_t taken;                 /* and slots */
	_Alignas(64) uint64_t in_fault[CRN_FAULT_SLOTS];
	_Alignas(4096) struct crn_ring_entry ring[CRN_RING_ENTRIES];
	uint8_t images[][4096];
};

enum { CRN_LINK_USER, CRN_LINK_KERNEL, CRN_LINK_ACQUIRED, CRN_LINKS };

/* Whose faults and locks, where in the kernel's structures, and where they are noted. */
struct crn_bpf_target {
	uint64_t mm;
	uint32_t task_mm, pagefault_disabled, flags, futex_state, io_uring, clear_tid;
	int map;
	uint32_t slots; /* of images; 0: none */

	bool shared; /* in place of mm and map: of all address spaces in that table */
	int table;
	uint32_t mm_users;
};

#define CRN_BPF_IDENT	    CRN_LINKS /* the program that tells who runs it */
#define CRN_BPF_PROGRAM_MAX 160	      /* instructions */

struct crn_bpf_insn;
/* Write one of the programs to to[CRN_BPF_PROGRAM_MAX]; its length. */
size_t crn_bpf_program_put(const struct crn_bpf_target *k, unsigned which, struct crn_bpf_insn *to);

#endif
