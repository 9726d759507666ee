/* SPDX-License-Identifier: MIT */
/*
 * What `cairn run` hands to the agent: one memfd, whose number is in CAIRN_PLAN, and which every
 * program inherits that is started from there. It holds the configuration and the patch plan: for
 * each object, named by its build id, the places where a decoder has proved that a jump may be
 * written over the instructions around a system call. No decoder runs inside the program. All of it
 * is read-only; a reader checks magic and sizes and otherwise trusts it.
 *
 *	struct crn_plan | objects[object_count] | sites[site_count] | functions[function_count]
 */
#ifndef CRN_PLAN_FORMAT_H
#define CRN_PLAN_FORMAT_H

#include <stdint.h>
#include "agent.h"

#define CRN_PLAN_ENV   "CAIRN_PLAN"
#define CRN_PLAN_MAGIC "cairnpl1"

/*
 * One instruction of 5 bytes or more is replaced by the jump; the syscall behind it stays for
 * whoever jumps there.
 */
#define CRN_PATCH_BEFORE 1
/* syscall and the instructions behind it are replaced; no branch lands inside. */
#define CRN_PATCH_AFTER 2

struct crn_plan_site {
	uint32_t offset; /* of the syscall instruction, from the object's base */
	uint8_t shape;   /* CRN_PATCH_* */
	/* bytes replaced before (CRN_PATCH_BEFORE) or behind (CRN_PATCH_AFTER) the syscall */
	uint8_t displaced;
	uint8_t check[10]; /* the bytes there: displaced ones, cut or zero-filled */
};

#define CRN_BUILD_ID_MAX 32

struct crn_plan_object {
	uint8_t build_id[CRN_BUILD_ID_MAX];
	uint32_t build_id_size;
	uint32_t sites_first, sites_count;
	uint32_t text_begin, text_end; /* executable part, offsets from the base, page aligned */
	char name[44];                 /* for messages */
};

/* A function whose entry is a site (crn_site_spec.kind == CRN_SITE_FUNC). */
#define CRN_RELATIVES_MAX 4
struct crn_plan_function {
	uint32_t site;     /* index into config.sites */
	uint64_t offset;   /* from its object's base */
	char object[44];   /* file name of a shared object; empty: the program */
	/* bytes of whole instructions that a jump or, if `trap`, int3 replaces */
	uint8_t displaced;
	uint8_t trap;      /* no room for a jump, or a branch lands inside it */
	uint8_t relative_count; /* of those bytes, where 32-bit displacements from %rip lie */
	uint8_t relatives[CRN_RELATIVES_MAX];
	uint8_t check[24]; /* the bytes there, as many as the object's code has */
	uint8_t check_size;
	uint8_t build_id[CRN_BUILD_ID_MAX];
	uint32_t build_id_size; /* 0: the program has none */
};

struct crn_plan {
	char magic[8];
	uint32_t size; /* of all of it */
	uint32_t object_count, site_count, function_count;
	struct crn_config config;
};

#endif
