/* SPDX-License-Identifier: MIT */
/*
 * What a program that was built by cairn-cc carries: the state of its store hooks, and where shadow
 * and tags lie. The compiler's pass knows the names that begin with __cairn_ and the first three
 * words of struct crn_rt; track/hooked/shadow.c and track/hooked/undolog.c are the other users.
 *
 *	primary   0x550000000000  2 TiB  PIE image, brk heap     0x7c0000000000  4 TiB  mappings, stack
 *	shadow    primary - 0x100000005000: 0x44ffffffb000 and 0x6bffffffb000
 *	tags      primary >> shift, one byte for each region of 1 << shift bytes; of one byte:
 *	          primary - 0x0c0000000000: 0x490000000000 and 0x700000000000
 *	engine    0x200000000000  32 TiB  the arena, lists of regions and tags, the undo log, berths
 *
 * (32-bit programs: i386/layout_i386.h.) The five pages are there because some processors (AMD's)
 * tell lines of the first cache apart by a hash of the address's middle bits: a region and a shadow
 * that differ in the upper ones alone would push each other out at every save.
 *
 * All that keeps checkpoints lies below the primary memory: no tag is mapped for it, so that a hook
 * before a store that strays there ends in SIGSEGV (stray_guard.c).
 *
 * Who may run when: hooks run between any two instructions of the program, in its signal handlers
 * too. Until a session is open, while it rests, and in a forked child, they are inert: they save
 * nothing.
 */
#ifndef CRN_RT_H
#define CRN_RT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bits.h"
#include "rt/abi.h"

struct crn_program_maps;
struct crn_track_env;
struct crn_birth;
struct crn_wait;

#ifdef __i386__
#include "rt/i386/layout_i386.h"
#else
#define CRN_RT_SHADOW_BELOW 0x100000005000ul /* copy_clean.S has it, too */
#define CRN_RT_IMAGE_LEN    (2ul << 40)
#define CRN_RT_MAPS_AT      0x7c0000000000ul
#define CRN_RT_MAPS_LEN     (4ul << 40)

#define CRN_RT_ENGINE_AT  0x200000000000ul
#define CRN_RT_ENGINE_LEN (32ul << 40)
#define CRN_RT_LIST_AT    0x300000000000ul /* of regions */
#define CRN_RT_LIST_MAX   (4ul << 40)      /* bytes, of each of these */
#define CRN_RT_LOG_AT     CRN_RT_LIST_AT   /* the undo log */
#define CRN_RT_LOG_MAX    CRN_RT_LIST_MAX
#define CRN_RT_PAGES_AT   0x340000000000ul /* list of pages of tags */
#define CRN_RT_PAGES_MAX  CRN_RT_LIST_MAX
#define CRN_RT_LISTED_AT  0x380000000000ul /* a byte for each page of tags */
#define CRN_RT_BERTHS_AT  0x3f0000000000ul /* landing.c */

#define CRN_RT_LINKED_THERE false /* may a program have a fixed place? */
#define CRN_RT_SHADOW_SIZE(shift)                          \
	((shift) ? "6 TiB of address space for the shadow" \
		 : "12 TiB of address space for shadow and tags")
#endif

enum crn_rt_kind { CRN_RT_SHADOW = 1, CRN_RT_UNDOLOG = 2 };

/*
 * How tags say that a region is saved, and how all are made clean again at a checkpoint (LMC,
 * section IV-C). Code with hooks is of two families: CRN_TAGS_EPOCH compares a tag with the epoch
 * of the present interval, all others with 1.
 */
enum crn_rt_tags {
	CRN_TAGS_ZERO,     /* the tags of the regions in the list are set to 0 */
	CRN_TAGS_BZERO,    /* all pages of tags that were ever used are filled with zeros */
	CRN_TAGS_MMAP,     /* new mappings over all tags */
	CRN_TAGS_DONTNEED, /* all pages of tags are given back to the kernel */
	CRN_TAGS_EPOCH,    /* 1 to 255, one more at each checkpoint; then as CRN_TAGS_BZERO */
};

struct crn_rt;

/* What the hooks of this program are made for, and what the engine may use of them. */
struct crn_rt_shape {
	uint32_t kind;  /* enum crn_rt_kind */
	uint32_t shift; /* shadow: log2 of the region's bytes */
	const uint32_t *tags; /* shadow: enum crn_rt_tags */
	struct crn_rt *state;
	void (*save)(uintptr_t addr, size_t len); /* crn_rt_range */
	/* The same of what has been overwritten already: its old content. In page mode. */
	void (*save_old)(uintptr_t addr, size_t len, const void *old);
	bool (*one_thread)(void);                 /* as far as libc knows */
	bool (*has_hooks)(void);                  /* some code of the program has */
	bool (*stack)(uintptr_t at, struct crn_range *out); /* one that the program has made */
	bool (*saves)(void);                      /* not built with -fcairn-save=off */
	bool (*guarded)(void);                    /* built with -fcairn-guard=on */
	bool (*hybrid)(void);                     /* built with -fcairn-hybrid */
	struct crn_program_maps *maps;            /* hybrid: rt/program_maps.h */
	bool threads;                             /* built with -fcairn-threads */
	const struct crn_wait *(*waits)(size_t *count); /* threads: rt/waits.h */
	const struct crn_birth *(*births)(size_t *count, const uint32_t **born); /* born.h */
};

#define CRN_RT_SAVERS  128
#define CRN_RT_SAVES   0xfffful
#define CRN_RT_STOPPED 0x8000ul /* of these: no checkpoint waits for them any more */

/*
 * One page, which the kernel wipes in a forked child: zeros are the inert state.
 *
 * A signal handler may come between any two instructions of a hook, and run hooks of its own, or go
 * back to a checkpoint and never return. So room is taken by one instruction (crn_rt_take), filled
 * after that, and made valid by its last word: what is not filled is zeros, and skipped.
 *
 * undo log, while active: log_base <= log_cur, log_end == log_limit; zeros from log_cur on. A hook
 * that moves log_cur beyond log_end says that the interval is lost. Old content is read before room
 * is taken for it.
 * shadow: dirty <= dirty_cur <= dirty_limit, zeros from dirty_cur on; a tag says "saved" only if
 * its region is in the list. A page of tags that is not all zeros is in the list of tag pages,
 * where that is kept. Both lists may name one twice. An entry has in its top byte how many more
 * regions follow the one that it names. Of regions of one byte the list names words of eight that
 * are aligned, and the top byte says which of them are meant (bit i: byte i).
 */
struct crn_rt {
	uintptr_t log_cur, log_end; /* known to the pass */
	uintptr_t epoch; /* known to the pass: its first byte; 0 while there is no session */
	/*
	 * Known to the pass: stores must have their hooks, for a session is open, does not rest,
	 * and is not in page mode.
	 */
	uintptr_t hooked;
	intptr_t patience; /* known to the pass: so many hooks, then crn_rt_long is called */
	/*
	 * Known to the pass: the block that the heap gave out last, if it was given out in the open
	 * interval, and no kept checkpoint needs what it held; else 0. One word, because a signal
	 * handler may come between two. Not in 32-bit programs.
	 */
	uintptr_t fresh;
	/*
	 * Known to shadow_slow.S: what crn_rt_slow would do is to copy, list and tag. So not while
	 * a checkpoint is taken, in page mode, or with tags that need more.
	 */
	uintptr_t plain;
	/* Shadow: regions that are saved. */
	uint64_t *dirty_cur, *dirty_end, *dirty;
	/*
	 * The list's own end. dirty_end is lower by what entries name beyond their first region: so
	 * dirty_cur reaches it when as many regions are saved as there is memory for.
	 */
	uint64_t *dirty_limit;
	uintptr_t active;  /* a session is open, and does not rest */
	/*
	 * Page mode (page_mode.h): memory whose stores the kernel notices, sorted; its hooks
	 * save nothing. NULL: store mode. log_paged stands for log_cur, which hooks do not find.
	 */
	const struct crn_range *paged;
	size_t paged_count;
	uintptr_t log_paged;
	uint64_t break_even; /* CAIRN_BREAK_EVEN: hooks of an interval; 0: as measured */
	uintptr_t log_base, log_limit; /* all of the log; 0: there is none */
	uintptr_t log_stop;            /* where the interval ended that is packed */
	uint64_t blanks; /* of the entries from dirty on: nothing was copied */
	uint64_t *tag_pages, *tag_pages_cur, *tag_pages_end; /* NULL: not kept */
	/*
	 * A checkpoint is being taken: what signal handlers of its thread store now is part of it,
	 * and not saved. `late`: they did. Hooks of other threads wait for its end.
	 */
	bool ending, late;
	uintptr_t ender; /* its thread pointer; 0: hooks are of one thread */
	int pid;         /* of the session's process: a forked child waits for nobody */
	uintptr_t saving[CRN_RT_SAVERS]; /* threads in hooks: crn_rt_saver, and how many hooks */
	uintptr_t saving_at[CRN_RT_SAVERS]; /* the frame of the first of these; of that thread */
	/*
	 * Hooks have been stopped for so long that checkpoints are taken without them, since
	 * stopped_ns: nothing of the open interval can be relied on. `stale`: they may have left
	 * tags and entries behind.
	 */
	bool stopped, stale;
	uint64_t stopped_ns;
	bool told;   /* of this interval it is known that it cannot be undone */
	uint64_t open, oldest; /* checkpoints: that begins the open interval; oldest kept */
	/*
	 * Of the open interval alone: no other has it, not even one that is repeated after a
	 * restore, or one of a process that this was forked from. 0: there never was a session.
	 */
	uint64_t turn;
	/* Of deferred.c, if set: at a checkpoint; before and after a restore to id. */
	void (*settled)(uint64_t oldest);
	void (*undoing)(uint64_t id);
	void (*undone)(uint64_t id);
	/* Of heap.c, if set: at a checkpoint; after a restore, by the thread that is restored. */
	void (*trim)(uint64_t oldest);
	void (*let_go)(void);
	struct cairn *site_session; /* of __cairn_site (site.c) */
	uint64_t site_stack; /* bytes: the most that a site had above it; of CAIRN_STATS */
	bool site_refused; /* it could not be opened */
	uint64_t birth; /* of the process, other than any parent's; 0: landing.c has not asked */
	bool site_told;    /* a failure has been told */
	struct crn_track_env *env;
	void (*lost)(struct crn_track_env *env, uintptr_t addr, int why);
	void (*grows_long)(struct crn_track_env *env); /* patience has come to its end */
};

/*
 * The run-time's, where it is linked into the program beside the engine; else the engine's own
 * (track/hooked/kept_intervals.c), whose kind is 0: this program has no hooks.
 */
extern const struct crn_rt_shape __cairn_shape __attribute__((visibility("hidden")));

/* Pages of the run-time's that no restore turns back, and that a forked child inherits. */
#define CRN_RT_LASTING __attribute__((section("crn_lasting"), aligned(4096)))

/* The run-time's own names. */
extern struct crn_rt __cairn_rt;
extern const uint32_t __cairn_tags; /* tag_kind.c */
/* May hooks look at this address? The undo log needs only that what is its own lies below. */
bool crn_rt_covers(uintptr_t addr);
bool crn_rt_one_thread(void);
bool crn_rt_has_hooks(void);
bool crn_rt_stack(uintptr_t at, struct crn_range *out);
bool crn_rt_saves(void);
bool crn_rt_guarded(void);
const struct crn_wait *crn_rt_waits(size_t *count);
const struct crn_birth *crn_rt_births(size_t *count, const uint32_t **born);

static inline struct crn_rt *crn_rt(void)
{
	return __cairn_shape.state;
}

/*
 * A word of `saving` whose low bits are not 0 is of the thread that the others name: nobody else
 * counts there, so a checkpoint knows which hooks are its own thread's, and waits for all others.
 */
static inline uintptr_t crn_rt_saver(uintptr_t thread)
{
	return thread << 16;
}

static inline uint8_t *crn_rt_tag(uintptr_t addr, uint32_t shift)
{
	return (uint8_t *)(shift ? addr >> shift : addr - (uintptr_t)CRN_RT_TAGS_BELOW);
}

/* Tags next to each other: few, as a rule, for which `rep stosb` takes long. */
static inline void crn_tags_set(void *tags, size_t count, uint8_t value)
{
	typedef volatile uint64_t word __attribute__((may_alias, aligned(1)));
	uint64_t each = value * 0x0101010101010101ul;
	volatile uint8_t *at = tags;

	if (count < sizeof(word)) {
		for (size_t i = 0; i < count; i++)
			at[i] = value;
		return;
	}
	for (size_t i = 0; i < count - sizeof(word); i += sizeof(word))
		*(word *)(at + i) = each;
	*(word *)(at + count - sizeof(word)) = each;
}

/* A byte for each page of tags: is it in the list of tag pages? */
static inline uint8_t *crn_rt_tag_page_listed(uintptr_t tag)
{
	return (uint8_t *)(CRN_RT_LISTED_AT + (tag >> 12));
}

static inline void *crn_rt_shadow(uintptr_t addr)
{
	return (void *)(addr - CRN_RT_SHADOW_BELOW);
}

/*
 * An entry of the undo log, from low to high addresses: the old bytes, padded to 16, and this. One
 * of at most 8 bytes has no padding: the old word takes the place of `len`, and `where` has the
 * size in its top byte. So a log is read backwards, newest entry first.
 */
struct crn_log_entry {
	uint64_t word;  /* old content, or for a long one its length */
	uint64_t where; /* address | size << 56; CRN_LOG_LONG: long; 0: not filled */
};

#define CRN_LOG_LONG  0xffull
#define CRN_LOG_VOID  0xfeull /* a long one that is not filled, or not to be believed */
#define CRN_LOG_ADDR  ((uintptr_t)((1ull << 56) - 1))

#define CRN_LIST_MASK 56 /* an entry of the list of regions >> this: which of them */
#define CRN_LIST_BLANK (1ull << 55) /* nothing was copied (crn_rt_blank) */
#define CRN_LIST_ADDR  (CRN_LIST_BLANK - 1)
#define CRN_RUN_MAX    256ul

/* How many regions an entry names, if they are larger than a byte. */
static inline size_t crn_rt_run(uint64_t entry)
{
	return (size_t)(entry >> CRN_LIST_MASK) + 1;
}

/*
 * Move a cursor of this thread from `from` to `to`, unless a signal handler has moved it since it
 * was read. One instruction, not locked: other threads do not come here.
 */
static inline bool crn_rt_take(void *cursor, uintptr_t from, uintptr_t to)
{
	bool done;

	__asm__ volatile("cmpxchg %3, %1"
			 : "=@ccz"(done), "+m"(*(uintptr_t *)cursor), "+a"(from)
			 : "r"(to)
			 : "memory");
	return done;
}

/* Move a cursor of this thread down. One instruction, as above. */
static inline void crn_rt_lower(void *cursor, size_t by)
{
	__asm__ volatile("sub %1, %0" : "+m"(*(uintptr_t *)cursor) : "r"(by) : "memory", "cc");
}

/* Regions that the list names, but for blank ones, each of which counts as one. */
static inline size_t crn_rt_listed(const struct crn_rt *rt)
{
	return (size_t)(rt->dirty_cur - rt->dirty) + (size_t)(rt->dirty_limit - rt->dirty_end);
}

/* The same where hooks of other threads come, too. */
static inline bool crn_rt_take_shared(void *cursor, uintptr_t from, uintptr_t to)
{
	return __atomic_compare_exchange_n((uintptr_t *)cursor, &from, to, false, __ATOMIC_SEQ_CST,
		__ATOMIC_RELAXED);
}

/* Does the kernel notice stores there? All pages that are not in the list have their hooks. */
static inline bool crn_rt_paged(const struct crn_rt *rt, uintptr_t addr)
{
	size_t i;

	if (crn_likely(!rt->paged_count))
		return false;
	CRN_FIRST(i, rt->paged_count, rt->paged[i].end > addr);
	return i < rt->paged_count && rt->paged[i].begin <= addr;
}

static inline size_t crn_log_need(size_t len)
{
	return (len <= 8 ? 0 : (len + 15) & ~15ul) + sizeof(struct crn_log_entry);
}

/*
 * The word that makes an entry valid. 32-bit programs store the address first: without the rest an
 * entry of the log is not filled, and one of the list names its first region only.
 */
static inline void crn_rt_fill(volatile uint64_t *at, uint64_t value)
{
#ifdef __i386__
	volatile uint32_t *half = (volatile uint32_t *)at;

	half[0] = (uint32_t)value;
	half[1] = (uint32_t)(value >> 32);
#else
	*at = value;
#endif
}

/* Is it none of what keeps checkpoints? It may be nobody's. */
static inline bool crn_rt_harmless(uintptr_t addr)
{
#ifdef __i386__
	return !((addr ^ addr << 1) & 0x80000000u); /* the first quarter, or the last */
#else
	return addr >= CRN_RT_IMAGE_AT;
#endif
}

/* Does a write touch the page of state, which lies in the program's image? */
static inline bool crn_rt_strays(uintptr_t addr, size_t len)
{
	return addr + len - 1 - (uintptr_t)&__cairn_rt < 4096 + len - 1;
}

/* The write of [addr, ...) would damage what keeps checkpoints: SIGSEGV. Returns if handlers do. */
void crn_rt_stray(uintptr_t addr);
/*
 * With -fcairn-guard=on, and always in 32-bit programs: nobody can map tags of what keeps
 * checkpoints. 0 or -errno.
 */
int crn_rt_guard_start(void);

/* Once, before anything of the program runs (.preinit_array of the executable). */
void crn_rt_start(int argc, char **argv, char **envp);
/* It has run: until then no hook may, not of the program's malloc either. */
extern bool crn_rt_started;

/*
 * hook_stubs.S calls these; one file for each kind defines them. The first comes before a store to
 * addr: the tag is clean, or the log is full. The second comes before any write of
 * [addr, addr+len), all of which must be readable.
 */
void crn_rt_slow(uintptr_t addr);
void crn_rt_range(uintptr_t addr, size_t len);
void crn_rt_save_old(uintptr_t addr, size_t len, const void *old);

/* So many hooks have run in the open interval that it may be one for page mode. */
void crn_rt_long(void);

/* crn_rt_range of few bytes, which are saved already as a rule: of a program's wrappers. */
static inline void crn_rt_keep(uintptr_t addr, size_t len)
{
	const struct crn_rt_shape *s = &__cairn_shape;

	if (s->kind == CRN_RT_SHADOW && s->shift && len - 1 < 1ul << s->shift) {
		uint8_t saved = *s->tags == CRN_TAGS_EPOCH ? (uint8_t)__cairn_rt.epoch : 1;

		if (*(const volatile uint8_t *)crn_rt_tag(addr, s->shift) == saved &&
			*(const volatile uint8_t *)crn_rt_tag(addr + len - 1, s->shift) == saved)
			return;
	}
	crn_rt_range(addr, len);
}

/*
 * What lies in [begin, end) has no meaning at any kept checkpoint: whole regions in it need not be
 * saved. One thread at a time, and not in signal handlers.
 */
void crn_rt_blank(uintptr_t begin, uintptr_t end);

/* Is `block` the one that crn_rt.fresh names, and has it so many bytes? Else it may be, too. */
static inline bool crn_rt_is_fresh(uintptr_t block, size_t len)
{
#ifdef __x86_64__
	uintptr_t fresh = *(const volatile uintptr_t *)&__cairn_rt.fresh;

	return (fresh ^ block) << (64 - CRN_RT_FRESH_SHIFT) == 0 &&
		len <= fresh >> CRN_RT_FRESH_SHIFT << CRN_RT_FRESH_UNIT;
#else
	return false;
#endif
}

/*
 * copy_clean.S: `count` regions of `size` bytes (64 or more) go to their shadow, but those whose
 * tag is `saved` by the time that they have been read. Leaves all vector registers as they are.
 */
void crn_rt_copy_clean(uintptr_t region, size_t count, uintptr_t tag, uint8_t saved, size_t size);

/*
 * The same past the caches, with weakly ordered stores. Where other threads come, the locked
 * instruction that takes room in the list puts them in order before the tags are set.
 */
void crn_rt_stream_clean(uintptr_t region, size_t count, uintptr_t tag, uint8_t saved, size_t size);

/* The open interval cannot be restored, for what happened at addr. Anywhere in the program. */
static inline void crn_rt_give_up(uintptr_t addr, int why)
{
	struct crn_rt *rt = &__cairn_rt;

	if (rt->active && !rt->told) {
		rt->lost(rt->env, addr, why);
		rt->told = true;
	}
}

#endif
