/* SPDX-License-Identifier: MIT */
/* What stepped.c and its victim share: memory that no restore turns back. */
#ifndef STEPPED_H
#define STEPPED_H

#include <stdatomic.h>
#include <stdbool.h>

#define STEPPED_FD "STEPPED_FD" /* names the descriptor in the environment */

struct stepped {
	atomic_uint handled; /* signals that the program's handlers were given */
	atomic_uint turns;
	atomic_bool over;
	atomic_bool late;    /* another thread gives SIGCHLD its handler at the last moment: */
	atomic_uint install; /* 1: now; 2: it is there */
	atomic_bool crash;   /* the next handler of a calm victim crashes */
};

#endif
