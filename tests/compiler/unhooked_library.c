/* SPDX-License-Identifier: MIT */
/*
 * A library without hooks (zlib) whose state comes back: it allocates in a block of the program's,
 * and its functions have wrappers (-fcairn-abilist, `custom`) that name what they write. A stream
 * that is had twice, piece by piece, must give what was packed. argv: TRACKER. With MISSED, the
 * wrappers do not name all of it.
 */
#include <string.h>
#include <zlib.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define PLAIN  60000
#define PACKED 80000
#define STATE  (1 << 19)
#define STEPS  1000

static char state[STATE] __attribute__((aligned(16)));
static size_t used;
static cairn_t *session;
static unsigned char plain[PLAIN], packed[PACKED], again[PLAIN];

static void *give(void *unused, unsigned count, unsigned size)
{
	void *block = state + used;

	(void)unused;
	used += ((size_t)count * size + 15) & ~15ul;
	CHECK(used <= STATE);
	return block;
}

static void keep(void *unused, void *block)
{
	(void)unused;
	(void)block;
}

static void touch(z_stream *s)
{
#ifndef MISSED
	CHECK_OK(cairn_area_touch(session, state, used));
#endif
	CHECK_OK(cairn_area_touch(session, s, sizeof(*s)));
	CHECK_OK(cairn_area_touch(session, s->next_out, s->avail_out));
}

int __cairn_wrap_deflate(z_stream *s, int flush);
int __cairn_wrap_inflate(z_stream *s, int flush);

int __cairn_wrap_deflate(z_stream *s, int flush)
{
	touch(s);
	return deflate(s, flush);
}

int __cairn_wrap_inflate(z_stream *s, int flush)
{
	touch(s);
	return inflate(s, flush);
}

static int pack(z_stream *s, int flush)
{
	return deflate(s, flush);
}

static int unpack(z_stream *s, int flush)
{
	return inflate(s, flush);
}

/* Some of the stream, twice: the first time is undone. */
static int step(z_stream *s, int (*turn)(z_stream *, int), unsigned in, unsigned out, int flush)
{
	static unsigned steps;
	unsigned all_in = s->avail_in, all_out = s->avail_out;
	uint64_t id;
	int err, result;

	CHECK(++steps < STEPS);
	err = cairn_checkpoint(session, &id);
	CHECK(err == CAIRN_TAKEN || err == CAIRN_RESTORED);
	s->avail_in = in < all_in ? in : all_in;
	s->avail_out = out < all_out ? out : all_out;
	all_in -= s->avail_in;
	all_out -= s->avail_out;
	result = turn(s, all_in ? Z_NO_FLUSH : flush);
	if (err == CAIRN_TAKEN)
		CHECK_OK(cairn_restore(session, id)); /* it does not return here */
	s->avail_in += all_in;
	s->avail_out += all_out;
	return result;
}

int main(int argc, char **argv)
{
	z_stream s = { .zalloc = give, .zfree = keep };
	unsigned long random = 1;
	size_t len;
	int err;

	CHECK(argc == 2);
	for (size_t i = 0; i < PLAIN; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		plain[i] = (unsigned char)(random >> 60 ? plain[i / 2] : random >> 40);
	}
	CHECK(deflateInit(&s, 6) == Z_OK);
	session = test_open_built(argv[1]);
	s.next_in = plain;
	s.avail_in = PLAIN;
	s.next_out = packed;
	s.avail_out = PACKED;
	do
		err = step(&s, pack, 700, 900, Z_FINISH);
	while (err == Z_OK || err == Z_BUF_ERROR);
	CHECK(err == Z_STREAM_END);
	len = PACKED - s.avail_out;
	used = 0;
	s = (z_stream){ .zalloc = give, .zfree = keep };
	CHECK(inflateInit(&s) == Z_OK);
	s.next_in = packed;
	s.avail_in = (unsigned)len;
	s.next_out = again;
	s.avail_out = PLAIN;
	do
		err = step(&s, unpack, 300, 1000, Z_FINISH);
	while (err == Z_OK || err == Z_BUF_ERROR);
	CHECK(err == Z_STREAM_END && !memcmp(plain, again, PLAIN));
	CHECK_OK(cairn_close(session));
	return 0;
}
