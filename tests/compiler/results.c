/* SPDX-License-Identifier: MIT */
/*
 * What calls of the library write to the program's variables comes back, as what the program stores
 * itself: figures, ids, old content, tags. argv: TRACKER.
 */
#include <string.h>
#include <sys/uio.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define APART 512 /* no two of them in one region */

static struct variables {
	struct cairn_stats stats;
	char a[APART];
	uint64_t oldest, newest;
	char b[APART];
	char peeked[300];
	char c[APART];
	char pieces[2][40];
	char d[APART];
	char tag[20];
	char e[APART];
	uint64_t id, other;
} v;

static char source[300] = "what was here";

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	struct iovec local[2] = { { v.pieces[0], 40 }, { v.pieces[1], 40 } };
	struct iovec remote[2] = { { source, 40 }, { source + 5, 40 } };
	static struct variables was;
	uint64_t id;
	cairn_t *c;

	CHECK(argc == 2);
	o.tracker = argv[1];
	o.keep = 3;
	v.stats.size = sizeof(v.stats);
	v.id = 77;
	CHECK_OK(cairn_open(&c, &o));
	memcpy(&was, &v, sizeof(v));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	CHECK(cairn_checkpoint(c, &v.id) == CAIRN_TAKEN && v.id == id + 1);
	for (int to = 0; to < 2; to++) {
		CHECK_OK(cairn_stats(c, &v.stats));
		CHECK_OK(cairn_range(c, &v.oldest, &v.newest));
		CHECK_OK(cairn_peek(c, id, source, v.peeked, sizeof(source)));
		CHECK_OK(cairn_peekv(c, id, local, remote, 2));
		CHECK_OK(cairn_checkpoint_tag(c, id, "tagged", 7));
		CHECK(cairn_checkpoint_tag_get(c, id, v.tag, sizeof(v.tag)) == 7);
		CHECK(v.stats.checkpoints && v.newest == id + 1 && !strcmp(v.peeked, source));
		CHECK(!strcmp(v.pieces[1], source + 5) && !strcmp(v.tag, "tagged"));
		/* To the newest first: its id is all that stays. */
		CHECK_OK(cairn_rewind(c, id + 1 - (uint64_t)to));
		if (!to)
			v.id = was.id;
		for (size_t i = 0; i < sizeof(v); i++)
			if (((char *)&v)[i] != ((char *)&was)[i])
				test_fail("%d: byte %zu", to, i);
		if (!to)
			v.id = id + 1;
	}
	CHECK_OK(cairn_close(c));
	return 0;
}
