/* SPDX-License-Identifier: MIT */
/*
 * `cairn profile report`: what a program built with `cairn-cc -fcairn-profile` has counted.
 *
 *	loop_profile.c   reads the file (rt/loop_file.h) and refuses one that is damaged
 *	loop_classes.c   process classes, their loops, and which of these get a checkpoint
 *	loop_report.c    prints them; the command
 *
 * Memory lives until the command ends.
 */
#ifndef CRN_LOOP_PROFILE_H
#define CRN_LOOP_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "rt/loop_file.h"

struct loop_point {
	const char *text; /* the whole line, as the compiler's pass made it */
	bool forks;       /* a call that forks; else a loop */
	const char *file, *function;
	unsigned line, column; /* 0: built without -g */
	unsigned index, count, depth;
	uint32_t same; /* the first point of this text: headers are compiled more than once */
};

struct loop_process {
	const struct crn_loop_section *section;
	const struct crn_loop_counts *counts; /* one for each point */
	int32_t parent;                       /* its number; -1: none of these */
	uint32_t class;
};

struct loop_profile {
	const char *path;
	struct crn_loop_head head;
	struct loop_point *points; /* head.point_count */
	struct loop_process *processes; /* parents first */
	uint32_t process_count;
};

/* 0, or 1 after a message. */
int loop_profile_read(struct loop_profile *p, const char *path);
void *loop_profile_alloc(size_t count, size_t size); /* zeroed; ends the command if there is none */

/* ---- loop_classes.c ---- */

enum loop_kind {
	LOOP_OTHER,
	LOOP_LONG,  /* one activation took half of its process's life, or more */
	LOOP_NEVER, /* it never ended, in any process of the class */
};

/* One loop in all processes of a class. */
struct loop_sum {
	uint32_t point;
	struct crn_loop_counts counts;
	uint64_t turns, inside_ns; /* inside: until its processes were seen last */
	enum loop_kind kind;
	bool site;
	const char *no_site; /* why a loop that never ends or is long gets no checkpoint */
};

/* Processes that were forked by the same call, by processes of the same class. */
struct loop_class {
	int32_t parent;   /* class; -1: none */
	uint32_t born_at; /* 1 + point; 0: executed, or not known */
	uint32_t processes, pid; /* pid: of the first */
	uint64_t life_ns;        /* of all */
	struct loop_sum *sums;   /* of loops that were entered */
	uint32_t sum_count;
	/* Calls that may wait, in no counted loop: 0 if its sites turn about as often. */
	uint64_t outside_waits, outside_kinds;
	const struct loop_sum *called; /* entered again and again from no counted loop; or NULL */
	bool threads;                  /* others than its processes' first enter loops */
};

struct loop_classes {
	struct loop_class *list;
	uint32_t count;
	uint32_t *sites; /* points: the tops of these loops get a checkpoint */
	uint32_t site_count;
};

void loop_classes_find(const struct loop_profile *p, struct loop_classes *out);

#endif
