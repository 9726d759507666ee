/* SPDX-License-Identifier: MIT */
/* What the files of `mapped_files` share. */
#ifndef TEST_MAPPED_FILES_H
#define TEST_MAPPED_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../lib/harness.h"

#define PAGE  4096ul
#define PAGES 8ul

extern cairn_t *c;
extern char *name;
extern bool children; /* of `fork` */
extern struct mapped_kept {
	uint64_t id, newer, newest;
	uint8_t seen[PAGES * PAGE];
} *kept; /* shared, so that no restore takes it back */

/* A file of `pages` pages: page i is all 'a' + i. */
int make_file(const char *path, size_t pages);
/* That file of PAGES by `name`, made anew. */
uint8_t *map_file(int prot, int fixed, void *at);
void write_pages(uint8_t *at, size_t pages);
void checkpoint(uint64_t *which);
/* What the kernel can read of the page: its first byte, or -1. */
int first_byte(const uint8_t *page);
/* All of it as the file has it, and closed. */
void check_whole(uint8_t *at);
/*
 * What a restore answers that needs a file which is deleted after the checkpoint, and stays mapped
 * at `at`.
 */
int deleted_since(const uint8_t *at);
void restart(uint8_t *at);

/* ---- mapped_numbers.c: is it the same file? ---- */
void numbers(void);
void numbers_without_names(void);
void same_number(void);
void number_found_late(uint8_t *at); /* which was mapped before the session */

#endif
