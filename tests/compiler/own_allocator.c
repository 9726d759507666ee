/* SPDX-License-Identifier: MIT */
/*
 * A program with an allocator of its own (own_malloc.c, another unit): it gets its blocks from
 * there, libraries from libc's, and after a restore its lists are whole. argv: TRACKER. With BESIDE
 * the allocator has no hooks: the program's blocks are the run-time's, and either may free the
 * other's. With REFUSED libraries have the program's, and intervals in which they take some fail.
 */
#define _GNU_SOURCE
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "own_malloc.h"
#include "../lib/harness.h"

#ifdef BESIDE
#define OURS(block) (!own_holds(block))
#else
#define OURS(block) own_holds(block)
#endif
#define BLOCKS 200
#define ROUNDS 40

/* The program's: comes back. */
static char *blocks[BLOCKS];
static char *line, *text, *copy, *path, *other;
static size_t line_room;

static void change(unsigned round)
{
	for (size_t i = round % 3; i < BLOCKS; i += 3) {
		free(blocks[i]);
		blocks[i] = malloc(8 + (i * 37 + round * 11) % 3000);
		CHECK(OURS(blocks[i]));
		blocks[i][0] = (char)(i + round);
		blocks[i] = realloc(blocks[i], 8 + (i * 53 + round) % 4000);
		CHECK(OURS(blocks[i]) && blocks[i][0] == (char)(i + round));
	}
}

static void read_line(const char *said)
{
	FILE *f = fmemopen((void *)said, strlen(said), "r");

	CHECK(f && getline(&line, &line_room, f) == (ssize_t)strlen(said) && fclose(f) == 0);
}

/* What libc allocates: for the program, or for itself and back again. */
static void use_libc(unsigned round)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST }, *found;
	FILE *f = fopen("/dev/null", "w");

	CHECK(f && fprintf(f, "%u", round) > 0 && fclose(f) == 0);
	CHECK(!getaddrinfo("127.0.0.1", "80", &hints, &found));
	freeaddrinfo(found);
	free(text);
	CHECK(asprintf(&text, "%u of %d", round, ROUNDS) > 0 && OURS(text));
	free(copy);
	copy = strdup(text);
	CHECK(OURS(copy));
	free(path);
	path = realpath("/proc/../proc", NULL);
	CHECK(OURS(path) && !strcmp(path, "/proc"));
	free(other);
	other = own_text();
	CHECK(own_holds(other) && !strcmp(other, "of another unit"));
	read_line(round % 2 ? "one line of the file\n" : "another\n");
}

/* What must be as it was. */
struct state {
	char *blocks[BLOCKS], heads[BLOCKS], *line, *text, *copy, *path;
	size_t line_room, count;
	char said[64], texted[64];
};

static void note(struct state *s)
{
	memset(s, 0, sizeof(*s));
	memcpy(s->blocks, blocks, sizeof(blocks));
	for (size_t i = 0; i < BLOCKS; i++)
		s->heads[i] = blocks[i] ? blocks[i][0] : 0;
	s->line = line;
	s->text = text;
	s->copy = copy;
	s->path = path;
	s->line_room = line_room;
#ifndef BESIDE
	s->count = own_count;
#endif
	snprintf(s->said, sizeof(s->said), "%s", line ? line : "");
	snprintf(s->texted, sizeof(s->texted), "%s%s", text ? text : "", copy ? copy : "");
}

int main(int argc, char **argv)
{
	struct state before, after;
	uint64_t id;
	cairn_t *c;

	(void)argc;
	change(0);
	use_libc(0);
	c = test_open_built(argv[1]);
	for (unsigned round = 0; round < ROUNDS; round++) {
		change(round);
		use_libc(round);
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		note(&before);
		CHECK_OK(cairn_rewind(c, id));
		for (unsigned i = 1; i < 4; i++) {
			change(round + i);
			use_libc(round + i);
		}
#ifdef REFUSED
		CHECK_RC(cairn_rewind(c, id), CAIRN_EFAILED);
		continue;
#endif
		CHECK_OK(cairn_rewind(c, id));
		note(&after);
		own_check();
		CHECK(!memcmp(&before, &after, sizeof(before)));
	}
	CHECK_OK(cairn_close(c));
	return 0;
}
