/* SPDX-License-Identifier: MIT */
/*
 * Exceptions and checkpoints: a restore out of a handler leaves nothing caught, one inside the
 * handler that the checkpoint was taken in finds its exception, and once that has gone the
 * checkpoint is refused. argv: TRACKER.
 */
#include <exception>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include "../lib/harness.h"

static volatile int *turns; /* shared: not turned back */
static const std::string words = "more than a short string has room for";

static cairn_t *c;
static uint64_t id;

static void restore()
{
	(void)!cairn_restore(c, id);
	test_fail("cairn_restore came back");
}

static void checkpoint()
{
	if (cairn_checkpoint(c, &id) == CAIRN_RESTORED)
		test_fail("this one is never gone back to");
}

static void out_of_a_handler()
{
	if (cairn_checkpoint(c, &id) != CAIRN_RESTORED) {
		try {
			throw std::runtime_error(words);
		} catch (std::exception &) {
			restore();
		}
	}
	CHECK(!std::current_exception() && !std::uncaught_exceptions());
}

static void inside_a_handler()
{
	*turns = 0;
	try {
		throw std::runtime_error(words);
	} catch (std::exception &e) {
		int caught = cairn_checkpoint(c, &id);

		CHECK(caught == (*turns ? CAIRN_RESTORED : 0) && words == e.what());
		for (int i = 0; i < 40; i++) {
			try {
				throw std::logic_error(words);
			} catch (std::logic_error &) {
			}
		}
		if ((*turns)++ < 3)
			restore();
		CHECK(std::current_exception());
	}
	CHECK(!std::current_exception());
	CHECK_RC(cairn_restore(c, id), CAIRN_EFAILED);
}

/* The same, if it has been thrown once more: libstdc++ has counted that in the exception. */
static void thrown_again()
{
	try {
		throw std::runtime_error(words);
	} catch (std::exception &) {
		checkpoint();
		try {
			throw;
		} catch (std::runtime_error &e) {
			CHECK(words == e.what());
		}
		CHECK_RC(cairn_restore(c, id), CAIRN_EFAILED);
	}
}

/* A checkpoint in the handler, and one behind it: neither goes back to the first. */
static void behind_a_handler(bool twice)
{
	uint64_t inside;

	try {
		throw words;
	} catch (std::string &text) {
		checkpoint();
		inside = id;
		CHECK(text == words);
	}
	if (twice)
		checkpoint();
	CHECK(cairn_restore(c, inside) < 0);
}

static void in_one_interval()
{
	*turns = 0;
	(void)!cairn_checkpoint(c, &id);
	for (int i = 0; i < 3; i++) {
		try {
			throw i;
		} catch (int n) {
			CHECK(n == i);
		}
	}
	if (!(*turns)++)
		restore();
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	(void)argc;
	turns = static_cast<int *>(
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	CHECK(turns != MAP_FAILED);
	o.tracker = argv[1];
	o.keep = 3;
	CHECK_OK(cairn_open(&c, &o));
	out_of_a_handler();
	inside_a_handler();
	thrown_again();
	behind_a_handler(false);
	behind_a_handler(true);
	in_one_interval();
	CHECK_OK(cairn_close(c));
	return 0;
}
