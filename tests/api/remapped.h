/* SPDX-License-Identifier: MIT */
/* What the two files of `remapped` share. */
#ifndef TEST_REMAPPED_H
#define TEST_REMAPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define PAGES 24ul

extern const char *tracker;
extern cairn_t *c;
extern uint8_t *area, at_checkpoint[PAGES * PAGE];
extern uint64_t id; /* of the checkpoint */

uint8_t *map_at(void *at, size_t pages, int fixed);
/* Does the tracker not follow mappings by itself? */
bool told_of_nothing(void);
/* An area of which pages 4 to 7 have been written since the checkpoint. */
void begin(uint8_t *at, const char *strategy);
/* Are all bytes as at the checkpoint? All have to be there. */
bool is_restored(void);
/* Clean pages of [first, first + count) were exchanged: one of them is written, all calls asked. */
void check_exchanged(size_t first, size_t count);

/* ---- remapped_rewinds.c: changes between any two rewinds ---- */
void rewinds(void);
void keeper_killed(void);
void keeper_spent(void);
void keeper_refused(void);
void perf_refused(void);
void by_thread(void);
void by_young_thread(void);
void by_child(void);
void silent(void);

#endif
