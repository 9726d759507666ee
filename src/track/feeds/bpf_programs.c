/* SPDX-License-Identifier: MIT */
/* The programs of the BPF feeds, as instructions. bpf_programs.h has the memory that they write. */
#include "track/feeds/bpf_programs.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/copy.h"
#include "os/bpf.h"

#define AT(field)    ((int)__builtin_offsetof(struct crn_bpf_shared, field))
#define EXITING       4 /* PF_EXITING, in task_struct.flags */
#define FUTEX_EXITING 1 /* FUTEX_STATE_EXITING */
#define FUTEX_DEAD    2 /* FUTEX_STATE_DEAD */
#define SI            104 /* in struct pt_regs */
#define DI            112
#define ORIG_AX       120 /* -1 but in a system call */
enum {
	NR_READ = 0,
	NR_MUNMAP = 11,
	NR_BRK = 12,
	NR_PREAD64 = 17,
	NR_MREMAP = 25,
	NR_MADVISE = 28,
	NR_EXECVE = 59,
	NR_PROCESS_VM_READV = 310,
	NR_EXECVEAT = 322,
};

_Static_assert(sizeof(struct crn_ring_entry) == 1 << 5, "the programs shift by 5");
_Static_assert(AT(ring) + 24 <= INT16_MAX, "the programs reach it by an offset");
_Static_assert(CRN_IMAGE_SLOTS <= 1u << (CRN_IMAGE_NUMBER_SHIFT - CRN_IMAGE_SLOT_SHIFT),
	"an entry has room for the name of a slot");

/*
 * Registers: 6 context, later the image; 7 address, 8 task, 9 the shared memory. Jumps go forward
 * only, so they are written as the distance to the label that the comment names.
 */

/* r8: the task; r1: its address space. 3 instructions. */
#define TASK_AND_SPACE(task_mm)                                             \
	CRN_BPF_CALL(CRN_BPF_CALL_CURRENT_TASK_BTF), CRN_BPF_MOV(8, 0),     \
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 8, task_mm)

/*
 * r9: the memory of the session of address space r1. Goes to `out`, which is counted from behind
 * these instructions, if there is no such session.
 */
static size_t put_memory(const struct crn_bpf_target *k, struct crn_bpf_insn *to, int out)
{
	const struct crn_bpf_insn one[] = {
		CRN_BPF_SET64(2, k->mm),
		CRN_BPF_IF_REG(CRN_BPF_JNE, 1, 2, 2 + out),
		CRN_BPF_SET_ARRAY(9, k->map, 0),
	};
	const struct crn_bpf_insn any[] = {
		CRN_BPF_STORE(10, -16, 1),
		CRN_BPF_MOV(2, 10),
		CRN_BPF_OP(CRN_BPF_ADD, 2, -16),
		CRN_BPF_SET_MAP(1, k->table),
		CRN_BPF_CALL(CRN_BPF_CALL_MAP_LOOKUP),
		CRN_BPF_IF(CRN_BPF_JEQ, 0, 0, 9 + out),
		CRN_BPF_STORE_IMM(10, -24, 0),
		CRN_BPF_MOV(1, 0),
		CRN_BPF_MOV(2, 10),
		CRN_BPF_OP(CRN_BPF_ADD, 2, -24),
		CRN_BPF_CALL(CRN_BPF_CALL_MAP_LOOKUP),
		CRN_BPF_IF(CRN_BPF_JEQ, 0, 0, 3 + out),
		CRN_BPF_MOV(9, 0),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 9, AT(over)),
		CRN_BPF_IF(CRN_BPF_JNE, 1, 0, out),
	};
	size_t size = k->shared ? sizeof(any) : sizeof(one);

	if (to)
		crn_copy(to, k->shared ? any : one, size);
	return size / sizeof(*to);
}

/* An entry for the write fault at r7 of task r8 with image r6, and the end. */
static const struct crn_bpf_insn record[] = {
	CRN_BPF_SET(2, 1),
	CRN_BPF_ATOMIC(CRN_BPF_ADD | CRN_BPF_FETCH, 9, AT(head), 2),
	CRN_BPF_LOAD(CRN_BPF_DWORD, 3, 9, AT(tail)),
	CRN_BPF_MOV(4, 2),
	CRN_BPF_OP_REG(CRN_BPF_SUB, 4, 3),
	CRN_BPF_IF(CRN_BPF_JGE, 4, CRN_RING_ENTRIES, 9), /* full: */
	CRN_BPF_MOV(3, 2),
	CRN_BPF_OP(CRN_BPF_AND, 3, CRN_RING_ENTRIES - 1),
	CRN_BPF_OP(CRN_BPF_LSH, 3, 5),
	CRN_BPF_OP_REG(CRN_BPF_ADD, 9, 3),
	CRN_BPF_STORE(9, AT(ring), 7),
	CRN_BPF_STORE(9, AT(ring) + 8, 8),
	CRN_BPF_STORE(9, AT(ring) + 24, 6),
	CRN_BPF_OP(CRN_BPF_ADD, 2, 1),
	CRN_BPF_JUMP(3), /* done: */
	/* full: */
	CRN_BPF_SET(1, 1),
	CRN_BPF_ATOMIC(CRN_BPF_ADD, 9, AT(overflow), 1),
	CRN_BPF_JUMP(1), /* end: */
	/* done: */
	CRN_BPF_STORE(9, AT(ring) + 16, 2),
#define RECORD_END 2 /* instructions */
	/* end: */
	CRN_BPF_SET(0, 0),
	CRN_BPF_EXIT,
};

/* r6: a copy of the page at r7, if it is of an area, in a slot of its own; or nothing. */
static size_t put_image(const struct crn_bpf_target *k, struct crn_bpf_insn *to)
{
	const struct crn_bpf_insn none[] = { CRN_BPF_SET(6, 0) };
	const struct crn_bpf_insn image[] = {
		CRN_BPF_SET(2, 1),
		CRN_BPF_ATOMIC(CRN_BPF_ADD | CRN_BPF_FETCH, 9, AT(begun), 2),
		CRN_BPF_OP(CRN_BPF_AND, 2, CRN_IMAGE_NUMBERS - 1),
		CRN_BPF_OP(CRN_BPF_LSH, 2, CRN_IMAGE_NUMBER_SHIFT),
		CRN_BPF_STORE(10, -8, 2),
		CRN_BPF_SET(5, CRN_IMAGE_NO_SLOT),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 9, AT(area_begin)),
		CRN_BPF_IF_REG(CRN_BPF_JLT, 7, 1, 25), /* name: */
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 9, AT(area_end)),
		CRN_BPF_IF_REG(CRN_BPF_JGE, 7, 1, 23), /* name: */
		CRN_BPF_SET(2, 1),
		CRN_BPF_ATOMIC(CRN_BPF_ADD | CRN_BPF_FETCH, 9, AT(taken), 2),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 3, 9, AT(freed)),
		CRN_BPF_MOV(4, 2),
		CRN_BPF_OP_REG(CRN_BPF_SUB, 4, 3),
		CRN_BPF_IF(CRN_BPF_JGE, 4, k->slots, 17), /* name: */
		CRN_BPF_OP(CRN_BPF_AND, 2, k->slots - 1),
		CRN_BPF_MOV(3, 2),
		CRN_BPF_OP(CRN_BPF_LSH, 3, CRN_IMAGE_SLOT_SHIFT),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 4, 10, -8),
		CRN_BPF_OP_REG(CRN_BPF_ADD, 4, 3),
		CRN_BPF_STORE(10, -8, 4),
		CRN_BPF_OP(CRN_BPF_LSH, 2, 12),
		CRN_BPF_MOV(1, 9),
		CRN_BPF_OP_REG(CRN_BPF_ADD, 1, 2),
		CRN_BPF_OP(CRN_BPF_ADD, 1, AT(images)),
		CRN_BPF_SET(2, 4096),
		CRN_BPF_MOV(3, 7),
		CRN_BPF_OP(CRN_BPF_AND, 3, -4096),
		CRN_BPF_CALL(CRN_BPF_CALL_PROBE_READ_USER),
		CRN_BPF_MOV(5, 0),
		CRN_BPF_IF(CRN_BPF_JEQ, 5, 0, 1), /* name: */
		CRN_BPF_SET(5, CRN_IMAGE_FAILED),
		/* name: */
		CRN_BPF_LOAD(CRN_BPF_DWORD, 6, 9, AT(reads)),
		CRN_BPF_OP(CRN_BPF_LSH, 6, 32),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 2, 10, -8),
		CRN_BPF_OP_REG(CRN_BPF_ADD, 6, 2),
		CRN_BPF_OP_REG(CRN_BPF_ADD, 6, 5),
	};
	size_t size = k->slots ? sizeof(image) : sizeof(none);

	if (to)
		crn_copy(to, k->slots ? image : none, size);
	return size / sizeof(*to);
}

/* From behind the head of a program to the label `end`. */
static int to_end(const struct crn_bpf_target *k)
{
	return (int)(put_image(k, NULL) + CRN_ARRAY_SIZE(record) - RECORD_END);
}

/* What makes an entry, and the end. */
static size_t put_record(const struct crn_bpf_target *k, struct crn_bpf_insn *to)
{
	size_t count = put_image(k, to);

	crn_copy(to + count, record, sizeof(record));
	return count + CRN_ARRAY_SIZE(record);
}

#define PUT(to, count, part) \
	(crn_copy((to) + (count), part, sizeof(part)), (count) += CRN_ARRAY_SIZE(part))

/*
 * ctx: address, registers, error code. The task is noted as being in a fault (plus 1: in user
 * mode), which needs the lock only now and then.
 */
static size_t put_user(const struct crn_bpf_target *k, struct crn_bpf_insn *to)
{
	const int memory = (int)put_memory(k, NULL, 0), end = to_end(k);
	const struct crn_bpf_insn head[] = {
		CRN_BPF_LOAD(CRN_BPF_DWORD, 7, 1, 0),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 2, 1, 16),
		CRN_BPF_OP(CRN_BPF_AND, 2, 2),
		CRN_BPF_IF(CRN_BPF_JEQ, 2, 0, 3 + memory + 8 + end),
		TASK_AND_SPACE(k->task_mm),
	};
	const struct crn_bpf_insn note[] = {
		CRN_BPF_CALL(CRN_BPF_CALL_CURRENT_TASK),
		CRN_BPF_MOV(1, 0),
		CRN_BPF_OP(CRN_BPF_RSH, 1, 10),
		CRN_BPF_OP(CRN_BPF_AND, 1, CRN_FAULT_SLOTS - 1),
		CRN_BPF_OP(CRN_BPF_LSH, 1, 3),
		CRN_BPF_OP_REG(CRN_BPF_ADD, 1, 9),
		CRN_BPF_OP(CRN_BPF_ADD, 0, 1),
		CRN_BPF_STORE(1, AT(in_fault), 0),
	};
	size_t count = 0;

	PUT(to, count, head);
	count += put_memory(k, to + count, 8 + end);
	PUT(to, count, note);
	return count + put_record(k, to + count);
}

/*
 * The same, and the task is noted as being in a fault, so that its taking of the lock, which comes
 * next, is understood. It does not come if faults are disabled, and is not looked at in a call of
 * the engine's: then nothing may be noted, or it would excuse a later one.
 */
static size_t put_kernel(const struct crn_bpf_target *k, struct crn_bpf_insn *to)
{
	const int memory = (int)put_memory(k, NULL, 0), end = to_end(k);
	const struct crn_bpf_insn head[] = {
		CRN_BPF_MOV(6, 1),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 7, 6, 0),
		CRN_BPF_IF(CRN_BPF_JSLT, 7, 0, 3 + memory + 13 + 3 + end),
		TASK_AND_SPACE(k->task_mm),
	};
	const struct crn_bpf_insn note[] = {
		CRN_BPF_LOAD(CRN_BPF_WORD, 1, 8, k->pagefault_disabled),
		CRN_BPF_IF(CRN_BPF_JNE, 1, 0, 11), /* write: */
		CRN_BPF_CALL(CRN_BPF_CALL_CURRENT_TASK),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 9, AT(own)),
		CRN_BPF_IF(CRN_BPF_JEQ, 1, 0, 2), /* others: */
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 9, AT(own_task)),
		CRN_BPF_IF_REG(CRN_BPF_JEQ, 1, 0, 6), /* write: */
		/* others: */
		CRN_BPF_MOV(1, 0),
		CRN_BPF_OP(CRN_BPF_RSH, 1, 10),
		CRN_BPF_OP(CRN_BPF_AND, 1, CRN_FAULT_SLOTS - 1),
		CRN_BPF_OP(CRN_BPF_LSH, 1, 3),
		CRN_BPF_OP_REG(CRN_BPF_ADD, 1, 9),
		CRN_BPF_STORE(1, AT(in_fault), 0),
		/* write: */
		CRN_BPF_LOAD(CRN_BPF_DWORD, 2, 6, 16),
		CRN_BPF_OP(CRN_BPF_AND, 2, 2),
		CRN_BPF_IF(CRN_BPF_JEQ, 2, 0, end),
	};
	size_t count = 0;

	PUT(to, count, head);
	count += put_memory(k, to + count, 13 + 3 + end);
	PUT(to, count, note);
	return count + put_record(k, to + count);
}

/* r6: the context, whose first word is the address space r1. 2 instructions. */
#define LOCK_OF CRN_BPF_MOV(6, 1), CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 6, 0)

/* r8: the task; goes to `out` if it is in a call of the engine's. 6 instructions. */
#define UNLESS_OWN(out)                                                 \
	CRN_BPF_CALL(CRN_BPF_CALL_CURRENT_TASK), CRN_BPF_MOV(8, 0),     \
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 9, AT(own)),             \
		CRN_BPF_IF(CRN_BPF_JEQ, 1, 0, 2) /* others */,          \
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 9, AT(own_task)),        \
		CRN_BPF_IF_REG(CRN_BPF_JEQ, 1, 8, out) /* others: */

/*
 * An address space that nobody uses any more is locked once more, to be taken down. This is noted,
 * so that its entry can be removed from the table.
 */
static size_t put_gone(const struct crn_bpf_target *k, struct crn_bpf_insn *to)
{
	const struct crn_bpf_insn gone[] = {
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 6, 8),
		CRN_BPF_IF(CRN_BPF_JEQ, 1, 0, 10), /* in use: */
		CRN_BPF_MOV(1, 10),
		CRN_BPF_OP(CRN_BPF_ADD, 1, -8),
		CRN_BPF_SET(2, 4),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 3, 6, 0),
		CRN_BPF_OP(CRN_BPF_ADD, 3, k->mm_users),
		CRN_BPF_CALL(CRN_BPF_CALL_PROBE_READ_KERNEL),
		CRN_BPF_IF(CRN_BPF_JNE, 0, 0, 3), /* in use: */
		CRN_BPF_LOAD(CRN_BPF_WORD, 1, 10, -8),
		CRN_BPF_IF(CRN_BPF_JNE, 1, 0, 1), /* in use: */
		CRN_BPF_STORE_IMM(9, AT(over), 1),
		/* in use: */
	};

	if (!k->shared)
		return 0;
	if (to)
		crn_copy(to, gone, sizeof(gone));
	return CRN_ARRAY_SIZE(gone);
}

/* r8: task. r6, r7: an entry that says that its faults are over. With images each has a number. */
static size_t put_entry(const struct crn_bpf_target *k, struct crn_bpf_insn *to)
{
	const struct crn_bpf_insn plain[] = { CRN_BPF_SET(7, -1), CRN_BPF_SET(6, 0) };
	const struct crn_bpf_insn numbered[] = {
		CRN_BPF_SET(7, -1), /* CRN_TASK_OVER */
		CRN_BPF_SET(6, 1),
		CRN_BPF_ATOMIC(CRN_BPF_ADD | CRN_BPF_FETCH, 9, AT(begun), 6),
		CRN_BPF_OP(CRN_BPF_AND, 6, CRN_IMAGE_NUMBERS - 1),
		CRN_BPF_OP(CRN_BPF_LSH, 6, CRN_IMAGE_NUMBER_SHIFT),
	};
	size_t size = k->slots ? sizeof(numbered) : sizeof(plain);

	if (to)
		crn_copy(to, k->slots ? numbered : plain, size);
	return size / sizeof(*to);
}

/*
 * over: r0 ends: an entry, if it has written to memory for the last time, futexes and the word that
 * tells of its end included.
 * exec: it leaves our memory for that of another program, or fails to: that is cause for doubt, but
 * it is in no fault. The end of the program.
 */
static size_t put_over(const struct crn_bpf_target *k, struct crn_bpf_insn *to)
{
	const int end = (int)put_entry(k, NULL) + CRN_ARRAY_SIZE(record) - RECORD_END;
	const struct crn_bpf_insn over[] = {
		CRN_BPF_LOAD(CRN_BPF_WORD, 1, 0, k->futex_state),
		CRN_BPF_IF(CRN_BPF_JNE, 1, FUTEX_DEAD, 7 + end),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 0, k->clear_tid),
		CRN_BPF_IF(CRN_BPF_JNE, 1, 0, 5 + end),
		CRN_BPF_JUMP(3), /* entry: */
#define OVER_EXEC 5 /* instructions */
		/* exec: */
		CRN_BPF_SET(1, 1),
		CRN_BPF_ATOMIC(CRN_BPF_ADD, 9, AT(reads), 1),
		CRN_BPF_CALL(CRN_BPF_CALL_CURRENT_TASK_BTF),
		/* entry: */
		CRN_BPF_MOV(8, 0),
	};
	size_t count = CRN_ARRAY_SIZE(over);

	crn_copy(to, over, sizeof(over));
	count += put_entry(k, to + count);
	crn_copy(to + count, record, sizeof(record));
	return count + CRN_ARRAY_SIZE(record);
}

/*
 * Somebody has the lock to read, for a fault if r7 says so: what did he want it for? Most want
 * nothing that is cause for doubt. Then the end.
 */
static size_t put_doubt(const struct crn_bpf_target *k, struct crn_bpf_insn *to)
{
	const struct crn_bpf_insn one[] = { CRN_BPF_SET64(2, k->mm) };
	const struct crn_bpf_insn any[] = { CRN_BPF_LOAD(CRN_BPF_DWORD, 2, 6, 0),
		CRN_BPF_MOV(2, 2) };
	const struct crn_bpf_insn *space = k->shared ? any : one;
	const struct crn_bpf_insn doubt[] = {
		CRN_BPF_LOAD(CRN_BPF_DWORD, 3, 6, 16),
		CRN_BPF_IF(CRN_BPF_JEQ, 3, 0, 37), /* end: */
		CRN_BPF_IF(CRN_BPF_JNE, 7, 0, 36), /* end: */
		/* Or for the end of a task? That writes unseen to futexes alone. */
		CRN_BPF_CALL(CRN_BPF_CALL_CURRENT_TASK_BTF),
		CRN_BPF_LOAD(CRN_BPF_WORD, 1, 0, k->flags),
		CRN_BPF_OP(CRN_BPF_AND, 1, EXITING),
		CRN_BPF_IF(CRN_BPF_JEQ, 1, 0, 4), /* call: */
		CRN_BPF_LOAD(CRN_BPF_WORD, 1, 0, k->futex_state),
		CRN_BPF_IF(CRN_BPF_JEQ, 1, FUTEX_EXITING, 2), /* call: */
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 0, k->io_uring),
		CRN_BPF_IF(CRN_BPF_JEQ, 1, 0, 30), /* over: */
		/* call: in which system call? */
		CRN_BPF_CALL(CRN_BPF_CALL_CURRENT_TASK_BTF),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 7, 0, k->task_mm),
		CRN_BPF_MOV(1, 0),
		CRN_BPF_CALL(CRN_BPF_CALL_TASK_REGISTERS),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 0, ORIG_AX),
		CRN_BPF_IF(CRN_BPF_JEQ, 7, 0, 20), /* count: (the kernel's tasks make none) */
		/* Who reads us, or as another process about us, writes nothing without a fault. */
		CRN_BPF_IF(CRN_BPF_JEQ, 1, NR_PROCESS_VM_READV, 21), /* end: */
		space[0],
		space[1],
		CRN_BPF_IF_REG(CRN_BPF_JEQ, 7, 2, 3), /* own: */
		CRN_BPF_IF(CRN_BPF_JEQ, 1, NR_READ, 17), /* end: */
		CRN_BPF_IF(CRN_BPF_JEQ, 1, NR_PREAD64, 16), /* end: */
		CRN_BPF_JUMP(13), /* count: */
		/* own: what is left of a lock to write; or madvise of what is no area? */
		CRN_BPF_IF(CRN_BPF_JEQ, 1, NR_EXECVE, 16 + OVER_EXEC), /* exec: */
		CRN_BPF_IF(CRN_BPF_JEQ, 1, NR_EXECVEAT, 15 + OVER_EXEC), /* exec: */
		CRN_BPF_IF(CRN_BPF_JEQ, 1, NR_MUNMAP, 12), /* end: */
		CRN_BPF_IF(CRN_BPF_JEQ, 1, NR_BRK, 11), /* end: */
		CRN_BPF_IF(CRN_BPF_JEQ, 1, NR_MREMAP, 10), /* end: */
		CRN_BPF_IF(CRN_BPF_JNE, 1, NR_MADVISE, 7), /* count: */
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 0, DI),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 2, 9, AT(area_end)),
		CRN_BPF_IF_REG(CRN_BPF_JGE, 1, 2, 6), /* end: */
		CRN_BPF_LOAD(CRN_BPF_DWORD, 3, 0, SI),
		CRN_BPF_OP_REG(CRN_BPF_ADD, 1, 3),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 2, 9, AT(area_begin)),
		CRN_BPF_IF_REG(CRN_BPF_JLE, 1, 2, 2), /* end: */
		/* count: */
		CRN_BPF_SET(1, 1),
		CRN_BPF_ATOMIC(CRN_BPF_ADD, 9, AT(reads), 1),
		/* end: */
		CRN_BPF_SET(0, 0),
		CRN_BPF_EXIT,
	};

	crn_copy(to, doubt, sizeof(doubt));
	return CRN_ARRAY_SIZE(doubt) + put_over(k, to + CRN_ARRAY_SIZE(doubt));
}

/* ctx: address space, write, success. (A lock to write that becomes one to read comes again.) */
static size_t put_acquired(const struct crn_bpf_target *k, struct crn_bpf_insn *to)
{
	const int gone = (int)put_gone(k, NULL);
	const struct crn_bpf_insn head[] = { LOCK_OF };
	const struct crn_bpf_insn lock[] = {
		UNLESS_OWN(68),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 3, 6, 16), /* success */
		CRN_BPF_LOAD(CRN_BPF_DWORD, 4, 6, 8),
		CRN_BPF_IF(CRN_BPF_JEQ, 4, 0, 4), /* read: */
		CRN_BPF_IF(CRN_BPF_JEQ, 3, 0, 64), /* end: */
		CRN_BPF_SET(1, 1),
		CRN_BPF_ATOMIC(CRN_BPF_ADD, 9, AT(writes), 1),
		CRN_BPF_JUMP(61), /* end: */
		/* read: was it for a fault? r7 */
		CRN_BPF_SET(7, 0),
		CRN_BPF_MOV(1, 8),
		CRN_BPF_OP(CRN_BPF_RSH, 1, 10),
		CRN_BPF_OP(CRN_BPF_AND, 1, CRN_FAULT_SLOTS - 1),
		CRN_BPF_OP(CRN_BPF_LSH, 1, 3),
		CRN_BPF_MOV(2, 9),
		CRN_BPF_OP_REG(CRN_BPF_ADD, 2, 1),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 2, AT(in_fault)),
		CRN_BPF_IF_REG(CRN_BPF_JNE, 1, 8, 2), /* user: */
		CRN_BPF_STORE_IMM(2, AT(in_fault), 0),
		CRN_BPF_JUMP(10), /* fault: */
		/* user: the last one may have needed no lock, but this is no system call either */
		CRN_BPF_OP(CRN_BPF_SUB, 1, 1),
		CRN_BPF_IF_REG(CRN_BPF_JNE, 1, 8, 9), /* noted: */
		CRN_BPF_STORE_IMM(2, AT(in_fault), 0),
		CRN_BPF_CALL(CRN_BPF_CALL_CURRENT_TASK_BTF),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 0, k->io_uring),
		CRN_BPF_IF(CRN_BPF_JNE, 1, 0, 5), /* noted: */
		CRN_BPF_MOV(1, 0),
		CRN_BPF_CALL(CRN_BPF_CALL_TASK_REGISTERS),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 0, ORIG_AX),
		CRN_BPF_IF(CRN_BPF_JNE, 1, -1, 1), /* noted: */
		/* fault: */
		CRN_BPF_SET(7, 1),
		/* noted: put_doubt */
	};
	size_t count = 0;

	PUT(to, count, head);
	count += put_memory(k, to + count, gone + 6 + 68);
	count += put_gone(k, to + count);
	PUT(to, count, lock);
	return count + put_doubt(k, to + count);
}

/* Run by the engine: which task, and which address space, is this? */
static size_t put_ident(const struct crn_bpf_target *k, struct crn_bpf_insn *to)
{
	const struct crn_bpf_insn program[] = {
		CRN_BPF_CALL(CRN_BPF_CALL_CURRENT_TASK_BTF),
		CRN_BPF_LOAD(CRN_BPF_DWORD, 1, 0, k->task_mm),
		CRN_BPF_SET_ARRAY(2, k->map, 0),
		CRN_BPF_STORE(2, AT(ident_task), 0),
		CRN_BPF_STORE(2, AT(ident_mm), 1),
		CRN_BPF_SET(0, 0),
		CRN_BPF_EXIT,
	};
	size_t count = 0;

	PUT(to, count, program);
	return count;
}

size_t crn_bpf_program_put(const struct crn_bpf_target *k, unsigned which, struct crn_bpf_insn *to)
{
	static size_t (*const put[])(const struct crn_bpf_target *k, struct crn_bpf_insn *to) = {
		[CRN_LINK_USER] = put_user,
		[CRN_LINK_KERNEL] = put_kernel,
		[CRN_LINK_ACQUIRED] = put_acquired,
		[CRN_BPF_IDENT] = put_ident,
	};
	size_t count = put[which](k, to);

	CRN_ASSERT(count <= CRN_BPF_PROGRAM_MAX);
	return count;
}
