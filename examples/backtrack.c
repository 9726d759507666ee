/* SPDX-License-Identifier: MIT */
/*
 * Backtracking by checkpoints: a sudoku solver whose allocator arena is one area, so that a wrong
 * guess is taken back by a rewind. Beside it the same search with a copy of the arena per guess,
 * and with a fork per guess. Prints rewinds per second of each.
 *
 *	backtrack [REWINDS [ARENA_KIB]]
 *
 * Every method does the same search of the same puzzles, and its solutions are checked. fork stops
 * after two seconds: its rate is known by then.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cairn/cairn.h"
#include "sudoku.h"

#define FORK_SECONDS_MAX 2.0

/* What survives a process that was forked to try something. */
struct shared {
	uint64_t rewinds;
	uint8_t grid[SUDOKU_CELLS];
	bool solved;
};

static char *arena;
static size_t arena_size = 1 << 20;
static uint64_t rewinds_max = 20000;
static struct shared *shared;
static double deadline;
static pid_t main_pid;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static void must(int result, const char *what)
{
	if (result >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, cairn_strerror(result));
	exit(1);
}

static bool enough(void)
{
	return shared->rewinds >= rewinds_max || (deadline > 0 && now() > deadline);
}

static void succeed_here(struct guess *guess)
{
	(void)guess;
}

/* ---- cairn: one checkpoint per choice point, one rewind per wrong guess ------ */

static cairn_t *session;

static enum guess_verdict cairn_enter(struct guess *guess)
{
	if (enough())
		return GUESS_STOP;
	if (!guess->saved)
		must(cairn_checkpoint(session, &guess->id), "cairn_checkpoint");
	guess->saved = true;
	return GUESS_TRY;
}

static void cairn_fail(struct guess *guess)
{
	must(cairn_rewind(session, guess->id), "cairn_rewind");
	shared->rewinds++;
}

/* ---- copy: the used part of the arena, once per choice point ----------------- */

static char *copies[SUDOKU_CELLS];

static enum guess_verdict copy_enter(struct guess *guess)
{
	if (enough())
		return GUESS_STOP;
	if (!guess->saved) {
		if (!copies[guess->depth])
			copies[guess->depth] = malloc(arena_size);
		if (!copies[guess->depth])
			must(-12, "malloc");
		memcpy(copies[guess->depth], arena, arena_size);
	}
	guess->saved = true;
	return GUESS_TRY;
}

static void copy_fail(struct guess *guess)
{
	memcpy(arena, copies[guess->depth], arena_size);
	shared->rewinds++;
}

/* ---- fork: a child makes the guess; its end is the rewind -------------------- */

static enum guess_verdict fork_enter(struct guess *guess)
{
	int status;
	pid_t pid;

	(void)guess;
	if (enough())
		return GUESS_STOP;
	pid = fork();
	if (pid == 0)
		return GUESS_TRY;
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return GUESS_STOP;
	shared->rewinds++;
	if (shared->solved)
		return GUESS_SOLVED;
	return enough() ? GUESS_STOP : GUESS_FAILED;
}

static void fork_fail(struct guess *guess)
{
	(void)guess;
	_exit(0);
}

static void fork_succeed(struct guess *guess)
{
	(void)guess;
	if (!shared->solved) /* else a child of ours was there first, with more of the grid */
		sudoku_grid(arena, shared->grid);
	shared->solved = true;
	_exit(0);
}

/* ---- The comparison ---------------------------------------------------------- */

static const struct guess_ops cairn_ops = { cairn_enter, cairn_fail, succeed_here };
static const struct guess_ops copy_ops = { copy_enter, copy_fail, succeed_here };
static const struct guess_ops fork_ops = { fork_enter, fork_fail, fork_succeed };

/* Solve puzzle after puzzle until there were enough rewinds. Returns how many were solved. */
static int run(const char *name, const struct guess_ops *ops)
{
	double begin = now(), seconds;
	int solved = 0;

	memset(shared, 0, sizeof(*shared));
	deadline = ops == &fork_ops ? begin + FORK_SECONDS_MAX : 0;
	for (uint32_t seed = 1; !enough(); seed++) {
		sudoku_new(arena, arena_size, seed);
		shared->solved = false;
		if (!sudoku_solve(arena, ops)) {
			if (getpid() != main_pid)
				_exit(0); /* a guess that was told to stop */
			continue;
		}
		if (!shared->solved)
			sudoku_grid(arena, shared->grid);
		if (!sudoku_valid(arena, shared->grid)) {
			fprintf(stderr, "%s: wrong solution of puzzle %u\n", name, seed);
			exit(1);
		}
		solved++;
	}
	seconds = now() - begin;
	printf("%-16s %10llu %12.0f %8d\n", name, (unsigned long long)shared->rewinds,
		shared->rewinds / seconds, solved);
	fflush(stdout);
	return solved;
}

/* False if this host or this version has no such tracker. */
static bool run_cairn(const char *tracker)
{
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	char name[32];
	int ret;

	options.tracker = tracker;
	options.surface = "none";
	options.keep = SUDOKU_CELLS;
	options.threads = CAIRN_THREADS_ONE;
	ret = cairn_open(&session, &options);
	if (ret < 0) {
		printf("cairn %-10s %s\n", tracker, cairn_strerror(ret));
		return false;
	}
	must(cairn_area_add(session, arena, arena_size), "cairn_area_add");
	snprintf(name, sizeof(name), "cairn %s", tracker);
	run(name, &cairn_ops);
	must(cairn_close(session), "cairn_close");
	return true;
}

static void *map(size_t size, int flags)
{
	void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return at;
}

int main(int argc, char **argv)
{
	static const char *const trackers[] = { "async", "uffd", "mprotect" };
	int available = 0;

	if (argc > 1)
		rewinds_max = strtoull(argv[1], NULL, 10);
	if (argc > 2)
		arena_size = strtoull(argv[2], NULL, 10) * 1024;
	if (rewinds_max == 0 || arena_size < 128 * 1024) {
		fprintf(stderr, "usage: %s [REWINDS [ARENA_KIB >= 128]]\n", argv[0]);
		return 2;
	}
	main_pid = getpid();
	arena = map(arena_size, MAP_PRIVATE);
	shared = map(sizeof(*shared), MAP_SHARED);
	printf("%-16s %10s %12s %8s\n", "method", "rewinds", "per second", "solved");
	for (size_t i = 0; i < sizeof(trackers) / sizeof(trackers[0]); i++)
		available += run_cairn(trackers[i]);
	run("copy", &copy_ops);
	run("fork", &fork_ops);
	return available ? 0 : 1;
}
