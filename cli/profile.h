/* SPDX-License-Identifier: MIT */
/*
 * The inside of `cairn profile`: what its files tell each other.
 *
 *	profile.c          options, the life of a run: program, load, end
 *	profile_trace.c    follows every process and thread by ptrace; a seccomp filter makes only calls
 *	                   that may block stop, so the program runs at nearly its own speed
 *	profile_stack.c    call stacks by .eh_frame (libdw), each kept once
 *	profile_loop.c     which frames never return: those hold the long-running loops (SMC section 6)
 *	profile_classes.c  process classes, their loops, and the site to use
 *	profile_report.c   prints them
 *
 * One thread, no signal handlers but a flag. Memory lives until the command ends. Times are
 * CLOCK_MONOTONIC nanoseconds. Addresses are the traced program's.
 */
#ifndef CRN_PROFILE_H
#define CRN_PROFILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#define PROFILE_DEPTH_MAX 64
#define PROFILE_WAITS_MAX 64
#define PROFILE_WATCHES   3 /* debug registers that watch for returns; the fourth counts calls */

struct user_regs_struct;

/* One activation of a function. frames[0] is the innermost. */
struct profile_frame {
	uint64_t pc;       /* in the callers: the return address */
	uint64_t cfa;      /* the stack pointer once this frame has returned; 0: not known */
	uint64_t function; /* where its function begins; 0: not known */
	uint64_t bias;     /* of its object: address in memory - address in the file */
	const char *object; /* path of the file, or NULL */
	const void *module; /* libdw's, or NULL */
	bool activation;    /* pc is that of the next instruction, not a return address */
};

struct profile_stack {
	struct profile_stack *next;
	unsigned depth;
	struct profile_frame frames[];
};

/* What was loaded by an exec; forked children share their parent's. */
struct profile_image;

struct profile_image *profile_image_new(void);
/* The stack of a stopped thread; NULL if there is none to be had. Owned by the image. */
const struct profile_stack *profile_image_stack(
	struct profile_image *image, pid_t tid, const struct user_regs_struct *regs);
/* Of the frame's function, or NULL. Takes up to milliseconds: it walks the object's symbols. */
const char *profile_symbol(const struct profile_frame *f);

enum profile_kind {
	PROFILE_SITE, /* a call whose return is the site `wait` */
	PROFILE_CALL, /* another */
	PROFILE_SAMPLE,
	PROFILE_KINDS
};

/* A place where a thread waits, or, with nr < 0, where it was met computing. */
struct profile_wait {
	const struct profile_stack *stack;
	long nr;
	uint64_t calls;
	uint64_t slept;  /* ticks at which the thread was found asleep in it */
	uint64_t ns;     /* inside the call, in all */
	uint64_t look;   /* the thread's count of looks at the last of them */
	uint64_t total;  /* calls since the thread began: `calls` begins anew with the load */
	bool polls;      /* an accept on a listener that does not wait: not the site `wait` */
};

/* Per thread: which activations have returned, and what the debug registers watch. */
struct profile_loop {
	const struct profile_stack *stack; /* whose frames are watched now */
	uint64_t armed[PROFILE_WATCHES + 1];
	uint64_t armed_cfa[PROFILE_WATCHES];
	unsigned idle[PROFILE_WATCHES]; /* hits in a row by other activations: recursion */
	uint64_t looks;
	struct profile_key {
		uint64_t cfa, function;
		uint64_t look; /* `looks` at that time */
	} returned[256];
	unsigned returned_count;
	bool broken;            /* no debug registers here */
	uint64_t counted;       /* the function whose calls are counted */
	uint64_t count, count_began; /* ns of the thread's own time on a processor */
	uint64_t count_since;   /* CLOCK_MONOTONIC */
	double rate;            /* calls per second of that time, by the last count; 0: none yet */
};

struct profile_task {
	struct profile_task *next;
	struct profile_process *process;
	pid_t tid;
	bool live, in_call;
	bool stayed; /* until the end of the load */
	struct profile_wait *current;
	uint64_t entered_ns, slept_ns; /* when it entered its call; when it was last asleep */
	struct profile_wait waits[PROFILE_WAITS_MAX];
	unsigned wait_count;
	uint64_t samples;    /* while computing */
	uint64_t count_at;   /* of `samples`: calls are counted next */
	uint64_t writes, writes_before; /* write(2) and its like: now, and when the load began */
	uint64_t sends;      /* send(2) and its like, since then */
	struct profile_loop loop;
};

struct profile_process {
	struct profile_process *next;
	pid_t pid, parent;
	bool live, root;
	bool stayed; /* until the end of the load */
	struct profile_image *image;
	const struct profile_process *creator;
	const struct profile_stack *born_at; /* the creator's, in fork; NULL: not known */
	char exe[256];
	char title[128];
};

struct profile {
	struct profile_process *processes; /* in order of birth */
	struct profile_task *tasks;
	pid_t root;
	int root_status;       /* as waitpid gave it */
	bool root_ended;
	bool executed;         /* the program was started */
	uint64_t began_ns, load_ns, ended_ns;
	uint64_t stops;
	bool recording;
	bool json;
	char **argv;
	char exe[256]; /* that argv names; it may execute others */
};

uint64_t profile_now(void);
void *profile_alloc(size_t size); /* zeroed; ends the command if there is no memory */

/* profile_trace.c. 0, or an exit status after a message. */
int profile_start(struct profile *p);
/*
 * Handle what one waitpid returned; false if pid is none of the traced. `tick` is for what goes by
 * time: to be called some fifty times a second.
 */
bool profile_event(struct profile *p, pid_t pid, int status);
void profile_tick(struct profile *p);
unsigned profile_live(const struct profile *p);
bool profile_quiet(const struct profile *p); /* every thread waits */
void profile_forget_counts(struct profile *p); /* the load begins */
void profile_snapshot(struct profile *p); /* the end of the load: who is there, and since when */
void profile_signal_all(struct profile *p, int sig);
const char *profile_call_name(long nr); /* "computing": it never blocks */

/* profile_loop.c; the thread is stopped. */
void profile_loop_look(struct profile_task *t, const struct profile_stack *stack);
/* A SIGTRAP of ours? */
bool profile_loop_trap(struct profile_task *t, const struct user_regs_struct *regs);
void profile_loop_exec(struct profile_task *t);
void profile_loop_count(struct profile_task *t, uint64_t function);
void profile_loop_count_end(struct profile_task *t);
/* The end of the load comes amid a count, and nothing was counted before; the thread may run. */
void profile_loop_settle(struct profile_task *t);
/*
 * Index of the innermost frame that has never returned: it holds the loop. `depth` if there is
 * none.
 */
unsigned profile_loop_frame(const struct profile_task *t, const struct profile_stack *stack);

/* profile_report.c */
void profile_report(const struct profile *p, FILE *out);
void profile_json_string(const char *s, FILE *out); /* in quotes */

/* loop_report.c: `cairn profile report`. Exit status. */
int profile_report_loops(int argc, char **argv);

/* profile_classes.c */
enum profile_kind profile_kind(long nr);
/* The call is an accept on a listener that is O_NONBLOCK. */
bool profile_polls(pid_t tid, long nr, uint64_t fd);
/* The function to count calls of, for a thread that computes; 0 if there is none. */
uint64_t profile_candidate(const struct profile_task *t);

#endif
