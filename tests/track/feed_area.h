/* SPDX-License-Identifier: MIT */
/* What the files of feed_writers share: an area under a feed, and whether its past is right. */
#ifndef FEED_AREA_H
#define FEED_AREA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../lib/harness.h"

#define PAGE   4096ul
#define PAGES  20000ul /* more than any ring holds */
#define ROUNDS 40

extern cairn_t *c;
extern uint8_t *area; /* of PAGES */
extern const char *feed_name;
extern uint64_t newest;
extern bool could_open;
extern bool images;     /* the feed is bpf-images */
extern bool unfaulting; /* under it, the writer at work raises no fault */

/* A session with that feed, and the area: its first half is 1, the rest has never been touched. */
void open_area(void);
/* What each byte of the page is at the newest checkpoint. */
uint8_t before(size_t page);
/* The page is written now: is its past right by peek? */
void check_past(size_t page);
/* The same by peek and by a rewind; or lost, where that is expected, and said to be. */
void check_page(size_t page);
void check_feed(const char *expected);
uint64_t scans(void);

void store(uint8_t *at);
/* Of a thread: one store. */
void *storing_main(void *at);

/* The cases of more than one page, in feed_cases.c. False: there is none of that name. */
bool run_case(const char *name);

/* Others who have our memory, in feed_sharers.c. */
void run_begotten(void);
void run_begotten_by_thread(void);
void run_leaderless(void);
void run_older(void);

#endif
