/* SPDX-License-Identifier: MIT */
/*
 * Undo pages: the tracker core of `mprotect` and `uffd`. A page is protected until its first store
 * in an interval; the store's fault handler copies it to a frame, opens it and lets the store run
 * again. So old content is held only for pages that the open interval has written ("open" pages)
 * and for hot ones, which are copied at the checkpoint and never protected.
 *
 *          first store: copy, open             interval_end: protect, hand the frame over
 *   clean ------------------------> open ------------------------------------------------> clean
 *     `-- set_hot: copy, open --> hot -- interval_end: hand over, copy again, stays open --'
 *
 * Every page of an area has one word: a frame pointer with enum undo_flags in its low bits.
 *
 * Invariants:
 *   clean page    == no UNDO_OPEN, no frame; the hardware refuses stores (UNDO_SEALED: as the
 *                    program wants)
 *   UNDO_OPEN     => exactly one of: frame, UNDO_ZERO, UNDO_LOST
 *   UNDO_HOT      => UNDO_OPEN
 *   saved[0..saved_count) holds each open page once, but for those of hot[] and of hot areas
 *   frame_count   == words that hold a frame
 *
 * Threads. The write-fault handler runs in any thread at any moment. The gate lets handlers in
 * together (each claims its page by UNDO_BUSY) and keeps them out while a call that holds the
 * session's lock rearranges tables: a handler that finds the gate closed returns, and the store
 * faults again.
 */
#ifndef CRN_UNDO_PAGES_H
#define CRN_UNDO_PAGES_H

#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bits.h"
#include "os/maps.h"
#include "os/signal.h"
#include "track/track.h"

struct crn_undo_pages;

enum undo_flags {
	UNDO_BUSY = 1u << 0,   /* a handler is copying it */
	UNDO_OPEN = 1u << 1,   /* stores run; the frame holds the content at interval_begin */
	UNDO_HOT = 1u << 2,    /* copied at every checkpoint, never protected */
	UNDO_ZERO = 1u << 3,   /* open, and the old content is zeros: no frame */
	UNDO_LOST = 1u << 4,   /* open, and there was no memory to keep the old content */
	UNDO_SEALED = 1u << 5, /* the program itself has made it read-only: not ours to open */
	UNDO_EXEC = 1u << 6,   /* executable: protection keeps that */
	UNDO_THERE = 1u
		<< 7, /* populated, as seen by the count of the present interval_end (hot areas) */
	UNDO_FLAGS = 0xfffu,
};

typedef _Atomic uintptr_t undo_word;

static inline void *undo_frame(uintptr_t word)
{
	return (void *)(word & ~(uintptr_t)UNDO_FLAGS);
}

struct undo_area {
	uintptr_t begin, end;
	struct crn_area *area;
	const struct undo_guard *guard;
	bool hot;         /* CRN_AREA_HOT: guard is NULL */
	size_t low, high; /* hot: words outside [low, high) hold nothing */
	size_t word_bytes;
	undo_word *words; /* one a page */
};

/*
 * How stores are refused. All ranges are page aligned and lie in one area; run words agree in
 * UNDO_EXEC.
 */
struct undo_guard {
	int signal; /* what a refused store raises, and its si_code */
	int code;
	int (*begin)(struct crn_undo_pages *u, struct undo_area *a);
	void (*end)(struct crn_undo_pages *u, struct undo_area *a);
	int (*protect)(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool exec);
	int (*open)(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool exec);
};
extern const struct undo_guard undo_guard_mprotect, undo_guard_uffd;

#define UNDO_MAGIC 0x6e6f77736562756eull

struct crn_undo_pages {
	uint64_t magic; /* zero in a forked child */
	struct crn_track_env *env;
	const struct undo_guard *guard; /* the one to try first */
	int uffd, pagemap;
	bool owns_signals;

	struct undo_area **areas; /* sorted by address */
	size_t area_count, area_cap;
	size_t page_count; /* of all areas */

	_Atomic uintptr_t
		*saved;   /* pages opened in this interval, in the order of their first stores */
	size_t saved_cap; /* >= page_count: a handler always finds room */
	_Atomic size_t saved_count;
	uintptr_t *hot;
	size_t hot_count, hot_cap;
	size_t hot_area_count;

	_Atomic uint64_t frame_count, faults;
	_Atomic uint32_t closed, inside; /* the gate */
	uint32_t depth;                  /* of the session's closing; its lock */
	_Atomic uintptr_t closer;        /* thread pointer of who closed it, 0 if unknown */
	_Atomic uintptr_t reader;        /* and of who is in undo_gate_close_to_read */
	uint64_t signals;                /* the caller's mask, if held */
	bool signals_held;

	struct crn_maps maps;
	char *maps_buffer;
	_Atomic uint32_t maps_busy;
	_Atomic uint32_t limit_told; /* the warning about vm.max_map_count has been given */
};

/* ---- undo_pages.c: life and areas ---- */
int undo_open(
	struct crn_undo_pages **out, struct crn_track_env *env, const struct undo_guard *guard);
void undo_close(void *t);
int undo_area_add(void *t, struct crn_area *area);
void undo_area_drop(void *t, struct crn_area *area);
struct undo_area *undo_find(const struct crn_undo_pages *u, uintptr_t addr);
uint64_t undo_bytes(const void *t);
uint64_t undo_faults(const void *t);

static inline undo_word *undo_word_of(const struct undo_area *a, uintptr_t page)
{
	return &a->words[(page - a->begin) >> CRN_PAGE_SHIFT];
}

/*
 * The gate. Enter fails while it is closed; shut waits until nobody is inside. close and open nest
 * and are for holders of the session's lock; the handler uses the plain pair.
 */
enum undo_closed {
	UNDO_CLOSED_BY_CALL = 1,
	UNDO_CLOSED_BY_HANDLER = 2,
};
bool undo_gate_enter(struct crn_undo_pages *u);
void undo_gate_leave(struct crn_undo_pages *u);
void undo_gate_shut(struct crn_undo_pages *u, enum undo_closed how);
void undo_gate_unshut(struct crn_undo_pages *u);
void undo_gate_close(struct crn_undo_pages *u);
void undo_gate_open(struct crn_undo_pages *u);
/*
 * The same for who changes no table and no word, without a system call: closed to other threads,
 * while a signal handler that interrupts the caller is served in its midst (undo_gate_is_mine).
 */
void undo_gate_close_to_read(struct crn_undo_pages *u);
bool undo_gate_is_mine(const struct crn_undo_pages *u);
/* The calling thread's pointer, or 0 where it cannot be had without a system call. */
uintptr_t undo_thread_pointer(const struct crn_undo_pages *u);

/* ---- undo_interval.c: what track.h's table asks for ---- */
int undo_interval_begin(void *t);
int undo_interval_end(void *t, struct crn_sink *sink);
int undo_undo(void *t, struct crn_sink *sink);
int undo_rebase(void *t, uintptr_t page, const void *content);
int undo_look(void *t, uintptr_t page, const void **old);

/* ---- undo_hot.c: pages and areas that stay open ---- */
int undo_unprotect(void *t, uintptr_t addr, size_t len);
int undo_set_hot(void *t, uintptr_t addr, size_t len, bool hot);
int undo_collect(void *t, uintptr_t addr, size_t len);
int undo_protection(void *t, uintptr_t addr, size_t len, int prot);
int undo_hot_area_begin(struct crn_undo_pages *u, struct undo_area *a);
size_t undo_hot_area_count(struct crn_undo_pages *u, struct undo_area *a, size_t *bare);
int undo_hot_area_turn(struct crn_undo_pages *u, struct undo_area *a, struct crn_sink *sink);
int undo_hot_area_show(struct crn_undo_pages *u, struct undo_area *a, struct crn_sink *sink);
/* Hand an open page's old content to the sink and take its present content as the new old one. */
int undo_turn(struct crn_undo_pages *u, undo_word *w, uintptr_t page, struct crn_sink *sink);
/*
 * Save and open the clean pages of [begin, end) of one area; the gate is closed. Pages for which
 * there is no frame are opened all the same and reported as lost.
 */
int undo_open_range(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end);
/* Append to saved[]. Any context inside the gate. */
void undo_note_saved(struct crn_undo_pages *u, uintptr_t page);

/* ---- undo_fault.c: the handler ---- */

/*
 * A SIGSEGV or SIGBUS has come: if it is a first store to a protected page, keep the page's
 * content, open it and return true: the store then runs again. False: not ours. The agent calls it
 * before anything else; the library's own handler calls it and hands what is not ours to the
 * program's handler. Legal on any stack that is not itself protected. In a child after fork it
 * opens what it inherited protected.
 */
bool crn_undo_pages_fault(int sig, siginfo_t *info, void *ucontext);

/*
 * In a forked child: give every page that it inherited protected its protection back, and its
 * signals to the program. Must come before the arena of the parent is unmapped there. In any other
 * process it does nothing.
 */
void crn_undo_pages_after_fork_child(void);

/* Become the one that handles faults; with signals, installs handlers in front of the program's. */
int undo_faults_begin(struct crn_undo_pages *u, bool signals);
void undo_faults_end(struct crn_undo_pages *u);
/* Remember what a child must open again: ranges under mprotect. 0 or CAIRN_EMEMORY. */
int undo_inherit_add(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, int prot);
void undo_inherit_drop(uintptr_t begin, uintptr_t end);

/*
 * Copy a page that may vanish meanwhile: 0, or -EFAULT with dst undefined. Needs the handler above.
 */
int crn_guarded_copy(void *dst, const void *src, size_t len);

#endif
