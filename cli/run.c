/* SPDX-License-Identifier: MIT */
/*
 * `cairn run`: checks everything that can be checked before the program runs, plans the patches,
 * and becomes the program. Nothing of this process stays behind.
 */
#include <argp.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cairn/cairn.h"
#include "commands.h"
#include "context_option.h"
#include "elf_file.h"
#include "findings.h"
#include "function_search.h"
#include "named_files.h"
#include "plan.h"
#include "runnable.h"
#include "session/session.h"

#define KEEP_MAX     65536
#define KEEP_RECOVER 8
#define TIMER_MS_MAX 86400000ul
#define TIMER_NS_MIN 50000u

struct run {
	struct crn_config config;
	bool keep_given, commit_given;
	char **program; /* argv of the program */
	char path[PATH_MAX];
};

enum {
	OPT_AT = 256,
	OPT_TRACKER,
	OPT_STRATEGY,
	OPT_FEED,
	OPT_CONTEXT,
	OPT_KEEP,
	OPT_SURFACE,
	OPT_RECOVER,
	OPT_COMMIT,
	OPT_STATS,
	OPT_TRACE,
	OPT_MEMORY,
	OPT_PROTECT
};

static const struct argp_option options[] = {
	{ NULL, 0, NULL, 0, "When to take checkpoints, and recovery:", 1 },
	{ "at", OPT_AT, "SITE[/N]", 0,
		"take a checkpoint at SITE, or at every N-th hit of it: wait (return of the event "
		"wait), output (after data was sent), func:[OBJECT:]SYMBOL, "
		"func:[OBJECT:]0xOFFSET, timer:MS; may be repeated",
		0 },
	{ "recover", OPT_RECOVER, NULL, 0,
		"when the program crashes, go back to the last checkpoint and run on; without "
		"--at, checkpoints are taken at wait",
		0 },
	{ "commit", OPT_COMMIT, "HOW", 0,
		"with --recover: hold (default) holds output until the next wait and takes one "
		"checkpoint for all of it, each takes a checkpoint after each output",
		0 },
	{ "keep", OPT_KEEP, "K", 0, "checkpoints to keep (default 1, or 8 with --recover)", 0 },
	{ NULL, 0, NULL, 0, "What is tracked, and how:", 2 },
	{ "tracker", OPT_TRACKER, "NAME", 0,
		"how writes are noticed: auto (default), async, uffd, mprotect, softdirty, fork",
		0 },
	{ "feed", OPT_FEED, "NAME", 0,
		"how tracker async learns which pages were written: auto (default), bpf, "
		"bpf-images, perf, scan",
		0 },
	{ "surface", OPT_SURFACE, "S", 0,
		"which memory is tracked: all (default), program, none, or a list of mapping names "
		"and address ranges",
		0 },
	{ "strategy", OPT_STRATEGY, "NAME[:PARAM=VALUE,...]", 0,
		"which pages to copy at the checkpoint instead of at their first write: auto "
		"(default), none, decay, ...; see cairn-run(1)",
		0 },
	{ "context", OPT_CONTEXT, "EXPR", 0,
		"keep a working set for each value of EXPR at the site: site, result, events, fd, "
		"reg:NAME, word:REG+OFFSET",
		0 },
	{ "memory-max", OPT_MEMORY, "SIZE", 0,
		"most memory that the engine may use, with suffix K, M or G", 0 },
	{ "protect", OPT_PROTECT, NULL, 0,
		"keep the engine's memory read-only while the program runs", 0 },
	{ NULL, 0, NULL, 0, "Figures:", 3 },
	{ "stats", OPT_STATS, "json", OPTION_ARG_OPTIONAL, "print a summary at exit", 0 },
	{ "trace", OPT_TRACE, "FILE", 0,
		"record which pages each interval writes, for cairn-bench; processes other than "
		"the first append .PID",
		0 },
	{ NULL, 0, NULL, 0, "Other:", -1 },
	{ 0 },
};

/* The last two know a program that is built for them, and are refused as what cannot run here. */
static const char *const trackers[] = { "auto", "async", "uffd", "mprotect", "softdirty", "fork",
	"shadow", "undolog", NULL };

static const char *const feeds[] = { "auto", "bpf", "bpf-images", "perf", "scan", NULL };

static bool known(const char *const *names, const char *name)
{
	for (; *names; names++)
		if (!strcmp(*names, name))
			return true;
	return false;
}

static bool number(const char *text, unsigned long max, unsigned long *out)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*out = strtoul(text, &end, 0);
	return !*end && !errno && *out <= max;
}

/* Milliseconds, down to the nanosecond: "5", "0.25". */
static bool milliseconds(const char *text, uint64_t *ns)
{
	uint64_t scale = 1000000, value = 0;
	bool point = false, digit = false;

	for (; *text; text++) {
		if (*text == '.' && !point) {
			point = true;
			continue;
		}
		if (*text < '0' || *text > '9' || (point && scale == 1))
			return false;
		digit = true;
		if (point)
			scale /= 10;
		value = value * 10 + (uint64_t)(*text - '0');
		if (value > TIMER_MS_MAX * 1000000)
			return false;
	}
	*ns = value * scale;
	return digit && *ns >= TIMER_NS_MIN && *ns <= TIMER_MS_MAX * 1000000;
}

static bool size_text(const char *text, uint64_t *out)
{
	static const char units[] = "KMGT";
	const char *unit;
	char *end;
	unsigned long long n;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	n = strtoull(text, &end, 10);
	*out = n;
	if (*end) {
		unit = strchr(units, *end & ~0x20);
		if (!unit || end[1])
			return false;
		*out = n << (10 * (unit - units + 1));
		if (*out >> (10 * (unit - units + 1)) != n)
			return false;
	}
	return !errno && *out > 0;
}

static void site_option(struct run *r, char *arg, struct argp_state *state)
{
	struct crn_site_spec *s = &r->config.sites[r->config.site_count];
	char *slash = strrchr(arg, '/');
	unsigned long n = 1;

	if (r->config.site_count == CRN_SITES_MAX)
		argp_error(state, "more than %d sites", CRN_SITES_MAX);
	if (strlen(arg) >= sizeof(s->text))
		argp_error(state, "site too long: %s", arg);
	strcpy(s->text, arg);
	if (slash) {
		if (!number(slash + 1, UINT32_MAX, &n) || n == 0)
			argp_error(state, "not a number of hits in site %s", s->text);
		*slash = 0;
	}
	s->every = (uint32_t)n;
	if (!strcmp(arg, "wait")) {
		s->kind = CRN_SITE_WAIT;
	} else if (!strcmp(arg, "output")) {
		s->kind = CRN_SITE_OUTPUT;
	} else if (!strncmp(arg, "func:", 5) && arg[5]) {
		s->kind = CRN_SITE_FUNC;
	} else if (!strncmp(arg, "timer:", 6)) {
		s->kind = CRN_SITE_TIMER;
		if (!milliseconds(arg + 6, &s->argument))
			argp_error(state, "not a number of milliseconds (0.05 to %lu) in site %s",
				TIMER_MS_MAX, s->text);
	} else {
		argp_error(state,
			"unknown site: %s (wait, output, func:SYMBOL, func:0xOFFSET, timer:MS)",
			s->text);
	}
	if (slash)
		*slash = '/';
	r->config.site_count++;
}

static void name_option(char *to, size_t size, const char *const *names, const char *what,
	const char *arg, struct argp_state *state)
{
	char list[128] = "";

	for (const char *const *n = names; *n; n++)
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s",
			n > names ? ", " : "", *n);
	if (!known(names, arg) || strlen(arg) >= size)
		argp_error(state, "unknown %s: %s (%s)", what, arg, list);
	strcpy(to, arg);
}

static void text_option(
	char *to, size_t size, const char *what, const char *arg, struct argp_state *state)
{
	if (!*arg || strlen(arg) >= size)
		argp_error(state, "%s empty or too long", what);
	strcpy(to, arg);
}

static void surface_option(struct crn_config *c, const char *arg, struct argp_state *state)
{
	text_option(c->surface, sizeof(c->surface), "surface", arg, state);
	if (crn_surface_check(arg) < 0)
		argp_error(state,
			"not a surface: %s (all, program, none, or a list of mapping names and of "
			"ranges of whole pages, 0xBEGIN-0xEND)",
			arg);
}

static void memory_option(struct crn_config *c, const char *arg, struct argp_state *state)
{
	if (!size_text(arg, &c->memory_max))
		argp_error(state, "--memory-max takes a size like 512M, not %s", arg);
	if (c->memory_max < CRN_MEMORY_MIN)
		argp_error(state, "--memory-max takes at least %luM, not %s", CRN_MEMORY_MIN >> 20,
			arg);
}

static void commit_option(struct run *r, const char *arg, struct argp_state *state)
{
	if (strcmp(arg, "each") != 0 && strcmp(arg, "hold") != 0)
		argp_error(state, "--commit takes each or hold, not %s", arg);
	r->config.commit_each = !strcmp(arg, "each");
	r->commit_given = true;
}

/* The program may change its directory before it comes to its first site. */
static void trace_option(struct crn_config *c, const char *arg, struct argp_state *state)
{
	char here[PATH_MAX] = "";
	size_t len;

	if (*arg != '/' && !getcwd(here, sizeof(here)))
		argp_error(state, "--trace: no working directory: %s", strerror(errno));
	len = (size_t)snprintf(c->trace, sizeof(c->trace), "%s%s%s", here, *here ? "/" : "", arg);
	if (!*arg || len >= sizeof(c->trace))
		argp_error(state, "--trace: file name empty or too long: %s", arg);
	c->trace_pid = getpid();
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct run *r = state->input;
	struct crn_config *c = &r->config;
	unsigned long n;

	switch (key) {
	case OPT_AT:
		site_option(r, arg, state);
		return 0;
	case OPT_TRACKER:
		name_option(c->tracker, sizeof(c->tracker), trackers, "tracker", arg, state);
		return 0;
	case OPT_FEED:
		name_option(c->feed, sizeof(c->feed), feeds, "feed", arg, state);
		return 0;
	case OPT_STRATEGY:
		text_option(c->strategy, sizeof(c->strategy), "strategy", arg, state);
		return 0;
	case OPT_CONTEXT:
		if (!context_option(&c->context, arg))
			argp_error(state,
				"unknown context: %s (site, result, events, fd, reg:NAME, "
				"word:REG+OFFSET)",
				arg);
		return 0;
	case OPT_KEEP:
		if (!number(arg, KEEP_MAX, &n) || n == 0)
			argp_error(
				state, "--keep takes a number from 1 to %d, not %s", KEEP_MAX, arg);
		c->keep = (uint32_t)n;
		r->keep_given = true;
		return 0;
	case OPT_SURFACE:
		surface_option(c, arg, state);
		return 0;
	case OPT_MEMORY:
		memory_option(c, arg, state);
		return 0;
	case OPT_PROTECT:
		c->flags |= CAIRN_PROTECT;
		return 0;
	case OPT_RECOVER:
		c->recover = true;
		return 0;
	case OPT_COMMIT:
		commit_option(r, arg, state);
		return 0;
	case OPT_STATS:
		if (arg && strcmp(arg, "json"))
			argp_error(state, "--stats takes nothing or json, not %s", arg);
		c->stats = true;
		c->stats_json = arg != NULL;
		return 0;
	case OPT_TRACE:
		trace_option(c, arg, state);
		return 0;
	case ARGP_KEY_ARGS:
		r->program = state->argv + state->next;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "no program given");
		return 0;
	case ARGP_KEY_END:
		if (r->commit_given && !c->recover)
			argp_error(state, "--commit needs --recover: nothing is committed without");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* Sites at one entry, or in each other's bytes, would patch what is patched already. */
static bool overlaps_another(const struct plan_builder *b)
{
	const struct crn_plan_function *new = &b->functions[b->function_count - 1];

	for (const struct crn_plan_function *f = b->functions; f < new; f++)
		if (!strcmp(f->object, new->object) && f->offset < new->offset + new->displaced &&
			new->offset < f->offset + f->displaced)
			return true;
	return false;
}

static int plan_entry(struct plan_builder *b, const char *path, const char *object, uint32_t i,
	const struct crn_site_spec *s)
{
	int e = plan_add_function(b, path, i, s->argument);

	if (e == -ENOTSUP)
		return refuse(CRN_EXIT_USAGE, s->text,
			"the function begins with a branch: its entry cannot be a site");
	if (e < 0)
		return refuse(CRN_EXIT_USAGE, s->text, "no code there");
	snprintf(b->functions[b->function_count - 1].object, sizeof(b->functions[0].object), "%s",
		object);
	if (overlaps_another(b))
		return refuse(CRN_EXIT_USAGE, s->text, "another site is at this function already");
	return 0;
}

/* Look up each func: site in the program, and in the objects that it has at its start. */
static int resolve_functions(struct run *r, struct plan_builder *b)
{
	int status = 0;

	for (uint32_t i = 0; i < r->config.site_count && !status; i++) {
		struct crn_site_spec *s = &r->config.sites[i];
		struct found_function found;
		const char *why;

		if (s->kind != CRN_SITE_FUNC)
			continue;
		why = function_find(s->text + 5, r->path, &found);
		if (why) {
			status = refuse(CRN_EXIT_USAGE, s->text, why);
			continue;
		}
		s->argument = found.address;
		status = plan_entry(b, found.path, found.object, i, s);
	}
	return status;
}

/* libcairn-agent.so beside this command: in the build tree, or installed. */
static bool find_agent(char *out)
{
	static const char *const places[] = { CRN_AGENT_IN_BUILD, CRN_AGENT_INSTALLED };
	char self[PATH_MAX], folder[2 * PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n < 0)
		return false;
	self[n] = 0;
	*strrchr(self, '/') = 0;
	for (size_t i = 0; i < 2; i++) {
		snprintf(folder, sizeof(folder), "%s/%s", self, places[i]);
		if (realpath(folder, out) && access(out, R_OK) == 0)
			return true;
	}
	return false;
}

static int preload(const char *agent)
{
	const char *old = getenv("LD_PRELOAD");
	char *text;
	int r;

	if (strpbrk(agent, " :")) {
		fprintf(stderr,
			"cairn run: %s: LD_PRELOAD cannot name a path with blanks or colons\n",
			agent);
		return -EINVAL;
	}
	if (asprintf(&text, "%s%s%s", agent, old && *old ? ":" : "", old ? old : "") < 0)
		return -ENOMEM;
	r = setenv("LD_PRELOAD", text, 1);
	free(text);
	return r;
}

/* Hand over the plan and become the program. Returns only on failure. */
static int become(struct run *r, struct plan_builder *b)
{
	char agent[PATH_MAX], text[16];
	int fd;

	if (!find_agent(agent))
		return refuse(
			EXIT_REFUSED, "libcairn-agent.so", "not found beside the cairn command");
	plan_add_system(b);
	fd = plan_write(b, &r->config);
	plan_free(b);
	if (fd < 0) {
		fprintf(stderr, "cairn run: the agent's plan cannot be handed over by memfd: %s\n",
			strerror(-fd));
		return EXIT_REFUSED;
	}
	snprintf(text, sizeof(text), "%d", fd);
	if (setenv(CRN_PLAN_ENV, text, 1) < 0 || preload(agent) < 0)
		return EXIT_REFUSED;
	execvp(r->program[0], r->program);
	return refuse(
		errno == ENOENT ? EXIT_MISSING : EXIT_REFUSED, r->program[0], strerror(errno));
}

static bool tracker_works(const char *name, const char *feed)
{
	struct tracker_finding found[8];
	struct crn_host host;
	size_t count;

	crn_host_probe(&host);
	if (*feed && strcmp(feed, "auto") != 0 && strcmp(feed, "scan") != 0) {
		crn_host_probe_feeds(&host);
		if (!(strcmp(feed, "perf") ? host.bpf && host.bpf_types : host.perf_locks))
			return false;
	}
	count = find_trackers(found, sizeof(found) / sizeof(found[0]), &host);
	for (size_t i = 0; i < count; i++)
		if (!strcmp(found[i].name, name))
			return found[i].works;
	return false;
}

/*
 * The session opens inside the program, which would run on without checkpoints if its tracker or
 * feed cannot. `auto` always finds one. In a child, because a seccomp filter may kill who asks.
 */
static int check_tracker(const struct crn_config *c)
{
	bool fed = *c->feed && strcmp(c->feed, "auto") != 0;
	const char *name = fed ? "async" : c->tracker;
	int status = -1;
	pid_t pid;

	if (!strcmp(name, "auto"))
		return 0;
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(!tracker_works(name, c->feed));
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status == 0 || pid < 0)
		return 0;
	fprintf(stderr, "cairn run: tracker %s%s%s cannot run on this host: see `cairn doctor`\n",
		name, fed ? " with feed " : "", fed ? c->feed : "");
	return EXIT_REFUSED;
}

static bool bound(const char *strategy)
{
	return !strncmp(strategy, "oracle-count", strlen("oracle-count"));
}

/* Options that make no sense together. 0, or the exit status after a message. */
static int check_options(const struct crn_config *c)
{
	bool any = !strcmp(c->tracker, "auto");
	const char *wrong = NULL;
	char why[CRN_STRATEGY_WHY];

	if (crn_strategy_check(c->strategy, c->tracker, why) < 0)
		wrong = why;
	else if (bound(c->strategy) && (c->recover || *c->trace))
		wrong = "strategy oracle-count keeps no checkpoints and notices no writes: it goes "
			"with neither --recover nor --trace";
	else if (*c->feed && strcmp(c->feed, "auto") != 0 && !any &&
		strcmp(c->tracker, "async") != 0)
		wrong = "--feed is for tracker async: the others are told of each write";
	else if (*c->trace && !strcmp(c->tracker, "fork"))
		wrong = "--trace: tracker fork does not know which pages are written";
	/* Half of a heap put back is worse than a crash: allocators live in mmap and in brk. */
	else if (c->recover && strcmp(c->surface, "all") != 0)
		wrong = "--recover needs --surface all: memory left out would not match what is "
			"put back";
	if (wrong)
		fprintf(stderr, "cairn run: %s\n", wrong);
	else if (check_oracle(c) && (!*c->trace || check_trace(c->trace)))
		return 0;
	return CRN_EXIT_USAGE;
}

int cmd_run(int argc, char **argv)
{
	static const struct argp argp = { options, parse, "[--] PROGRAM [ARG...]",
		"Run an unmodified program with checkpoints of its memory.\v"
		"Example: cairn run --at wait --recover -- redis-server --jemalloc-bg-thread no",
		NULL, NULL, NULL };
	static struct run r = {
		.config = { .tracker = "auto", .strategy = "auto", .surface = "all", .keep = 1 }
	};
	static struct plan_builder b;
	int status;

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &r);
	if (r.config.recover && !r.keep_given)
		r.config.keep = KEEP_RECOVER;
	if (r.config.recover && !r.config.site_count)
		r.config.sites[r.config.site_count++] =
			(struct crn_site_spec){ .kind = CRN_SITE_WAIT, .every = 1, .text = "wait" };
	/* Of a hot page nobody knows that it was written, if its content is the same. */
	if (*r.config.trace && !strcmp(r.config.strategy, "auto"))
		strcpy(r.config.strategy, "none");
	status = check_options(&r.config);
	if (!status)
		status = check_program(r.program[0], r.path);
	if (!status)
		status = check_tracker(&r.config);
	if (!status)
		status = resolve_functions(&r, &b);
	return status ? status : become(&r, &b);
}
