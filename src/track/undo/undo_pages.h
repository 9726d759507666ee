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
 *   UNDO_LISTED   == the page is in `hot`; then UNDO_HOT
 *   saved[0..saved_count) holds each open page once, but for those of `hot` and of hot areas; pages
 *   that the kernel may be writing (env->in_flight) stay there at interval_end
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
#include "base/check.h"
#include "os/keeper.h"
#include "os/maps.h"
#include "track/faults.h"
#include "track/feeds/feed.h"
#include "track/hot_list.h"
#include "track/range_list.h"
#include "track/track.h"

struct crn_change_rings;
struct crn_undo_pages;
struct undo_object;

enum undo_flags {
	UNDO_BUSY = 1u << 0,   /* a handler is copying it: undo_busy_by, or its frame */
	UNDO_OPEN = 1u << 1,   /* stores run; the frame holds the content at interval_begin */
	UNDO_HOT = 1u << 2,    /* copied at every checkpoint, never protected */
	UNDO_ZERO = 1u << 3,   /* open, and the old content is zeros: no frame */
	UNDO_LOST = 1u << 4,   /* open, and there was no memory to keep the old content */
	UNDO_SEALED = 1u << 5, /* the program itself has made it read-only: not ours to open */
	UNDO_EXEC = 1u << 6,   /* executable: protection keeps that */
	/* populated, as seen by the count of the present interval_end (hot areas) */
	UNDO_THERE = 1u << 7,
	UNDO_LISTED = 1u << 8, /* the list of hot pages has it */
	UNDO_SAME = 1u << 9,   /* within interval_end: was unchanged when it was looked at */
	UNDO_NEAR = 1u << 10,  /* opened because a strategy named it at another page's fault */
	/*
	 * Feed bpf-images: clean, and never written since it was empty: its content is zeros, even
	 * if there is nothing to copy.
	 */
	UNDO_EMPTY = 1u << 11,
	/*
	 * Guarded by mprotect: its content was saved when an event that takes it away was there,
	 * and not taken note of (undo_told.c).
	 */
	UNDO_DOUBT = UNDO_EMPTY,
	UNDO_FLAGS = 0xfffu,
};

typedef _Atomic uintptr_t undo_word;

/* In no order beside other words: the gate, or UNDO_BUSY, keeps everybody else away. */
static inline uintptr_t undo_get(const undo_word *w)
{
	return atomic_load_explicit(w, memory_order_relaxed);
}

static inline void undo_set(undo_word *w, uintptr_t value)
{
	atomic_store_explicit(w, value, memory_order_relaxed);
}

static inline void *undo_frame(uintptr_t word)
{
	return (void *)(word & ~(uintptr_t)UNDO_FLAGS);
}

struct undo_area {
	uintptr_t begin, end;
	struct crn_area *area;
	const struct undo_guard *guard;
	bool hot;         /* CRN_AREA_HOT: guard is NULL */
	bool told;        /* changes of its mappings are told: undo_told.c */
	bool torn;        /* a part of it may no longer be registered */
	bool lost;        /* it has lost the content of clean pages */
	size_t low, high; /* hot: words outside [low, high) hold nothing */
	/* shared: what it was mapped from when it was added (undo_object.c) */
	struct undo_object *objects;
	size_t object_count, object_capacity;
	uint64_t *own;    /* a bit for each page of a private file mapping (undo_cut.c), or NULL */
	size_t own_bytes;
	/* Feed bpf-images: sums of what these held when they were closed, 0 for unknown; a page. */
	uint64_t *sums;
	size_t sum_bytes;
	size_t word_bytes;
	undo_word *words; /* one a page */
};

/*
 * How stores are refused. All ranges are page aligned and lie in one area; run words agree in
 * UNDO_EXEC.
 */
struct undo_guard {
	int signal; /* what a refused store raises, and its si_code; 0: nothing */
	int code;
	bool whole_kinds; /* also of files and shared memory; else mprotect does those */
	int (*begin)(struct crn_undo_pages *u, struct undo_area *a);
	void (*end)(struct crn_undo_pages *u, struct undo_area *a);
	int (*protect)(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool exec);
	int (*open)(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end, bool exec);
	/*
	 * Protect what has been written in the range, in which words are of pages that are to be
	 * protected or clean. NULL: there is no such call; then clean pages are protected as well.
	 */
	int (*dense)(struct crn_undo_pages *u, uintptr_t begin, uintptr_t end);
	/*
	 * Does it still refuse stores to all clean pages of the area? 0, CAIRN_ELAYOUT or -errno.
	 * NULL: what changes of mappings do is noticed otherwise.
	 */
	int (*whole)(struct crn_undo_pages *u, struct undo_area *a);
	/* The first `count` pages of saved[] have been protected. Or NULL. */
	void (*protected)(struct crn_undo_pages *u, size_t count);
};
extern const struct undo_guard undo_guard_mprotect, undo_guard_uffd;

struct crn_undo_pages {
	struct crn_track_env *env;
	struct crn_faults *handler;
	const struct undo_guard *guard; /* the one to try first */
	int uffd, pagemap;
	bool events;   /* of uffd, are read by the keeper: they tell of changed mappings */
	uint32_t looked; /* `seen` of these, when all mappings were whole */
	/* What mprotect guards: undo_told.c. */
	int told_fd; /* a userfaultfd for its events alone; or -1: the keeper may have it */
	bool tells;  /* they are read by the keeper */
	struct crn_change_rings *rings; /* tell of others; or NULL */
	uint32_t noted; /* `seen`, when events were last taken note of */

	struct undo_area **areas; /* sorted by address */
	size_t area_count, area_cap;
	size_t page_count; /* of all areas */
	size_t private_files; /* areas that have `own` */
	/* Clean pages of these have gone (undo_cut.c): as a look saw; saved as they are now. */
	bool cut_seen;
	_Atomic bool cut_saved;

	_Atomic uintptr_t
		*saved;   /* pages opened in this interval, in the order of their first stores */
	size_t saved_cap; /* >= page_count: a handler always finds room */
	_Atomic size_t saved_count;
	struct crn_hot_list hot;
	size_t hot_area_count;
	uintptr_t refused[16]; /* within interval_end: promotions that could not be */
	size_t refused_count;

	_Atomic uint64_t frame_count, faults;
	_Atomic uint64_t serve_ticks; /* that handlers took for all faults, under a predictor */
	uint64_t priced_ticks, priced_faults; /* of these, in intervals that have ended */
	uint64_t eager;
	_Atomic uint32_t closed, inside; /* the gate: enum undo_closed; threads inside */
	struct crn_guests *guests;       /* others */
	_Atomic uint32_t guests_closed;  /* how often they have shut the gate */
	uint32_t depth;                  /* of the session's closing; its lock */
	_Atomic uintptr_t closer;        /* thread pointer of who closed it, 0 if unknown */
	_Atomic uintptr_t reader;        /* and of who is in undo_gate_close_to_read */
	/* Under feed bpf-images (images.c), else NULL and empty: */
	struct crn_feed *feed;
	struct crn_range_list open;       /* pages that stay open because a fault may not be over,
					     or (undo_told.c: without a feed) a madvise */
	struct crn_range_list unreported; /* scratch */
	/* Written pages that were protected with others and have not been reported by then. */
	struct crn_range_list strange;
	unsigned lost_intervals; /* in a row */
	bool lost_now;           /* in the open interval */
	int lost_why;
	uint64_t scans;
	uint32_t own_depth;
	bool owns; /* the gate is closed, and calls are the engine's own */
	bool doubt;   /* somebody may have written unseen since a scan */
	bool changed; /* a mapping is not what it was */
	bool lost;    /* something was, since this was last reset */

	uint64_t signals;                /* the caller's mask, if held */
	bool signals_held, faults_held;

	struct crn_maps maps;
	char *maps_buffer;
	_Atomic uint32_t limit_told; /* the warning about vm.max_map_count has been given */
};

/* ---- undo_pages.c: life and areas ---- */
int undo_open(
	struct crn_undo_pages **out, struct crn_track_env *env, const struct undo_guard *guard);
void undo_close(void *t);
int undo_area_add(void *t, struct crn_area *area);
void undo_area_drop(void *t, struct crn_area *area);
void undo_resemble(void *t, uintptr_t addr, size_t len);
/* The first area that ends above addr: its index, or area_count. */
size_t undo_area_from(const struct crn_undo_pages *u, uintptr_t addr);
struct undo_area *undo_find(const struct crn_undo_pages *u, uintptr_t addr);
/* The area of a page that has one; consecutive pages are nearly always of the `last` one. */
static inline struct undo_area *undo_area_of(
	const struct crn_undo_pages *u, struct undo_area *last, uintptr_t page)
{
	if (last && page >= last->begin && page < last->end)
		return last;
	last = undo_find(u, page);
	CRN_ASSERT(last);
	return last;
}
/*
 * What mprotect has closed no longer counts as data of the process (RLIMIT_DATA), and does again
 * when it is opened, which must not fail: a store would have nowhere to go. -ENOMEM if the limit
 * does not have room for all of it beside what is data now.
 */
int undo_data_limit(struct crn_undo_pages *u);
/* Open all of it, before the limit changes. */
int undo_data_open(void *t);
void undo_hold(void *t, bool on);
/* Free the frame of a word, if it has one. */
void undo_frame_drop(struct crn_undo_pages *u, uintptr_t word);
uint64_t undo_bytes(const void *t);
uint64_t undo_faults(const void *t);
uint64_t undo_eager(const void *t);

static inline undo_word *undo_word_of(const struct undo_area *a, uintptr_t page)
{
	return &a->words[(page - a->begin) >> CRN_PAGE_SHIFT];
}

/* Does the kernel perhaps write this page now, or open it, for a call or fault on its way? */
bool undo_in_flight(const struct crn_undo_pages *u, uintptr_t page);
/* Protect what is not open of [begin, end), where words agree in UNDO_EXEC. */
int undo_protect_closed(
	struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end, bool exec);

/*
 * The gate. Enter fails while it is closed; shut waits until nobody is inside. close and open nest
 * and are for holders of the session's lock; the handler uses the plain pair.
 */
enum undo_closed {
	UNDO_CLOSED_BY_CALL = 1,
	UNDO_CLOSED_BY_HANDLER = 2, /* | (which guest + 1) << 8 | a count << 16, if it is one */
};
bool undo_gate_enter(struct crn_undo_pages *u, struct crn_guest *guest);
/* The same without a look whether it is closed. */
void undo_gate_pass(struct crn_undo_pages *u, struct crn_guest *guest);
void undo_gate_leave(struct crn_undo_pages *u, struct crn_guest *guest);
void undo_gate_shut(struct crn_undo_pages *u, enum undo_closed how, struct crn_guest *guest);
void undo_gate_unshut(struct crn_undo_pages *u);
void undo_gate_close(struct crn_undo_pages *u);
/* Around the engine's own system calls on the address space: the feed's, if there is one. Nests. */
void undo_own(struct crn_undo_pages *u, bool begin);
void undo_gate_open(struct crn_undo_pages *u);
/*
 * The same for who changes no table and no word, without a system call: closed to other threads,
 * while a signal handler that interrupts the caller is served in its midst (undo_gate_is_mine).
 */
void undo_gate_close_to_read(struct crn_undo_pages *u);
bool undo_gate_is_mine(const struct crn_undo_pages *u);
/* The calling thread's pointer, or 0 where it cannot be had without a system call. */
uintptr_t undo_thread_pointer(const struct crn_undo_pages *u);

/* ---- undo_protect.c ---- */
/*
 * Protect the first `count` pages of saved[], which are sorted, but for those that stay open. How
 * many that was.
 */
size_t undo_protect_saved(struct crn_undo_pages *u, size_t count);

/* ---- undo_whole.c: have mappings been exchanged? ---- */
int undo_whole(void *t, uintptr_t begin, uintptr_t end);
int undo_whole_mprotect(struct crn_undo_pages *u, struct undo_area *a);
int undo_whole_uffd(struct crn_undo_pages *u, struct undo_area *a);
/* Stores to some page of the area cannot be refused any more. */
void undo_whole_lost(struct crn_undo_pages *u, struct undo_area *a);
/* Before a clean page is saved: if it is not protected any more, its area has lost content. */
void undo_whole_page(struct crn_undo_pages *u, uintptr_t page);
/*
 * Clean pages of [begin, end) have been copied, and are about to be opened though no store to them
 * was refused: are they closed? Afterwards nothing would show that they were exchanged before, and
 * the copy is not their old content. Any context inside the gate.
 */
bool undo_whole_closed(struct crn_undo_pages *u, const struct undo_area *a, uintptr_t begin,
	uintptr_t end);

/* ---- undo_object.c: what shared areas are mapped from ---- */
/* 0 or negative. */
int undo_object_note(struct crn_undo_pages *u, struct undo_area *a);
void undo_object_forget(struct crn_undo_pages *u, struct undo_area *a);
/* Is what the mapping has of the area the memory that was added? */
bool undo_object_is(const struct undo_area *a, const struct crn_mapping *m);
/* The same for [begin, end) of the area, asked; true if the kernel does not say. Any context. */
bool undo_object_there(const struct crn_undo_pages *u, const struct undo_area *a, uintptr_t begin,
	uintptr_t end);
/* Pages have been closed: of areas that are other memory now the content at checkpoints is lost. */
void undo_object_look(struct crn_undo_pages *u);

/* ---- undo_cut.c: private pages of files that are cut short ---- */
/* An area has been closed. 0 or CAIRN_EMEMORY. */
int undo_cut_begin(struct crn_undo_pages *u, struct undo_area *a);
void undo_cut_end(struct crn_undo_pages *u, struct undo_area *a);
/* The first `count` pages of saved[], which are sorted, have been closed. */
void undo_cut_note(struct crn_undo_pages *u, size_t count);
void undo_cut_note_page(struct crn_undo_pages *u, struct undo_area *a, uintptr_t page);
/*
 * Of an area that has `own`: 0, CAIRN_ELAYOUT if clean pages have gone, or -errno. Each is told to
 * fn and not expected any more. NULL: none is told, and all are asked for again.
 */
typedef void (*undo_gone_fn)(struct crn_undo_pages *u, struct undo_area *a, uintptr_t page);
int undo_cut_look(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end,
	undo_gone_fn fn);
/* The same for a clean page that has just been copied: is that not its old content? Any context. */
bool undo_cut_lost(const struct crn_undo_pages *u, const struct undo_area *a, uintptr_t page);
/* Is an image of the clean page what it held when it was closed? Where that is known. */
bool undo_cut_image(const struct undo_area *a, uintptr_t page, const void *image);
/* It was not, and its old content is lost. Any context. */
void undo_cut_found(struct crn_undo_pages *u, uintptr_t page);
bool undo_past_gone(void *t);

/* ---- undo_told.c: changes of what mprotect guards are told ---- */
/* Nothing happens if it cannot be: then each look asks. */
void undo_told_open(struct crn_undo_pages *u);
void undo_told_close(struct crn_undo_pages *u);
/* From now on the changes of this area's mappings are told, if they can be; or no longer. */
void undo_told_add(struct crn_undo_pages *u, struct undo_area *a);
void undo_told_drop(struct crn_undo_pages *u, struct undo_area *a);
/* An event has come that is not taken note of yet. */
static inline bool undo_told_more(const struct crn_undo_pages *u)
{
	return u->tells && atomic_load(&u->env->keeper->readers.events.seen) != u->noted;
}
/* UNDO_DOUBT, or 0, for a page whose content has just been copied. Any context. */
uintptr_t undo_told_pending(const struct crn_undo_pages *u, uintptr_t page);
static inline uintptr_t undo_told_doubt(const struct crn_undo_pages *u, uintptr_t page)
{
	return crn_unlikely(undo_told_more(u)) ? undo_told_pending(u, page) : 0;
}
/*
 * Take note of events, before pages change or the past is asked for. A reader may also have been
 * killed. No system call if nothing has happened.
 */
void undo_told_note(struct crn_undo_pages *u);
static inline void undo_told_keep(struct crn_undo_pages *u)
{
	if (crn_unlikely(undo_told_more(u) || (u->open.count && !u->feed) ||
			(u->tells && !crn_keeper_reads(u->env->keeper))))
		undo_told_note(u);
}

/* ---- uffd.c ---- */
/* Also when parts of the area are gone, or belong to somebody else by now. */
void undo_unregister(struct crn_undo_pages *u, const int *uffd, const struct undo_area *a);

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
/*
 * Save and open the clean pages of [begin, end) of one area; the gate is closed. Pages for which
 * there is no frame are opened all the same and reported as lost.
 */
int undo_open_range(struct crn_undo_pages *u, struct undo_area *a, uintptr_t begin, uintptr_t end);
/* Copy a page, also one that the program has closed; negative: crn_is_bare. Any context. */
int undo_read_page(void *frame, uintptr_t page);
/* Copy one clean page; its word says open from then on. The page itself is still protected. */
void undo_save_page(
	struct crn_undo_pages *u, undo_word *w, uintptr_t page, uintptr_t flags);
/* Append to saved[]. Any context inside the gate. */
void undo_note_saved(struct crn_undo_pages *u, uintptr_t page);

/* ---- undo_turn.c: old content changes hands ---- */
/* Hand an open page's old content to the sink and take its present content as the new old one. */
int undo_turn(struct crn_undo_pages *u, undo_word *w, uintptr_t page, struct crn_sink *sink);
/* At the end of an interval: `saved` pages of saved[], hot pages, hot areas; or hot pages alone. */
int undo_hand_over(struct crn_undo_pages *u, size_t saved, struct crn_sink *sink);
int undo_hand_over_hot(struct crn_undo_pages *u, struct crn_sink *sink);
extern const struct crn_hot_owner undo_hot_owner;

/* ---- undo_choice.c: hot pages, by a strategy ---- */

/* What interval_end finds before it hands over. */
struct undo_look {
	size_t count; /* pages to hand over, at most */
	size_t bare;  /* of these, have no frame and need one */
};

/* The frame of an open page; NULL if the old content is zeros, or lost. */
static inline void *undo_old(const undo_word *w)
{
	uintptr_t word = undo_get(w);

	return word & UNDO_LOST ? NULL : undo_frame(word);
}
/* Is the page as its frame has it? */
bool undo_unchanged(uintptr_t word, uintptr_t page);
/* Find which hot pages have changed, and tell the predictor. Adds to *look. */
void undo_hot_look(struct crn_undo_pages *u, struct undo_look *look);
/*
 * Name the cold pages among the first `count` of saved[], then let the predictor decide. Anything
 * to do?
 */
bool undo_ask(struct crn_undo_pages *u, size_t count);
/* Do it, as far as it is about open pages. The gate is closed. */
void undo_heed(struct crn_undo_pages *u);
/* Open the promoted pages that were clean, for the next interval. The gate is closed. */
void undo_open_promoted(struct crn_undo_pages *u);
/*
 * There is no memory for the checkpoint: all hot pages become cold. Unchanged ones, and those that
 * were opened with others in vain, give their frames back at once. The gate is closed. False if
 * that gained nothing; with a feed nothing is done.
 */
bool undo_cool(struct crn_undo_pages *u);

/* ---- undo_fault.c: the handler of first stores, a crn_store_fault ---- */
bool undo_store_fault(
	void *tracker, int sig, const siginfo_t *info, struct crn_guest *guest);

/* ---- undo_guests.c: who is inside the gate and may be killed alone ---- */
/* The value of `closed`. */
uint32_t undo_closed_by(
	struct crn_undo_pages *u, enum undo_closed how, const struct crn_guest *guest);
/* Would it be closed for ever? */
bool undo_closer_died(const struct crn_undo_pages *u, uint32_t closed);
/* A clean page's word while it is copied: UNDO_BUSY, and by whom, where a frame will be. */
uintptr_t undo_busy_by(const struct crn_undo_pages *u, const struct crn_guest *guest);
/* The gate has been shut: wait for those inside but `self`, and put right what dead ones left. */
void undo_guests_settle(struct crn_undo_pages *u, const struct crn_guest *self);
/* A page has been UNDO_BUSY for a while: is it so because somebody died? Then close the gate. */
static inline bool undo_guest_died(const struct crn_undo_pages *u)
{
	return crn_unlikely(atomic_load(&u->guests->present)) && crn_guests_died(u->guests);
}

/* What the tables of mprotect and uffd have in common. */
#define UNDO_OPS                                                                            \
	.caps = CRN_TRACK_PAGES | CRN_TRACK_THREADS | CRN_TRACK_SHARED | CRN_TRACK_PROTECTS, \
	.close = undo_close, .area_add = undo_area_add, .area_drop = undo_area_drop,        \
	.interval_begin = undo_interval_begin, .rebase = undo_rebase, .hold = undo_hold,    \
	.look = undo_look, .whole = undo_whole, .past_gone = undo_past_gone,                \
	.bytes = undo_bytes, .faults = undo_faults, .eager = undo_eager,                    \
	.page = { .unprotect = undo_unprotect, .set_hot = undo_set_hot,                     \
		.collect = undo_collect, .protection = undo_protection, \
		.data_limit = undo_data_open,                           \
		.resemble = undo_resemble }

#endif
