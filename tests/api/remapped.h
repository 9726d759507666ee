/* SPDX-License-Identifier: MIT */
/* What the files of `remapped` share. */
#ifndef TEST_REMAPPED_H
#define TEST_REMAPPED_H

#include <pthread.h>
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
/* What areas are. */
extern enum kind { PLAIN, OF_FILE, SHARED, SHARED_FILE, KINDS } kind;
uint8_t *map_area(void);
/* Does the tracker not follow mappings by itself? */
bool told_of_nothing(void);
/* All of it is an area, and checkpoint `id` is taken. */
void open_on(uint8_t *at, const char *strategy);
/* The same of plain content, of which pages 4 to 7 have been written since the checkpoint. */
void begin(uint8_t *at, const char *strategy);
/* Are all bytes as at the checkpoint? All have to be there. */
bool is_restored(void);
/* Clean pages of [first, first + count) were exchanged: one of them is written, all calls asked. */
void check_exchanged(size_t first, size_t count);

/* Changes of page 9, which is clean, and of page 5. */
void drop_clean(void);
void drop_open(void);
void over_open(void);
void open_one(void);
/* By whom they are made: the calling thread, or its_thread, which lives from begins to ends. */
extern void (*maker)(void (*make)(void));
void its_thread(void (*make)(void));
extern pthread_t thread;
extern void (*_Atomic wanted_of_thread)(void); /* until it has been made */
void no_more(void);                            /* wanted: the thread's end */
void *make_change(void *arg);                  /* its main function */
void its_child(void (*make)(void));
extern void (*maker_begins)(void), (*maker_ends)(void); /* or NULL */
void thread_begins(void);
void thread_ends(void);
bool events_are_read(void);

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
void silent_parent(void);

/* Every change, each time after so many rewinds. */
void all_between(int rewinds);

/* ---- remapped_births.c ---- */
void by_grandchild(void);
void by_one_of_many(void);
void after_many_births(void);
void born_within(void);

/* ---- remapped_dropped.c ---- */
void dropped(void);
void mapped_over(void);
void dropped_of_file(void);
void mapped_over_of_file(void);
void closed(void);
void rewinds_of_file(void);
void dropped_late(void);
void opened_between(void);

/* ---- remapped_kinds.c ---- */
void exchanged_at_once(void);
void exchanged(void);
void exchanged_younger(void);
void exchanged_removed(void);
void exchanged_refused(void);
void exchanged_taken(void);
void mixed(void);
void closed_end(void);
void sealed_page(void);
void closed_hot(void);
void open_hole(void);

/* ---- remapped_reopened.c ---- */
void touched(void);
void touched_hole(void);
void emptied_later(void);
void expected(void);
void closed_within(void);

/* ---- remapped_shared.c ---- */
void other_object(void);
void other_object_saved(void);
void other_object_kept(void);
void other_object_open(void);
void other_object_number(void);

/* ---- remapped_past.c ---- */
void closed_past(void);
void exchanged_told(void);
void removed_stays(void);
void part_stays(void);
void removed_gone(void);
void stays_refused(void);
void in_front(void);
void opened_past(void);
void closed_unseen(void);
void refused_before(void);

/* ---- remapped_stalled.c ---- */
void keeper_stalled(void);

#endif
