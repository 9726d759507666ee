/* SPDX-License-Identifier: MIT */
/*
 * What every test program shares: exit status 0 (pass), 1 (fail), 77 (skip, the missing feature
 * named on stderr), and checks that print the expression, both values and the place. All of it is
 * legal after a restore: no state of its own, one write(2) per line.
 */
#ifndef TEST_HARNESS_H
#define TEST_HARNESS_H

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cairn/cairn.h"

#define TEST_SKIP 77

_Noreturn static inline void test_skip(const char *feature)
{
	dprintf(2, "SKIP: %s\n", feature);
	_exit(TEST_SKIP);
}

#define test_fail(...)                                                                             \
	do {                                                                                       \
		dprintf(2, "FAIL %s:%d: ", __FILE__, __LINE__);                                    \
		dprintf(2, __VA_ARGS__);                                                           \
		dprintf(2, "\n");                                                                  \
		_exit(1);                                                                          \
	} while (0)

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond))                                                                       \
			test_fail("%s", #cond);                                                    \
	} while (0)

/* xorshift: the same numbers for the same state, which is not 0. */
static inline uint64_t test_draw(uint64_t *state, uint64_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state % below;
}

/* A result of the library: named on failure, so that the log says what it means. */
#define CHECK_RC(expr, want)                                                                       \
	do {                                                                                       \
		int rc_ = (expr), want_ = (want);                                                  \
		if (rc_ != want_)                                                                  \
			test_fail("%s = %d (%s), expected %d (%s)", #expr, rc_,                    \
				rc_ < 0 ? cairn_strerror(rc_) : "ok", want_,                       \
				want_ < 0 ? cairn_strerror(want_) : "ok");                         \
	} while (0)

#define CHECK_OK(expr) CHECK_RC(expr, 0)

#define CHECK_U64(expr, want)                                                                      \
	do {                                                                                       \
		uint64_t got_ = (expr), want_ = (want);                                            \
		if (got_ != want_)                                                                 \
			test_fail("%s = %llu, expected %llu", #expr, (unsigned long long)got_,     \
				(unsigned long long)want_);                                        \
	} while (0)

/* An empty file that has no name, and goes with the last who has it open. */
static inline int test_file(void)
{
	char path[] = "/tmp/cairn-test-XXXXXX";
	int fd = mkstemp(path);

	CHECK(fd >= 0 && !unlink(path));
	return fd;
}

/* The same file opened once more: another open file description, as another process would have. */
static inline int test_file_again(int fd)
{
	char path[32];
	int other;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, O_RDWR);
	CHECK(other >= 0);
	return other;
}

/* One named part of a test program. */
struct test_case {
	const char *name;
	void (*run)(void);
};

/* Run the one of that name; the list ends with an empty entry. */
static inline int test_run_case(const struct test_case *cases, const char *name)
{
	for (; name && cases->name; cases++) {
		if (!strcmp(cases->name, name)) {
			cases->run();
			return 0;
		}
	}
	test_fail("no such case: %s", name ? name : "none given");
}

/* Open with this tracker, or skip the test because the host cannot. */
static inline cairn_t *test_open(struct cairn_options *o)
{
	cairn_t *c;
	int rc = cairn_open(&c, o);

	if (rc == CAIRN_ENOTRACK) {
		dprintf(2, "SKIP: tracker %s (this host cannot run it)\n", o->tracker);
		_exit(TEST_SKIP);
	}
	if (rc < 0)
		test_fail("cairn_open(%s): %d (%s)", o->tracker, rc, cairn_strerror(rc));
	return c;
}

/* The same of a program that cairn-cc has built for this tracker, so that it must have it. */
static inline cairn_t *test_open_built(const char *tracker)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;

	o.tracker = tracker;
	CHECK_OK(cairn_open(&c, &o));
	return c;
}

#endif
