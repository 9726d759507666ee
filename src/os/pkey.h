/* SPDX-License-Identifier: MIT */
/*
 * Protection keys (PKU). A register of each thread says who may use a range of memory. So the
 * engine opens and closes all of its memory with two instructions, for the calling thread only. A
 * thread that was born before the key was taken, and every signal handler, has no access at first.
 *
 * The program may use keys for its own memory, too. What the engine copies or puts back must not
 * depend on what the calling thread may access just now, so every call and every write-fault
 * handler opens all keys.
 *
 * Legal in any context. Results are 0 or -errno unless said otherwise.
 */
#ifndef CRN_OS_PKEY_H
#define CRN_OS_PKEY_H

#include <stddef.h>
#include <stdint.h>
#include "os/sys.h"

/*
 * A key that the calling thread may use from now on, or -errno: the processor, the kernel or the
 * program (which may have all 15) leaves none.
 */
static inline int crn_pkey_alloc(void)
{
	return (int)crn_sys2(SYS_pkey_alloc, 0, 0);
}

static inline int crn_pkey_free(int key)
{
	return (int)crn_sys1(SYS_pkey_free, key);
}

/* Give [addr, addr + len) this key; later mprotect calls leave it there. */
static inline int crn_pkey_protect(void *addr, size_t len, int prot, int key)
{
	return (int)crn_sys4(SYS_pkey_mprotect, addr, len, prot, key);
}

/* The bits to open: all, or 0 if the processor or the kernel has no keys (no register then). */
static inline uint32_t crn_pkey_all(void)
{
	uint32_t a = 7, b, c = 0, d;

	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	return c & 1u << 4 /* OSPKE */ ? ~0u : 0;
}

/* The bits of a key in the register: set, the thread can neither read nor write. */
static inline uint32_t crn_pkey_bits(int key)
{
	return 3u << (2 * key);
}

/* The register. To be used only where crn_pkey_all is not 0. */
static inline uint32_t crn_pkey_register(void)
{
	uint32_t value, high;

	__asm__ volatile(".byte 0x0f, 0x01, 0xee" /* rdpkru */ : "=a"(value), "=d"(high) : "c"(0));
	return value;
}

static inline void crn_pkey_register_set(uint32_t value)
{
	/* wrpkru; no access to memory moves across it */
	__asm__ volatile(".byte 0x0f, 0x01, 0xef" : : "a"(value), "c"(0), "d"(0) : "memory");
}

/* Open the keys of `bits` for this thread; the register as it was. With bits == 0: nothing. */
static inline uint32_t crn_pkey_open(uint32_t bits)
{
	uint32_t before = 0;

	if (bits) {
		before = crn_pkey_register();
		crn_pkey_register_set(before & ~bits);
	}
	return before;
}

static inline void crn_pkey_restore(uint32_t bits, uint32_t before)
{
	if (bits)
		crn_pkey_register_set(before);
}

#endif
