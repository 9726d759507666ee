/* SPDX-License-Identifier: MIT */
/*
 * oracle --row ROW --tracker TRACKER [--strategy STRATEGY] [--feed FEED] [--record FILE] [--seed S]
 *        [--keep K] [--steps N] [--explicit] [--verbose]
 * oracle --list
 *
 * One random program on one tracker; the same arguments are the same run. Exit 0, 1 or 77.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include "oracle.h"
#include "session/session.h"

#define BIG_PAGES  1000ul
#define MEMORY_MAX        (3ul << 20)  /* 768 frames */
#define MEMORY_MAX_IMAGES (6ul << 20) /* 2 MiB are slots, which no record can have */

static bool verbose, explicit_areas, protect;
static const char *strategy, *feed, *record;

/* snprintf and write: dprintf allocates, and the heap is compared as well. */
void oracle_say(const char *what, uint64_t id)
{
	char line[96];
	int n;

	if (!verbose)
		return;
	n = snprintf(line, sizeof(line), "step %llu: %s %llu\n", (unsigned long long)W->step, what,
		(unsigned long long)id);
	(void)!write(2, line, (size_t)n);
}

static int temp_file(size_t len, int flags)
{
	char name[] = "oracle-XXXXXX";
	int fd = mkostemp(name, O_CLOEXEC | flags);

	if (fd < 0 && flags & O_DIRECT)
		test_skip("O_DIRECT (this file system refuses it)");
	if (fd < 0)
		test_fail("cannot make a file in the working directory: errno %d", errno);
	unlink(name);
	for (size_t at = 0; at < len; at += PAGE) {
		uint8_t *page =
			W->buf; /* page aligned enough for any device: the world is mapped */

		page = (uint8_t *)(((uintptr_t)page + PAGE - 1) & ~(PAGE - 1));
		fill_random(page, PAGE);
		if (pwrite(fd, page, PAGE, (off_t)at) != (ssize_t)PAGE)
			test_fail("cannot write a file in the working directory: errno %d", errno);
	}
	return fd;
}

static void open_files(void)
{
	W->file = temp_file(32 * PAGE, 0);
	if (W->row->ops & OP(DIRECT))
		W->direct = temp_file(16 * PAGE, O_DIRECT);
	W->program = -1;
	if (W->row->ops & OP(CONSTANTS))
		constants_map();
	W->mem = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	if (pipe2(W->pipe, O_CLOEXEC) ||
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, W->pair))
		test_fail("pipe or socketpair: errno %d", errno);
	if (W->mem < 0)
		test_fail("/proc/self/mem: errno %d", errno);
}

static void make_regions(void)
{
	static const struct {
		uint32_t kind, count, pages;
	} start[] = {
		{ REGION_ANON, 4, 16 },
		{ REGION_FILE, 2, 12 },
		{ REGION_STATIC, 1, 0 },
		{ REGION_HEAP, 2, 6 },
		{ REGION_BRK, 1, 8 },
		{ REGION_SHARED, 2, 6 },
		{ REGION_BIG, 1, 0 },
	};

	for (size_t i = 0; i < sizeof(start) / sizeof(start[0]); i++) {
		if (!(W->row->kinds & start[i].kind))
			continue;
		for (uint32_t n = 0; n < start[i].count; n++)
			CHECK(region_make(start[i].kind,
				(start[i].kind == REGION_BIG ? BIG_PAGES
							     : 1 + rnd_below(start[i].pages + 1)) *
					PAGE));
	}
}

static uint32_t choose_keep(void)
{
	static const uint32_t some[] = { 1, 2, 8 };
	uint32_t keep = W->row->keep ? W->row->keep : some[rnd_below(3)];

	/* a checkpoint is a process there: a thousand is not a sensible thing to ask for */
	return W->rules->keeps && keep > 8 ? 8 : keep;
}

/* Where surface "all" is not to be had, that is said, and the row runs on explicit areas. */
static void open_session(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c = NULL;

	o.tracker = W->rules->name;
	o.feed = feed;
	o.strategy = strategy;
	o.keep = W->keep;
	o.flags = protect ? CAIRN_PROTECT : 0;
	o.threads = W->row->flags & ROW_THREADS_ONE ? CAIRN_THREADS_ONE : CAIRN_THREADS_ALL;
	if (W->row->flags & ROW_MEMORY_MAX)
		o.memory_max = W->rules->may_lose ? MEMORY_MAX_IMAGES : MEMORY_MAX;
	W->all = !(W->row->flags & ROW_EXPLICIT) && !explicit_areas;
	if (W->all && W->rules->explicit_only) {
		int rc = cairn_open(&c, &o);

		if (rc == CAIRN_ENOTRACK)
			test_open(&o); /* skips, and says so */
		CHECK_RC(rc, CAIRN_EAREAONLY);
		CHECK(c == NULL);
		W->all = false;
	}
	o.surface = W->all ? "all" : "none";
	W->c = test_open(&o);
	if (record)
		CHECK_OK(crn_trace_start(W->c, record));
	oracle_learn_engine();
}

/* The checkpoint that cairn_open made: its areas are those of that moment, so no explicit ones. */
static __attribute__((noinline, noclone)) void checkpoint_zero(void)
{
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0) + 2 * sizeof(void *);
	uint64_t newest = ~0ull;

	CHECK_OK(cairn_range(W->c, NULL, &newest));
	CHECK_U64(newest, 0);
	W->open = snapshot_take(frame, NULL);
	W->open->no_return = true;
	W->kept[W->kept_count++] = W->open;
	check_range();
	for (size_t i = 0; i < REGIONS_MAX; i++)
		if (W->regions[i].live)
			region_register(&W->regions[i]);
}

void run_op(void)
{
	uint32_t op;

	do
		op = (uint32_t)rnd_below(OP_COUNT);
	while (!(W->row->ops & 1ull << op));
	oracle_say(oracle_ops[op].name, W->writes);
	W->writes++;
	oracle_ops[op].run();
}

static void run_step(void)
{
	static const struct {
		uint32_t weight; /* of 100; the rest are writers */
		void (*run)(void);
	} steps[] = {
		{ 14, do_checkpoint },
		{ 6, do_restore },
		{ 5, do_rewind },
		{ 6, do_peek },
		{ 4, do_changes },
		{ 1, do_bad_ids },
	};
	uint64_t dice = rnd_below(100);

	W->step++;
	if (W->row->flags & ROW_CLOSES && rnd_below(12) == 0) {
		oracle_say("close", W->writes);
		close_unknown();
	}
	if (W->row->flags & ROW_PAUSES && rnd_below(20) == 0)
		do_pause();
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if (dice < steps[i].weight) {
			steps[i].run();
			return;
		}
		dice -= steps[i].weight;
	}
	run_op();
}

/*
 * A strategy that made no page hot tested nothing. meta makes none, nor does histase where it acts
 * at faults.
 */
static void demand_hot_pages(void)
{
	struct cairn_stats s = { .size = sizeof(s) };

	if (!strategy || !strcmp(strategy, "none") || !strcmp(strategy, "meta") ||
		(!strcmp(strategy, "histase") && strcmp(W->rules->name, "async") != 0))
		return;
	CHECK_OK(cairn_stats(W->c, &s));
	if (!s.promotions)
		test_fail("strategy %s made no page hot", strategy);
}

static __attribute__((noinline, noclone)) void close_session(void)
{
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0) + 2 * sizeof(void *);

	if (W->row->flags & ROW_CLOSES)
		close_unknown();
	W->before = snapshot_take(frame, W->open);
	CHECK_OK(cairn_close(W->c));
	W->closed = true;
	snapshot_compare(W->before, W->before, frame, COMPARE_REFUSED);
	if (W->row->flags & ROW_CLOSES)
		close_unknown(); /* looks after what was put in place of the engine's */
	for (size_t i = 0; i < REGIONS_MAX; i++) /* nobody tracks it now; nobody may mind */
		if (W->regions[i].live && W->regions[i].writable)
			memset(W->regions[i].addr, 1, W->regions[i].len);
}

/* A run that restored nothing tested nothing. */
static bool enough(uint64_t steps)
{
	bool starved = W->row->flags & ROW_MEMORY_MAX || W->lost, torn = W->row->ops & OP(RACE);
	bool few = steps < 200; /* chance may leave one of the calls out */

	return W->checkpoints >= steps / 25 &&
		W->restores + W->rewinds >= steps / (starved ? 100 : 30) &&
		(few || (W->restores && W->rewinds)) && (W->peeks || torn || few) &&
		W->writes >= steps / 4;
}

static void demand_work(uint64_t steps)
{
	if (!enough(steps))
		test_fail("too little was tested: %llu checkpoints, %llu restores, %llu rewinds, "
			  "%llu peeks",
			(unsigned long long)W->checkpoints, (unsigned long long)W->restores,
			(unsigned long long)W->rewinds, (unsigned long long)W->peeks);
	if (W->row->flags & ROW_PAUSES && W->pauses < steps / 60)
		test_fail("it rested %llu times only", (unsigned long long)W->pauses);
	if (W->row->flags & ROW_MEMORY_MAX && !W->rules->keeps && !W->failed)
		test_fail("the memory limit was never reached");
}

#define CHILD_STEPS 100

static void run_random(uint64_t steps)
{
	if (W->row->flags & ROW_CLOSES)
		need_fetching();
	open_files();
	make_regions();
	if (W->row->ops & (OP(THREADS) | OP(RACE)))
		helpers_start();
	open_session();
	checkpoint_zero();
	/* By chance, or for want of memory, little may have come of them: then some more. */
	while (W->step < steps || (W->step < 4 * steps && !enough(steps)))
		run_step();
	if (steps > CHILD_STEPS) /* in so few there may be nothing to predict */
		demand_hot_pages();
	close_session();
}

/*
 * In the child of a fork: the parent's session does not exist here, its memory is plain memory, and
 * a session may be opened. Pages that the parent's tracker had protected must be writable.
 */
void oracle_child(void)
{
	const struct tracker_rules *parent_rules = W->rules;
	uint64_t seed = rnd();

	for (size_t i = 0; i < REGIONS_MAX; i++)
		for (size_t at = 0; W->regions[i].live && at < W->regions[i].len; at += PAGE)
			W->regions[i].addr[at] ^= 0xff;
	world_create(seed);
	W->rules = parent_rules;
	W->row = row_find("keep_2");
	W->keep = 2;
	run_random(CHILD_STEPS);
	_exit(0);
}

static void list_rows(void)
{
	for (const struct row *r = oracle_rows; r->name; r++)
		dprintf(1, "%s\n", r->name);
	_exit(0);
}

struct arguments {
	const char *row, *tracker;
	uint64_t seed, steps;
	uint32_t keep;
};

/* The engine finds no protection key, as on a processor that has none, and closes page by page. */
static void take_all_keys(void)
{
	while (pkey_alloc(0, 0) >= 0)
		;
}

static void parse(int argc, char **argv, struct arguments *a)
{
	static const struct option options[] = {
		{ "row", required_argument, NULL, 'r' },
		{ "tracker", required_argument, NULL, 't' },
		{ "strategy", required_argument, NULL, 'S' },
		{ "feed", required_argument, NULL, 'f' },
		{ "record", required_argument, NULL, 'R' },
		{ "seed", required_argument, NULL, 's' },
		{ "keep", required_argument, NULL, 'k' },
		{ "steps", required_argument, NULL, 'n' },
		{ "explicit", no_argument, NULL, 'e' },
		{ "protect", no_argument, NULL, 'p' },
		{ "no-keys", no_argument, NULL, 'K' },
		{ "verbose", no_argument, NULL, 'v' },
		{ "list", no_argument, NULL, 'l' },
		{ 0 },
	};
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'r':
			a->row = optarg;
			break;
		case 't':
			a->tracker = optarg;
			break;
		case 's':
			a->seed = strtoull(optarg, NULL, 0);
			break;
		case 'k':
			a->keep = (uint32_t)strtoul(optarg, NULL, 0);
			break;
		case 'n':
			a->steps = strtoull(optarg, NULL, 0);
			break;
		case 'S':
			strategy = optarg;
			break;
		case 'f':
			feed = optarg;
			break;
		case 'R':
			record = optarg;
			break;
		case 'e':
			explicit_areas = true;
			break;
		case 'p':
			protect = true;
			break;
		case 'K':
			take_all_keys();
			break;
		case 'v':
			verbose = true;
			break;
		case 'l':
			list_rows();
			break;
		default:
			_exit(2);
		}
	}
}

/* The same arguments are the same run: that takes the same addresses. */
static void fix_addresses(char **argv)
{
	int now = personality(0xffffffff);

	if (now < 0 || now & ADDR_NO_RANDOMIZE ||
		personality((unsigned)now | ADDR_NO_RANDOMIZE) < 0)
		return;
	execv("/proc/self/exe", argv); /* if that fails, any addresses will do */
}

#ifdef __SANITIZE_ADDRESS__
/* What a restore has taken back is known to nobody but the allocator, which was not. */
const char *__asan_default_options(void) __attribute__((visibility("default")));
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

int main(int argc, char **argv)
{
	struct arguments a = { .row = "stores", .tracker = "async", .seed = 1 };

	fix_addresses(argv);
	parse(argc, argv, &a);
	world_create(a.seed);
	W->row = row_find(a.row);
	W->feed = feed;
	W->rules = tracker_find(a.tracker, feed);
	if (!W->row || !W->rules)
		test_fail("no such row or tracker: %s, %s", a.row, a.tracker);
	W->keep = a.keep ? a.keep : choose_keep();
	if (!a.steps)
		a.steps = W->row->steps / (W->rules->keeps ? 3 : 1);
	if (W->row->special) {
		W->row->special();
	} else {
		run_random(a.steps);
		demand_work(a.steps);
	}
	dprintf(1,
		"ok: %s on %s, seed %llu, keep %u, %s: %llu writes, %llu checkpoints (%llu "
		"failed), "
		"%llu restores, %llu rewinds, %llu peeks, %llu changes, %llu layout refusals, "
		"%llu lost\n",
		W->row->name, W->rules->name, (unsigned long long)W->seed, W->keep,
		W->all ? "surface all" : "explicit areas", (unsigned long long)W->writes,
		(unsigned long long)W->checkpoints, (unsigned long long)W->failed,
		(unsigned long long)W->restores, (unsigned long long)W->rewinds,
		(unsigned long long)W->peeks, (unsigned long long)W->changes,
		(unsigned long long)W->layout_refusals, (unsigned long long)W->lost);
	return 0;
}
