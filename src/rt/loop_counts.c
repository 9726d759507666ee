/* SPDX-License-Identifier: MIT */
/*
 * The counters of programs built with -fcairn-profile: which of their loops run how long, and how
 * they wait (SMC section 6). The pass (compiler/loop_counters.cpp) inserts the calls. Every unit
 * has a table of its points and a pointer to their counters. From main on, these are in the file
 * that CAIRN_PROFILE names (loop_file.h), which is mapped shared, so the figures are there whatever
 * ends a process.
 *
 * A thread's loops are a stack, and a wait counts for all of them. Loops that were left unseen
 * (longjmp, an exception) lie above the frame of the next call into here, and are removed then.
 *
 * A forked child takes a section of its own at its first call into here, where it finds the page
 * `alive` wiped. It may never exec, so only raw system calls are used. Counts of several threads
 * are atomic, except those of loops that call nothing, which the pass makes in place.
 */
#include <errno.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "cairn/cairn.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/log_writer.h"
#include "os/memory.h"
#include "os/shared_file.h"
#include "os/thread.h"
#include "rt/loop_file.h"

#define DEPTH_MAX 128

/* Known to the pass. */
struct crn_loop_unit {
	struct crn_loop_unit *next;
	struct crn_loop_counts *counts;
	const char *text;
	uint64_t point_count;
};

#define HOOK __attribute__((visibility("default")))
/* The pass inserts calls by these names; nothing else declares them. */
HOOK void __cairn_loops_add(struct crn_loop_unit *unit);
HOOK void __cairn_loops_start(void);
HOOK void __cairn_loop_enter(struct crn_loop_counts *loop);
HOOK void __cairn_loop_leave(struct crn_loop_counts *loop);
HOOK void __cairn_loop_turn(void);
HOOK uint64_t __cairn_wait_enter(uint32_t kind);
HOOK void __cairn_wait_leave(uint64_t began_ns);
HOOK void __cairn_fork_enter(struct crn_loop_counts *call);
HOOK void __cairn_fork_leave(void);

static struct {
	struct crn_loop_unit *units, *last;
	uint64_t point_count;
	bool started;
	struct crn_loop_head *head; /* the whole file, and room behind its end for it to grow */
	struct crn_loop_section *section;
	uint32_t number;  /* of that section */
	uint32_t rooms_max; /* that are mapped */
	uint32_t born_at; /* while a call that forks is under way */
	int fd;           /* of the file */
	struct crn_fd_identity fd_id;
	struct crn_clock clock;
	char path[CRN_PATH_MAX];
} run;

/* Wiped in a forked child. */
static struct {
	bool live;
	char rest[CRN_PAGE_SIZE - 1];
} alive __attribute__((aligned(4096)));

static __thread struct {
	uint32_t depth;
	bool first; /* its process's first thread */
	struct {
		struct crn_loop_counts *loop;
		uint64_t entered_ns;
		uintptr_t frame;
	} at[DEPTH_MAX];
} active;

static struct crn_loop_counts *first_point(struct crn_loop_section *s)
{
	return (struct crn_loop_counts *)(s + 1);
}

static void add(uint64_t *to, uint64_t n)
{
	__atomic_fetch_add(to, n, __ATOMIC_RELAXED);
}

/* The time stamp counters of two processors may differ a little: time does not go back. */
static uint64_t since(uint64_t began, uint64_t now)
{
	return now > began ? now - began : 0;
}

static void seen(uint64_t now)
{
	if (run.section->last_ns < now)
		run.section->last_ns = now;
}

/* ---- The file ----------------------------------------------------------------------------- */

static uint64_t text_sum(uint64_t *len)
{
	uint64_t sum = CRN_LOOP_SUM_START;

	*len = 0;
	for (struct crn_loop_unit *u = run.units; u; u = u->next) {
		uint64_t n = crn_strlen(u->text);

		sum = crn_loop_sum(sum, u->text, n);
		*len += n;
	}
	return sum;
}

static struct crn_loop_head what_is_wanted(void)
{
	struct crn_loop_head h = { .magic = CRN_LOOP_MAGIC, .version = CRN_LOOP_VERSION };

	h.point_count = (uint32_t)run.point_count;
	h.text_at = sizeof(h);
	h.text_sum = text_sum(&h.text_len);
	h.section_at = crn_page_up(h.text_at + h.text_len);
	/* One byte more: where the file ends is written when it grows. */
	h.section_size = crn_page_up(sizeof(struct crn_loop_section) +
		h.point_count * sizeof(struct crn_loop_counts) + 1);
	h.rooms = CRN_LOOP_ROOMS;
	if (crn_path_executed(h.program, sizeof(h.program)) < 0)
		h.program[0] = '\0';
	return h;
}

static uint64_t file_size(const struct crn_loop_head *h, uint32_t rooms)
{
	return h->section_at + rooms * h->section_size;
}

/* As a whole, or not at all: others may start at the same time. */
static int make_file(const struct crn_loop_head *h, int replace)
{
	char path[CRN_PATH_MAX + 16];
	size_t len = h->section_at;
	char *at;
	int err;

	crn_format(path, sizeof(path), "%s.%d", run.path, crn_getpid());
	err = crn_shared_create(path, file_size(h, h->rooms), (void **)&at, len);
	if (err < 0)
		return err;
	crn_copy(at, h, sizeof(*h));
	at += h->text_at;
	for (struct crn_loop_unit *u = run.units; u; u = u->next) {
		size_t n = crn_strlen(u->text);

		crn_copy(at, u->text, n);
		at += n;
	}
	crn_memory_unmap(at - h->text_at - h->text_len, len);
	return crn_shared_rename(path, run.path, replace);
}

/* Maps the file, which ends before the mapping does. */
static int map_file(const struct crn_loop_head *want)
{
	uint64_t most = CRN_MIN(file_size(want, CRN_LOOP_MAX), crn_memory_space_left() / 4);
	uint64_t len = CRN_MAX(most, file_size(want, CRN_LOOP_ROOMS));
	int64_t size = crn_shared_open(run.path, (void **)&run.head, len);
	struct crn_loop_head *h = run.head;
	int err = -EINVAL; /* no profile: not ours to touch */

	run.rooms_max = (uint32_t)((len - want->section_at) / want->section_size);

	if (size < 0)
		return (int)size;
	if (size < (int64_t)sizeof(*h) || h->magic != CRN_LOOP_MAGIC)
		goto err_unmap;
	err = -ESTALE; /* of another build */
	if (h->version == want->version && h->text_sum == want->text_sum &&
		h->section_size == want->section_size && h->section_at == want->section_at &&
		size >= (int64_t)file_size(want, CRN_LOOP_ROOMS))
		return 0;
	if (!crn_streq(h->program, want->program))
		err = -EEXIST; /* of another program */
err_unmap:
	crn_memory_unmap(h, len);
	return err;
}

static int open_file(const struct crn_loop_head *want)
{
	int err = map_file(want);

	if (err == -EEXIST) {
		/* A program that another one executed: a file of its own. */
		const char *name = want->program;
		size_t len = crn_strlen(run.path);

		for (const char *s = name; *s; s++)
			name = *s == '/' ? s + 1 : name;
		crn_format(run.path + len, sizeof(run.path) - len, ".%s", name);
		err = map_file(want);
	}
	if (err == -ENOENT || err == -ESTALE) {
		err = make_file(want, err == -ESTALE);
		if (err >= 0 || err == -EEXIST)
			err = map_file(want);
	}
	return err;
}

/* ---- Processes ---------------------------------------------------------------------------- */

static struct crn_loop_section *section_at(uint32_t number)
{
	return (struct crn_loop_section *)((char *)run.head + file_size(run.head, number));
}

/*
 * By the descriptor: the process may have no right to open the file any more, or see it at another
 * path (setuid, chroot). By the path if it has closed that.
 */
static int extend_file(uint64_t size)
{
	int err, fd;

	if (crn_fd_is(run.fd, &run.fd_id))
		return crn_shared_extend(run.fd, size);
	fd = crn_fd_open(run.path, O_RDWR);
	if (fd < 0)
		return fd;
	err = crn_shared_extend(fd, size);
	crn_fd_close(fd);
	return err;
}

static bool make_room(uint32_t number)
{
	uint32_t rooms = __atomic_load_n(&run.head->rooms, __ATOMIC_ACQUIRE);

	while (number >= rooms && number < run.rooms_max && rooms < CRN_LOOP_MAX) {
		if (extend_file(file_size(run.head, rooms * 2)) < 0)
			return false;
		if (__atomic_compare_exchange_n(&run.head->rooms, &rooms, rooms * 2, false,
			    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			rooms *= 2;
	}
	return number < rooms && number < run.rooms_max;
}

static void begin(struct crn_loop_section *s, uint32_t parent, uint64_t now)
{
	struct crn_loop_counts *at = first_point(s);

	s->pid = (uint32_t)crn_getpid();
	s->parent = parent;
	s->born_at = run.born_at;
	s->began_ns = s->last_ns = now;
	run.section = s;
	for (struct crn_loop_unit *u = run.units; u; u = u->next) {
		u->counts = at;
		at += u->point_count;
	}
	__atomic_store_n(&s->ready, 1, __ATOMIC_RELEASE);
}

/* What it is in the middle of, in this section now, counts as entered there. */
static void move_active(struct crn_loop_section *from, uint64_t now)
{
	for (uint32_t i = 0; i < CRN_MIN(active.depth, (uint32_t)DEPTH_MAX); i++) {
		size_t at = (size_t)((char *)active.at[i].loop - (char *)from);
		struct crn_loop_counts *loop = (void *)((char *)run.section + at);

		if (at >= run.head->section_size)
			continue; /* of a library that came later */
		loop->entries++;
		loop->passes++;
		loop->entered_ns += now;
		loop->outer = i ? (uint64_t)(active.at[i - 1].loop - first_point(run.section)) + 1
				: 0;
		active.at[i].loop = loop;
		active.at[i].entered_ns = now;
	}
}

/* A child's first call; false if nothing is counted. Without room it counts where nobody sees. */
static bool join(void)
{
	struct crn_loop_section *parent = run.section;
	uint64_t now = crn_clock_ns(&run.clock);
	uint32_t number, of = run.number + 1;
	struct crn_loop_section *s;

	if (!run.started)
		return false;
	number = __atomic_fetch_add(&run.head->taken, 1, __ATOMIC_RELAXED);
	alive.live = true;
	active.first = true;
	if (make_room(number)) {
		s = section_at(number);
	} else {
		void *own = NULL;

		__atomic_fetch_add(&run.head->lost, 1, __ATOMIC_RELAXED);
		if (crn_memory_map(&own, run.head->section_size) < 0)
			return true;
		s = own;
	}
	run.number = number;
	begin(s, of, now);
	move_active(parent, now);
	run.born_at = 0;
	return true;
}

static bool counting(void)
{
	return crn_likely(alive.live) || join();
}

void __cairn_loops_add(struct crn_loop_unit *unit)
{
	if (run.started) {
		__atomic_fetch_add(&run.head->late, (uint32_t)unit->point_count, __ATOMIC_RELAXED);
		return;
	}
	if (run.last)
		run.last->next = unit;
	else
		run.units = unit;
	run.last = unit;
	run.point_count += unit->point_count;
}

static const char *why(int err)
{
	if (err == -EINVAL)
		return "it exists and is no profile; name another file, or remove it";
	return cairn_strerror(err);
}

/* The first of main. A process that was executed by one of the same file takes the next section. */
void __cairn_loops_start(void)
{
	char name[CRN_PATH_MAX];
	struct crn_loop_head want;
	long err = crn_environment("CAIRN_PROFILE", name, sizeof(name));

	if (run.started || err <= 0)
		return;
	(void)crn_log_start();
	err = crn_path_absolute(name, run.path, sizeof(run.path) - sizeof(want.program));
	if (err >= 0) {
		want = what_is_wanted();
		err = open_file(&want);
	}
	if (err >= 0)
		err = crn_memory_renew(&alive, sizeof(alive));
	if (err < 0) {
		crn_error("profile: %s: %s", name, why((int)err));
		return;
	}
	/* Without one, processes that find no room may be lost. */
	run.fd = crn_fd_open(run.path, O_RDWR);
	if (run.fd < 0 || crn_fd_identify(run.fd, &run.fd_id) < 0)
		run.fd = -1;
	crn_clock_init(&run.clock);
	run.number = UINT32_MAX; /* no parent */
	run.started = true;
	active.depth = 0;
	join();
}

/* ---- Loops -------------------------------------------------------------------------------- */

static void take_off(uint64_t now)
{
	uint32_t i = --active.depth;
	struct crn_loop_counts *loop;
	uint64_t inside, longest;

	if (i >= DEPTH_MAX)
		return;
	loop = active.at[i].loop;
	inside = since(active.at[i].entered_ns, now);
	add(&loop->exits, 1);
	add(&loop->entered_ns, -active.at[i].entered_ns);
	add(&loop->inside_ns, inside);
	longest = __atomic_load_n(&loop->longest_ns, __ATOMIC_RELAXED);
	while (longest < inside && !__atomic_compare_exchange_n(&loop->longest_ns, &longest, inside,
					   true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		continue;
}

/* Of calls that did not return; or the loop itself, which is begun anew. */
static bool is_dead(uint32_t i, const struct crn_loop_counts *loop, uintptr_t frame)
{
	/* Another stack, of a handler or a coroutine, is farther away. */
	const uintptr_t stack_max = 64ul << 20;
	uintptr_t of = active.at[i].frame;

	return (of < frame && frame - of < stack_max) ||
		(of == frame && active.at[i].loop == loop);
}

void __cairn_loop_enter(struct crn_loop_counts *loop)
{
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
	uint64_t now, outer = 0;
	uint32_t i;

	if (!counting())
		return;
	now = crn_clock_ns(&run.clock);
	while (active.depth && active.depth <= DEPTH_MAX && is_dead(active.depth - 1, loop, frame))
		take_off(now);
	i = active.depth++;
	if (i < DEPTH_MAX) {
		active.at[i].loop = loop;
		active.at[i].entered_ns = now;
		active.at[i].frame = frame;
		if (i)
			outer = (uint64_t)(active.at[i - 1].loop - first_point(run.section)) + 1;
		else
			add(&loop->outside, 1);
		add(&loop->entered_ns, now);
		add(&loop->entries, 1);
		loop->outer = outer <= run.point_count ? outer : 0;
		if (!active.first)
			add(&loop->foreign, 1);
	}
	seen(now);
}

void __cairn_loop_leave(struct crn_loop_counts *loop)
{
	uint64_t now;
	uint32_t i;

	if (!counting())
		return;
	now = crn_clock_ns(&run.clock);
	seen(now);
	if (active.depth > DEPTH_MAX) {
		active.depth--;
		return;
	}
	for (i = active.depth; i > 0 && active.at[i - 1].loop != loop; i--)
		continue;
	/* Entered before main, or by a fork that has no section: not there. */
	while (i > 0 && active.depth >= i)
		take_off(now);
}

/* Now and then at the top of loops that call something. */
void __cairn_loop_turn(void)
{
	if (counting())
		seen(crn_clock_ns(&run.clock));
}

uint64_t __cairn_wait_enter(uint32_t kind)
{
	uint64_t now;

	if (!counting())
		return 0;
	now = crn_clock_ns(&run.clock);
	if (!active.depth) {
		add(&run.section->outside_waits, 1);
		__atomic_fetch_or(&run.section->outside_kinds, 1ull << kind, __ATOMIC_RELAXED);
	}
	for (uint32_t i = 0; i < CRN_MIN(active.depth, (uint32_t)DEPTH_MAX); i++) {
		add(&active.at[i].loop->waits, 1);
		add(&active.at[i].loop->waited_ns, -now);
		add(&active.at[i].loop->waiting, 1);
		__atomic_fetch_or(&active.at[i].loop->wait_kinds, 1ull << kind, __ATOMIC_RELAXED);
	}
	seen(now);
	return now;
}

void __cairn_wait_leave(uint64_t began_ns)
{
	uint64_t now;

	if (!began_ns || !counting())
		return;
	now = crn_clock_ns(&run.clock);
	for (uint32_t i = 0; i < CRN_MIN(active.depth, (uint32_t)DEPTH_MAX); i++) {
		/* Entered by a handler, or this process was born, during the call. */
		if (active.at[i].entered_ns > began_ns)
			continue;
		add(&active.at[i].loop->waited_ns, CRN_MAX(began_ns, now));
		add(&active.at[i].loop->waiting, (uint64_t)-1);
	}
	seen(now);
}

/* The child has a copy of born_at. */
void __cairn_fork_enter(struct crn_loop_counts *call)
{
	if (!counting())
		return;
	add(&call->entries, 1);
	run.born_at = (uint32_t)(call - first_point(run.section)) + 1;
}

void __cairn_fork_leave(void)
{
	if (counting())
		run.born_at = 0;
}
