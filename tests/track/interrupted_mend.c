/* SPDX-License-Identifier: MIT */
/*
 * interrupted_mend: the program has closed all descriptors; while they are fetched from the keeper
 * a handler of its own stores to a closed page, for which they are fetched as well. It does not
 * wait for what it has interrupted: a watcher ends the test else. Linked with --wrap: the signal
 * comes at the first look at a descriptor.
 */
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include "os/descriptor.h"

#define PAGES 64ul
#include "../lib/marked_area.h"
#include "watcher.h"

#define LIMIT 30 /* seconds */

static size_t stores; /* of the handler, each to another page */
static atomic_bool armed, inside;

bool __real_crn_fd_is(int fd, const struct crn_fd_identity *id);
bool __wrap_crn_fd_is(int fd, const struct crn_fd_identity *id);

/* The program may close what is ours at any time, too. */
static void close_all(void)
{
	if (syscall(SYS_close_range, 3, ~0u, 0) < 0)
		test_skip("close_range(2) (Linux 5.9)");
}

bool __wrap_crn_fd_is(int fd, const struct crn_fd_identity *id)
{
	if (armed && stores < PAGES - 1 && !atomic_exchange(&inside, true)) {
		raise(SIGUSR1);
		inside = false;
	}
	return __real_crn_fd_is(fd, id);
}

static void on_signal(int sig)
{
	(void)sig;
	area[++stores * PAGE] = 3;
}

int main(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t id;

	o.tracker = "uffd";
	o.strategy = "none";
	o.surface = "none";
	open_with_area(&o);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	signal(SIGUSR1, on_signal);
	watcher_begin(LIMIT);
	area[0] = 1;
	/* Now a rewind looks, and fetches what has been closed. */
	CHECK(!madvise((void *)area, PAGE, MADV_DONTNEED));
	close_all();
	armed = true;
	CHECK_OK(cairn_rewind(c, id));
	armed = false;
	CHECK(stores > 0);
	CHECK_OK(cairn_rewind(c, id));
	for (size_t i = 0; i < PAGES; i++)
		CHECK_U64(area[i * PAGE], 0);
	CHECK_OK(cairn_close(c));
	return 0;
}
