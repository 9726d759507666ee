/* SPDX-License-Identifier: MIT */
/*
 * Functions of libstdc++ that have wrappers and call the program: a stream asks its buffer, and
 * what was thrown is destroyed where its handler ends. The checkpoint taken there begins another
 * interval for the caller. argv: TRACKER.
 */
#include <istream>
#include <streambuf>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

static volatile int *turns; /* shared: not turned back */
static cairn_t *session;
static uint64_t id;
static long word = 5;

__attribute__((noinline)) static void take()
{
	CHECK(cairn_checkpoint(session, &id) == (*turns ? CAIRN_RESTORED : CAIRN_TAKEN));
	CHECK(word == 1);
}

static void turn_back()
{
	if (!(*turns)++) {
		(void)!cairn_restore(session, id);
		test_fail("cairn_restore came back");
	}
	*turns = 0;
}

struct Buffer : std::streambuf {
	char text[8] = "abcdefg";

	int_type underflow() override
	{
		take();
		setg(text, text, text + 7);
		return *text;
	}
};

struct Thrown {
	~Thrown() { take(); }
};

static Buffer buffer;
static std::istream in(&buffer);

__attribute__((noinline)) static void skip()
{
	word = 1;
	in.ignore(3);
	word = 2;
	turn_back();
}

__attribute__((noinline)) static void end_handler()
{
	try {
		throw Thrown();
	} catch (Thrown &) {
		word = 1;
	}
	word = 2;
	turn_back();
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	(void)argc;
	turns = static_cast<int *>(
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	CHECK(turns != MAP_FAILED);
	o.tracker = argv[1];
	CHECK_OK(cairn_open(&session, &o));
	skip();
	end_handler();
	return 0;
}
