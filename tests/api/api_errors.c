/* SPDX-License-Identifier: MIT */
/*
 * api_errors TRACKER [STRATEGY]: every error of cairn.h is provoked, and each time everything that
 * the interface shows is the same as before: a failed call changes nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../lib/harness.h"

#define PAGE      4096ul
#define UNTOUCHED ((cairn_t *)0x5a5a)

static const char *tracker, *strategy; /* NULL: the default */
static bool keeps_processes;
static int areas_only; /* what a tracker of explicit areas may say about any surface */
static cairn_t *c;
static uint8_t *area; /* 4 pages, registered */

static struct cairn_options with_defaults(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	o.tracker = tracker;
	o.strategy = strategy;
	o.surface = "none";
	o.keep = 4;
	return o;
}

static uint8_t *map_pages(size_t count, int prot, int flags)
{
	void *p = mmap(NULL, count * PAGE, prot, flags | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		test_fail("mmap: errno %d", errno);
	return p;
}

/* ---- What must not change --------------------------------------------------- */

struct view {
	uint64_t oldest, newest, areas, checkpoints, restores, failed, surface_bytes;
	uint8_t bytes[4 * PAGE];
};

static void look(struct view *v)
{
	struct cairn_stats s = { .size = sizeof(s) };

	memset(v, 0, sizeof(*v));
	CHECK_OK(cairn_range(c, &v->oldest, &v->newest));
	CHECK_OK(cairn_stats(c, &s));
	v->areas = s.areas;
	v->checkpoints = s.checkpoints;
	v->restores = s.restores;
	v->failed = s.failed;
	v->surface_bytes = s.surface_bytes;
	memcpy(v->bytes, area, sizeof(v->bytes));
}

static void same_view(const struct view *before, const char *what)
{
	static struct view now;

	look(&now);
	if (memcmp(before, &now, sizeof(now)))
		test_fail("%s failed, but something changed: range %llu-%llu to %llu-%llu, areas "
			  "%llu to %llu",
			what, (unsigned long long)before->oldest,
			(unsigned long long)before->newest, (unsigned long long)now.oldest,
			(unsigned long long)now.newest, (unsigned long long)before->areas,
			(unsigned long long)now.areas);
}

static struct view before;

#define REFUSED(expr, want)                \
	do {                               \
		look(&before);             \
		CHECK_RC(expr, want);      \
		same_view(&before, #expr); \
	} while (0)

/* Either of two codes is right: cairn.h leaves it open which check comes first. */
#define REFUSED_EITHER(expr, a, b)                                                    \
	do {                                                                          \
		look(&before);                                                        \
		int rc2_ = (expr);                                                    \
		if (rc2_ != (a) && rc2_ != (b))                                       \
			test_fail("%s = %d (%s)", #expr, rc2_, cairn_strerror(rc2_)); \
		same_view(&before, #expr);                                            \
	} while (0)

/* ---- cairn_open ---------------------------------------------------------------- */

/* `also`: a second right answer where cairn.h leaves open what is checked first. */
static void open_refused(const struct cairn_options *o, int want, int also)
{
	cairn_t *out = UNTOUCHED;
	int rc = cairn_open(&out, o);

	if (rc != want && rc != also)
		test_fail("cairn_open(tracker %s, surface %s, strategy %s, keep %u, threads %u, "
			  "flags %#x, reserved %u, size %zu): %d (%s), expected %s",
			o->tracker, o->surface, o->strategy ? o->strategy : "-", o->keep,
			o->threads, o->flags, o->reserved, o->size, rc, cairn_strerror(rc),
			cairn_strerror(want));
	if (out != UNTOUCHED)
		test_fail("a failed cairn_open wrote its result");
}

#define OPEN_REFUSED(field, value, want)                                                          \
	do {                                                                                      \
		struct cairn_options o_ = with_defaults();                                        \
		o_.field = value;                                                                 \
		open_refused(                                                                     \
			&o_, want, (want) == CAIRN_ESURFACE && areas_only ? areas_only : (want)); \
	} while (0)

static void test_open_errors(void)
{
	struct {
		struct cairn_options o;
		uint64_t later; /* a field of a newer version that this one does not know */
	} newer = { with_defaults(), 0 };

	OPEN_REFUSED(tracker, "no-such-tracker", CAIRN_ETRACKER);
	OPEN_REFUSED(tracker, "", CAIRN_ETRACKER);
	OPEN_REFUSED(strategy, "no-such-strategy", CAIRN_ESTRATEGY);
	OPEN_REFUSED(strategy, "decay:no-such-parameter=1", CAIRN_ESTRATEGY);
	OPEN_REFUSED(feed, "no-such-feed", CAIRN_EOPTION);
	OPEN_REFUSED(feed, "", CAIRN_EOPTION);
	if (strcmp(tracker, "async") != 0)
		OPEN_REFUSED(feed, "scan", -EINVAL);
	OPEN_REFUSED(surface, "no-such-library.so.9", CAIRN_ESURFACE);
	OPEN_REFUSED(surface, "0x1000-", CAIRN_ESURFACE);
	OPEN_REFUSED(surface, "0x2000-0x1000", CAIRN_ESURFACE);
	OPEN_REFUSED(surface, ",", CAIRN_ESURFACE);
	OPEN_REFUSED(surface, "[heap],,[heap]", CAIRN_ESURFACE);
	OPEN_REFUSED(keep, 65537, CAIRN_EOPTION);
	OPEN_REFUSED(threads, 2, CAIRN_EOPTION);
	OPEN_REFUSED(flags, 1u << 30, CAIRN_EOPTION);
	OPEN_REFUSED(reserved, 1, CAIRN_EOPTION);
	OPEN_REFUSED(size, 0, CAIRN_EOPTION);
	OPEN_REFUSED(size, 3, CAIRN_EOPTION);
	newer.o.size = sizeof(newer);
	newer.later = 1;
	open_refused(&newer.o, CAIRN_EOPTION, CAIRN_EOPTION);
}

static void test_open_newer_struct(void)
{
	struct {
		struct cairn_options o;
		uint64_t later;
	} newer = { with_defaults(), 0 };

	newer.o.size = sizeof(newer);
	CHECK_OK(cairn_open(&c, &newer.o));
	CHECK_OK(cairn_close(c));
}

static void test_open_twice(void)
{
	struct cairn_options o = with_defaults();
	cairn_t *out = UNTOUCHED;

	o.keep = 5;
	look(&before);
	CHECK_RC(cairn_open(&out, &o), CAIRN_EBUSY);
	CHECK(out == UNTOUCHED);
	same_view(&before, "a second cairn_open");
}

/* "auto" is decay where there are hot pages; it joins whatever is there, a name only its own. */
static void test_default_strategy(void)
{
	bool hot = !strcmp(tracker, "async") || areas_only;
	struct cairn_options o = with_defaults(), named;
	struct cairn_stats s = { .size = sizeof(s) };
	cairn_t *out = UNTOUCHED;

	o.strategy = NULL;
	named = o;
	CHECK_OK(cairn_open(&c, &o));
	CHECK_OK(cairn_stats(c, &s));
	if (strcmp(s.strategy, hot ? "decay" : "none") != 0 || strncmp(s.strategy_why, "auto: ", 6))
		test_fail("strategy %s (%s)", s.strategy, s.strategy_why);
	named.strategy = hot ? "none" : "random";
	CHECK(cairn_open(&out, &named) < 0);
	CHECK(out == UNTOUCHED);
	named.strategy = s.strategy;
	CHECK_OK(cairn_open(&out, &named));
	CHECK_OK(cairn_close(out));
	CHECK_OK(cairn_close(c));

	named.strategy = "none";
	CHECK_OK(cairn_open(&c, &named));
	CHECK_OK(cairn_open(&out, &o));
	CHECK_OK(cairn_stats(c, &s));
	if (strcmp(s.strategy, "none") != 0 || strcmp(s.strategy_why, "named") != 0)
		test_fail("strategy %s (%s)", s.strategy, s.strategy_why);
	CHECK_OK(cairn_close(out));
	CHECK_OK(cairn_close(c));
}

/* ---- Areas ------------------------------------------------------------------------ */

/* Another part of the program may count on the session. */
static void test_pause_of_two(void)
{
	struct cairn_options o = with_defaults();
	cairn_t *again;
	uint64_t id;

	CHECK_OK(cairn_open(&again, &o));
	CHECK_RC(cairn_pause(c), CAIRN_EBUSY);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	CHECK_OK(cairn_close(again));
	CHECK_RC(cairn_pause(NULL), -EINVAL);
	CHECK_RC(cairn_resume(NULL), -EINVAL);
}

static void test_area_errors(void)
{
	uint8_t *holes = map_pages(3, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	uint8_t *read_only = map_pages(1, PROT_READ, MAP_PRIVATE);
	uint8_t *shared = map_pages(1, PROT_READ | PROT_WRITE, MAP_SHARED);

	munmap(holes + PAGE, PAGE);
	REFUSED(cairn_area_add(c, area, 0), -EINVAL);
	REFUSED(cairn_area_add(c, holes + PAGE, PAGE), CAIRN_EUNMAPPED);
	REFUSED(cairn_area_add(c, holes, 3 * PAGE), CAIRN_EUNMAPPED);
	REFUSED(cairn_area_add(c, read_only, PAGE), CAIRN_EUNMAPPED);
	REFUSED(cairn_area_add(c, NULL, PAGE), CAIRN_EUNMAPPED);
	REFUSED_EITHER(cairn_area_add(c, area, SIZE_MAX), -EINVAL, CAIRN_EUNMAPPED);
	REFUSED_EITHER(cairn_area_add(c, (void *)-PAGE, PAGE), -EINVAL, CAIRN_EUNMAPPED);
	REFUSED(cairn_area_add(c, area, 4 * PAGE), CAIRN_EOVERLAP);
	REFUSED(cairn_area_add(c, area + 4 * PAGE - 1, 1), CAIRN_EOVERLAP);
	REFUSED(cairn_area_add(c, area + PAGE, PAGE), CAIRN_EOVERLAP);
	if (keeps_processes)
		REFUSED(cairn_area_add(c, shared, PAGE), CAIRN_ESHARED);
	REFUSED(cairn_area_remove(c, holes, PAGE), CAIRN_ENOTAREA);
	REFUSED(cairn_area_remove(c, area, PAGE), CAIRN_ENOTAREA);
	REFUSED(cairn_area_remove(c, area, 5 * PAGE), CAIRN_ENOTAREA);
	REFUSED(cairn_area_remove(c, area + PAGE, 3 * PAGE), CAIRN_ENOTAREA);
	REFUSED(cairn_area_exclude(c, area, 0), -EINVAL);
	REFUSED(cairn_area_touch(c, holes, PAGE), CAIRN_ENOTAREA);
	REFUSED(cairn_area_touch(c, area + 3 * PAGE, 2 * PAGE), CAIRN_ENOTAREA);
	munmap(holes, PAGE);
	munmap(holes + 2 * PAGE, PAGE);
	munmap(read_only, PAGE);
	munmap(shared, PAGE);
}

/* addr and len are widened to whole pages, and removed exactly as they were added. */
static void test_area_widened(void)
{
	uint8_t *p = map_pages(2, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	uint64_t id;

	CHECK_OK(cairn_area_add(c, p + 100, PAGE));
	REFUSED(cairn_area_add(c, p, 1), CAIRN_EOVERLAP);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	p[0] = p[2 * PAGE - 1] = 7;
	CHECK_OK(cairn_rewind(c, id));
	CHECK_U64(p[0] + p[2 * PAGE - 1], 0);
	CHECK_OK(cairn_area_remove(c, p + 100, PAGE));
	p[0] = 7;
	CHECK_OK(cairn_rewind(c, id));
	CHECK_U64(p[0], 7);
	munmap(p, 2 * PAGE);
}

/* ---- Ids, peek, changes ------------------------------------------------------------- */

static int never_called(void *ctx, void *addr, size_t len, const void *a, const void *b)
{
	test_fail("the callback of a refused cairn_changes was called");
}

static void test_ids(void)
{
	uint64_t oldest, newest, out = 0x5a5a;
	char tag[8] = "untouch";

	CHECK_OK(cairn_range(c, &oldest, &newest));
	CHECK(oldest > 0); /* the implicit one has left by now */
	REFUSED(cairn_restore(c, newest + 1), CAIRN_ENOCKPT);
	REFUSED(cairn_rewind(c, newest + 1), CAIRN_ENOCKPT);
	REFUSED(cairn_restore(c, 0), CAIRN_EEVICTED);
	REFUSED(cairn_rewind(c, oldest - 1), CAIRN_EEVICTED);
	REFUSED(cairn_rewind(c, UINT64_MAX), CAIRN_ENOCKPT);
	REFUSED(cairn_peek(c, newest + 1, area, &out, 8), CAIRN_ENOCKPT);
	REFUSED(cairn_peek(c, oldest - 1, area, &out, 8), CAIRN_EEVICTED);
	REFUSED(cairn_checkpoint_tag(c, newest + 1, tag, 8), CAIRN_ENOCKPT);
	REFUSED(cairn_checkpoint_tag(c, oldest - 1, tag, 8), CAIRN_EEVICTED);
	REFUSED(cairn_checkpoint_tag(c, newest, tag, 4097), -E2BIG);
	REFUSED(cairn_checkpoint_tag_get(c, newest + 1, tag, 8), CAIRN_ENOCKPT);
	CHECK_RC(cairn_checkpoint_tag_get(c, newest, tag, 8), 0);
	CHECK(out == 0x5a5a && !memcmp(tag, "untouch", 8));
}

static void test_peek_errors(void)
{
	uint64_t newest, out[2] = { 0x5a5a, 0x5a5a };
	struct iovec local[2] = { { &out[0], 8 }, { &out[1], 8 } };
	struct iovec remote[2] = { { area, 8 }, { area + 4 * PAGE, 8 } };

	CHECK_OK(cairn_range(c, NULL, &newest));
	REFUSED(cairn_peek(c, newest, area + 4 * PAGE, out, 8), CAIRN_ENOTAREA);
	REFUSED(cairn_peek(c, newest, area + 4 * PAGE - 8, out, 16), CAIRN_ENOTAREA);
	REFUSED(cairn_peek(c, newest, out, out, 8), CAIRN_ENOTAREA);
	/* the second range is bad: the first must not have been read either */
	REFUSED(cairn_peekv(c, newest, local, remote, 2), CAIRN_ENOTAREA);
	CHECK(out[0] == 0x5a5a && out[1] == 0x5a5a);
	remote[1] = (struct iovec){ area + 64, 16 };
	REFUSED(cairn_peekv(c, newest, local, remote, 2), -EINVAL);
	CHECK(out[0] == 0x5a5a && out[1] == 0x5a5a);
	REFUSED(cairn_peekv(c, newest, local, remote, 0), 0);
	REFUSED(cairn_peek(c, newest, area, out, 0), 0);
}

static void test_changes_errors(void)
{
	uint64_t oldest, newest;

	if (keeps_processes)
		return; /* EUNSUPPORTED there; the oracle checks that */
	CHECK_OK(cairn_range(c, &oldest, &newest));
	REFUSED(cairn_changes(c, newest, newest, never_called, NULL), -EINVAL);
	REFUSED(cairn_changes(c, newest, oldest, never_called, NULL), -EINVAL);
	REFUSED(cairn_changes(c, oldest, newest + 1, never_called, NULL), CAIRN_ENOCKPT);
	REFUSED(cairn_changes(c, oldest - 1, newest, never_called, NULL), CAIRN_EEVICTED);
}

/* ---- Figures, names, closing ------------------------------------------------------------ */

static void test_stats(void)
{
	struct {
		struct cairn_stats s;
		uint8_t guard[64];
	} big;
	uint64_t id;

	memset(&big, 0x5a, sizeof(big));
	big.s.size = 0;
	CHECK(cairn_stats(c, &big.s) < 0);
	CHECK(big.s.tracker[0] == 0x5a);
	big.s.size = offsetof(struct cairn_stats, restores); /* an older version of the struct */
	CHECK_OK(cairn_stats(c, &big.s));
	CHECK_U64(big.s.restores, 0x5a5a5a5a5a5a5a5aull);
	big.s.size = sizeof(big.s);
	CHECK_OK(cairn_stats(c, &big.s));
	for (size_t i = 0; i < sizeof(big.guard); i++)
		CHECK_U64(big.guard[i], 0x5a);
	CHECK(!strcmp(big.s.tracker, tracker));
	CHECK_U64(big.s.areas, 1);
	CHECK_U64(big.s.surface_bytes, 4 * PAGE);
	CHECK(big.s.checkpoints > 0 && big.s.engine_bytes > 0);
	CHECK(big.s.engine_bytes_max >= big.s.engine_bytes);
	CHECK_OK(cairn_stats_reset(c));
	area[0]++;
	area[PAGE]++;
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	area[0]++;
	CHECK_OK(cairn_rewind(c, id));
	CHECK_OK(cairn_stats(c, &big.s));
	CHECK_U64(big.s.checkpoints, 1);
	CHECK_U64(big.s.restores, 1);
	CHECK_U64(big.s.failed, 0);
	CHECK(big.s.checkpoint_ns > 0 && big.s.restore_ns > 0);
	if (!keeps_processes) {
		/* A hot page may be copied in vain. */
		CHECK(big.s.pages_saved >= 2 && big.s.pages_saved - big.s.pages_eager <= 2);
		if (strategy && !strcmp(strategy, "none"))
			CHECK_U64(big.s.pages_saved, 2);
		CHECK_U64(big.s.pages_restored, 1);
	}
}

static void test_strerror(void)
{
	static const int codes[] = { CAIRN_EEVICTED, CAIRN_ENOCKPT, CAIRN_EFAILED, CAIRN_ELAYOUT,
		CAIRN_ETRACKER, CAIRN_ENOTRACK, CAIRN_ESHARED, CAIRN_EAREAONLY, CAIRN_ESTRATEGY,
		CAIRN_ENOTAREA,
		CAIRN_EOVERLAP, CAIRN_EUNMAPPED, CAIRN_ESURFACE, CAIRN_ETHREADS, CAIRN_EOPTION,
		CAIRN_EBUSY, CAIRN_EPAUSED, CAIRN_EMEMORY, CAIRN_EUNSUPPORTED, -EINVAL, -ENOMEM,
		-E2BIG, -EDEADLK, 0 };
	const char *unknown = cairn_strerror(-4999);
	size_t count = sizeof(codes) / sizeof(codes[0]);

	CHECK(unknown && *unknown);
	for (size_t i = 0; i < count; i++) {
		const char *text = cairn_strerror(codes[i]);

		CHECK(text && *text && strcmp(text, unknown));
		for (size_t j = 0; j < i; j++)
			CHECK(strcmp(text, cairn_strerror(codes[j])));
	}
	CHECK(cairn_strerror(INT32_MIN) && cairn_strerror(INT32_MAX));
	CHECK(!strcmp(cairn_version(), CAIRN_VERSION));
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 4096; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void on_fault(int sig)
{
}

/* Sessions leave nothing behind: descriptors, signal handlers, protections. */
static void test_close_leaves_nothing(void)
{
	struct sigaction mine = { .sa_handler = on_fault }, now;
	struct cairn_options o = with_defaults();
	int descriptors = open_descriptors();
	uint64_t id;

	sigaction(SIGSEGV, &mine, NULL);
	sigaction(SIGBUS, &mine, NULL);
	for (int i = 0; i < 50; i++) {
		CHECK_OK(cairn_open(&c, &o));
		CHECK_OK(cairn_area_add(c, area, 4 * PAGE));
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		area[PAGE] = (uint8_t)i;
		CHECK_OK(cairn_close(c));
		area[2 * PAGE] = (uint8_t)i;
		CHECK_U64(area[PAGE], (uint64_t)i);
	}
	sigaction(SIGSEGV, NULL, &now);
	CHECK(now.sa_handler == on_fault);
	sigaction(SIGBUS, NULL, &now);
	CHECK(now.sa_handler == on_fault);
	/* the log's descriptor may stay, once */
	if (open_descriptors() > descriptors + 1)
		test_fail("50 sessions left %d descriptors", open_descriptors() - descriptors);
}

#ifdef __SANITIZE_THREAD__
static const bool threads_sanitized = true;
#else
static const bool threads_sanitized;
#endif

static int sleep_until_killed(void *unused)
{
	for (;;)
		pause();
	return 0;
}

/*
 * Another process in our memory has no handler of ours. Without unshare nobody can tell.
 * ThreadSanitizer's state of this thread would be shared with it.
 */
static void test_shared_memory(void)
{
	struct cairn_options o = with_defaults();
	uint8_t *stack = map_pages(4, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	int child = clone(sleep_until_killed, stack + 4 * PAGE, CLONE_VM | SIGCHLD, NULL);

	CHECK(child > 0);
	if (unshare(CLONE_VM) == -1 && errno == EINVAL && areas_only) {
		CHECK_RC(cairn_open(&c, &o), CAIRN_EUNSUPPORTED);
	} else if (!areas_only) {
		CHECK_OK(cairn_open(&c, &o));
		CHECK_OK(cairn_close(c));
	}
	CHECK(kill(child, SIGKILL) == 0 && waitpid(child, NULL, 0) == child);
	munmap(stack, 4 * PAGE);
	CHECK_OK(cairn_open(&c, &o));
	CHECK_OK(cairn_close(c));
}

int main(int argc, char **argv)
{
	struct cairn_options o;
	uint64_t id;

	tracker = argc > 1 ? argv[1] : "async";
	strategy = argc > 2 ? argv[2] : NULL;
	keeps_processes = !strcmp(tracker, "fork");
	if (!strcmp(tracker, "uffd") || !strcmp(tracker, "mprotect"))
		areas_only = CAIRN_EAREAONLY;
	area = map_pages(6, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	test_strerror();
	o = with_defaults();
	c = test_open(&o);
	CHECK_OK(cairn_close(c));
	test_open_errors();
	test_open_newer_struct();
	if (!threads_sanitized)
		test_shared_memory();
	test_default_strategy();
	c = test_open(&o);
	munmap(area + 4 * PAGE, 2 * PAGE);
	CHECK_OK(cairn_area_add(c, area, 4 * PAGE));
	for (int i = 1; i <= 8; i++) {
		area[(size_t)(i % 4) * PAGE] = (uint8_t)i;
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	}
	test_open_twice();
	test_area_errors();
	test_ids();
	test_peek_errors();
	test_changes_errors();
	test_area_widened();
	test_stats();
	test_pause_of_two();
	CHECK_OK(cairn_close(c));
	test_close_leaves_nothing();
	return 0;
}
