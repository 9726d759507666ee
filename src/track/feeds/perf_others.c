/* SPDX-License-Identifier: MIT */
/*
 * What other processes do to our address space: a ring for each processor. Tasks that have a ring
 * of their own are left to that. A processor that is switched off and on again has lost its ring,
 * so every such change ends the feed.
 *
 *	slot of a processor: | processors come and go | lock taken |	1 + 8 pages each
 */
#include "track/feeds/perf_rings.h"
#include <errno.h>
#include "base/arena.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/memory.h"
#include "os/other_task.h"

#define RING_BYTES ((1 + CRN_PERF_LOCK_PAGES) * CRN_PAGE_SIZE)
#define SLOT_BYTES (2 * RING_BYTES)
#define CPUS_MAX   256u

/* ---- Opening ----------------------------------------------------------------------------- */

/* "0-3,8,10-11" becomes numbers, at most `max`. How many there are, or -errno. */
static int processors(int *out, size_t max)
{
	char text[512];
	int first = -1, number = -1;
	size_t count = 0;
	long len = crn_file_read("/sys/devices/system/cpu/online", text, sizeof(text));

	if (len < 0)
		return (int)len;
	for (long i = 0; i <= len; i++) {
		char c = text[i];

		if (c >= '0' && c <= '9') {
			number = (number < 0 ? 0 : number * 10) + (c - '0');
		} else if (c == '-') {
			first = number;
			number = -1;
		} else if (number >= 0) {
			for (int n = first < 0 ? number : first; n <= number; n++) {
				if (count == max)
					return -EUSERS;
				out[count++] = n;
			}
			first = number = -1;
		}
	}
	return (int)count;
}

/* What tells our address space, and the opener, in records of tracepoints. */
struct names {
	uint64_t mm;
	uint32_t tid; /* outside of all namespaces */
};

static int open_processor(struct crn_perf_feed *f, struct crn_perf_other *o, int cpu,
	const struct names *names, uint8_t *slot)
{
	char filter[96];
	struct crn_perf_event events[] = {
		{ .point = f->points.hotplug },
		{ .point = f->points.acquired, .filter = filter },
	};
	int err = 0;

	crn_format(filter, sizeof(filter), "mm == 0x%lx && success == 1 && common_pid != %u",
		(unsigned long)names->mm, names->tid);
	o->hotplug = slot;
	o->taken = slot + RING_BYTES;
	for (size_t i = 0; i < CRN_ARRAY_SIZE(events) && err >= 0; i++) {
		events[i].kind = CRN_PERF_POINT_TASK;
		events[i].tid = -1;
		events[i].cpu = cpu;
		err = crn_perf_open(&events[i], slot + i * RING_BYTES, CRN_PERF_LOCK_PAGES);
		crn_perf_opened_by(f, events[i].by);
	}
	return err;
}

/* The kernel's names, as its tracepoint tells them. */
static int find_names(struct crn_perf_feed *f, struct names *out)
{
	/* The opener cannot ask for itself. */
	struct crn_perf_event e = { .kind = CRN_PERF_POINT_RAW, .tid = f->self, .cpu = -1,
		.filter = "write == 0 && success == 1", .point = f->points.acquired };
	void *ring;
	int err;

	CRN_TRY(crn_perf_reserve(&ring, RING_BYTES));
	err = crn_perf_open(&e, ring, CRN_PERF_LOCK_PAGES);
	crn_perf_opened_by(f, e.by);
	if (err < 0)
		goto out;
	(void)crn_memory_populate_read(ring, CRN_PAGE_SIZE);
	err = -ENOENT;
	/* 4 bytes of length, 4 of every tracepoint's head, the thread's id, `mm`. */
	if (crn_perf_head(ring) && crn_perf_header(ring, CRN_PERF_LOCK_PAGES, 0).size >= 32) {
		uint64_t low = crn_perf_word(ring, CRN_PERF_LOCK_PAGES, 0, 1);
		uint64_t high = crn_perf_word(ring, CRN_PERF_LOCK_PAGES, 0, 2);

		out->tid = (uint32_t)low;
		out->mm = low >> 32 | high << 32;
		err = 0;
	}
out:
	(void)crn_memory_unmap(ring, RING_BYTES);
	return err;
}

/*
 * A guess at the layout of a record is believed after the filters have let somebody through: a
 * thread that is there for a moment, and takes our lock in a call that does nothing else.
 */
static int prove_others(struct crn_perf_feed *f)
{
	uint64_t before = 0, after = 0;
	int tid;

	for (size_t i = 0; i < f->other_count; i++)
		before += crn_perf_head(f->others[i].taken);
	CRN_TRY(tid = crn_lock_by_thread(f->others_memory));
	crn_perf_opened_by(f, tid);
	for (size_t i = 0; i < f->other_count; i++)
		after += crn_perf_head(f->others[i].taken);
	return after > before ? 0 : -ENOENT;
}

int crn_perf_others_open(struct crn_perf_feed *f)
{
	int cpus[CPUS_MAX], count, err;
	struct names names;

	CRN_TRY(count = processors(cpus, CPUS_MAX));
	CRN_TRY(find_names(f, &names));
	f->others = crn_block_alloc(f->env->arena, (size_t)count * sizeof(*f->others));
	if (!f->others)
		return CAIRN_EMEMORY;
	f->other_count = (size_t)count;
	err = crn_perf_reserve((void **)&f->others_memory, f->other_count * SLOT_BYTES);
	for (int i = 0; i < count && err >= 0; i++)
		err = open_processor(f, &f->others[i], cpus[i], &names,
			f->others_memory + (size_t)i * SLOT_BYTES);
	if (err >= 0)
		err = prove_others(f);
	if (err < 0)
		crn_perf_others_close(f);
	return err;
}

void crn_perf_others_close(struct crn_perf_feed *f)
{
	if (f->others_memory)
		(void)crn_memory_unmap(f->others_memory, f->other_count * SLOT_BYTES);
	crn_block_free(f->env->arena, f->others, f->other_count * sizeof(*f->others));
	f->others_memory = NULL;
	f->others = NULL;
	f->other_count = 0;
}

/* ---- Taking note ------------------------------------------------------------------------- */

/* One of ours that has ended takes the lock once more. */
static bool has_ended(struct crn_perf_feed *f, int tid)
{
	for (size_t i = 0; tid && i < CRN_PERF_ENDED; i++) {
		if (f->ended[i] == tid) {
			f->ended[i] = 0;
			return true;
		}
	}
	return false;
}

static void note_taken(struct crn_perf_feed *f, const struct crn_perf_other *o)
{
	struct crn_perf_record r = crn_perf_header(o->taken, CRN_PERF_LOCK_PAGES, o->noted);
	int tid = (int)(crn_perf_word(o->taken, CRN_PERF_LOCK_PAGES, o->noted, 0) >> 32);

	if (r.type == CRN_PERF_SAMPLE && (crn_perf_thread_find(f, tid) || has_ended(f, tid)))
		return;
	f->takings++;
	f->inside = true;
}

void crn_perf_others_note(struct crn_perf_feed *f)
{
	for (size_t i = 0; i < f->other_count; i++) {
		struct crn_perf_other *o = &f->others[i];
		uint64_t head = crn_perf_head(o->taken);
		bool full = head - o->noted + CRN_PERF_RECORD_MAX >
			CRN_PERF_LOCK_PAGES * CRN_PAGE_SIZE;

		f->broken |= crn_perf_head(o->hotplug) != 0;
		if (o->noted == head)
			continue;
		for (; o->noted < head; o->noted += crn_perf_header(
			o->taken, CRN_PERF_LOCK_PAGES, o->noted).size)
			note_taken(f, o);
		crn_perf_free_until(o->taken, head);
		f->takings += full;
		f->inside |= full;
	}
}
