/* SPDX-License-Identifier: MIT */
/*
 * What the programs on the kernel's tracepoints and feed_bpf.c share: one array of BPF, mapped by
 * us, that the programs write.
 *
 *	| head | tail | overflow | reads | writes | inside | own | ident | tasks in faults | ring | images |
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
	_Alignas(64) uint64_t overflow; /* entries that found no room */
	_Alignas(64) uint64_t reads;    /* the lock was taken by others, to read */
	uint64_t writes;                /* and to write, by anybody */
	int64_t inside;                 /* who holds it to read */
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

enum { CRN_LINK_USER, CRN_LINK_KERNEL, CRN_LINK_ACQUIRED, CRN_LINK_RELEASED, CRN_LINKS };

/*
 * Attach the programs, for the calling process's address space; `ident` becomes the program that
 * tells who is asking (by crn_bpf_run). `slots`: of images, a power of two; 0: none. Descriptors;
 * what is not attached stays as it was. 0 or -errno.
 */
int crn_bpf_programs_attach(
	struct crn_bpf_shared *shared, int map, uint32_t slots, int *ident, int links[CRN_LINKS]);

#endif
