// SPDX-License-Identifier: MIT
//
// Variables of functions, which are made when they are first used: after a restore one that was made
// in the undone interval is made again, and destroyed once. argv: TRACKER.
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

static struct Kept {
	unsigned made, destroyed, refused, ended;
} *kept; // survives restores

// Its destructor is the last to run.
struct Last {
	Last()
	{
		kept = static_cast<Kept *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	}
	~Last()
	{
		if (kept->destroyed == 4 && kept->ended == 10)
			return;
		fprintf(stderr, "%u of 4 are destroyed, %u ended\n", kept->destroyed, kept->ended);
		_exit(1);
	}
};

static Last last;

struct Value {
	std::string text;
	explicit Value(const char *t) : text(t)
	{
		text += ", in a block of its own: it is too long for the string itself";
		kept->made++;
	}
	~Value() { kept->destroyed++; }
};

static const std::string &early()
{
	static Value v("early");
	return v.text;
}

static const std::string &late()
{
	static Value v("late");
	return v.text;
}

// Of the thread; it is destroyed before all others.
static const std::string &local()
{
	static thread_local Value v("local");
	return v.text;
}

static void end_undone() { kept->ended += 100; }
static void end_kept() { kept->ended += 10; }

static const std::string &refused(bool refuse)
{
	static Value v(refuse ? throw 1 : "refused");
	return v.text;
}

static void try_refused()
{
	try {
		refused(true);
	} catch (int) {
		kept->refused++;
	}
}

int main(int argc, char **argv)
{
	cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t id;
	cairn_t *c;

	CHECK(argc == 2);
	o.tracker = argv[1];
	CHECK_OK(cairn_open(&c, &o));
	CHECK(!early().compare(0, 6, "early,"));
	if (cairn_checkpoint(c, &id) == CAIRN_TAKEN) {
		CHECK(!late().compare(0, 5, "late,") && kept->made == 2);
		try_refused();
		CHECK(!refused(false).compare(0, 8, "refused,") && kept->made == 3);
		CHECK(!local().compare(0, 6, "local,") && kept->made == 4);
		CHECK(!atexit(end_undone));
		CHECK_OK(cairn_restore(c, id)); // does not return
	}
	CHECK(!early().compare(0, 6, "early,") && kept->made == 4);
	CHECK(!late().compare(0, 5, "late,") && kept->made == 5);
	try_refused();
	CHECK(!refused(false).compare(0, 8, "refused,") && kept->made == 6);
	CHECK(!local().compare(0, 6, "local,") && kept->made == 7);
	CHECK(!atexit(end_kept));
	CHECK(kept->refused == 2);
	CHECK_OK(cairn_close(c));
	return 0;
}
