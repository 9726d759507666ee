/* SPDX-License-Identifier: MIT */
/*
 * cairn doctor: what this kernel and this user may do for checkpoints. The probe runs in a child,
 * because a seccomp filter may kill instead of refusing; that, too, is only a finding.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cairn/cairn.h"
#include "commands.h"
#include "findings.h"

/* What the child finds, in memory that both see. */
struct findings {
	struct crn_host host;
	struct finding features[FINDINGS_MAX];
	size_t feature_count;
	struct tracker_finding trackers[8];
	size_t tracker_count;
	struct feed_finding feeds[FEEDS_MAX];
	size_t feed_count;
	char killed_at[64]; /* "", or what was being probed when the child was killed */
};

static void conclude(struct findings *f)
{
	f->feature_count = find_features(f->features, &f->host);
	f->tracker_count =
		find_trackers(f->trackers, sizeof(f->trackers) / sizeof(f->trackers[0]), &f->host);
	f->feed_count = find_feeds(f->feeds, &f->host);
}

static void examine(struct findings *f)
{
	crn_host_probe(&f->host);
	crn_host_probe_feeds(&f->host);
	f->host.probing = "the trackers";
	conclude(f);
}

static struct findings *examine_in_child(void)
{
	struct findings *f =
		mmap(NULL, sizeof(*f), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = 0;
	pid_t pid;

	if (f == MAP_FAILED)
		return NULL;
	fflush(stdout);
	pid = fork();
	if (pid == 0) {
		examine(f);
		_exit(0);
	}
	if (pid < 0) {
		examine(f);
		return f;
	}
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFSIGNALED(status))
		return f;
	/* The child's static strings are ours as well: it is the same image. */
	snprintf(f->killed_at, sizeof(f->killed_at), "%s",
		f->host.probing ? f->host.probing : "start");
	conclude(f);
	return f;
}

/* ---- For people ------------------------------------------------------------------------ */

static void print_host(const struct findings *f)
{
	struct rlimit files = { 0, 0 };
	struct utsname u = { .release = "?" };

	uname(&u);
	getrlimit(RLIMIT_NOFILE, &files);
	printf("cairn %s on %s %s %s, %ld processors, %.1f GiB, user id %u%s\n", cairn_version(),
		u.sysname, u.release, u.machine, sysconf(_SC_NPROCESSORS_ONLN),
		(double)f->host.memory_bytes / (1 << 30), f->host.euid,
		f->host.seccomp > 0 ? ", under a seccomp filter" : "");
	if (files.rlim_cur < 256)
		printf("only %llu descriptors are allowed (ulimit -n): Cairn itself needs up to "
		       "16\n",
			(unsigned long long)files.rlim_cur);
	if (f->killed_at[0])
		printf("a seccomp filter kills on: %s (what comes after it was not probed)\n",
			f->killed_at);
}

static void print_strategies(const struct findings *f)
{
	bool cold = false;

	printf("\n  strategy auto is decay where the tracker has hot pages (");
	for (size_t i = 0, n = 0; i < f->tracker_count; i++) {
		if (!strcmp(f->trackers[i].strategy, "none"))
			cold = true;
		else
			printf("%s%s", n++ ? ", " : "", f->trackers[i].name);
	}
	printf(")%s\n", cold ? ", and none elsewhere" : "");
}

static void print_feeds(const struct findings *f)
{
	const char *taken = auto_feed(f->feeds, f->feed_count);

	printf("\nFeeds: how async learns of writes (--feed); auto takes %s\n",
		taken ? taken : "nothing");
	for (size_t i = 0; i < f->feed_count; i++) {
		const struct feed_finding *d = &f->feeds[i];

		printf("  %-4s %-10s %s\n", d->works ? "yes" : "no", d->name, d->detail);
		if (d->enable)
			printf("       %-10s   to enable: %s\n", "", d->enable);
	}
}

static void print_text(const struct findings *f)
{
	const char *all = auto_tracker(f->trackers, f->tracker_count, false);
	const char *run = auto_tracker(f->trackers, f->tracker_count, true);

	print_host(f);
	printf("\nTrackers, best first (cost: 15 pages written in 64 MiB, relative to "
	       "async)\n");
	for (size_t i = 0; i < f->tracker_count; i++)
		printf("  %-4s %-10s %s\n", f->trackers[i].works ? "yes" : "no",
			f->trackers[i].name, f->trackers[i].detail);
	printf("\n  auto takes the first that works: %s under `cairn run` and for explicit areas,\n"
	       "  %s for a program of your own that tracks all of its memory\n",
		run ? run : "nothing", all ? all : "nothing");
	print_strategies(f);
	print_feeds(f);

	printf("\nFeatures\n");
	for (size_t i = 0; i < f->feature_count; i++) {
		const struct finding *d = &f->features[i];

		printf("  %-4s %-22s %s\n", d->works ? "yes" : "no", d->name, d->detail);
		if (d->works)
			continue;
		printf("       %-22s   without it: %s\n", "", d->cost);
		printf("       %-22s   to enable: %s\n", "",
			d->enable ? d->enable : "other hardware");
	}
}

/* ---- For programs ---------------------------------------------------------------------- */

static void print_string(const char *key, const char *value, const char *after)
{
	printf("\"%s\":", key);
	if (!value) {
		printf("null%s", after);
		return;
	}
	putchar('"');
	for (; *value; value++) {
		if (*value == '"' || *value == '\\')
			printf("\\%c", *value);
		else if ((unsigned char)*value < 0x20)
			printf("\\u%04x", *value);
		else
			putchar(*value);
	}
	printf("\"%s", after);
}

static const char *truth(bool value)
{
	return value ? "true" : "false";
}

static void print_json_feeds(const struct findings *f)
{
	printf("\"feeds\":[");
	for (size_t i = 0; i < f->feed_count; i++) {
		const struct feed_finding *d = &f->feeds[i];

		printf("%s{", i ? "," : "");
		print_string("name", d->name, ",");
		printf("\"works\":%s,\"by_auto\":%s,", truth(d->works), truth(d->by_auto));
		print_string("detail", d->detail, ",");
		print_string("enable", d->enable, "}");
	}
	printf("],");
}

static void print_json(const struct findings *f)
{
	const struct crn_host *h = &f->host;
	struct utsname u = { .release = "?" };

	uname(&u);
	putchar('{');
	print_string("version", cairn_version(), ",");
	print_string("kernel", u.release, ",");
	print_string("machine", u.machine, ",");
	printf("\"memory_bytes\":%" PRIu64 ",\"euid\":%u,\"seccomp\":%d,", h->memory_bytes, h->euid,
		h->seccomp);
	print_string("killed_at", f->killed_at[0] ? f->killed_at : NULL, ",");
	printf("\"auto\":{");
	print_string("run", auto_tracker(f->trackers, f->tracker_count, true), ",");
	print_string("program", auto_tracker(f->trackers, f->tracker_count, false), ",");
	print_string("areas", auto_tracker(f->trackers, f->tracker_count, true), ",");
	print_string("feed", auto_feed(f->feeds, f->feed_count), "},");

	printf("\"trackers\":[");
	for (size_t i = 0; i < f->tracker_count; i++) {
		const struct tracker_finding *t = &f->trackers[i];

		printf("%s{", i ? "," : "");
		print_string("name", t->name, ",");
		printf("\"works\":%s,\"areas_only\":%s,", truth(t->works), truth(t->areas_only));
		print_string("strategy", t->strategy, ",");
		print_string("detail", t->detail, "}");
	}
	printf("],\"features\":[");
	for (size_t i = 0; i < f->feature_count; i++) {
		const struct finding *d = &f->features[i];

		printf("%s{", i ? "," : "");
		print_string("name", d->name, ",");
		printf("\"works\":%s,\"error\":%d,", truth(d->works), d->error);
		print_string("detail", d->detail, ",");
		print_string("cost", d->works ? NULL : d->cost, ",");
		print_string("enable", d->works ? NULL : d->enable, "}");
	}
	printf("],");
	print_json_feeds(f);
	printf("\"limits\":{\"max_map_count\":%" PRId64 ",\"perf_event_paranoid\":%" PRId64
	       ",\"unprivileged_userfaultfd\":%" PRId64 ",\"unprivileged_bpf_disabled\":%" PRId64
	       ",\"xsave_bytes\":%zu}}\n",
		h->max_map_count, h->perf_paranoid, h->unprivileged_userfaultfd,
		h->unprivileged_bpf_disabled, h->xsave_size);
}

/* ---- The command ----------------------------------------------------------------------- */

static error_t parse(int key, char *arg, struct argp_state *state)
{
	bool *json = state->input;

	switch (key) {
	case 'j':
		*json = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "takes no argument: %s", arg);
	}
	return ARGP_ERR_UNKNOWN;
}

static const struct argp_option options[] = {
	{ "json", 'j', NULL, 0, "print one JSON object instead of text", 0 },
	{ 0 },
};

static const struct argp argp = {
	.options = options,
	.parser = parse,
	.doc = "Say what this host can do for checkpoints, what is missing, and how to enable it.",
};

int cmd_doctor(int argc, char **argv)
{
	struct findings *f;
	bool json = false;

	argp_parse(&argp, argc, argv, 0, NULL, &json);
	f = examine_in_child();
	if (!f) {
		fprintf(stderr, "%s: no memory\n", argv[0]);
		return 1;
	}
	if (json)
		print_json(f);
	else
		print_text(f);
	return auto_tracker(f->trackers, f->tracker_count, true) ? 0 : 1;
}
