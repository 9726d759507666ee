/* SPDX-License-Identifier: MIT */
/*
 * Address space by raw system calls: the engine's own reserved range, and the few calls that
 * trackers make on the program's pages. Legal in any context, signal handlers included. Results are
 * 0 or -errno.
 */
#ifndef CRN_OS_MEMORY_H
#define CRN_OS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25 /* Linux 6.1 */
#endif
#ifndef MADV_GUARD_INSTALL /* Linux 6.13 */
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE  103
#endif

/*
 * Reserve the engine's range: PROT_NONE, private, anonymous, MAP_NORESERVE, wiped on fork, not in
 * core dumps, no huge pages. As big as the address space limits allow, 1 TiB at most; with a finite
 * RLIMIT_AS at most half of what is left of it. -ENOMEM below CRN_RESERVE_MIN. *base: where it is
 * to be, or at one of the CRN_RESERVE_PLACES terabytes from there on; NULL: anywhere.
 */
#ifdef __i386__
#define CRN_RESERVE_PLACES 1 /* which the run-time has kept free */
#define CRN_RESERVE_MAX    (128ul << 20)
#define CRN_SPACE_MAX      0xfffff000ul
#else
#define CRN_RESERVE_PLACES 16
#define CRN_RESERVE_MAX    (1ul << 40)
#define CRN_SPACE_MAX      CRN_RESERVE_MAX
#endif
#define CRN_RESERVE_MIN (16ul << 20)
int crn_memory_reserve(void **base, size_t *size);

/*
 * Address space for memory of the program itself: PROT_NONE, private, MAP_NORESERVE, inherited on
 * fork. 256 GiB, or what is to be had: under RLIMIT_AS a quarter of what it leaves. 0 or -ENOMEM.
 */
#ifdef __i386__
#define CRN_HOLD_MAX (512ul << 20)
#define CRN_HOLD_AT  0x20000000ul /* if nothing is there: rt/i386/layout_i386.h */
#else
#define CRN_HOLD_MAX (1ul << 38)
#define CRN_HOLD_AT  0ul
#endif
int crn_memory_hold(void **base, size_t *size);

/* Bytes of address space that RLIMIT_AS leaves, or CRN_SPACE_MAX if it does not limit. */
size_t crn_memory_space_left(void);

/* Make a part of a reserve readable and writable (a crn_commit_fn). 0 or -ENOMEM. */
int crn_memory_commit(void *addr, size_t len);

/* Private anonymous zeroed memory outside the arena: tracked by nobody, inherited on fork. */
int crn_memory_map(void **out, size_t len);
/* The same, but a forked child shares it. */
int crn_memory_map_shared(void **out, size_t len);
int crn_memory_unmap(void *addr, size_t len);

int crn_memory_protect(void *addr, size_t len, int prot);
int crn_memory_advise(void *addr, size_t len, int advice);
/* May a program have transparent huge pages on this host, if it asks for them? */
bool crn_memory_huge_allowed(void);
/* A page that MADV_GUARD_INSTALL has closed is plain memory again, of zeros. 0 or -errno. */
int crn_memory_unguard(void *page);

enum crn_fork_advice {
	CRN_FORK_MISSING = 1u << 0, /* MADV_DONTFORK */
	CRN_FORK_WIPED = 1u << 1,   /* MADV_WIPEONFORK */
};

/* What of these addr's mapping has. Reads smaps: slow. */
unsigned crn_memory_fork_advice(uintptr_t addr);
/*
 * Can the program ever have written to addr's private mapping, which is read-only now? What a
 * debugger writes into it does not count. True if smaps does not tell. Slow.
 */
bool crn_memory_was_writable(uintptr_t addr);
/* How many page faults all threads of the process have had; changes with each. */
uint64_t crn_memory_faults(void);
/* Fault pages in for reading (the zero page where nothing was), without a write. */
int crn_memory_populate_read(void *addr, size_t len);
/*
 * Make a page of a private mapping the process's own copy, its content as it is, whatever other
 * threads store meanwhile. 0 or -errno (-EFAULT: beyond the end of its file).
 */
int crn_memory_own(void *page);

/* Is the page part of any mapping? One system call. */
bool crn_memory_mapped(uintptr_t page);

/* Is every page of the range part of some mapping? One system call. */
bool crn_memory_all_mapped(uintptr_t addr, size_t len);

/*
 * Read or write [addr, addr+len) whatever the protection of the mapping, as a debugger does
 * (/proc/self/mem). Of closed memory only private mappings can be written. 0 or -errno.
 */
int crn_memory_force_read(void *dst, uintptr_t addr, size_t len);
/*
 * The same in two steps, for many reads: a descriptor, -errno. It stays this process's memory in a
 * forked child, and leads to all of it: not to be kept for long.
 */
int crn_memory_force_open(void);
int crn_memory_force_read_by(int fd, void *dst, uintptr_t addr, size_t len);
int crn_memory_force_write(uintptr_t addr, const void *src, size_t len);

/*
 * Private anonymous zeros exactly there, where nothing is mapped. 0, or -EEXIST and other -errno.
 */
int crn_memory_map_at(uintptr_t addr, size_t len);

/*
 * Private anonymous zeros, at *at or (NULL) where there is room; nothing is committed, a forked
 * child finds zeros again, no huge pages, not in core dumps. 0 or -errno (-EEXIST: not free).
 */
int crn_memory_span(void **at, size_t len);
/*
 * The engine's own places. 32-bit programs keep them closed while they are not in use, so that
 * nothing else is ever mapped there; else they are mapped and unmapped. Results as above.
 */
int crn_memory_enter(void *at, size_t len);
int crn_memory_leave(void *at, size_t len);
/* As a span, but in place of whole pages that are mapped: zeros, private, wiped in a child. */
int crn_memory_renew(void *page, size_t len);
/* Addresses that nobody can use: -EEXIST if somebody does. */
int crn_memory_inhibit(uintptr_t addr, size_t len);

/* The heap's end: brk(2) as the kernel has it, returning where the end is then. 0 asks. */
uintptr_t crn_memory_break(uintptr_t end);

/*
 * How many of the addresses, from the first on, can be read; count <= CRN_PROBE_MAX. One system
 * call where the kernel has process_vm_readv. Never raises a signal.
 */
#define CRN_PROBE_MAX 32
size_t crn_memory_readable(const uintptr_t *at, size_t count);

/* Copy from memory that may be unreadable: bytes copied, or -EFAULT. Never raises a signal. */
long crn_memory_peek(void *dst, const void *src, size_t len);
/* The other way: bytes stored, or -errno. As a store of the program's own, but for the signal. */
long crn_memory_poke(void *dst, const void *src, size_t len);

/*
 * Can all of these pieces be written? Asked by writing what is there to the first byte of each
 * page: for memory that is about to be overwritten anyway. 0 or -errno.
 */
int crn_memory_writable(const struct iovec *pieces, size_t count);

/* A call of the program about its own mappings, passed on as it is: its result or -errno. */
long crn_memory_call(long nr, const long args[6]);

#endif
