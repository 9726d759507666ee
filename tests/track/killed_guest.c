/* SPDX-License-Identifier: MIT */
/*
 * killed_guest TRACKER THEN: a child of vfork is killed in the midst of the handler that serves its
 * store, at each of its stages. The program goes on, and comes back to its checkpoint. THEN: what
 * it does first: store, rewind, checkpoint, touch, or close.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include "track/undo/undo_pages.h"

#define PAGES 32ul
#include "../lib/marked_area.h"
#include "watcher.h"

#define AT    9ul /* the page that the child stores to */
#define LIMIT 60

enum stage { ENTER, FRAME, OPEN, LISTED, LEAVE, CROWDED, CROWDED_OPEN, STAGES };

static pid_t program;
static volatile int stage, after, crowds;

/* In the child, at that stage: before what is wrapped, and then behind it. */
static void reach(enum stage here, bool behind)
{
	if ((int)here == stage && behind == (after != 0) && getpid() != program)
		kill(getpid(), SIGKILL);
}

bool __real_undo_gate_enter(struct crn_undo_pages *u, struct crn_guest *guest);
bool __wrap_undo_gate_enter(struct crn_undo_pages *u, struct crn_guest *guest);
bool __wrap_undo_gate_enter(struct crn_undo_pages *u, struct crn_guest *guest)
{
	bool in;

	reach(ENTER, false);
	in = __real_undo_gate_enter(u, guest);
	reach(ENTER, true);
	return in;
}

void __real_undo_gate_leave(struct crn_undo_pages *u, struct crn_guest *guest);
void __wrap_undo_gate_leave(struct crn_undo_pages *u, struct crn_guest *guest);
void __wrap_undo_gate_leave(struct crn_undo_pages *u, struct crn_guest *guest)
{
	reach(LEAVE, false);
	__real_undo_gate_leave(u, guest);
	reach(LEAVE, true);
}

void *__real_crn_frame_alloc(struct crn_arena *a);
void *__wrap_crn_frame_alloc(struct crn_arena *a);
void *__wrap_crn_frame_alloc(struct crn_arena *a)
{
	void *frame;

	reach(FRAME, false);
	frame = __real_crn_frame_alloc(a);
	reach(FRAME, true);
	return frame;
}

void __real_undo_note_saved(struct crn_undo_pages *u, uintptr_t page);
void __wrap_undo_note_saved(struct crn_undo_pages *u, uintptr_t page);
void __wrap_undo_note_saved(struct crn_undo_pages *u, uintptr_t page)
{
	reach(LISTED, false);
	__real_undo_note_saved(u, page);
	reach(LISTED, true);
}

/* The first page that the child opens cannot be opened alone. */
static bool is_refused(void)
{
	if (stage < CROWDED || getpid() == program || crowds++)
		return false;
	return true;
}

int __real_crn_memory_reopen(void *addr, size_t len, int prot);
int __wrap_crn_memory_reopen(void *addr, size_t len, int prot);
int __wrap_crn_memory_reopen(void *addr, size_t len, int prot)
{
	int err;

	reach(OPEN, false);
	if (is_refused())
		return -ENOMEM;
	reach(CROWDED_OPEN, false);
	err = __real_crn_memory_reopen(addr, len, prot);
	reach(OPEN, true);
	reach(CROWDED_OPEN, true);
	return err;
}

int __real_crn_uffd_protect_beside(
	int uffd, uintptr_t addr, size_t len, bool protect, struct crn_uffd_events *e);
int __wrap_crn_uffd_protect_beside(
	int uffd, uintptr_t addr, size_t len, bool protect, struct crn_uffd_events *e);
int __wrap_crn_uffd_protect_beside(
	int uffd, uintptr_t addr, size_t len, bool protect, struct crn_uffd_events *e)
{
	int err;

	reach(OPEN, false);
	if (is_refused())
		return -ENOMEM;
	reach(CROWDED_OPEN, false);
	err = __real_crn_uffd_protect_beside(uffd, addr, len, protect, e);
	reach(OPEN, true);
	reach(CROWDED_OPEN, true);
	return err;
}

int __real_undo_open_range(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin,
	uintptr_t end);
int __wrap_undo_open_range(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin,
	uintptr_t end);
int __wrap_undo_open_range(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin,
	uintptr_t end)
{
	int err;

	reach(CROWDED, false);
	err = __real_undo_open_range(u, a, begin, end);
	reach(CROWDED, true);
	return err;
}

static void kill_child(void)
{
	volatile pid_t pid;
	int status;

	crowds = 0;
	pid = vfork();
	if (pid == 0) {
		area[AT * PAGE + AT] = 77;
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
		test_fail("stage %d%s was not reached", stage, after ? ", behind" : "");
}

/* Twice: what the first round has left would show in the second. */
static void go_on(uint64_t id)
{
	uint64_t next;

	for (uint8_t i = 10; i < 12; i++) {
		write_all(i);
		CHECK_OK(cairn_rewind(c, id));
		expect_all(1);
	}
	write_all(2);
	CHECK_RC(cairn_checkpoint(c, &next), CAIRN_TAKEN);
	write_all(3);
	CHECK_OK(cairn_rewind(c, next));
	expect_all(2);
	CHECK_OK(cairn_rewind(c, id));
	expect_all(1);
}

static void run(const char *tracker, const char *then)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t id, next;

	o.tracker = tracker;
	o.strategy = "none";
	o.surface = "none";
	o.keep = 4;
	open_with_area(&o);
	write_all(1);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	area[PAGE] = 5;
	area[20 * PAGE] = 6;
	kill_child();
	if (!strcmp(then, "store"))
		area[AT * PAGE + AT] = 4;
	else if (!strcmp(then, "touch"))
		CHECK_OK(cairn_area_touch(c, (void *)area, PAGES * PAGE));
	else if (!strcmp(then, "rewind"))
		CHECK_OK(cairn_rewind(c, id));
	else if (!strcmp(then, "checkpoint"))
		CHECK_RC(cairn_checkpoint(c, &next), CAIRN_TAKEN);
	if (!strcmp(then, "checkpoint"))
		CHECK_OK(cairn_rewind(c, id));
	if (strcmp(then, "close"))
		go_on(id);
	CHECK_OK(cairn_close(c));
	write_all(9);
	expect_all(9);
	CHECK(!munmap((void *)area, PAGES * PAGE));
}

int main(int argc, char **argv)
{
	if (argc != 3)
		test_fail("usage: killed_guest TRACKER THEN");
	program = getpid();
	watcher_begin(LIMIT);
	for (stage = 0; stage < STAGES; stage++)
		for (after = 0; after < 2; after++)
			run(argv[1], argv[2]);
	return 0;
}
