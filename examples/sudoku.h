/* SPDX-License-Identifier: MIT */
/*
 * Sudoku of 16x16 by constraint propagation and guessing. All of the state (cells, lists of
 * candidates, the work queue) is allocated inside one arena and changed without keeping notes, so
 * that a wrong guess can be taken back by nothing but putting the arena back. How that is done is
 * the caller's (struct guess_ops): this is what the example compares.
 */
#ifndef EXAMPLES_SUDOKU_H
#define EXAMPLES_SUDOKU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SUDOKU_SIDE  16
#define SUDOKU_CELLS (SUDOKU_SIDE * SUDOKU_SIDE)

enum guess_verdict { GUESS_TRY, GUESS_FAILED, GUESS_SOLVED, GUESS_STOP };

/* One choice point of the search; lives on the stack. */
struct guess {
	uint64_t id;
	int depth;
	bool saved;
};

struct guess_ops {
	/*
	 * Before a try: remember the arena. GUESS_TRY: go ahead; the others: somebody else tried
	 * already.
	 */
	enum guess_verdict (*enter)(struct guess *guess);
	/* The try failed: put the arena back (or end the process that tried). */
	void (*fail)(struct guess *guess);
	/* The try led to the solution. */
	void (*succeed)(struct guess *guess);
};

/*
 * Lay out a puzzle in the arena (zeroed by this). The same seed gives the same puzzle and search.
 */
void sudoku_new(void *arena, size_t size, uint32_t seed);

/* True if solved; false if `enter` said GUESS_STOP or there is no solution. */
bool sudoku_solve(void *arena, const struct guess_ops *ops);

/* The grid, 0 for an open cell; and whether a full one obeys the rules and the puzzle. */
void sudoku_grid(const void *arena, uint8_t grid[SUDOKU_CELLS]);
bool sudoku_valid(const void *arena, const uint8_t grid[SUDOKU_CELLS]);

#endif
