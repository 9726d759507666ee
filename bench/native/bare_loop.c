/* SPDX-License-Identifier: MIT */
#include "bare_loop.h"

#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "measure.h"
#include "page_tracking.h"

#define RUNS       4096 /* that one scan may report */
#define RING_PAGES 256ul
#define NOTES      4096 /* faults that the program has room for: a power of two */

/* What the program writes, and this process reads. */
struct notes {
	uint64_t count;
	uint64_t addresses[NOTES];
	_Alignas(4096) char images[NOTES][4096];
};

struct bare_loop {
	enum bare_kind kind;
	char *area, *copy;
	size_t bytes;
	struct tracking tracking;
	struct tracking_run runs[RUNS];

	int map, links[2]; /* -1: none */
	struct notes *notes;

	int event; /* -1: none */
	struct perf_event_mmap_page *ring;
};

/* ---- Addresses by a program -------------------------------------------------------------- */

static int bpf(int command, union bpf_attr *attributes)
{
	return (int)syscall(SYS_bpf, command, attributes, sizeof(*attributes));
}

#define INSN(c, d, s, o, i) \
	((struct bpf_insn){ .code = (c), .dst_reg = (d), .src_reg = (s), .off = (o), .imm = (i) })
#define WIDE(d, s, low, high) INSN(BPF_LD | BPF_DW | BPF_IMM, d, s, 0, low), INSN(0, 0, 0, 0, high)
#define CONSTANT(d, v)        WIDE(d, 0, (int32_t)(v), (int32_t)((uint64_t)(v) >> 32))
#define LAST                  31 /* where the program returns */
#define SKIP(op, d, s, i, at) INSN(BPF_JMP | (op), d, s, LAST - (at) - 1, i)

/* Writes to protected pages of the range by this process: note the address, and copy the page. */
static int load_program(const struct bare_loop *b)
{
	uintptr_t begin = (uintptr_t)b->area, end = begin + b->bytes;
	const struct bpf_insn program[] = {
		/* 0 */ INSN(BPF_LDX | BPF_DW | BPF_MEM, 7, 1, 0, 0), /* address */
		/* 1 */ INSN(BPF_LDX | BPF_DW | BPF_MEM, 8, 1, 16, 0), /* what the fault was */
		/* 2 */ INSN(BPF_ALU64 | BPF_AND | BPF_K, 8, 0, 0, 3),
		/* 3 */ SKIP(BPF_JNE | BPF_K, 8, 0, 3, 3),
		/* 4 */ CONSTANT(1, begin),
		/* 6 */ SKIP(BPF_JLT | BPF_X, 7, 1, 0, 6),
		/* 7 */ CONSTANT(1, end),
		/* 9 */ SKIP(BPF_JGE | BPF_X, 7, 1, 0, 9),
		/* 10 */ INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_current_pid_tgid),
		/* 11 */ INSN(BPF_ALU64 | BPF_RSH | BPF_K, 0, 0, 0, 32),
		/* 12 */ SKIP(BPF_JNE | BPF_K, 0, 0, getpid(), 12),
		/* 13 */ WIDE(1, BPF_PSEUDO_MAP_VALUE, b->map, 0),
		/* 15 */ INSN(BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 1),
		/* 16 */ INSN(BPF_STX | BPF_ATOMIC | BPF_DW, 1, 2, 0, BPF_ADD | BPF_FETCH),
		/* 17 */ INSN(BPF_ALU64 | BPF_AND | BPF_K, 2, 0, 0, NOTES - 1),
		/* 18 */ INSN(BPF_ALU64 | BPF_MOV | BPF_X, 9, 2, 0, 0),
		/* 19 */ INSN(BPF_ALU64 | BPF_LSH | BPF_K, 2, 0, 0, 3),
		/* 20 */ INSN(BPF_ALU64 | BPF_ADD | BPF_X, 1, 2, 0, 0),
		/* 21 */ INSN(BPF_STX | BPF_DW | BPF_MEM, 1, 7,
			offsetof(struct notes, addresses), 0),
		/* 22 */ SKIP(BPF_JLT | BPF_K, 9, 0, b->kind == BARE_IMAGES ? 0 : NOTES, 22),
		/* 23 */ INSN(BPF_ALU64 | BPF_LSH | BPF_K, 9, 0, 0, 12),
		/* 24 */ WIDE(1, BPF_PSEUDO_MAP_VALUE, b->map, offsetof(struct notes, images)),
		/* 26 */ INSN(BPF_ALU64 | BPF_ADD | BPF_X, 1, 9, 0, 0),
		/* 27 */ INSN(BPF_ALU64 | BPF_MOV | BPF_K, 2, 0, 0, 4096),
		/* 28 */ INSN(BPF_ALU64 | BPF_MOV | BPF_X, 3, 7, 0, 0),
		/* 29 */ INSN(BPF_ALU64 | BPF_AND | BPF_K, 3, 0, 0, -4096),
		/* 30 */ INSN(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_probe_read_user),
		/* 31 */ INSN(BPF_ALU64 | BPF_MOV | BPF_K, 0, 0, 0, 0),
		/* 32 */ INSN(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
	};
	union bpf_attr a = { .prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT };

	/* Images or not is known when it is loaded: the kernel leaves the other way out. */
	a.insns = (uintptr_t)program;
	a.insn_cnt = sizeof(program) / sizeof(program[0]);
	a.license = (uintptr_t)"GPL";
	return bpf(BPF_PROG_LOAD, &a);
}

static const char *open_notes(struct bare_loop *b)
{
	static const char *const points[] = { "page_fault_user", "page_fault_kernel" };
	union bpf_attr a = { .map_type = BPF_MAP_TYPE_ARRAY };
	int program;

	a.key_size = 4;
	a.value_size = sizeof(struct notes);
	a.max_entries = 1;
	a.map_flags = BPF_F_MMAPABLE;
	b->map = bpf(BPF_MAP_CREATE, &a);
	if (b->map < 0)
		return "BPF is not allowed here";
	b->notes = mmap(NULL, sizeof(struct notes), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_POPULATE, b->map, 0);
	if (b->notes == MAP_FAILED)
		fail("mmap", "not of a map of BPF's");
	program = load_program(b);
	for (int i = 0; i < 2 && program >= 0; i++) {
		a = (union bpf_attr){ 0 };
		a.raw_tracepoint.name = (uintptr_t)points[i];
		a.raw_tracepoint.prog_fd = program;
		b->links[i] = bpf(BPF_RAW_TRACEPOINT_OPEN, &a);
	}
	if (program >= 0)
		close(program);
	return b->links[1] < 0 ? "tracepoints of page faults cannot be had" : NULL;
}

/* ---- Addresses by a ring of perf --------------------------------------------------------- */

static const char *open_ring(struct bare_loop *b)
{
	struct perf_event_attr a = { .type = PERF_TYPE_SOFTWARE,
		.size = sizeof(a),
		.config = PERF_COUNT_SW_PAGE_FAULTS,
		.sample_period = 1,
		.sample_type = PERF_SAMPLE_ADDR,
		.exclude_hv = 1,
		.watermark = 1,
		.wakeup_watermark = INT32_MAX };

	b->event = (int)syscall(SYS_perf_event_open, &a, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	if (b->event < 0)
		return "perf is not allowed here";
	b->ring = mmap(NULL, (1 + RING_PAGES) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, b->event,
		0);
	return b->ring == MAP_FAILED ? "no memory for a ring of perf" : NULL;
}

/* ---- Open and close ---------------------------------------------------------------------- */

static const char *open_kind(struct bare_loop *b)
{
	const char *why = NULL;

	if (b->kind == BARE_PERF)
		why = open_ring(b);
	else if (b->kind != BARE_SCAN)
		why = open_notes(b);
	if (why)
		return why;
	tracking_protect(&b->tracking, b->area, b->bytes);
	touch_pages(b->area, &(uint32_t){ 0 }, 1);
	return bare_checkpoint(b) == 1 && bare_same(b, 0) ? NULL : "it does not report a write";
}

const char *bare_open(struct bare_loop **out, enum bare_kind kind, char *area, size_t bytes)
{
	struct bare_loop *b = calloc(1, sizeof(*b));
	const char *why;

	*out = NULL;
	if (!b)
		fail("bare loop", "out of memory");
	*b = (struct bare_loop){ .kind = kind, .area = area, .bytes = bytes, .map = -1, .event = -1,
		.links = { -1, -1 }, .tracking = { -1, -1 }, .notes = MAP_FAILED,
		.ring = MAP_FAILED };
	b->copy = map_pages(bytes);
	why = tracking_open(&b->tracking, area, bytes);
	if (!why)
		why = open_kind(b);
	if (why)
		bare_close(b);
	else
		*out = b;
	return why;
}

void bare_close(struct bare_loop *b)
{
	const int fds[] = { b->links[0], b->links[1], b->map, b->event };

	if (b->notes != MAP_FAILED)
		munmap(b->notes, sizeof(struct notes));
	if (b->ring != MAP_FAILED)
		munmap(b->ring, (1 + RING_PAGES) * PAGE);
	for (int i = 0; i < 4; i++)
		if (fds[i] >= 0)
			close(fds[i]);
	tracking_close(&b->tracking);
	munmap(b->copy, b->bytes);
	free(b);
}

/* ---- A checkpoint ------------------------------------------------------------------------ */

static void copy_page(struct bare_loop *b, uintptr_t page)
{
	memcpy(b->copy + (page - (uintptr_t)b->area), (void *)page, PAGE);
}

static size_t scan_checkpoint(struct bare_loop *b)
{
	long count = tracking_runs(&b->tracking, b->area, b->bytes, true, b->runs, RUNS);
	size_t pages = 0;

	if (count < 0)
		fail("PAGEMAP_SCAN", "failed");
	for (long i = 0; i < count; i++) {
		pages += (b->runs[i].end - b->runs[i].begin) / PAGE;
		for (uintptr_t p = b->runs[i].begin; p < b->runs[i].end; p += PAGE)
			copy_page(b, p);
	}
	return pages;
}

/*
 * A page that the program has read the processor may remember as protected: the store faults a
 * second time then.
 */
static bool repeats(const uint64_t *addresses, size_t i)
{
	return i && addresses[i] == addresses[i - 1];
}

/* Protect first, then copy: what is written between shows up the next time. */
static size_t turn_pages(struct bare_loop *b, const uint64_t *addresses, size_t count)
{
	size_t pages = 0;

	for (size_t i = 0; i < count; i++) {
		if (repeats(addresses, i))
			continue;
		tracking_protect(&b->tracking, (void *)(addresses[i] & -PAGE), PAGE);
		pages++;
	}
	for (size_t i = 0; i < count && b->kind != BARE_IMAGES; i++)
		if (!repeats(addresses, i))
			copy_page(b, addresses[i] & -PAGE);
	return pages;
}

static size_t notes_checkpoint(struct bare_loop *b)
{
	uint64_t count = __atomic_load_n(&b->notes->count, __ATOMIC_ACQUIRE);

	if (count > NOTES)
		fail("bare loop", "more faults than there is room for");
	count = turn_pages(b, b->notes->addresses, count);
	b->notes->count = 0; /* what it counted stays to be looked at */
	return count;
}

static size_t ring_checkpoint(struct bare_loop *b)
{
	uint64_t head = __atomic_load_n(&b->ring->data_head, __ATOMIC_ACQUIRE);
	const char *data = (const char *)b->ring + PAGE;
	uint64_t addresses[NOTES], at = b->ring->data_tail;
	size_t count = 0;

	while (at < head) {
		const struct perf_event_header *r = (const void *)(data + at % (RING_PAGES * PAGE));
		uint64_t address =
			*(const uint64_t *)(data + (at + sizeof(*r)) % (RING_PAGES * PAGE));

		if (r->type != PERF_RECORD_SAMPLE || count == NOTES)
			fail("bare loop", "the ring of perf has lost records");
		if (address - (uintptr_t)b->area < b->bytes)
			addresses[count++] = address;
		at += r->size;
	}
	__atomic_store_n(&b->ring->data_tail, at, __ATOMIC_RELEASE);
	return turn_pages(b, addresses, count);
}

size_t bare_checkpoint(struct bare_loop *b)
{
	switch (b->kind) {
	case BARE_BPF:
	case BARE_IMAGES:
		return notes_checkpoint(b);
	case BARE_PERF:
		return ring_checkpoint(b);
	default:
		return scan_checkpoint(b);
	}
}

/* The image of before touch_pages, which counts up the word at 64. */
static bool same_image(const char *image, const char *now)
{
	uint64_t was, is;

	memcpy(&was, image + 64, 8);
	memcpy(&is, now + 64, 8);
	return was + 1 == is && memcmp(image, now, 64) == 0 &&
		memcmp(image + 72, now + 72, PAGE - 72) == 0;
}

bool bare_same(const struct bare_loop *b, size_t page)
{
	const char *now = b->area + page * PAGE;

	if (b->kind != BARE_IMAGES)
		return memcmp(now, b->copy + page * PAGE, PAGE) == 0;
	for (size_t i = 0; i < NOTES; i++)
		if ((b->notes->addresses[i] & -PAGE) == (uintptr_t)now)
			return same_image(b->notes->images[i], now);
	return false;
}
