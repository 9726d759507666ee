/* SPDX-License-Identifier: MIT */
/*
 * The oracle: a plain full copy of every tracked byte at every checkpoint, kept outside the
 * surface and compared byte for byte after every restore and rewind, at every peek and every
 * cairn_changes. It shares nothing with the engine but the public header.
 *
 *	private memory (tracked)                     shared memory (never tracked)
 *	| .data .bss heap stack | regions |          | world | snapshot pool --> append only |
 *	  rolled back by the engine                    survives every restore
 *
 * Everything the oracle must remember over a restore lives in `struct world`, one MAP_SHARED
 * mapping: the surface rules leave it out. That includes the random number generator, so one seed
 *is one run, however often it goes back. Between a return of cairn_checkpoint and the copy that
 *follows it nothing outside this frame and the world is written: raw system calls only, no errno,
 *no malloc.
 */
#ifndef ORACLE_H
#define ORACLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "../lib/harness.h"

#define PAGE 4096ul

enum region_kind {
	REGION_ANON = 1u << 0,
	REGION_FILE = 1u << 1,   /* MAP_PRIVATE of a file */
	REGION_STATIC = 1u << 2, /* .bss and .data */
	REGION_HEAP = 1u << 3,   /* malloc */
	REGION_BRK = 1u << 4,
	REGION_SHARED = 1u << 5, /* MAP_SHARED, added by name */
	REGION_BIG = 1u << 6,    /* op_burst, op_drop: more than a memory limit holds */
};

/* A piece of memory that the random program writes. */
struct region {
	uint8_t *addr;
	size_t len;
	uint32_t kind;
	uint32_t serial; /* a new one each time it is registered; 0: not registered */
	bool live, writable;
};

#define REGIONS_MAX 24

/* Pages of a file that are no part of surface "all", but while they are open. */
#define CONSTANTS 8
enum constant_state { CONSTANT_CLOSED, CONSTANT_OPEN, CONSTANT_GONE };

/* What a row of the table does; `ops` says which writers the random program draws from. */
struct row {
	const char *name;
	uint64_t ops;
	uint32_t kinds; /* enum region_kind to start with */
	uint32_t keep;  /* 0: the seed picks 1, 2 or 8 */
	uint32_t steps;
	uint32_t flags;
	void (*special)(void); /* a program of its own instead of the random one */
};

enum row_flags {
	ROW_EXPLICIT = 1u << 0,   /* surface "none" on every tracker */
	ROW_MEMORY_MAX = 1u << 1, /* a limit so low that checkpoints fail */
	ROW_THREADS_ONE = 1u << 2,
	ROW_CLOSES = 1u << 3, /* all descriptors that the program does not know, now and then */
	ROW_PAUSES = 1u << 4, /* the session rests, now and then */
};

extern const struct row oracle_rows[];
const struct row *row_find(const char *name);

/* The trackers as cairn.h describes them, for the oracle's expectations. */
struct tracker_rules {
	const char *name;
	bool explicit_only; /* surface "all" is refused: CAIRN_EAREAONLY */
	bool touch_first;   /* writes by the kernel must be announced */
	bool keeps;         /* one process per checkpoint */
	bool by_protection; /* the program must not mprotect an area */
	bool sees_faults;   /* with touch_first: but for those that raise a fault */
	bool may_lose;      /* may have to say that the past of an interval is lost */
};

const struct tracker_rules *tracker_find(const char *name, const char *feed);

/* ---- The copies -------------------------------------------------------------- */

struct copied_page {
	uintptr_t addr;
	uint32_t serial;      /* of the region, in explicit mode */
	const uint8_t *bytes; /* NULL: zeros */
};

struct snapshot {
	uint64_t id;
	uintptr_t frame; /* stack bytes below are dead and are not compared */
	bool torn;       /* taken while helpers stored: nothing to compare with */
	bool no_return;  /* of memory alone: cairn_rewind can go there, cairn_restore cannot */
	uint64_t tag_seed;
	uint32_t tag_len; /* 0: no tag was attached */
	uint8_t constants[CONSTANTS]; /* enum constant_state */
	size_t page_count;
	struct copied_page *pages; /* by address */
};

struct span {
	uintptr_t begin, end;
};

/* In explicit mode the caller's active stack is no area, but it is part of every checkpoint. */
#define SERIAL_STACK UINT32_MAX

/* Copy every tracked byte. `like`: share equal pages with this older copy (NULL: none). */
struct snapshot *snapshot_take(uintptr_t frame, const struct snapshot *like);
const struct copied_page *snapshot_page(const struct snapshot *s, uintptr_t addr);

enum compare_how {
	COMPARE_RESTORED, /* registers too: the stack above the frame is the old one */
	COMPARE_REWOUND,  /* the caller's stack is as it was before the call */
	COMPARE_REFUSED,  /* nothing at all may have changed */
};
/*
 * Live memory against `want`; `before` is what was there before the call. Reports and exits on a
 * difference.
 */
void snapshot_compare(const struct snapshot *want, const struct snapshot *before, uintptr_t frame,
	enum compare_how how);
bool snapshot_noise(uintptr_t addr); /* rseq, tid word, robust list, the caller's stack */

/* Ranges that the surface covers now, by address, into W->spans. */
size_t surface_spans(void);
void oracle_learn_engine(void);
/*
 * Is every page of the snapshot mapped and writable now? If not, a restore may answer
 * CAIRN_ELAYOUT.
 */
bool snapshot_mapped(const struct snapshot *s);
/*
 * Learn from the kernel which regions are (still) there and writable: a restore may bring mappings
 * back.
 */
void regions_refresh(void);

/* ---- The world --------------------------------------------------------------- */

#define KEPT_MAX     1100
#define SPANS_MAX    512
#define EXCLUDED_MAX 8
#define GONE_MAX     256
#define DECOYS_MAX   32

/* A mapping that went, or came in the place of another, while `id` was the newest checkpoint. */
struct gone {
	struct span span;
	uint64_t id;
};

enum helper_cmd { HELPER_IDLE, HELPER_STORE, HELPER_RUN, HELPER_STOP };
#define HELPERS 4

struct helper {
	uint32_t cmd; /* futex word */
	uint32_t done;
	uint64_t rng;
	uint32_t region;
};

struct world {
	cairn_t *c;
	const struct row *row;
	const struct tracker_rules *rules;
	const char *feed; /* or NULL */
	bool foreign_proc; /* /proc is another PID namespace's */
	bool all;          /* surface "all": every private writable mapping is compared */
	uint64_t seed, rng, step;
	uint32_t keep;

	/* the model of the journal: oldest first */
	uint32_t kept_count;
	struct snapshot *kept[KEPT_MAX];
	uint64_t id_max;         /* largest id ever returned */
	uint64_t failed_id;      /* one that was marked failed, or 0 */
	struct snapshot *before; /* copied just before the restore under way */
	struct snapshot *open;   /* the state the open interval began with */
	uint64_t pending;        /* the id being restored + 1; 0: none */
	bool closed;             /* the engine has let go of its memory */
	bool torn;               /* the checkpoint being taken cannot be compared with anything */

	struct region regions[REGIONS_MAX];
	uint32_t serial_last;
	struct span excluded[EXCLUDED_MAX];
	uint32_t excluded_count;
	struct gone gone[GONE_MAX];
	uint32_t gone_count;
	struct span noise[8]; /* never restored, by the rules of cairn.h */
	uint32_t noise_count;
	struct span engine[8], stack;
	uint32_t engine_count;

	struct helper helpers[HELPERS];
	uint32_t helpers_started;
	int file, pipe[2], pair[2], direct, mem;
	int program; /* of this process, for constants; or negative */
	uint8_t *constants, constant_states[CONSTANTS];
	int copies; /* a memfd, through which pages are read */
	int decoys[DECOYS_MAX]; /* files of the program's under numbers that were the engine's */
	uint32_t decoy_count;

	/* what happened, for the last line and for "did this test test anything" */
	uint64_t checkpoints, restores, rewinds, refused, failed, peeks, changes, writes,
		layout_refusals, lost, pauses;

	struct span spans[SPANS_MAX];
	char text[1 << 20];
	uint8_t buf[1 << 18];
	uint64_t words_seen[1 << 15]; /* cairn_changes: bitmap of reported words, 8 per page */

	size_t before_mark, pool_used, pool_size;
	uint8_t pool[] __attribute__((aligned(4096)));
};

extern struct world *W;

/* Memory that no surface covers, of the kernel's zeros. */
void *oracle_shared(size_t size);
void world_create(uint64_t seed);
void *world_alloc(size_t size, size_t align);
uint64_t rnd(void);
uint64_t rnd_below(uint64_t n);
uint64_t rnd_from(uint64_t *state); /* same generator with another state */

/* With --verbose: one line. */
void oracle_say(const char *what, uint64_t id);
_Noreturn void oracle_mismatch(const char *what, uint64_t id, uintptr_t addr, int want, int got);

/* ---- The random program -------------------------------------------------------- */

#define OP(name) (1ull << OP_##name)
enum op {
	OP_STORE,
	OP_COPY,
	OP_READ,
	OP_RECV,
	OP_READV,
	OP_WAITPID,
	OP_DIRECT,
	OP_VMWRITEV,
	OP_PROCMEM,
	OP_THREADS,
	OP_RACE,
	OP_VFORK,
	OP_MMAP,
	OP_MUNMAP,
	OP_MREMAP,
	OP_BRK,
	OP_STACK,
	OP_FORK,
	OP_DONTNEED,
	OP_PROTECT,
	OP_EXCLUDE,
	OP_AREA,
	OP_TAG,
	OP_BURST,
	OP_DROP,
	OP_CONSTANTS,
	OP_COUNT,
};

struct op_entry {
	const char *name;
	void (*run)(void);
};
extern const struct op_entry oracle_ops[OP_COUNT];

/* A writable piece of a random region, at most len_max bytes. False if there is none. */
bool target(uint32_t kinds, size_t len_max, uint8_t **addr, size_t *len);
/* Tell the engine about a write that its tracker cannot see or must see first. */
void behind(void *addr, size_t len);
/* The same of a writer whose first store to each page raises a fault in the kernel. */
void behind_with_faults(void *addr, size_t len);
void fill_random(uint8_t *buf, size_t len);

void note_gone(const void *addr, size_t len);
/*
 * Has the mapping at addr been replaced since that checkpoint? Then its past may be lost, if that
 * is said.
 */
bool gone_since(uintptr_t addr, uint64_t id);
struct region *region_make(uint32_t kind, size_t len);
void region_register(struct region *r);
void region_unregister(struct region *r);
bool byte_writable(uintptr_t addr);
_Noreturn void oracle_child(void);
void run_op(void); /* one of the row's writers */
void helpers_start(void);

/* mutate_*.c */
void close_unknown(void);
void need_fetching(void); /* or the test is skipped */
void op_store(void);
void op_copy(void);
void op_read(void);
void op_recv(void);
void op_readv(void);
void op_waitpid(void);
void op_direct(void);
void op_vmwritev(void);
void op_procmem(void);
void op_threads(void);
void op_race(void);
void op_vfork(void);
void op_mmap(void);
void op_munmap(void);
void op_mremap(void);
void op_brk(void);
void op_stack(void);
void op_fork(void);
void op_dontneed(void);
void op_protect(void);
void op_exclude(void);
void op_area(void);
void op_tag(void);
void op_burst(void);
void op_drop(void);
void op_constants(void);
void constants_map(void);
/* After a call for checkpoint `id`: what was closed is as the file has it. These are the states. */
void constants_check(uint64_t id, const uint8_t states[CONSTANTS]);

/* ---- The calls under test, each with its check ---------------------------------- */

void do_checkpoint(void);
void do_restore(void);
void do_rewind(void);
void do_peek(void);
void do_changes(void);
void do_bad_ids(void);
void do_pause(void);
void check_range(void);

/* special rows */
void special_returns(void);
void special_sparse(void);
void special_grown(void);
void special_surfaces(void);
void special_threads(void);

#endif
