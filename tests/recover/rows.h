/* SPDX-License-Identifier: MIT */
/*
 * A row of the table of calls, tested: the body runs once, the program crashes, and after the
 * recovery the body runs again and must find everything as it was at the checkpoint, and get the
 * same answers.
 */
#ifndef ROWS_H
#define ROWS_H

#include <stdbool.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum way { LIBC, RAW, STDIO };
extern enum way way;

/* The same call through libc or through syscall(2). */
#define CALL(name, ...) (way == RAW ? syscall(SYS_##name, __VA_ARGS__) : (long)name(__VA_ARGS__))

struct row {
	const char *name;
	void (*setup)(void);
	void (*body)(bool again); /* false: do; true: it was undone: check that, and do it again */
	bool stdio;               /* only by STDIO; the others never by it */
	bool libc_only;
	bool output; /* the body runs once: it crashes in the middle (crash_once) and goes on */
};

/* Memory that a restore leaves alone. */
struct outside {
	int pass;
	int count;
	long value[8];
};
extern struct outside *outside;

_Noreturn void fail(const char *file, int line, const char *what);
#define CHECK(cond) ((cond) ? (void)0 : fail(__FILE__, __LINE__, #cond))

/* After an output: crash the first time that this is passed. */
void crash_once(void);

/* A call that others might see: a checkpoint. */
void tick(void);

/* A scratch file of 26 letters; its name. */
const char *letters(void);

/* The two ends of a local socket of that type. */
void local_pair(int type, int *fd, int *other);

bool is_all(const char *p, size_t len, char c);

/* A descriptor, a duplicate, and two records to be read: signals that came, uses of a file. */
void two_signals(int *fd, int *other);
void two_file_events(int *fd, int *other);

extern const struct row rows_descriptor[], rows_input[], rows_memory[], rows_process[],
	rows_epoll[], rows_output[], rows_message[], rows_fork[], rows_copies[],
	rows_locks[], rows_handler[], rows_watched[], rows_option[], rows_file[], rows_passing[],
	rows_break[], rows_remap[], rows_drop[];

#endif
