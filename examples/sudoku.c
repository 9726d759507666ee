/* SPDX-License-Identifier: MIT */
#include "sudoku.h"

#include <stdlib.h>
#include <string.h>

#define BOX    4
#define CLUES  122 /* few enough for guesses, many enough for an end */
#define VALUES SUDOKU_SIDE

/* A node of a list: a candidate of a cell, or a cell whose value is to be told to its peers. */
struct node {
	struct node *next;
	uint64_t value;
};

struct cell {
	struct node *candidates;
	uint32_t candidate_count;
	uint8_t value; /* 0: open */
	uint8_t clue;
};

/* At the start of the arena; everything else follows it. */
struct board {
	char *top; /* next byte never used */
	char *end;
	struct node *free;
	struct node *queue;
	uint32_t open_count;
	struct cell cells[SUDOKU_CELLS];
};

static struct node *node_new(struct board *b, uint64_t value, struct node *next)
{
	struct node *n = b->free;

	if (n) {
		b->free = n->next;
	} else {
		if ((size_t)(b->end - b->top) < sizeof(*n))
			abort(); /* the caller's arena is too small for any puzzle */
		n = (struct node *)b->top;
		b->top += sizeof(*n);
	}
	n->value = value;
	n->next = next;
	return n;
}

static struct node *node_free(struct board *b, struct node *n)
{
	struct node *next = n->next;

	n->next = b->free;
	b->free = n;
	return next;
}

static bool peers(int a, int b)
{
	int ra = a / SUDOKU_SIDE, ca = a % SUDOKU_SIDE, rb = b / SUDOKU_SIDE, cb = b % SUDOKU_SIDE;

	return a != b && (ra == rb || ca == cb || (ra / BOX == rb / BOX && ca / BOX == cb / BOX));
}

static void cell_set(struct board *b, int at, uint64_t value)
{
	struct cell *c = &b->cells[at];

	while (c->candidates)
		c->candidates = node_free(b, c->candidates);
	c->candidate_count = 0;
	c->value = value;
	b->open_count--;
	b->queue = node_new(b, at, b->queue);
}

/* False if the cell has nothing left. */
static bool cell_remove(struct board *b, int at, uint64_t value)
{
	struct cell *c = &b->cells[at];

	if (c->value)
		return c->value != value;
	for (struct node **n = &c->candidates; *n; n = &(*n)->next) {
		if ((*n)->value != value)
			continue;
		*n = node_free(b, *n);
		c->candidate_count--;
		break;
	}
	if (c->candidate_count == 1)
		cell_set(b, at, c->candidates->value);
	return c->value || c->candidate_count > 0;
}

/*
 * Tell every peer of the cells in the queue; false at a contradiction (the queue is then left as it
 * is).
 */
static bool propagate(struct board *b)
{
	while (b->queue) {
		int at = b->queue->value;

		b->queue = node_free(b, b->queue);
		for (int i = 0; i < SUDOKU_CELLS; i++)
			if (peers(at, i) && !cell_remove(b, i, b->cells[at].value))
				return false;
	}
	return true;
}

/* The open cell with the fewest candidates. */
static int pick(const struct board *b)
{
	int best = -1;

	for (int i = 0; i < SUDOKU_CELLS; i++) {
		const struct cell *c = &b->cells[i];

		if (!c->value && (best < 0 || c->candidate_count < b->cells[best].candidate_count))
			best = i;
	}
	return best;
}

static enum guess_verdict search(struct board *b, const struct guess_ops *ops, int depth)
{
	struct guess guess = { .depth = depth };
	uint64_t values[VALUES];
	int at, count = 0;

	if (b->open_count == 0)
		return GUESS_SOLVED;
	at = pick(b);
	/* The list is in the arena, and a failed try puts the arena back: walk a copy. */
	for (const struct node *n = b->cells[at].candidates; n; n = n->next)
		values[count++] = n->value;
	for (int i = 0; i < count; i++) {
		enum guess_verdict verdict = ops->enter(&guess);

		if (verdict == GUESS_FAILED)
			continue;
		if (verdict != GUESS_TRY)
			return verdict;
		cell_set(b, at, values[i]);
		verdict = propagate(b) ? search(b, ops, depth + 1) : GUESS_FAILED;
		if (verdict == GUESS_SOLVED)
			ops->succeed(&guess);
		if (verdict != GUESS_FAILED)
			return verdict;
		ops->fail(&guess);
	}
	return GUESS_FAILED;
}

bool sudoku_solve(void *arena, const struct guess_ops *ops)
{
	struct board *b = arena;

	return propagate(b) && search(b, ops, 0) == GUESS_SOLVED;
}

static uint32_t next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static void shuffle(uint8_t *items, int count, uint32_t *random)
{
	for (int i = count - 1; i > 0; i--) {
		int j = next_random(random) % (i + 1);
		uint8_t swap = items[i];

		items[i] = items[j];
		items[j] = swap;
	}
}

void sudoku_new(void *arena, size_t size, uint32_t seed)
{
	struct board *b = arena;
	uint8_t names[VALUES], order[SUDOKU_CELLS];
	uint32_t random = seed * 2654435761u + 1;

	memset(arena, 0, size);
	b->top = (char *)(b + 1);
	b->end = (char *)arena + size;
	b->open_count = SUDOKU_CELLS;
	for (int i = 0; i < VALUES; i++)
		names[i] = i + 1;
	for (int i = 0; i < SUDOKU_CELLS; i++)
		order[i] = i;
	shuffle(names, VALUES, &random);
	shuffle(order, SUDOKU_CELLS, &random);
	for (int i = 0; i < SUDOKU_CELLS; i++) {
		for (int v = VALUES; v >= 1; v--)
			b->cells[i].candidates = node_new(b, v, b->cells[i].candidates);
		b->cells[i].candidate_count = VALUES;
	}
	for (int i = 0; i < CLUES; i++) {
		int row = order[i] / SUDOKU_SIDE, col = order[i] % SUDOKU_SIDE;

		/*
		 * The textbook full grid: each row the one above shifted by a box, each band by
		 * one.
		 */
		b->cells[order[i]].clue = names[(row % BOX * BOX + row / BOX + col) % VALUES];
		cell_set(b, order[i], b->cells[order[i]].clue);
	}
}

void sudoku_grid(const void *arena, uint8_t grid[SUDOKU_CELLS])
{
	for (int i = 0; i < SUDOKU_CELLS; i++)
		grid[i] = ((const struct board *)arena)->cells[i].value;
}

bool sudoku_valid(const void *arena, const uint8_t grid[SUDOKU_CELLS])
{
	const struct board *b = arena;

	for (int i = 0; i < SUDOKU_CELLS; i++) {
		if (grid[i] == 0 || (b->cells[i].clue && b->cells[i].clue != grid[i]))
			return false;
		for (int j = 0; j < i; j++)
			if (peers(i, j) && grid[i] == grid[j])
				return false;
	}
	return true;
}
