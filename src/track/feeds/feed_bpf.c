/* SPDX-License-Identifier: MIT */
/*
 * Written pages by BPF: three raw tracepoint programs, which see every page fault and every taking
 * of the address space's lock on the host, and note those of our address space in memory that they
 * share with us. A drain is a few loads.
 *
 *	page_fault_user, _kernel	(write faults of ours: an entry in the ring)
 *	mmap_lock_acquire_returned	somebody reads or changes our mappings
 *
 * The key is the address space (current->mm, the lock's mm), never a process id: threads, vfork
 * children, kernel workers and process namespaces come out right by themselves.
 *
 * Writes that raise no fault all take the address space's lock first: get_user_pages on behalf of
 * O_DIRECT, process_vm_writev, ptrace, /proc/PID/mem or io_uring; MADV_DONTNEED and the like on
 * memory that userfaultfd watches. (Where get_user_pages needs no lock the page is writable, so it
 * has been reported already.) So each taking of the lock by somebody else than the engine is cause
 * for doubt. Nothing tells when he leaves: if he took it to read, the drain holds it alone before
 * the scan, which waits for writers itself. Faults in kernel mode, on the buffers of read(2), take
 * the lock too: one that follows such a fault in the same task is no cause. The last thing that a
 * task does to us, at its end or in exec, is to take the lock once more: then it is forgotten. So
 * threads and children of vfork may come and go.
 *
 * bpf_programs.h says how the programs hand over what they see, and the order of images.
 */
#include "track/feeds/feed.h"
#include "base/arena.h"
#include "base/bits.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/bpf.h"
#include "os/descriptor.h"
#include "os/keeper.h"
#include "os/memory.h"
#include "os/thread.h"
#include "track/feeds/bpf_attach.h"

#define TASKS_MAX 256u    /* tasks whose last fault is remembered */
#define PATIENCE  100000u /* pauses until an entry must be complete */
#define SLOTS_MIN 64u

struct task {
	uint64_t task; /* 0: none */
	uintptr_t page;
	bool done; /* it was our own: the fault is over */
};

struct bpf_feed {
	struct crn_feed feed;
	struct crn_track_env *env;
	struct crn_bpf_shared *shared;
	int ident, links[CRN_LINKS];
	struct crn_bpf_known known; /* when they were given to the keeper */
	uint64_t tail, overflow, reads, writes, asked;
	bool doubt_again; /* the next drain must doubt */
	bool inside;      /* somebody may hold the lock, and write */
	bool held;        /* by the keeper as well */
	bool crowded;     /* more tasks than there is room for */
	size_t task_count;
	struct task tasks[TASKS_MAX];

	/* With images: */
	uint32_t slots;
	uint32_t calm; /* `reads` at the start of the interval; images that say else are no good */
	bool uncalm;   /* somebody may have been inside then */
};

/* One that the programs write. */
static uint64_t shared_word(const uint64_t *word)
{
	return __atomic_load_n(word, __ATOMIC_ACQUIRE);
}

/* ---- Who we are ------------------------------------------------------------ */

static void forget_self(struct bpf_feed *f)
{
	f->shared->own_tid = 0;
	f->shared->own_task = 0;
}

/*
 * Make own_task the calling thread's. If that cannot be done nobody is us, which is safe. Writes
 * nothing but what is shared, whose memory is always open.
 */
static void know_thread(struct bpf_feed *f, uint64_t tid)
{
	struct crn_bpf_shared *s = f->shared;

	forget_self(f);
	s->ident_task = 0; /* whatever the descriptor may be of by now */
	if (crn_bpf_run(f->ident) < 0 || !s->ident_task)
		return;
	s->own_task = s->ident_task;
	s->own_tid = tid;
}

static void know_self(struct bpf_feed *f)
{
	uint64_t tid;

	if (crn_feed_knows_caller(&f->feed, f->env))
		return;
	tid = (uint64_t)crn_gettid();
	if (crn_likely(tid == f->shared->own_tid))
		return;
	forget_self(f);
	if (crn_keeper_mend(f->env->keeper) >= 0)
		know_thread(f, tid);
}

static void bpf_own(struct crn_feed *feed, bool begin)
{
	struct bpf_feed *f = (struct bpf_feed *)feed;

	if (begin)
		know_self(f);
	__atomic_store_n(&f->shared->own, begin, __ATOMIC_SEQ_CST);
}

static void bpf_own_closed(struct crn_feed *feed, bool begin)
{
	struct bpf_feed *f = (struct bpf_feed *)feed;
	uint64_t tid = (uint64_t)crn_gettid();

	if (begin && tid != f->shared->own_tid)
		know_thread(f, tid);
	__atomic_store_n(&f->shared->own, begin, __ATOMIC_SEQ_CST);
}

/* ---- Open and close -------------------------------------------------------- */

static void give_back(struct bpf_feed *f, int *fd)
{
	if (f->held)
		crn_keeper_drop(f->env->keeper, fd);
	else
		crn_fd_close(*fd);
}

static size_t shared_size(const struct bpf_feed *f)
{
	return sizeof(*f->shared) + f->slots * CRN_PAGE_SIZE;
}

static void bpf_close(struct crn_feed *feed)
{
	struct bpf_feed *f = (struct bpf_feed *)feed;

	for (size_t i = 0; i < CRN_LINKS; i++)
		give_back(f, &f->links[i]);
	give_back(f, &f->ident);
	if (f->shared) {
		f->shared->over = 1; /* others' programs may go on */
		crn_memory_unmap(f->shared, shared_size(f));
	}
	crn_arena_discharge(f->env->arena, (uint64_t)f->slots * CRN_PAGE_SIZE);
	crn_block_free(f->env->arena, f, sizeof(*f));
}

/* Frees memory_max of the slots, as many as it allows: a quarter of it at most. */
static void charge_slots(struct bpf_feed *f)
{
	for (f->slots = CRN_IMAGE_SLOTS; f->slots >= SLOTS_MIN; f->slots /= 2)
		if (crn_arena_charge(f->env->arena, (uint64_t)f->slots * CRN_PAGE_SIZE) >= 0)
			return;
	f->slots = 0;
}

static int open_feed(struct crn_feed **out, struct crn_track_env *env,
	const struct crn_feed_ops *ops)
{
	/* Images belong to undo pages, which say what is ours while blocks are closed. */
	struct bpf_feed *f = crn_block_alloc_open(env->arena, sizeof(*f));
	void *memory;
	int err = 0, map = -1;

	if (!f)
		return CAIRN_EMEMORY;
	f->feed.ops = ops;
	f->env = env;
	f->ident = -1;
	for (size_t i = 0; i < CRN_LINKS; i++)
		f->links[i] = -1;
	if (ops->images) {
		charge_slots(f);
		err = f->slots ? 0 : CAIRN_EMEMORY;
	}
	if (err >= 0)
		err = map = crn_bpf_array(shared_size(f), &memory);
	if (err >= 0) {
		f->shared = memory;
		err = crn_bpf_attach(
			f->shared, map, f->slots, env->shares_feed, &f->ident, f->links);
		/* What the programs write to is nobody's but ours: children get no way to it. */
		crn_fd_close(map);
	}
	if (err < 0) {
		bpf_close(&f->feed);
		return err;
	}
	f->shared->area_end = UINT64_MAX; /* anywhere, until somebody says where */
	f->inside = f->doubt_again = true; /* who came before the programs were there? */
	*out = &f->feed;
	return 0;
}

static int bpf_open(struct crn_feed **out, struct crn_track_env *env)
{
	return open_feed(out, env, &crn_feed_bpf);
}

static int images_open(struct crn_feed **out, struct crn_track_env *env)
{
	return open_feed(out, env, &crn_feed_bpf_images);
}

/* ---- Draining -------------------------------------------------------------- */

/*
 * The programs stay attached only while their descriptors are open, somewhere. If they took our
 * address space for one that has gone, they would note nothing from then on.
 */
static bool is_attached(struct bpf_feed *f)
{
	return !shared_word(&f->shared->over) &&
		(!f->held || (crn_keeper_check(f->env->keeper) >= 0 &&
			crn_bpf_are_links(&f->known, f->links, f->env->keeper)));
}

static int bpf_hold(struct crn_feed *feed)
{
	struct bpf_feed *f = (struct bpf_feed *)feed;

	for (size_t i = 0; i < CRN_LINKS; i++)
		CRN_TRY(crn_keeper_hold(f->env->keeper, &f->links[i], NULL));
	CRN_TRY(crn_keeper_hold(f->env->keeper, &f->ident, NULL));
	f->held = true;
	return crn_bpf_know_links(&f->known, f->links, f->env->keeper);
}

static void note_task(struct bpf_feed *f, uint64_t task, uintptr_t page)
{
	size_t i = 0;

	while (i < f->task_count && f->tasks[i].task != task)
		i++;
	if (i == TASKS_MAX) {
		f->crowded = true;
		return;
	}
	if (i == f->task_count)
		f->task_count++;
	f->tasks[i] = (struct task){ task, page, task == f->shared->own_task };
}

/* It will not fault again; another may be given its place. */
static void forget_task(struct bpf_feed *f, uint64_t task)
{
	for (size_t i = 0; i < f->task_count; i++) {
		if (f->tasks[i].task == task) {
			f->tasks[i] = f->tasks[--f->task_count];
			return;
		}
	}
}

/* Wait until entry i is complete. */
static bool is_complete(const struct crn_ring_entry *e, uint64_t i)
{
	for (unsigned tries = 0; tries < PATIENCE; tries++) {
		if (shared_word(&e->tag) == i + 1)
			return true;
		crn_pause();
	}
	return false;
}

/* What to do with an entry: 0 or negative. */
typedef int (*entry_fn)(struct bpf_feed *f, const struct crn_ring_entry *e, void *arg);

static const struct crn_ring_entry *entry_at(const struct bpf_feed *f, uint64_t i)
{
	return &f->shared->ring[i & (CRN_RING_ENTRIES - 1)];
}

/* Take what is in the ring by now. 0, doubt, or what fn did not like: that entry stays. */
static int drain_ring(struct bpf_feed *f, entry_fn fn, void *arg)
{
	struct crn_bpf_shared *s = f->shared;
	uint64_t head = shared_word(&s->head), overflow;
	int result = 0, err;

	if (head == f->tail)
		return 0;
	know_self(f); /* whose faults are over */
	overflow = shared_word(&s->overflow);
	for (; f->tail != head; f->tail++) {
		const struct crn_ring_entry *e = entry_at(f, f->tail);

		if (overflow != f->overflow) {
			/* Some entries found no room: those that did are merely useful. */
			if (shared_word(&e->tag) != f->tail + 1)
				continue;
		} else if (!is_complete(e, f->tail)) {
			result = CRN_FEED_DOUBT;
			break;
		}
		err = fn(f, e, arg);
		if (err < 0) {
			result = err;
			break;
		}
		if (e->address == CRN_TASK_OVER)
			forget_task(f, e->task);
		else
			note_task(f, e->task, crn_page_down(e->address));
	}
	if (overflow != f->overflow) {
		result = result < 0 ? result : CRN_FEED_DOUBT;
		f->overflow = overflow;
		f->doubt_again = true; /* a lost entry's fault may not be over */
	}
	__atomic_store_n(&s->tail, f->tail, __ATOMIC_RELEASE);
	return result;
}

/* Has anybody been where faults do not show what he writes? */
static bool is_disturbed(const struct bpf_feed *f, uint64_t reads, uint64_t writes)
{
	return f->doubt_again || reads != f->reads || writes != f->writes;
}

/*
 * Hold the lock alone for a moment: who had it to read until now is out, and a scan finds what he
 * wrote. That no protection changes makes no difference to the lock.
 */
static void let_out(struct bpf_feed *f)
{
	uint64_t own = f->shared->own;

	bpf_own(&f->feed, true);
	f->inside = crn_memory_protect(f->shared, CRN_PAGE_SIZE, PROT_READ | PROT_WRITE) < 0;
	bpf_own(&f->feed, own);
}

/* Before the ring is looked at: may that be believed? 0, doubt, or negative. */
static int begin_drain(struct bpf_feed *f, struct crn_range_list *open)
{
	uint64_t reads, writes;
	bool disturbed;

	CRN_TRY(crn_range_list_reserve(open, TASKS_MAX));
	if (!is_attached(f))
		return -EBADF;
	if (f->crowded)
		return -EUSERS; /* it would doubt for ever, and cost every fault all the same */
	reads = shared_word(&f->shared->reads);
	writes = shared_word(&f->shared->writes);
	disturbed = is_disturbed(f, reads, writes);
	if (f->inside || reads != f->reads)
		let_out(f);
	f->reads = reads;
	f->writes = writes;
	f->doubt_again = f->inside;
	return disturbed ? CRN_FEED_DOUBT : 0;
}

static int end_drain(struct bpf_feed *f, struct crn_range_list *open, int doubt, int err)
{
	if (err < 0) {
		f->doubt_again |= doubt > 0;
		return err;
	}
	for (size_t i = 0; i < f->task_count; i++) {
		uintptr_t page = f->tasks[i].page;

		if (!f->tasks[i].done)
			(void)crn_range_list_add(open, page, page + CRN_PAGE_SIZE);
	}
	return doubt || err || f->crowded ? CRN_FEED_DOUBT : 0;
}

static int add_written(struct bpf_feed *f, const struct crn_ring_entry *e, void *written)
{
	uintptr_t page = crn_page_down(e->address);

	if (e->address == CRN_TASK_OVER)
		return 0;
	return crn_range_list_add(written, page, page + CRN_PAGE_SIZE);
}

static int bpf_drain(
	struct crn_feed *feed, struct crn_range_list *written, struct crn_range_list *open)
{
	struct bpf_feed *f = (struct bpf_feed *)feed;
	int doubt;

	CRN_TRY(doubt = begin_drain(f, open));
	return end_drain(f, open, doubt, drain_ring(f, add_written, written));
}

static bool bpf_idle(const struct crn_feed *feed)
{
	struct bpf_feed *f = (struct bpf_feed *)feed;

	for (size_t i = 0; i < f->task_count; i++)
		if (!f->tasks[i].done)
			return false;
	return is_attached(f) && !f->crowded && shared_word(&f->shared->head) == f->tail &&
		!is_disturbed(f, shared_word(&f->shared->reads), shared_word(&f->shared->writes));
}

static bool bpf_maps_quiet(struct crn_feed *feed)
{
	struct bpf_feed *f = (struct bpf_feed *)feed;
	uint64_t writes = shared_word(&f->shared->writes);
	bool quiet = writes == f->asked && is_attached(f);

	f->asked = writes;
	return quiet;
}

static bool bpf_unsteady(const struct crn_feed *feed)
{
	struct bpf_feed *f = (struct bpf_feed *)feed;

	return !is_attached(f) || shared_word(&f->shared->writes) != f->writes;
}

static void bpf_suspect(struct crn_feed *feed)
{
	((struct bpf_feed *)feed)->doubt_again = true;
}

/* ---- Images ---------------------------------------------------------------- */

struct images {
	void (*show)(void *arg, const struct crn_image *image);
	void *arg;
	uint32_t begun;  /* of entries that had been begun by then the numbers are below this */
	uint64_t wanted; /* so many of these had not been drained */
	uint64_t seen;   /* and so many have been seen since */
};

static struct images begin_images(
	struct bpf_feed *f, void (*show)(void *arg, const struct crn_image *image), void *arg)
{
	uint64_t begun = __atomic_load_n(&f->shared->begun, __ATOMIC_SEQ_CST);

	return (struct images){
		.show = show,
		.arg = arg,
		.begun = (uint32_t)begun,
		.wanted = begun - f->tail,
	};
}

static int show_image(struct bpf_feed *f, const struct crn_ring_entry *e, void *arg)
{
	uint32_t name = (uint32_t)e->image, flags = name & 3;
	struct images *to = arg;
	uint32_t slot = name >> CRN_IMAGE_SLOT_SHIFT & (f->slots - 1);
	uint32_t behind = (name >> CRN_IMAGE_NUMBER_SHIFT) - to->begun;
	struct crn_image image = {
		.page = crn_page_down(e->address),
		.absent = flags & CRN_IMAGE_FAILED,
		.calm = !f->uncalm && (uint32_t)(e->image >> 32) == f->calm,
	};

	if (!flags)
		image.old = f->shared->images[slot];
	/* The difference of two numbers that have few bits, as one with a sign. */
	to->seen += (int32_t)(behind << CRN_IMAGE_NUMBER_SHIFT) < 0;
	if (e->address != CRN_TASK_OVER)
		to->show(to->arg, &image);
	return 0;
}

/*
 * Slots are given back all together, when every image that was begun has been shown: who is in the
 * midst of one has at most a page to copy. The same ones are taken again, for they are in the
 * caches; unless somebody has taken one meanwhile.
 */
static void free_slots(struct crn_bpf_shared *s, uint64_t taken)
{
	if (!__atomic_compare_exchange_n(&s->taken, &(uint64_t){ taken }, s->freed, false,
		    __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		__atomic_store_n(&s->freed, taken, __ATOMIC_RELEASE);
}

static int bpf_images(struct crn_feed *feed,
	void (*show)(void *arg, const struct crn_image *image), void *arg,
	struct crn_range_list *open)
{
	struct bpf_feed *f = (struct bpf_feed *)feed;
	uint64_t taken, tail = f->tail;
	struct images to;
	int doubt, err = 0;

	CRN_TRY(doubt = begin_drain(f, open));
	/* First: who has taken a slot until now has begun before. */
	taken = __atomic_load_n(&f->shared->taken, __ATOMIC_SEQ_CST);
	to = begin_images(f, show, arg);
	for (unsigned tries = 0; tries < PATIENCE && !err; tries++) {
		err = drain_ring(f, show_image, &to);
		if (to.seen >= to.wanted)
			break;
		crn_pause();
	}
	/* What found no room in the ring has no number; but a place in it. */
	if (to.seen >= to.wanted || (err == CRN_FEED_DOUBT && f->tail - tail >= to.wanted))
		free_slots(f->shared, taken);
	return end_drain(f, open, doubt, err);
}

static bool bpf_late(struct crn_feed *feed,
	void (*show)(void *arg, const struct crn_image *image), void *arg)
{
	struct bpf_feed *f = (struct bpf_feed *)feed;
	struct images to = begin_images(f, show, arg);
	uint64_t at = f->tail, head;

	for (unsigned tries = 0; tries < PATIENCE; tries++) {
		head = shared_word(&f->shared->head);
		for (; at != head; at++) {
			const struct crn_ring_entry *e = entry_at(f, at);

			if (!is_complete(e, at))
				return false;
			(void)show_image(f, e, &to);
		}
		if (to.seen >= to.wanted)
			return true;
		crn_pause();
	}
	return false;
}

static void bpf_calm(struct crn_feed *feed)
{
	struct bpf_feed *f = (struct bpf_feed *)feed;

	f->calm = (uint32_t)f->reads;
	f->uncalm = f->doubt_again;
}

static bool bpf_is_calm(const struct crn_feed *feed)
{
	const struct bpf_feed *f = (const struct bpf_feed *)feed;

	return !f->uncalm && !f->doubt_again && (uint32_t)f->reads == f->calm;
}

static void bpf_bounds(struct crn_feed *feed, uintptr_t begin, uintptr_t end)
{
	struct bpf_feed *f = (struct bpf_feed *)feed;

	__atomic_store_n(&f->shared->area_begin, begin, __ATOMIC_SEQ_CST);
	__atomic_store_n(&f->shared->area_end, end, __ATOMIC_SEQ_CST);
}

static void bpf_forget(struct crn_feed *feed, uintptr_t begin, uintptr_t end)
{
	struct bpf_feed *f = (struct bpf_feed *)feed;
	size_t kept = 0;

	for (size_t i = 0; i < f->task_count; i++)
		if (f->tasks[i].page < begin || f->tasks[i].page >= end)
			f->tasks[kept++] = f->tasks[i];
	f->task_count = kept;
}

static uint64_t bpf_bytes(const struct crn_feed *feed)
{
	return (uint64_t)((const struct bpf_feed *)feed)->slots * CRN_PAGE_SIZE;
}

/* What both have. */
#define BPF_OPS                                                                          \
	.close = bpf_close, .hold = bpf_hold, .drain = bpf_drain, .idle = bpf_idle,      \
	.own = bpf_own, .own_closed = bpf_own_closed, .maps_quiet = bpf_maps_quiet,      \
	.unsteady = bpf_unsteady, .suspect = bpf_suspect, .forget = bpf_forget

const struct crn_feed_ops crn_feed_bpf = { .name = "bpf", .open = bpf_open, BPF_OPS };

const struct crn_feed_ops crn_feed_bpf_images = {
	.name = "bpf-images",
	.open = images_open,
	BPF_OPS,
	.images = bpf_images,
	.late = bpf_late,
	.calm = bpf_calm,
	.is_calm = bpf_is_calm,
	.bounds = bpf_bounds,
	.bytes = bpf_bytes,
};
