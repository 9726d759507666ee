/* SPDX-License-Identifier: MIT */
/*
 * cairn stat: the live figures of a process that runs under `cairn run`, read from the page that
 * its agent shares (stat_page.h). The process is not stopped and does not notice.
 */
#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "commands.h"
#include "stat_page.h"

#define SECONDS_MAX 86400

struct arguments {
	pid_t pid;
	bool json;
	double interval; /* seconds; 0: once */
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;
	char *end;
	long pid;

	switch (key) {
	case 'j':
		a->json = true;
		return 0;
	case 'i':
		a->interval = strtod(arg, &end);
		if (*end || end == arg || !(a->interval > 0 && a->interval <= SECONDS_MAX))
			argp_error(state, "not a number of seconds (at most %d): %s", SECONDS_MAX,
				arg);
		return 0;
	case ARGP_KEY_ARG:
		if (a->pid)
			argp_error(state, "one process at a time");
		pid = strtol(arg, &end, 10);
		if (*end || end == arg || pid <= 0 || pid > INT_MAX)
			argp_error(state, "not a process id: %s", arg);
		a->pid = (pid_t)pid;
		return 0;
	case ARGP_KEY_END:
		if (!a->pid)
			argp_error(state, "which process?");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp_option options[] = {
	{"json", 'j', NULL, 0, "print one JSON object on one line", 0},
	{"interval", 'i', "SECONDS", 0, "print again every SECONDS, until the process ends", 0},
	{0},
};
static const struct argp argp = {
	options,
	parse,
	"PID",
	"Show live figures of a program that runs under `cairn run`.",
	NULL,
	NULL,
	NULL,
};

/*
 * The page behind one descriptor of the process, if it is one and is the process's own; NULL
 * otherwise.
 */
static const struct crn_stat_page *map_page(const char *path, pid_t pid)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	const struct crn_stat_page *page;

	if (fd < 0)
		return NULL;
	page = mmap(NULL, CRN_STAT_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	if (page == MAP_FAILED)
		return NULL;
	if (page->magic == CRN_STAT_MAGIC && page->version == CRN_STAT_VERSION && page->pid == pid)
		return page;
	munmap((void *)page, CRN_STAT_SIZE);
	return NULL;
}

/*
 * A forked child has its parent's page open as well: the one with its own pid counts. NULL and
 * errno.
 */
static const struct crn_stat_page *find_page(pid_t pid)
{
	const struct crn_stat_page *page = NULL;
	char folder[64], path[384], target[64];
	struct dirent *entry;
	DIR *dir;

	snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)pid);
	dir = opendir(folder);
	if (!dir)
		return NULL;
	while (!page && (entry = readdir(dir))) {
		ssize_t n;

		snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
		n = readlink(path, target, sizeof(target) - 1);
		if (n <= 0)
			continue;
		target[n] = '\0';
		if (!strncmp(target, "/memfd:" CRN_STAT_NAME, strlen("/memfd:" CRN_STAT_NAME)))
			page = map_page(path, pid);
	}
	closedir(dir);
	errno = page ? 0 : ENODATA;
	return page;
}

/* A copy that no update has torn. */
static void copy_page(struct crn_stat_page *out, const struct crn_stat_page *page)
{
	const struct timespec pause = {0, 1000};

	for (unsigned tries = 0; tries < 10000; tries++) {
		uint32_t before = __atomic_load_n(&page->sequence, __ATOMIC_ACQUIRE);

		memcpy(out, page, sizeof(*out));
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (!(before & 1) && __atomic_load_n(&page->sequence, __ATOMIC_RELAXED) == before)
			return;
		nanosleep(&pause, NULL);
	}
}

static double seconds_open(const struct crn_stat_page *p)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return ((double)now.tv_sec * 1e9 + (double)now.tv_nsec - (double)p->opened_ns) / 1e9;
}

static double mean(uint64_t sum, uint64_t count)
{
	return count ? (double)sum / (double)count : 0;
}

/* What an undercopied page weighs by this host's prices, if an overcopied one weighs 1. */
static double under_weight(const struct cairn_stats *s)
{
	return mean(s->price_fault + s->price_protect, s->price_copy);
}

/* What one interval costs a rival, on average. */
struct rival_means {
	double overcopied, undercopied, together;
	double weighted_smc, weighted_host, cycles, own_cycles;
};

static struct rival_means rival_means(const struct crn_stat_rival *r)
{
	uint64_t n = r->intervals;

	return (struct rival_means){
		.overcopied = mean(r->overcopied, n),
		.undercopied = mean(r->undercopied, n),
		.together = mean(r->overcopied + r->undercopied, n),
		.weighted_smc = mean(r->weighted_smc, n) / 100,
		.weighted_host = mean(r->weighted_host, n) / 100,
		.cycles = mean(r->host_cycles, n),
		.own_cycles = mean(r->own_cycles, n),
	};
}

static void print_rivals_json(const struct crn_stat_page *p)
{
	printf(", \"rivals\": [");
	for (size_t i = 0; i < p->rival_count && i < CRN_STAT_RIVALS; i++) {
		const struct crn_stat_rival *r = &p->rivals[i];
		struct rival_means each = rival_means(r);

		printf("%s{\"rival\": \"%s\", \"intervals\": %" PRIu64
		       ", \"op\": %.2f, \"up\": %.2f, \"mp\": %.2f, \"wmp_smc\": %.2f"
		       ", \"wmp_host\": %.2f, \"cycles\": %.0f, \"own_cycles\": %.0f}",
			i ? ", " : "", r->name, r->intervals, each.overcopied, each.undercopied,
			each.together, each.weighted_smc, each.weighted_host, each.cycles,
			each.own_cycles);
	}
	putchar(']');
}

static void print_rivals(const struct crn_stat_page *p)
{
	printf("%-13s %9s %9s %9s %9s %9s %11s %9s\n", "each", "over", "under", "together",
		"weighted", "by prices", "cycles", "own");
	for (size_t i = 0; i < p->rival_count && i < CRN_STAT_RIVALS; i++) {
		struct rival_means each = rival_means(&p->rivals[i]);

		printf("  %-11s %9.2f %9.2f %9.2f %9.2f %9.2f %11.0f %9.0f\n", p->rivals[i].name,
			each.overcopied, each.undercopied, each.together, each.weighted_smc,
			each.weighted_host, each.cycles, each.own_cycles);
	}
}

static void print_json(const struct crn_stat_page *p)
{
	const struct cairn_stats *s = &p->engine;

	printf("{\"pid\": %d, \"tracker\": \"%s\", \"keep\": %u, \"recover\": %s, \"seconds\": "
	       "%.3f, \"newest\": %" PRIu64 ", \"hits\": %" PRIu64 ", \"checkpoints\": %" PRIu64
	       ", \"outputs\": %" PRIu64 ", \"failed\": %" PRIu64 ", \"nested\": %" PRIu64
	       ", \"recoveries\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"resets\": %" PRIu64
	       ", \"recovery_ns\": %" PRIu64 ", \"recovery_ns_last\": %" PRIu64
	       ", \"pages_saved\": %" PRIu64 ", \"pages_eager\": %" PRIu64
	       ", \"pages_restored\": %" PRIu64 ", \"faults\": %" PRIu64
	       ", \"checkpoint_ns\": %" PRIu64 ", \"restore_ns\": %" PRIu64 ", \"areas\": %" PRIu64
	       ", \"surface_bytes\": %" PRIu64 ", \"mirror_bytes\": %" PRIu64
	       ", \"journal_bytes\": %" PRIu64 ", \"engine_bytes\": %" PRIu64
	       ", \"engine_bytes_max\": %" PRIu64 ", \"held\": %" PRIu64
	       ", \"strategy\": \"%s\", \"strategy_why\": \"%s\""
	       ", \"hot_pages\": %" PRIu64 ", \"overcopied\": %" PRIu64
	       ", \"undercopied\": %" PRIu64 ", \"promotions\": %" PRIu64
	       ", \"evictions\": %" PRIu64 ", \"contexts\": %" PRIu64
	       ", \"price_fault\": %" PRIu64 ", \"price_copy\": %" PRIu64
	       ", \"price_protect\": %" PRIu64 ", \"price_open\": %" PRIu64
	       ", \"feed\": \"%s\", \"feed_why\": \"%s\", \"scans\": %" PRIu64,
		p->pid, s->tracker, p->keep, p->recover ? "true" : "false", seconds_open(p),
		p->newest, p->hits, p->checkpoints, p->outputs, p->failed, p->nested, p->recoveries,
		p->refused, p->resets, p->recovery_ns, p->recovery_ns_last, s->pages_saved,
		s->pages_eager, s->pages_restored, s->faults, s->checkpoint_ns, s->restore_ns,
		s->areas, s->surface_bytes, s->mirror_bytes, s->journal_bytes, s->engine_bytes,
		s->engine_bytes_max, p->held, s->strategy, s->strategy_why, s->hot_pages,
		s->overcopied, s->undercopied, s->promotions, s->evictions, s->contexts,
		s->price_fault, s->price_copy, s->price_protect, s->price_open, s->feed,
		s->feed_why, s->scans);
	if (p->rival_count)
		print_rivals_json(p);
	puts("}");
}

static void print_text(const struct crn_stat_page *p)
{
	const struct cairn_stats *s = &p->engine;
	double seconds = seconds_open(p);

	printf("process      %d, for %.1f s\n", p->pid, seconds);
	printf("tracker      %s, keeps %u\n", s->tracker, p->keep);
	if (s->feed[0])
		printf("feed         %s, %" PRIu64 " scans%s%s%s\n", s->feed, s->scans,
			s->feed_why[0] ? "; not " : "", s->feed_why, crn_stat_feed_hint(s));
	for (uint32_t i = 0; i < p->site_count && i < sizeof(p->sites) / sizeof(p->sites[0]); i++)
		printf("site         %s\n", p->sites[i]);
	if (p->site_count > sizeof(p->sites) / sizeof(p->sites[0]))
		printf("site         and %zu more\n",
			p->site_count - sizeof(p->sites) / sizeof(p->sites[0]));
	printf("sites passed %" PRIu64 " (%" PRIu64 " nested)\n", p->hits, p->nested);
	printf("checkpoints  %" PRIu64 " (%" PRIu64 " after outputs, %" PRIu64
	       " failed), newest %" PRIu64 ", %.1f/s\n",
		p->checkpoints, p->outputs, p->failed, p->newest,
		seconds > 0 ? (double)p->checkpoints / seconds : 0);
	printf("each         %.1f pages, %.1f us\n", mean(s->pages_saved, s->checkpoints),
	       mean(s->checkpoint_ns, s->checkpoints) / 1000);
	printf("strategy     %s (%s): %" PRIu64
	       " pages hot; each %.2f overcopied, %.2f undercopied\n",
		s->strategy, s->strategy_why, s->hot_pages, mean(s->overcopied, s->checkpoints),
		mean(s->undercopied, s->checkpoints));
	if (s->price_copy)
		printf("prices       in cycles: a fault %" PRIu64 ", a copy %" PRIu64
		       ", a protection %" PRIu64 ", an opening %" PRIu64
		       "; an overcopied page weighs 1, an undercopied one %.2f\n",
			s->price_fault, s->price_copy, s->price_protect, s->price_open,
			under_weight(s));
	if (p->rival_count)
		print_rivals(p);
	printf("surface      %.1f MiB in %" PRIu64 " areas\n", (double)s->surface_bytes / 1048576,
		s->areas);
	printf("engine       %.1f MiB (at most %.1f): mirror %.1f, journal %.1f\n",
		(double)s->engine_bytes / 1048576, (double)s->engine_bytes_max / 1048576,
		(double)s->mirror_bytes / 1048576, (double)s->journal_bytes / 1048576);
	if (p->recover)
		printf("recoveries   %" PRIu64 " (%.0f us on average), %" PRIu64
		       " refused, %" PRIu64 " connections reset, %" PRIu64 " sends held\n",
			p->recoveries, mean(p->recovery_ns, p->recoveries) / 1000, p->refused,
			p->resets, p->held);
}

static int no_page(pid_t pid)
{
	if (errno == ENOENT)
		fprintf(stderr, "cairn stat: there is no process %d\n", (int)pid);
	else if (errno == ENODATA)
		fprintf(stderr,
			"cairn stat: process %d has no session: it does not run under `cairn run`, "
			"or has not passed a site yet\n",
			(int)pid);
	else
		fprintf(stderr, "cairn stat: process %d: %s%s\n", (int)pid, strerror(errno),
			errno == EACCES ? ": ask as its user, or as root" : "");
	return 1;
}

int cmd_stat(int argc, char **argv)
{
	struct arguments a = {0};
	const struct crn_stat_page *page;
	struct crn_stat_page copy;

	if (argp_parse(&argp, argc, argv, 0, NULL, &a) != 0)
		return CRN_EXIT_USAGE;
	page = find_page(a.pid);
	if (!page)
		return no_page(a.pid);
	for (;;) {
		struct timespec pause = { (time_t)a.interval,
			(long)((a.interval - (double)(time_t)a.interval) * 1e9) };

		copy_page(&copy, page);
		a.json ? print_json(&copy) : print_text(&copy);
		if (fflush(stdout) != 0)
			return 1;
		if (!(a.interval > 0))
			return 0;
		nanosleep(&pause, NULL);
		if (kill(a.pid, 0) < 0 && errno == ESRCH)
			return 0;
		if (!a.json)
			putchar('\n');
	}
}
