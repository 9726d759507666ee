/* SPDX-License-Identifier: MIT */
/*
 * Berths: memory that the kernel writes to in place of the program's large buffers.
 *
 * No restore rolls back their state or content. A checkpoint may be taken while somebody has a
 * berth (in a signal handler, or by another thread), and after a restore to it that reader
 * continues there. So the berth stays as it is until none of these checkpoints is kept any more.
 */
#include "rt/wrap/landing.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/thread.h"

enum { FREE, HELD, PINNED, KINDS };

#define LOOK_EVERY 64u /* calls that find none, before it is looked who holds them */

/*
 * `turn` counts how often it was taken: what was found out about one that has been left meanwhile,
 * and taken again, is of no use. The words of the holder are his, and `holder` is NULL unless the
 * others are set.
 */
static struct berth {
	uint32_t state; /* turn * KINDS + one of these */
	int pid, tid;
	struct berth **holder;
	uint64_t since; /* newest() when it was taken; pinned: when it was left */
	char *memory;
} berths[32] CRN_RT_LASTING;

/* Changes with each checkpoint and each restore to one. */
static uint64_t newest(void)
{
	return __cairn_rt.active ? __cairn_rt.open + 1 : 0;
}

static bool turn(struct berth *b, uint32_t from, uint32_t to)
{
	return __atomic_compare_exchange_n(&b->state, &from, to, false, __ATOMIC_ACQ_REL,
		__ATOMIC_RELAXED);
}

static void become(struct berth *b, uint32_t kind)
{
	__atomic_store_n(&b->holder, NULL, __ATOMIC_RELEASE);
	__atomic_store_n(&b->state, b->state / KINDS * KINDS + kind, __ATOMIC_RELEASE);
}

/* `since` may be read by its holder alone. */
static bool hold(struct berth *b)
{
	uint32_t state = __atomic_load_n(&b->state, __ATOMIC_ACQUIRE), kind = state % KINDS;

	if (kind == HELD || !turn(b, state, state - kind + KINDS + HELD))
		return false;
	if (kind == FREE || b->since <= __cairn_rt.oldest || !__cairn_rt.active)
		return true;
	become(b, PINNED);
	return false;
}

static struct berth *held(void)
{
	struct berth *b;

	for (b = berths; b < berths + CRN_ARRAY_SIZE(berths); b++)
		if (hold(b))
			return b;
	return NULL;
}

/*
 * Will its holder not come back? For sure if he names it no longer, or the same place is to hold
 * another, or his thread is gone. (A child inherits it from its parent's thread, which in the child
 * is another.)
 */
static bool abandoned(const struct berth *b, struct berth **holder, struct berth **next)
{
	struct berth *named;
	long got = crn_memory_peek(&named, holder, sizeof(named));

	return holder == next || got == -EFAULT || (got > 0 && named != b) ||
		(b->pid == crn_getpid() && crn_thread_gone(b->tid));
}

/* As if they had been left now. */
static void free_abandoned(struct berth **next)
{
	for (struct berth *b = berths; b < berths + CRN_ARRAY_SIZE(berths); b++) {
		uint32_t state = __atomic_load_n(&b->state, __ATOMIC_ACQUIRE);
		struct berth **holder = __atomic_load_n(&b->holder, __ATOMIC_ACQUIRE);

		if (state % KINDS == HELD && holder && abandoned(b, holder, next) &&
			turn(b, state, state + KINDS))
			crn_berth_leave(b);
	}
}

/* With all that is not the program's, so that stray stores do not get there either. */
static char *map_berth(const struct berth *b)
{
	void *memory = (char *)CRN_RT_BERTHS_AT + (size_t)(b - berths) * BERTH_SIZE;

	if (CRN_RT_BERTHS_AT)
		return crn_memory_map_at((uintptr_t)memory, BERTH_SIZE) < 0 ? NULL : memory;
	return crn_memory_map(&memory, BERTH_SIZE) < 0 ? NULL : memory;
}

/*
 * The kernel is asked once: two system calls for each read are too many. A forked child inherits
 * `self`, but not the birth that it is of.
 */
static void sign(struct berth *b)
{
	static __thread struct {
		uint64_t birth;
		int pid, tid;
	} self;
	struct crn_rt *rt = &__cairn_rt;
	uint64_t birth = rt->birth;

	if (crn_unlikely(!birth))
		birth = rt->birth = crn_clock_ticks() | 1;
	if (crn_unlikely(self.birth != birth)) {
		self.pid = crn_getpid();
		self.tid = crn_gettid();
		self.birth = birth;
	}
	b->pid = self.pid;
	b->tid = self.tid;
}

struct berth *crn_berth_take(struct berth **holder)
{
	static uint32_t refused;
	struct berth *b = held();

	if (!b && !(__atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED) % LOOK_EVERY)) {
		free_abandoned(holder);
		b = held();
	}
	if (!b)
		return *holder = NULL;
	b->since = newest();
	if (!b->memory)
		b->memory = map_berth(b);
	if (!b->memory) {
		become(b, FREE);
		return *holder = NULL;
	}
	sign(b);
	*(struct berth *volatile *)holder = b;
	__atomic_store_n(&b->holder, holder, __ATOMIC_RELEASE);
	return b;
}

char *crn_berth_memory(const struct berth *b)
{
	return b->memory;
}

/* Who comes here once more, after a restore, finds it pinned. */
void crn_berth_leave(struct berth *b)
{
	bool pinned = b->state % KINDS == PINNED || b->since != newest();

	b->since = newest();
	become(b, pinned ? PINNED : FREE);
}

/* ---- One buffer ------------------------------------------------------------------------------ */

static bool looks_direct(const void *to, size_t n)
{
	return !(((uintptr_t)to | n) & (BLOCK - 1));
}

/* Where the first bytes of `n` go. False: there is no place. */
static bool berth(struct landing *l, char *bounce, size_t size, size_t n, bool direct)
{
	*l = (struct landing){ .parts = 1 };
	if (n > size || direct) {
		if (!crn_berth_take(&l->berth))
			return false;
		bounce = l->berth->memory;
		size = BERTH_SIZE;
	}
	l->part[0] = (struct iovec){ bounce, CRN_MIN(n, size) };
	return true;
}

bool land(struct landing *l, char *bounce, size_t size, void *to, size_t n)
{
	size_t rest = n > BERTH_SIZE ? n - BERTH_SIZE : 0;

	if (!to || !n || n > CRN_CALL_MAX || !crn_reach_open(to, n - rest) ||
		!berth(l, bounce, size, n, looks_direct(to, n))) {
		crn_reach_keep(to, n);
		return false;
	}
	l->to = to;
	if (rest) {
		l->part[1] = (struct iovec){ (char *)to + BERTH_SIZE, rest };
		crn_reach_keep(l->part[1].iov_base, rest);
		l->parts = 2;
	}
	return true;
}

ssize_t landed(const struct landing *l, ssize_t got)
{
	if (got > 0)
		place(l->to, l->part[0].iov_base, CRN_MIN((size_t)got, l->part[0].iov_len));
	if (l->berth)
		crn_berth_leave(l->berth);
	return got;
}

/* ---- Several --------------------------------------------------------------------------------- */

size_t parts_length(const struct iovec *to, size_t count)
{
	size_t n = 0;

	if (count > IOV_MAX || !crn_reach_there(to, count * sizeof(*to)))
		return SIZE_MAX;
	for (size_t i = 0; i < count; i++)
		if (__builtin_add_overflow(n, to[i].iov_len, &n))
			return SIZE_MAX;
	return n;
}

void keep_parts(const struct iovec *to, size_t count)
{
	if (count > IOV_MAX || !crn_reach_there(to, count * sizeof(*to)))
		return; /* the kernel refuses it */
	for (size_t i = 0; i < count; i++)
		crn_reach_keep(to[i].iov_base, to[i].iov_len);
}

static bool all_look_direct(const struct iovec *to, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!looks_direct(to[i].iov_base, to[i].iov_len))
			return false;
	return true;
}

bool land_parts(struct landing *l, char *bounce, size_t size, const struct iovec *to, size_t count)
{
	size_t n = parts_length(to, count);

	if (n && n <= BERTH_SIZE && crn_reach_all_open(to, count) &&
		berth(l, bounce, size, n, all_look_direct(to, count)))
		return true;
	keep_parts(to, count);
	return false;
}

ssize_t landed_parts(const struct landing *l, const struct iovec *to, size_t count, ssize_t got)
{
	const char *from = l->part[0].iov_base;
	size_t left = got > 0 ? CRN_MIN((size_t)got, l->part[0].iov_len) : 0, n;

	for (size_t i = 0; i < count && left; i++, from += n, left -= n) {
		n = CRN_MIN(left, to[i].iov_len);
		place(to[i].iov_base, from, n);
	}
	if (l->berth)
		crn_berth_leave(l->berth);
	return got;
}
