/* SPDX-License-Identifier: MIT */
/*
 * exceptions TRACKER SURFACE: C++ exceptions around checkpoints. An exception that is being handled
 * when a checkpoint is taken can be rethrown after a restore; one that was thrown since is as if it
 * never had been.
 */
#include <stdexcept>
#include <string>

extern "C" {
#include "cairn/cairn.h"
}
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>

namespace {

#define CHECK(cond)                                                                        \
	do {                                                                               \
		if (!(cond)) {                                                             \
			dprintf(2, "FAIL %s:%d: %s\n", __FILE__, __LINE__, #cond);         \
			_exit(1);                                                          \
		}                                                                          \
	} while (0)

/* Survives restores: a shared mapping is no part of a surface. */
struct Kept {
	int destroyed, caught, rounds;
} *kept;

cairn_t *session;
uint64_t id;

struct Guard {
	~Guard() { kept->destroyed++; }
};

[[gnu::noinline]] void deep(int depth)
{
	Guard guard;

	if (depth == 0)
		throw std::runtime_error("from below " + std::to_string(kept->rounds));
	deep(depth - 1);
}

[[gnu::noinline]] void catch_one(int depth)
{
	try {
		deep(depth);
		CHECK(false);
	} catch (const std::runtime_error &e) {
		kept->caught++;
		CHECK(std::string(e.what()) == "from below " + std::to_string(kept->rounds));
	}
}

void back()
{
	int rc = cairn_restore(session, id);

	dprintf(2, "FAIL cairn_restore: %s\n", cairn_strerror(rc));
	_exit(1);
}

/* Taken outside: what was thrown since goes back; the unwinder works after the restore. */
void around()
{
	int got = cairn_checkpoint(session, &id);

	CHECK(got == CAIRN_TAKEN || got == CAIRN_RESTORED);
	catch_one(20);
	if (kept->rounds++ < 20)
		back();
	CHECK(kept->caught == 21 && kept->destroyed == 21 * 21);
}

/* Taken in a handler: the exception lives across the restore and is thrown on. */
[[gnu::noinline]] void rethrows()
{
	try {
		throw std::logic_error("held");
	} catch (const std::logic_error &) {
		int got = cairn_checkpoint(session, &id);

		CHECK(got == CAIRN_TAKEN || got == CAIRN_RESTORED);
		if (kept->rounds++ < 5)
			back();
		throw;
	}
}

} // namespace

int main(int argc, char **argv)
{
	cairn_options o = CAIRN_OPTIONS_INIT;
	int rc;

	o.tracker = argc > 1 ? argv[1] : "async";
	o.surface = argc > 2 ? argv[2] : "all";
	kept = static_cast<Kept *>(mmap(nullptr, sizeof(Kept), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	rc = cairn_open(&session, &o);
	if (rc == CAIRN_ENOTRACK) {
		dprintf(2, "SKIP: tracker %s (this host cannot run it)\n", o.tracker);
		return 77;
	}
	CHECK(rc == 0);
	around();
	kept->rounds = 0;
	try {
		rethrows();
		CHECK(false);
	} catch (const std::logic_error &e) {
		CHECK(!strcmp(e.what(), "held") && kept->rounds == 6);
	}
	CHECK(cairn_close(session) == 0);
	return 0;
}
