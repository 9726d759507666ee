/* SPDX-License-Identifier: MIT */
/* What stepped.c and its victim share: memory that no restore turns back. */
#ifndef STEPPED_H
#define STEPPED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define STEPPED_FD "STEPPED_FD" /* names the descriptor in the environment */

#define STEPPED_CALLS 3

struct stepped {
	/*
	 * Functions that return the process's number: libc's, one that nothing but dispatch tells
	 * of, and such a one that is called there alone. And where they return to: an int3.
	 */
	uint64_t calls[STEPPED_CALLS], back;
	int call_count; /* dispatch has a signal of its own: none, while that is handled */
	atomic_uint handled; /* signals that the program's handlers were given */
	atomic_uint turns;
	atomic_bool over;
	atomic_bool late;    /* another thread gives SIGCHLD its handler at the last moment: */
	atomic_uint install; /* 1: now; 2: it is there */
	atomic_bool crash;   /* the next handler of a calm victim crashes */
};

#endif
