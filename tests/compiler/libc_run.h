/* SPDX-License-Identifier: MIT */
/*
 * What runs the cases of libc_calls.c and libc_rows.c. Each case writes to `out` through libc. With
 * a session it does so in an interval that is undone, after which every byte of `out` must be as it
 * was; then once more, for good. Each prints a sum of what it wrote: the same with and without. The
 * program that includes this says how large `out` is (OUT).
 */
#ifndef CRN_TESTS_LIBC_RUN_H
#define CRN_TESTS_LIBC_RUN_H

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "../lib/harness.h"

static char out[OUT] __attribute__((aligned(4096))); /* all that the cases have written */
static const char *text = "The quick brown fox jumps over the lazy dog, and over 128 bytes, too: "
			  "a region has that many, so that this text crosses from one to the next.";
static int file = -1;       /* holds `text`, 200 times */
static int ends[2];         /* a socket pair */

enum outcome {
	SAME,    /* in each run, as after the restore */
	QUIET,   /* the same, and it writes nothing in this libc */
	DIFFERS, /* from run to run: of the result it is told whether it is an error */
	ADDRESS, /* the result is where a block lies, which is free again after the restore */
};

struct libc_case {
	const char *name;
	long (*run)(char *at); /* what it writes lies from `at` on */
	enum outcome outcome;
	void (*prepare)(char *at); /* before the checkpoint; or NULL */
};

/* Shared memory: no restore reaches it. */
static struct { char copy[OUT]; volatile int wrong; volatile long result; } *kept;

static unsigned long sum(void)
{
	unsigned long s = 5381;

	for (size_t i = 0; i < OUT; i++)
		s = s * 33 + (unsigned char)out[i];
	return s;
}

static void compare(const char *name)
{
	for (size_t i = 0; i < OUT; i++) {
		if (out[i] == kept->copy[i])
			continue;
		dprintf(2, "%s: byte %zu has not come back\n", name, i);
		kept->wrong++;
		memcpy(out, kept->copy, OUT);
		return;
	}
}

static void run(cairn_t *c, const struct libc_case *t, char *at)
{
	uint64_t id;
	long result;
	int err;

	for (size_t i = 0; i < OUT; i++)
		out[i] = (char)(i * 131 + i / 251);
	if (t->prepare)
		t->prepare(at);
	memcpy(kept->copy, out, OUT);
	if (c) {
		int rc = cairn_checkpoint(c, &id);

		if (rc == CAIRN_TAKEN) {
			kept->result = t->run(at);
			CHECK_OK(cairn_restore(c, id));
		}
		CHECK_RC(rc, CAIRN_RESTORED);
		compare(t->name);
	}
	errno = 0;
	result = t->run(at);
	err = errno;
	if (t->outcome != DIFFERS && c && result != kept->result) {
		dprintf(2, "%s: %ld after the restore, and %ld before\n", t->name, result,
			kept->result);
		kept->wrong++;
	}
	if (t->outcome > QUIET)
		printf("%s %ld errno %d\n", t->name,
			t->outcome == DIFFERS && result < 0 ? result : 0, err);
	else
		printf("%s %ld errno %d %lx%s\n", t->name, result, err, sum(),
			t->outcome ? " quiet" : "");
}

static void make_input(void)
{
	file = memfd_create("text", 0);
	CHECK(file >= 0 && !socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	for (int i = 0; i < 200; i++)
		CHECK(write(file, text, strlen(text)) > 0 && write(file, "\n", 1) == 1);
}

/* After make_input. tracker: of the session, or NULL. Returns what main does. */
static int run_cases(const struct libc_case *cases, size_t count, const char *tracker)
{
	cairn_t *c = NULL;

	kept = mmap(NULL, sizeof(*kept), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(kept != MAP_FAILED);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (tracker)
		c = test_open_built(tracker);
	for (size_t i = 0; i < count; i++)
		for (size_t shift = 0; shift < 128; shift += 48)
			run(c, &cases[i], out + 1024 + shift);
	return kept->wrong ? 1 : 0;
}

#endif
