/* SPDX-License-Identifier: MIT */
/* What the cases of frozen_children share: one session, one area, and who the children are. */
#ifndef TEST_FROZEN_H
#define TEST_FROZEN_H

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>
#include "../lib/harness.h"
#include "child_find.h"

#define PAGE       4096ul
#define PAGES      16ul
#define FROZEN_MAX CHILDREN_MAX

extern cairn_t *c;
extern volatile uint8_t *area; /* PAGES pages, an area of the session */

void *map_pages(size_t pages, int sharing);
/* A session with the fork tracker and nothing but `area`. */
void open_session(uint32_t keep);
uint64_t checkpoint(void);
/* Write and look at one byte of each page. */
void write_all(uint8_t value);
void expect_all(uint8_t value);

/* ---- frozen_advice.c */
void case_advice(void);
void case_late_advice(void);
void case_advice_parts(void);
void case_advice_file(void);

/* ---- frozen_sparse.c */
void case_sparse(void);

/* ---- frozen_deaths.c */
void case_exit(void);
void case_sigkill(void);
void case_exec(void);
void case_thread_exec(void);
void case_thread_exit(void);
void case_main_exit(void);
/* What the program becomes in the cases that execute another one. */
_Noreturn void sleep_after_exec(void);

#endif
