/* SPDX-License-Identifier: MIT */
/*
 * BPF by bare system calls: one page-backed array that both sides see; raw tracepoint programs,
 * written as instructions because a program that we are loaded into has no compiler and no libbpf;
 * and the offsets that they need, from the kernel's own type information.
 *
 * Needs CAP_BPF and CAP_PERFMON. Results are >= 0 or -errno.
 */
#ifndef CRN_OS_BPF_H
#define CRN_OS_BPF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct crn_bpf_insn {
	uint8_t code;
	uint8_t registers; /* destination, source << 4 */
	int16_t offset;
	int32_t immediate;
};

/* Opcodes, as used below. */
enum {
	CRN_BPF_ADD = 0x00,
	CRN_BPF_SUB = 0x10,
	CRN_BPF_AND = 0x50,
	CRN_BPF_LSH = 0x60,
	CRN_BPF_RSH = 0x70,
	CRN_BPF_JEQ = 0x10,
	CRN_BPF_JGE = 0x30, /* unsigned */
	CRN_BPF_JNE = 0x50,
	CRN_BPF_JLT = 0xa0, /* unsigned */
	CRN_BPF_JLE = 0xb0, /* unsigned */
	CRN_BPF_JSLT = 0xc0,
	CRN_BPF_WORD = 0x00,  /* 4 bytes */
	CRN_BPF_DWORD = 0x18, /* 8 bytes */
	CRN_BPF_FETCH = 0x01,
};

enum {
	CRN_BPF_CALL_MAP_LOOKUP = 1,
	CRN_BPF_CALL_CURRENT_TASK = 35, /* a number */
	CRN_BPF_CALL_PROBE_READ_USER = 112,
	CRN_BPF_CALL_PROBE_READ_KERNEL = 113,
	CRN_BPF_CALL_CURRENT_TASK_BTF = 158, /* a typed pointer: its members can be loaded */
	CRN_BPF_CALL_TASK_REGISTERS = 175,   /* as it entered the kernel; typed */
};

#define CRN_BPF(code, dst, src, off, imm) { code, (dst) | (src) << 4, off, (int32_t)(imm) }
#define CRN_BPF_MOV(dst, src)             CRN_BPF(0xbf, dst, src, 0, 0)
#define CRN_BPF_SET(dst, imm)             CRN_BPF(0xb7, dst, 0, 0, imm)
#define CRN_BPF_OP(op, dst, imm)          CRN_BPF(0x07 | (op), dst, 0, 0, imm)
#define CRN_BPF_OP_REG(op, dst, src)      CRN_BPF(0x0f | (op), dst, src, 0, 0)
#define CRN_BPF_LOAD(size, dst, src, off) CRN_BPF(0x61 | (size), dst, src, off, 0)
#define CRN_BPF_STORE(dst, off, src)      CRN_BPF(0x7b, dst, src, off, 0)
#define CRN_BPF_STORE_IMM(dst, off, imm)  CRN_BPF(0x7a, dst, 0, off, imm)
#define CRN_BPF_ATOMIC(op, dst, off, src) CRN_BPF(0xdb, dst, src, off, op)
#define CRN_BPF_CALL(helper)              CRN_BPF(0x85, 0, 0, 0, helper)
#define CRN_BPF_JUMP(off)                 CRN_BPF(0x05, 0, 0, off, 0)
#define CRN_BPF_IF(op, dst, imm, off)     CRN_BPF(0x05 | (op), dst, 0, off, imm)
#define CRN_BPF_IF_REG(op, dst, src, off) CRN_BPF(0x0d | (op), dst, src, off, 0)
#define CRN_BPF_EXIT                      CRN_BPF(0x95, 0, 0, 0, 0)
/* Two instructions each: 64 bits; the address of the array's memory; a map. */
#define CRN_BPF_SET64(dst, v) \
	CRN_BPF(0x18, dst, 0, 0, (uint32_t)(v)), CRN_BPF(0, 0, 0, 0, (uint64_t)(v) >> 32)
#define CRN_BPF_SET_ARRAY(dst, map, off) \
	CRN_BPF(0x18, dst, 2 /* MAP_VALUE */, 0, map), CRN_BPF(0, 0, 0, 0, off)
#define CRN_BPF_SET_MAP(dst, map) \
	CRN_BPF(0x18, dst, 1 /* MAP_FD */, 0, map), CRN_BPF(0, 0, 0, 0, 0)

/*
 * Make an array of one value of `size` bytes and map it: shared with the programs, not inherited
 * on fork, not in core dumps. Its (high) descriptor.
 */
int crn_bpf_array(size_t size, void **memory);

/* Load a raw tracepoint program. A bare descriptor; programs live on while they are attached. */
int crn_bpf_load(const struct crn_bpf_insn *insns, size_t count);
/* Load and attach it, for as long as the (high) descriptor that this gives is open. */
int crn_bpf_install(const char *tracepoint, const struct crn_bpf_insn *insns, size_t count);
/* Run it once, now, in the calling thread. */
int crn_bpf_run(int program);

/* ---- A table of arrays, and what others have made ------------------------------------------- */

#define CRN_BPF_NAME 16 /* of a map, its end included */

/*
 * Make a table from numbers to arrays; `like` is a descriptor of such an array. Whoever has the
 * table's descriptor, which is a bare one, can change the table, without any right: do not keep it.
 * To open a table by its number takes CAP_SYS_ADMIN.
 */
int crn_bpf_table(const char *name, uint32_t entries, int like);
/* After this all programs see the entry. -E2BIG: there is no room. Waits for the kernel: 10 ms. */
int crn_bpf_table_put(int table, uint64_t key, int array);
/*
 * Take these out, which waits once for all of them. Where that cannot be done, a few of them are
 * taken out one by one.
 */
void crn_bpf_table_drop(int table, uint64_t *keys, uint32_t count);
/* The key behind *key, or the first one (`first`): 0, or -ENOENT behind the last. */
int crn_bpf_table_next(int table, uint64_t *key, bool first);
/* The number of the array there, or -ENOENT. */
int crn_bpf_table_get(int table, uint64_t key, uint32_t *number);

/* The next map of the host behind number *number (at first 0): 0, or -ENOENT behind the last. */
int crn_bpf_map_next(uint32_t *number);
/* A bare descriptor of that map if it has that name; -ENOENT. */
int crn_bpf_map_named(uint32_t number, const char *name);
int crn_bpf_map_number(int map, uint32_t *number);
/* Map the first page of that array, to read and write; not inherited on fork. */
int crn_bpf_array_page(uint32_t number, void **page);
/* Of a link, that is, what crn_bpf_install gave; and a (high) descriptor of such a one. */
int crn_bpf_link_number(int link, uint32_t *number);
int crn_bpf_link_open(uint32_t number);

/*
 * The byte offsets of members of a structure of the running kernel; of the first nameless one that
 * has all of them if `structure` is empty. 0; -ENOENT if the kernel does not tell, or has no such
 * member. A few milliseconds.
 */
int crn_btf_offsets(
	const char *structure, const char *const *members, uint32_t *offsets, size_t count);

#endif
