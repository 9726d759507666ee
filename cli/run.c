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
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "cairn/cairn.h"
#include "commands.h"
#include "elf_file.h"
#include "findings.h"
#include "plan.h"

#define EXIT_OPTION  2
#define EXIT_REFUSED 126
#define EXIT_MISSING 127
#define KEEP_MAX     65536
#define KEEP_RECOVER 8
#define TIMER_MS_MAX 86400000ul

struct run {
	struct crn_config config;
	bool keep_given;
	char **program; /* argv of the program */
	char path[PATH_MAX];
};

enum {
	OPT_AT = 256,
	OPT_TRACKER,
	OPT_STRATEGY,
	OPT_KEEP,
	OPT_SURFACE,
	OPT_RECOVER,
	OPT_STATS,
	OPT_MEMORY,
	OPT_PROTECT
};

static const struct argp_option options[] = {
	{ "at", OPT_AT, "SITE[/N]", 0,
		"checkpoint at SITE, or at every N-th hit of it: wait, output, func:SYMBOL, "
		"func:0xOFFSET, timer:MS; may be repeated",
		0 },
	{ "tracker", OPT_TRACKER, "NAME", 0,
		"auto (default), async, uffd, mprotect, softdirty, fork", 0 },
	{ "strategy", OPT_STRATEGY, "NAME", 0, "which pages to copy eagerly: none (default)", 0 },
	{ "keep", OPT_KEEP, "K", 0, "checkpoints to keep: 1, or 8 with --recover", 0 },
	{ "surface", OPT_SURFACE, "S", 0, "all (default), program, or mapping names and ranges",
		0 },
	{ "memory-max", OPT_MEMORY, "SIZE", 0, "bytes the engine may use (K, M, G)", 0 },
	{ "protect", OPT_PROTECT, NULL, 0, "keep the engine's copies read-only meanwhile", 0 },
	{ "recover", OPT_RECOVER, NULL, 0,
		"go back to the last checkpoint when the program crashes", 0 },
	{ "stats", OPT_STATS, "json", OPTION_ARG_OPTIONAL, "print a summary at exit", 0 },
	{ 0 },
};

static const char *const trackers[] = { "auto", "async", "uffd", "mprotect", "softdirty", "fork",
	NULL };
static const char *const strategies[] = { "none", NULL };

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

	if (r->config.site_count == sizeof(r->config.sites) / sizeof(r->config.sites[0]))
		argp_error(state, "too many sites");
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
		if (!number(arg + 6, TIMER_MS_MAX, &n) || n == 0)
			argp_error(state, "not a number of milliseconds in site %s", s->text);
		s->argument = n;
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
	if (!known(names, arg) || strlen(arg) >= size)
		argp_error(state, "unknown %s: %s", what, arg);
	strcpy(to, arg);
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
	case OPT_STRATEGY:
		name_option(c->strategy, sizeof(c->strategy), strategies, "strategy", arg, state);
		return 0;
	case OPT_KEEP:
		if (!number(arg, KEEP_MAX, &n) || n == 0)
			argp_error(
				state, "--keep takes a number from 1 to %d, not %s", KEEP_MAX, arg);
		c->keep = (uint32_t)n;
		r->keep_given = true;
		return 0;
	case OPT_SURFACE:
		if (!*arg || strlen(arg) >= sizeof(c->surface))
			argp_error(state, "surface empty or too long");
		strcpy(c->surface, arg);
		return 0;
	case OPT_MEMORY:
		if (!size_text(arg, &c->memory_max))
			argp_error(state, "--memory-max takes a size like 512M, not %s", arg);
		return 0;
	case OPT_PROTECT:
		c->flags |= CAIRN_PROTECT;
		return 0;
	case OPT_RECOVER:
		c->recover = true;
		return 0;
	case OPT_STATS:
		if (arg && strcmp(arg, "json"))
			argp_error(state, "--stats takes nothing or json, not %s", arg);
		c->stats = true;
		c->stats_json = arg != NULL;
		return 0;
	case ARGP_KEY_ARGS:
		r->program = state->argv + state->next;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "no program given");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* A word for scripts and people alike: what, why. */
static int refuse(int status, const char *program, const char *why)
{
	fprintf(stderr, "cairn run: %s: %s\n", program, why);
	return status;
}

/* As execvp looks for it. False with errno. */
static bool find_program(const char *name, char *path)
{
	const char *at = getenv("PATH"), *end;
	int error = ENOENT;

	if (strchr(name, '/')) {
		snprintf(path, PATH_MAX, "%s", name);
		return access(path, X_OK) == 0;
	}
	if (!at)
		at = "/bin:/usr/bin";
	for (; *name; at = end + 1) {
		end = strchrnul(at, ':');
		snprintf(
			path, PATH_MAX, "%.*s%s%s", (int)(end - at), at, end > at ? "/" : "", name);
		if (access(path, X_OK) == 0)
			return true;
		if (errno == EACCES)
			error = EACCES;
		if (!*end)
			break;
	}
	errno = error;
	return false;
}

/* The program that a script names in its first line; false if it is none. */
static bool script_interpreter(const char *path, char *out)
{
	FILE *f = fopen(path, "re");
	char line[256] = "", *at = line + 2, *end;
	bool ok;

	if (!f)
		return false;
	ok = fgets(line, sizeof(line), f) && line[0] == '#' && line[1] == '!';
	fclose(f);
	if (!ok)
		return false;
	at += strspn(at, " \t");
	end = at + strcspn(at, " \t\n");
	*end = 0;
	return *at && snprintf(out, PATH_MAX, "%s", at) < PATH_MAX;
}

/* Would the kernel give it more rights than we have, so that ld.so ignores LD_PRELOAD? */
static bool gains_rights(const char *path, const struct stat *st)
{
	char caps[64];

	return ((st->st_mode & S_ISUID) && st->st_uid != geteuid()) ||
		((st->st_mode & S_ISGID) && st->st_gid != getegid()) ||
		((st->st_mode & (S_ISUID | S_ISGID)) && geteuid() != getuid()) ||
		getxattr(path, "security.capability", caps, sizeof(caps)) >= 0;
}

/*
 * Everything that would keep the agent out of the program. 0, or the exit status after a message.
 */
static int check_program(const char *name, char *path, int depth)
{
	const char *interpreter;
	enum elf_kind kind;
	struct elf_file f;
	struct stat st;
	int e;

	if (!find_program(name, path))
		return refuse(errno == EACCES ? EXIT_REFUSED : EXIT_MISSING, name, strerror(errno));
	if (stat(path, &st) < 0)
		return refuse(EXIT_MISSING, name, strerror(errno));
	if (!S_ISREG(st.st_mode))
		return refuse(EXIT_REFUSED, name, "not a program");
	if (st.st_mode & (S_ISUID | S_ISGID))
		return refuse(
			EXIT_REFUSED, name, "setuid and setgid programs cannot be run under Cairn");
	if (gains_rights(path, &st))
		return refuse(EXIT_REFUSED, name,
			"programs with file capabilities cannot be run under Cairn");
	e = elf_open(&f, path);
	if (e == -ENOEXEC) {
		char next[PATH_MAX];

		if (depth < 4 && script_interpreter(path, next))
			return check_program(next, path, depth + 1);
		return refuse(EXIT_REFUSED, name, "not a 64-bit x86 program");
	}
	if (e < 0)
		return refuse(EXIT_REFUSED, name, strerror(-e));
	kind = elf_kind(&f, &interpreter);
	elf_close(&f);
	if (kind == ELF_STATIC)
		return refuse(
			EXIT_REFUSED, name, "statically linked programs cannot be run under Cairn");
	if (kind != ELF_DYNAMIC)
		return refuse(EXIT_REFUSED, name, "not a 64-bit x86 program");
	return 0;
}

static int plan_entry(
	struct plan_builder *b, const char *path, uint32_t i, const struct crn_site_spec *s)
{
	int e = plan_add_function(b, path, i, s->argument);

	if (e == -ENOTSUP)
		return refuse(CRN_EXIT_USAGE, s->text,
			"the function begins with a branch: its entry cannot be a site");
	return e < 0 ? refuse(CRN_EXIT_USAGE, s->text, "no code there") : 0;
}

/* Look up func:SYMBOL and func:0xOFFSET in the program. */
static int resolve_functions(struct run *r, struct plan_builder *b)
{
	struct elf_file f;
	int status = 0;

	for (uint32_t i = 0; i < r->config.site_count && !status; i++) {
		struct crn_site_spec *s = &r->config.sites[i];
		char name[sizeof(s->text)];
		unsigned long offset;
		char *slash;

		if (s->kind != CRN_SITE_FUNC)
			continue;
		strcpy(name, s->text + 5);
		slash = strrchr(name, '/');
		if (slash)
			*slash = 0;
		if (elf_open(&f, r->path) < 0)
			return refuse(EXIT_REFUSED, r->path, "cannot be read");
		if (!strncmp(name, "0x", 2) ? !number(name, ULONG_MAX, &offset)
					    : !elf_symbol(&f, name, &s->argument))
			status = refuse(CRN_EXIT_USAGE, s->text, "no such function in the program");
		else if (!strncmp(name, "0x", 2))
			s->argument = offset;
		elf_close(&f);
		if (!status)
			status = plan_entry(b, r->path, i, s);
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
	if (fd < 0)
		return refuse(EXIT_REFUSED, r->path, strerror(-fd));
	snprintf(text, sizeof(text), "%d", fd);
	if (setenv(CRN_PLAN_ENV, text, 1) < 0 || preload(agent) < 0)
		return EXIT_REFUSED;
	execvp(r->program[0], r->program);
	return refuse(
		errno == ENOENT ? EXIT_MISSING : EXIT_REFUSED, r->program[0], strerror(errno));
}

static bool tracker_works(const char *name)
{
	struct tracker_finding found[8];
	struct crn_host host;
	size_t count;

	crn_host_probe(&host);
	count = find_trackers(found, sizeof(found) / sizeof(found[0]), &host);
	for (size_t i = 0; i < count; i++)
		if (!strcmp(found[i].name, name))
			return found[i].works;
	return false;
}

/*
 * The session opens inside the program, which would run on without checkpoints if its tracker
 * cannot. `auto` always finds one. In a child, because a seccomp filter may kill who asks.
 */
static int check_tracker(const char *name)
{
	int status = -1;
	pid_t pid;

	if (!strcmp(name, "auto"))
		return 0;
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		_exit(!tracker_works(name));
	while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (status == 0 || pid < 0)
		return 0;
	fprintf(stderr, "cairn run: tracker %s cannot run on this host: see `cairn doctor`\n",
		name);
	return EXIT_REFUSED;
}

int cmd_run(int argc, char **argv)
{
	static const struct argp argp = { options, parse, "[--] PROGRAM [ARG...]",
		"Run an unmodified program with checkpoints of its memory.", NULL, NULL, NULL };
	static struct run r = {
		.config = { .tracker = "auto", .strategy = "none", .surface = "all", .keep = 1 }
	};
	static struct plan_builder b;
	int status;

	argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &r);
	if (r.config.recover && !r.keep_given)
		r.config.keep = KEEP_RECOVER;
	/*
	 * Half of a heap put back is worse than a crash: allocators live in mmap as well as in brk.
	 */
	if (r.config.recover && strcmp(r.config.surface, "all") != 0) {
		fprintf(stderr, "cairn run: --recover needs --surface all: memory left out "
				"would not match what is put back\n");
		return EXIT_OPTION;
	}
	status = check_program(r.program[0], r.path, 0);
	if (!status)
		status = check_tracker(r.config.tracker);
	if (!status)
		status = resolve_functions(&r, &b);
	return status ? status : become(&r, &b);
}
