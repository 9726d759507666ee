/* SPDX-License-Identifier: MIT */
/* The programs of bpf_programs.h, loaded and put on their tracepoints. */
#ifndef CRN_BPF_ATTACH_H
#define CRN_BPF_ATTACH_H

#include "track/feeds/bpf_programs.h"

/*
 * From now on `shared` (its descriptor is `map`) is told of faults and locks of the calling
 * process's address space. `slots` is the number of images, a power of two, or 0. Without images
 * the programs are those of the hub (bpf_hub.h). If that cannot be joined the session gets programs
 * of its own, unless `shares` is set. *ident becomes the program that tells who is asking (by
 * crn_bpf_run). Descriptors that were not opened stay as they were. 0 or -errno.
 */
int crn_bpf_attach(struct crn_bpf_shared *shared, int map, uint32_t slots, bool shares, int *ident,
	int links[CRN_LINKS]);

/*
 * Which links they are, and which keeper has them for certain. When it has died, the program may
 * have put other files, which look the same, in their places.
 */
struct crn_bpf_known {
	uint32_t numbers[CRN_LINKS], births_left;
};

struct crn_keeper;

int crn_bpf_know_links(
	struct crn_bpf_known *known, const int links[CRN_LINKS], const struct crn_keeper *k);
bool crn_bpf_are_links(
	struct crn_bpf_known *known, const int links[CRN_LINKS], struct crn_keeper *k);

/* For bpf_hub.c: attach programs that look up each address space in that table. */
int crn_bpf_share(int table, int links[CRN_LINKS]);
/* A number that only programs like ours have: another kind of hub cannot be joined. 0 or -errno. */
int crn_bpf_kind(uint32_t *kind);

#endif
