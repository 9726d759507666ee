/* SPDX-License-Identifier: MIT */
#include "os/keeper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include "base/bits.h"
#include "base/check.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/lifeline.h"
#include "os/memory.h"
#include "os/proc.h"
#include "os/process.h"
#include "os/signal.h"
#include "os/sys.h"
#include "os/thread.h"

#define NR_CLOSE_RANGE 436
#define KCMP_FILE      0

#define LOWER_HALF_END 0x7ffffffff000ul /* TASK_SIZE with four levels of page tables */
#define TLS_WINDOW     (64ul << 10)
#define END_WAIT_MS    2000
#define BEGIN_WAIT_MS  2000
#define STALL_WAIT_MS  5000
#define SPINS          1000
#define OWNER_DIED     0x40000000u /* FUTEX_OWNER_DIED */
#define SHARED_BYTES   crn_page_up(sizeof(struct crn_keeper))
#define BIRTHS_MAX     16 /* somebody who kills keepers has his way in the end */

_Static_assert(sizeof(struct crn_keeper_gap) == 16, "keeper.S");
_Static_assert(offsetof(struct crn_uffd_events, log) == 16, "keeper.S");
_Static_assert(CRN_UFFD_LOG == 1024 && sizeof(struct crn_uffd_event) == 32, "keeper.S");
_Static_assert(offsetof(struct crn_keeper_readers, count) == 24, "keeper.S");
_Static_assert(offsetof(struct crn_keeper_readers, twin) == 28, "keeper.S");
_Static_assert(offsetof(struct crn_keeper_readers, twin_owner) == 32, "keeper.S");
_Static_assert(offsetof(struct crn_keeper_readers, robust) == 40, "keeper.S");
_Static_assert(offsetof(struct crn_keeper_readers, name) == 72, "keeper.S");
_Static_assert(offsetof(struct crn_keeper_readers, reader[0]) == 88, "keeper.S");
_Static_assert(offsetof(struct crn_keeper_readers, reader[1]) == 104, "keeper.S");
_Static_assert(offsetof(struct crn_keeper_readers, begun) == 120, "keeper.S");
_Static_assert(CRN_KEEPER_FILES == 2 && sizeof(struct crn_keeper_file) == 8, "keeper.S");
_Static_assert(offsetof(struct crn_keeper_file, revents) == 6, "keeper.S");

/* keeper.S: give the gaps back, begin `readers` if they are not NULL, sleep. */
_Noreturn void crn_keeper_sleep(const struct crn_keeper_gap *gaps, long lifeline_fd,
	uint32_t *state, struct crn_keeper_readers *readers);

/* ---- In the child ---------------------------------------------------------------------------- */

/*
 * SAFETY: from the clone until crn_keeper_sleep the child runs on its own copy of everything, all
 * signals blocked, and calls nothing but the kernel.
 */

/* The lowest number that is kept, from `from` on; -1 if there is none. */
static long next_kept(const struct crn_keeper *k, long from, int lifeline_fd)
{
	long best = lifeline_fd >= from ? lifeline_fd : -1;

	for (size_t i = 0; i < CRN_KEEPER_MAX; i++) {
		long number = k->entries[i].where ? k->entries[i].number : -1;

		if (number >= from && (best < 0 || number < best))
			best = number;
	}
	return best;
}

/* Locks, pipes and sockets are the program's alone. */
static int close_others(const struct crn_keeper *k, int lifeline_fd)
{
	long from = 0, kept;

	for (; (kept = next_kept(k, from, lifeline_fd)) >= 0; from = kept + 1) {
		if (kept > from)
			CRN_TRY((int)crn_sys3(NR_CLOSE_RANGE, from, kept - 1, 0));
	}
	return (int)crn_sys3(NR_CLOSE_RANGE, from, ~0u, 0);
}

static void add_gap(struct crn_keeper *k, size_t *count, uintptr_t begin, uintptr_t end)
{
	if (begin < end)
		k->gaps[(*count)++] = (struct crn_keeper_gap){ begin, end - begin };
}

/*
 * All memory but what is shared, keeper.S, and what lies around the thread pointer: the kernel
 * writes the rseq area there each time the process has slept, and kills it if it cannot.
 */
static void plan_gaps(struct crn_keeper *k)
{
	uintptr_t tls = crn_page_down(crn_tls_base());
	uintptr_t keep[3][2] = {
		{ (uintptr_t)k, (uintptr_t)k + SHARED_BYTES },
		{ crn_page_down((uintptr_t)crn_keeper_sleep),
			crn_page_down((uintptr_t)crn_keeper_sleep) + CRN_PAGE_SIZE },
		{ tls > TLS_WINDOW ? tls - TLS_WINDOW : 0, tls + TLS_WINDOW },
	};
	uintptr_t from = 0;
	size_t count = 0;

	for (int n = 0; n < 3; n++) {
		int first = -1;

		for (int i = 0; i < 3; i++) {
			if (keep[i][1] > from && (first < 0 || keep[i][0] < keep[first][0]))
				first = i;
		}
		if (first < 0)
			break;
		add_gap(k, &count, from, keep[first][0]);
		from = keep[first][1];
	}
	add_gap(k, &count, from, LOWER_HALF_END);
	k->gaps[count].len = 0;
}

static void plan_death(struct crn_keeper_robust *r, const _Atomic uint32_t *owner)
{
	r->first = &r->entry;
	r->entry = &r->first;
	r->offset = (int64_t)((uintptr_t)owner - (uintptr_t)&r->entry);
	r->pending = NULL;
}

/* From here on the kernel tells of our death. */
static int sign(struct crn_keeper *k)
{
	plan_death(&k->robust, &k->owner);
	CRN_TRY((int)crn_sys2(SYS_set_robust_list, &k->robust, 24));
	atomic_store(&k->owner, (uint32_t)crn_gettid());
	return 0;
}

static int prepare(struct crn_keeper *k, int lifeline_fd)
{
	crn_sys0(SYS_setsid);
	crn_sys1(SYS_chdir, "/"); /* or a file system that we are not in could not be unmounted */
	crn_sys2(SYS_prctl, PR_SET_NAME, "cairn-keeper");
	/* A program that has changed its user could not fetch otherwise. */
	crn_sys2(SYS_prctl, PR_SET_DUMPABLE, 1);
	CRN_TRY(close_others(k, lifeline_fd));
	return sign(k);
}

static _Noreturn void child(struct crn_keeper *k, int lifeline_fd)
{
	int err = prepare(k, lifeline_fd);
	bool reads = err >= 0 && k->events_of[0];

	plan_gaps(k);
	/*
	 * The parent goes on: giving the memory back takes as long as the fork took. Readers begin
	 * after that.
	 */
	if (!reads) {
		__atomic_store_n(&k->state, err < 0 ? (uint32_t)err : 1, __ATOMIC_RELEASE);
		crn_process_wake(&k->state);
	}
	while (err < 0)
		crn_sys1(SYS_exit_group, 0);
	crn_keeper_sleep(k->gaps, lifeline_fd, &k->state, reads ? &k->readers : NULL);
}

/* ---- Its life -------------------------------------------------------------------------------- */

int crn_keeper_open(struct crn_keeper **out)
{
	void *at;

	CRN_TRY(crn_memory_map_shared(&at, SHARED_BYTES));
	*out = at;
	(*out)->births_left = BIRTHS_MAX;
	(*out)->readers.events.log = (*out)->log;
	(void)crn_memory_advise(*out, SHARED_BYTES, MADV_DONTFORK);
	if (crn_fd_watch)
		atomic_store(&(*out)->owner, 1u);
	return 0;
}

void crn_keeper_dismiss(struct crn_keeper *k)
{
	void *lifeline = __atomic_exchange_n(&k->lifeline, NULL, __ATOMIC_ACQ_REL);

	crn_lifeline_end(lifeline);
}

/*
 * Stopped, it would not wake up. Protection that it alone still holds ends with it: not to be met
 * by the program's stores.
 */
static void collect(int pid, uint32_t owner)
{
	if (pid)
		crn_process_end(pid, owner & OWNER_DIED);
}

void crn_keeper_end(struct crn_keeper *k)
{
	int pid = k->pid, twin = (int)k->readers.twin;

	crn_keeper_dismiss(k);
	k->pid = 0;
	k->readers.twin = 0;
	collect(pid, k->owner);
	collect(twin, k->readers.twin_owner);
	atomic_store(&k->readers.count, 0u);
	atomic_store(&k->readers.twin_owner, 0u);
	if (!crn_fd_watch)
		atomic_store(&k->owner, 0u);
}

static int holder_of(const struct crn_keeper *k)
{
	if (k->pid && crn_keeper_lives(k))
		return k->pid;
	return k->readers.twin_owner & CRN_KEEPER_TID_MASK ? (int)k->readers.twin : 0;
}

/* pidfd_getfd, at a high number. */
static int fetch(const struct crn_keeper *k, const struct crn_keeper_entry *e)
{
	struct crn_fd_identity id;
	int holder = holder_of(k), pidfd, fd;

	if (e->number < 0 || !holder)
		return -EBADF;
	pidfd = (int)crn_sys2(SYS_pidfd_open, holder, 0);
	if (pidfd < 0)
		return pidfd;
	fd = (int)crn_sys3(SYS_pidfd_getfd, pidfd, e->number, 0);
	crn_sys1(SYS_close, pidfd);
	fd = crn_fd_raise(fd);
	if (fd < 0)
		return fd;
	if (crn_fd_identify(fd, &id) >= 0 && id.dev == e->id.dev && id.ino == e->id.ino)
		return fd;
	crn_fd_close(fd);
	return -EBADF;
}

static struct crn_keeper_entry *first_kept(struct crn_keeper *k)
{
	for (size_t i = 0; i < CRN_KEEPER_MAX; i++)
		if (k->entries[i].where && !k->entries[i].reopen)
			return &k->entries[i];
	return NULL;
}

/* A keeper from which nothing can be fetched would do harm: try it. */
static int prove(const struct crn_keeper *k, const struct crn_keeper_entry *e)
{
	int fd = fetch(k, e);

	crn_fd_close(fd);
	return CRN_MIN(fd, 0);
}

void crn_keeper_read_events(struct crn_keeper *k, const int *where)
{
	size_t i = 0;

	while (i < CRN_KEEPER_FILES && k->events_of[i])
		i++;
	CRN_ASSERT(i < CRN_KEEPER_FILES);
	k->events_of[i] = where;
}

static void read_no_more(struct crn_keeper *k, const int *where)
{
	size_t kept = 0;

	for (size_t i = 0; i < CRN_KEEPER_FILES; i++) {
		const int *one = k->events_of[i];

		k->events_of[i] = NULL;
		if (one && one != where)
			k->events_of[kept++] = one;
	}
}

/*
 * A reader is in an event for so long that somebody must have stopped it (a debugger),
 * and goes on who knows when. Dead it writes nothing to the log later. If it cannot be killed the
 * log is as good as lost: it counts as written over.
 */
static void end_stalled(struct crn_keeper *k, bool killed)
{
	struct crn_uffd_events *e = &k->readers.events;

	if (killed) {
		atomic_fetch_add(&e->seen, CRN_UFFD_LOG);
		atomic_store(&e->done, atomic_load(&e->seen));
		return;
	}
	crn_warn("the keeper has been stopped in the middle of its work: it is killed");
	if (crn_keeper_lives(k))
		(void)crn_process_kill(k->pid);
	if (k->readers.twin_owner & CRN_KEEPER_TID_MASK)
		(void)crn_process_kill((int)k->readers.twin);
}

uint32_t crn_keeper_await_log(const struct crn_keeper *keeper)
{
	struct crn_keeper *k = (struct crn_keeper *)keeper;
	struct crn_uffd_events *e = &k->readers.events;
	int waited = 0, stalled = 0, spins = 0;
	uint32_t done, seen;

	while (waited < END_WAIT_MS) {
		done = atomic_load(&e->done);
		seen = atomic_load(&e->seen);
		if (done == seen)
			return seen;
		if (crn_keeper_reads(k) && spins++ < SPINS) {
			crn_yield();
			continue;
		}
		/* Who was killed in the middle of one will never be done; is it the other one? */
		if (!crn_keeper_lives(k) && !(k->readers.twin_owner & CRN_KEEPER_TID_MASK))
			return seen;
		crn_doze(CRN_MILLISECOND);
		if (!crn_keeper_reads(k))
			waited++;
		else if (++stalled % STALL_WAIT_MS == 0)
			end_stalled(k, stalled > STALL_WAIT_MS);
	}
	return atomic_load(&e->seen);
}

static void plan_readers(struct crn_keeper *k)
{
	static const char name[] = "cairn-twin";
	struct crn_keeper_readers *r = &k->readers;

	crn_copy(r->name, name, sizeof(name));
	plan_death(&r->robust, &r->twin_owner);
	for (size_t i = 0; i < CRN_ARRAY_SIZE(r->reader) * CRN_KEEPER_FILES; i++) {
		const int *where = k->events_of[i % CRN_KEEPER_FILES];

		r->reader[i / CRN_KEEPER_FILES].file[i % CRN_KEEPER_FILES] =
			(struct crn_keeper_file){ .fd = where ? *where : -1, .events = POLLIN };
	}
	r->begun = 0;
	/* One that was killed in between would be waited for. */
	atomic_store(&r->events.done, atomic_load(&r->events.seen));
}

/*
 * Until all readers that have begun have said whether they can, or nothing is to be expected of
 * them: the twin has been killed, or is stopped.
 */
static void await_readers(struct crn_keeper *k)
{
	struct pollfd twin = { .fd = -1, .events = POLLIN };
	uint32_t said;

	if (k->readers.twin)
		twin.fd = (int)crn_sys2(SYS_pidfd_open, k->readers.twin, 0);
	for (int i = 0; i < BEGIN_WAIT_MS && !twin.revents; i++) {
		said = atomic_load(&k->readers.count);
		if ((said & 0xffff) + (said >> 16) >= k->readers.begun)
			break;
		crn_sys3(SYS_poll, &twin, 1, 1); /* readable when it has died */
	}
	if (twin.fd >= 0)
		crn_sys1(SYS_close, twin.fd);
}

static int give_birth(struct crn_keeper *k)
{
	struct crn_lifeline life;
	uint64_t mask;
	int pid, err = crn_lifeline_open(&life);

	if (err < 0)
		return err;
	for (size_t i = 0; i < CRN_KEEPER_MAX; i++)
		k->entries[i].number = k->entries[i].where ? *k->entries[i].where : -1;
	plan_readers(k);
	(void)crn_memory_advise(k, SHARED_BYTES, MADV_DOFORK);
	mask = crn_signal_mask(SIG_SETMASK, ~0ull);
	__atomic_store_n(&k->light, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&k->state, 0, __ATOMIC_RELAXED);
	pid = (int)crn_sys5(SYS_clone, 0, 0, 0, 0, 0);
	if (!pid)
		child(k, life.fd);
	crn_signal_mask(SIG_SETMASK, mask);
	(void)crn_memory_advise(k, SHARED_BYTES, MADV_DONTFORK);
	crn_lifeline_close_fd(&life);
	k->lifeline = life.mapping;
	k->pid = CRN_MAX(pid, 0);
	err = pid < 0 ? pid : crn_process_await(&k->state, pid);
	if (err == -ECHILD)
		k->pid = 0; /* dead and collected */
	if (err >= 0 && k->events_of[0])
		await_readers(k);
	return CRN_MIN(err, 0);
}

int crn_keeper_start(struct crn_keeper *k)
{
	struct crn_keeper_entry *e = first_kept(k);
	int err;

	if (!e || crn_fd_watch)
		return 0;
	if (!k->births_left || crn_proc_children_elsewhere())
		return -EAGAIN;
	/* One that reads of a part of them would be taken for one that reads of all. */
	for (size_t i = 0; i < CRN_KEEPER_FILES; i++)
		if (k->events_of[i] && *k->events_of[i] < 0)
			return -EBADF;
	k->births_left--;
	crn_keeper_end(k);
	err = give_birth(k);
	if (err >= 0)
		err = prove(k, e);
	if (err >= 0)
		return 0;
	crn_keeper_end(k);
	crn_info("no keeper: %d. Descriptors that the program closes are lost to us", err);
	return err;
}

void crn_keeper_close(struct crn_keeper *k)
{
	if (!k)
		return;
	crn_keeper_end(k);
	(void)crn_memory_unmap(k, SHARED_BYTES);
}

/* ---- What is registered ---------------------------------------------------------------------- */

/* Most anonymous files (eventfd, BPF, perf) share one inode. */
static bool is_common(const struct crn_fd_identity *id)
{
	struct crn_fd_identity other = { 0, 0 };
	int fd = (int)crn_sys2(SYS_eventfd2, 0, O_CLOEXEC);

	if (fd < 0)
		return true;
	(void)crn_fd_identify(fd, &other);
	crn_sys1(SYS_close, fd);
	return other.dev == id->dev && other.ino == id->ino;
}

int crn_keeper_hold(struct crn_keeper *k, int *where, int (*reopen)(void))
{
	struct crn_keeper_entry e = { .number = -1, .reopen = reopen };

	CRN_TRY(crn_fd_identify(*where, &e.id));
	e.common = !reopen && is_common(&e.id);
	for (size_t i = 0; i < CRN_KEEPER_MAX; i++) {
		if (k->entries[i].where)
			continue;
		k->entries[i] = e;
		__atomic_store_n(&k->entries[i].where, where, __ATOMIC_RELEASE);
		if (reopen || !k->pid)
			return 0;
		(void)crn_keeper_mend(k); /* the new one is to have the others as well */
		(void)crn_keeper_start(k);
		return 0;
	}
	return -ENOSPC;
}

static bool is_ours(const struct crn_keeper *k, const struct crn_keeper_entry *e)
{
	int fd = *e->where;

	if (!crn_fd_is(fd, &e->id))
		return false;
	if (!e->common || e->number < 0 || !k->pid || !crn_keeper_lives(k))
		return true;
	/* 0: the same open file; positive: another one; negative: not to be told. */
	return crn_sys5(SYS_kcmp, crn_getpid(), k->pid, KCMP_FILE, fd, e->number) <= 0;
}

void crn_keeper_drop(struct crn_keeper *k, int *where)
{
	read_no_more(k, where);
	for (size_t i = 0; i < CRN_KEEPER_MAX; i++) {
		struct crn_keeper_entry *e = &k->entries[i];

		if (e->where != where)
			continue;
		if (is_ours(k, e))
			crn_fd_close(*where);
		e->where = NULL;
		*where = -1;
		return;
	}
	crn_fd_close(*where); /* never registered */
	*where = -1;
}

/* The number that *e->where had may belong to a file of the program's: it is left alone. */
static int bring_back(const struct crn_keeper *k, struct crn_keeper_entry *e)
{
	struct crn_fd_identity id = e->id;
	int fd = e->reopen ? e->reopen() : fetch(k, e);

	if (fd >= 0)
		(void)crn_fd_identify(fd, &id);
	e->id = id;
	__atomic_store_n(e->where, CRN_MAX(fd, -1), __ATOMIC_RELEASE);
	if (fd >= 0)
		return 1;
	return e->reopen ? 0 : -EBADF;
}

/*
 * Whoever holds it is at it for some hundred calls, and is not interrupted; a vfork child may be
 * killed meanwhile. Two at a time do no worse than to leave a descriptor open.
 */
static void take_turn(struct crn_keeper *k)
{
	for (int i = 0; i < SPINS + END_WAIT_MS; i++) {
		if (!atomic_exchange_explicit(&k->busy, 1, memory_order_acquire))
			return;
		if (i < SPINS)
			crn_yield();
		else
			crn_doze(CRN_MILLISECOND);
	}
}

/* The first from `i` on that is lost, or NULL. While somebody else mends: ask again. */
static struct crn_keeper_entry *next_lost(struct crn_keeper *k, size_t i)
{
	while (i < CRN_KEEPER_MAX && (!k->entries[i].where || is_ours(k, &k->entries[i])))
		i++;
	return i < CRN_KEEPER_MAX ? &k->entries[i] : NULL;
}

int crn_keeper_mend(struct crn_keeper *k)
{
	const uint64_t faults = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1);
	int result = 0, err;
	uint64_t mask;

	if (crn_fd_watch || crn_likely(!next_lost(k, 0)))
		return 0;
	/*
	 * A handler of the program's that interrupts us and stores to a closed page would come
	 * here as well, and wait for what it has interrupted.
	 */
	mask = crn_signal_mask(SIG_BLOCK, ~faults);
	take_turn(k);
	for (struct crn_keeper_entry *e = next_lost(k, 0); e;
		e = next_lost(k, (size_t)(e - k->entries) + 1)) {
		err = bring_back(k, e);
		if (err < 0 || result == 0)
			result = err;
	}
	atomic_store_explicit(&k->busy, 0, memory_order_release);
	crn_signal_mask(SIG_SETMASK, mask);
	return result;
}

int crn_keeper_renew(struct crn_keeper *k)
{
	CRN_TRY(crn_keeper_mend(k));
	if (k->pid)
		(void)crn_keeper_start(k);
	return 0;
}
