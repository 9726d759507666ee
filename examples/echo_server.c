/* SPDX-License-Identifier: MIT */
/*
 * An echo server that can be crashed from outside. Each line comes back with its number on this
 * connection and in the whole server, so that an answer that was lost, repeated or forgotten by a
 * restore shows at once.
 *
 *	hello            ->  1 1 hello
 *	crash null       ->  runs into the bug of that name (see planted_bug.c)
 *	scribble null    ->  first overwrites the counters and the heap, then crashes
 *	quit             ->  closes this connection
 *	shutdown         ->  ends the server with status 0
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "line_server.h"
#include "planted_bug.h"

#define SCRIBBLE_BYTES (256 * 1024)

static uint64_t lines_total; /* .bss: a restore must bring it back as well as the heap */
static uint64_t lines_check = ~0ull;

/* What a bug does before it is noticed: changes that only a restore can take back. */
static void scribble(void)
{
	char *heap = malloc(SCRIBBLE_BYTES);

	lines_total += 1000000;
	lines_check = 0;
	if (heap)
		memset(heap, 0xdb, SCRIBBLE_BYTES);
	/* The block is lost on purpose: after a restore it was never allocated. */
}

static bool on_line(struct client *client, char *line, size_t len)
{
	uint64_t **lines_here = (uint64_t **)client_slot(client);

	if (strcmp(line, "quit") == 0)
		return false;
	if (strcmp(line, "shutdown") == 0) {
		line_server_stop();
		return true;
	}
	if (strncmp(line, "scribble ", 9) == 0) {
		scribble();
		planted_bug_trigger(line + 9);
	}
	if (strncmp(line, "crash ", 6) == 0 && !planted_bug_trigger(line + 6)) {
		client_printf(client, "no such bug; there are: %s\n", planted_bug_names());
		return true;
	}
	if (!*lines_here)
		*lines_here = calloc(1, sizeof(**lines_here));
	if (!*lines_here || lines_check != ~lines_total) {
		client_printf(client, "corrupt\n");
		return false;
	}
	lines_total++;
	lines_check = ~lines_total;
	client_printf(client, "%llu %llu ", (unsigned long long)++**lines_here,
		(unsigned long long)lines_total);
	client_send(client, line, len);
	client_send(client, "\n", 1);
	return true;
}

int main(int argc, char **argv)
{
	return line_server_main(argc, argv, on_line);
}
