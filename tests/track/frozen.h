/* SPDX-License-Identifier: MIT */
/* What the cases of frozen_children share: one session, one area, and who the children are. */
#ifndef TEST_FROZEN_H
#define TEST_FROZEN_H

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/types.h>
#include "../lib/harness.h"

#define PAGE        4096ul
#define PAGES       16ul
#define FROZEN_MAX  64
#define PATIENCE_MS 20000

extern cairn_t *c;
extern volatile uint8_t *area; /* PAGES pages, an area of the session */

/* A session with the fork tracker and nothing but `area`. */
void open_session(uint32_t keep);
uint64_t checkpoint(void);
/* Write and look at one byte of each page. */
void write_all(uint8_t value);
void expect_all(uint8_t value);
/* The frozen children of this process that live. Their number. */
size_t frozen_find(pid_t pids[FROZEN_MAX]);
/* Not there, or dead and waiting to be collected. */
bool is_dead(pid_t pid);
/* Fails the test unless all die soon. */
void expect_deaths(const pid_t *pids, size_t count);

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
