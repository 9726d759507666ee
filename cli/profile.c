/* SPDX-License-Identifier: MIT */
/*
 * cairn profile: where to take checkpoints in a program whose source is not known. Runs it under a
 * test load, finds the loops that never end in each kind of process, and says which site of `cairn
 * run` they are (SMC section 6, for unmodified programs).
 */
#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "commands.h"
#include "profile.h"

#define TICK_US     10000
#define QUIET_NS    300000000ull  /* all threads wait for so long: the program has started */
#define START_NS    3000000000ull /* it never does: begin anyway */
#define TERM_NS     3000000000ull /* from SIGTERM to the root, to all, to SIGKILL */
#define SECONDS_MAX 86400.0

struct arguments {
	double seconds; /* 0: until the program, the load or the user ends it */
	const char *load;
	bool json;
	char **program;
};

static volatile sig_atomic_t interrupted;

uint64_t profile_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void *profile_alloc(size_t size)
{
	void *p = calloc(1, size);

	if (!p) {
		fprintf(stderr, "cairn profile: out of memory\n");
		exit(1);
	}
	return p;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct arguments *a = state->input;
	char *end;

	switch (key) {
	case 's':
		a->seconds = strtod(arg, &end);
		if (*end || end == arg || !(a->seconds > 0) || a->seconds > SECONDS_MAX)
			argp_error(state, "not a number of seconds: %s", arg);
		return 0;
	case 'l':
		a->load = arg;
		return 0;
	case 'j':
		a->json = true;
		return 0;
	case ARGP_KEY_ARGS:
		a->program = state->argv + state->next;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "no program given");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
	{ "load", 'l', "COMMAND", 0,
		"shell command that produces the test load; the profile ends with it. Without "
		"this option, produce the load yourself",
		0 },
	{ "seconds", 's', "N", 0, "end after N seconds of load", 0 },
	{ "json", 'j', NULL, 0, "print one JSON object on one line", 0 },
	{ 0 },
};

/* ---- the load -------------------------------------------------------------------------------- */

/* In a process group of its own: all of it is ended with us, and Ctrl-C is for us alone. */
static pid_t load_start(const char *command)
{
	pid_t pid = fork();

	if (pid == 0) {
		setpgid(0, 0);
		signal(SIGINT, SIG_DFL);
		/* Its output is not the report. */
		dup2(STDERR_FILENO, STDOUT_FILENO);
		execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	if (pid > 0)
		setpgid(pid, pid);
	return pid;
}

static void load_end(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(-pid, SIGTERM);
	for (int i = 0; i < 50 && waitpid(pid, NULL, WNOHANG) == 0; i++)
		usleep(20000);
	kill(-pid, SIGKILL);
	waitpid(pid, NULL, WNOHANG);
}

/* ---- the run --------------------------------------------------------------------------------- */

struct run {
	struct profile p;
	struct arguments a;
	pid_t load;
	bool load_ended;
	int load_status;
	uint64_t quiet_since, told_ns;
	bool terminal;
	bool ended_itself; /* the program did, before it was asked to */
};

static void on_signal(int sig)
{
	if (sig != SIGALRM)
		interrupted = 1;
}

/* SIGALRM, without SA_RESTART, ends a waitpid a hundred times a second. */
static void signals(bool on)
{
	struct sigaction act = { .sa_handler = on_signal }, hang_up;
	struct itimerval tick = { { 0, on ? TICK_US : 0 }, { 0, on ? TICK_US : 0 } };

	sigaction(SIGALRM, &act, NULL);
	sigaction(SIGINT, &act, NULL);
	sigaction(SIGQUIT, &act, NULL);
	sigaction(SIGTERM, &act, NULL);
	sigaction(SIGHUP, NULL, &hang_up);
	if (hang_up.sa_handler != SIG_IGN) /* nohup(1) */
		sigaction(SIGHUP, &act, NULL);
	setitimer(ITIMER_REAL, &tick, NULL);
}

/* Everything that has happened, at most one tick long. */
static void events(struct run *r)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, __WALL)) > 0) {
		if (pid == r->load && !WIFSTOPPED(status)) {
			r->load_ended = true;
			r->load_status = status;
		} else {
			profile_event(&r->p, pid, status);
		}
		if (interrupted || r->load_ended)
			break;
		/* A busy program may let no alarm interrupt waitpid. */
		if ((r->p.stops & 63) == 0 && profile_now() - r->told_ns > TICK_US * 1000ull)
			break;
	}
	r->told_ns = profile_now();
}

static void begin_load(struct run *r, uint64_t now)
{
	struct profile *p = &r->p;

	if (!profile_quiet(p))
		r->quiet_since = now;
	if (now - r->quiet_since < QUIET_NS && now - p->began_ns < START_NS)
		return;
	profile_forget_counts(p);
	p->load_ns = now;
	if (!r->a.load)
		return;
	r->load = load_start(r->a.load);
	if (r->terminal)
		fprintf(stderr, "\rcairn profile: the load begins\033[K\n");
}

static void progress(struct run *r, uint64_t now)
{
	static uint64_t last;
	const struct profile *p = &r->p;

	if (!r->terminal || now - last < 500000000ull)
		return;
	last = now;
	fprintf(stderr, "\rcairn profile: %.0f s, %u threads, %lu stops; Ctrl-C ends it\033[K",
		(double)(now - p->began_ns) / 1e9, profile_live(p), (unsigned long)p->stops);
}

static bool finished(const struct run *r, uint64_t now)
{
	const struct profile *p = &r->p;

	return interrupted || r->load_ended || profile_live(p) == 0 ||
		(r->a.seconds > 0 && p->load_ns &&
			(double)(now - p->load_ns) / 1e9 >= r->a.seconds);
}

/* Ask nicely, then all, then kill. Calls of the program need us until it is gone. */
static void end_program(struct run *r)
{
	uint64_t began = profile_now();
	int step = 0, status;

	while (profile_live(&r->p)) {
		uint64_t passed = profile_now() - began;
		pid_t pid;

		if (step == 0 && !r->p.root_ended)
			kill(r->p.root, SIGTERM);
		else if ((step == 0 && r->p.root_ended) || (step == 1 && passed > TERM_NS))
			profile_signal_all(&r->p, SIGTERM);
		else if (step >= 2 && passed > 2 * TERM_NS)
			profile_signal_all(&r->p, SIGKILL);
		if (step == 0)
			profile_signal_all(&r->p, SIGCONT); /* the stopped ones as well */
		if (step == 0 || (step == 1 && passed > TERM_NS))
			step++;
		pid = waitpid(-1, &status, __WALL);
		if (pid > 0)
			profile_event(&r->p, pid, status);
		else if (errno == ECHILD)
			break;
	}
}

static void go(struct run *r)
{
	struct profile *p = &r->p;
	uint64_t now = profile_now();

	p->began_ns = r->quiet_since = r->told_ns = now;
	while (!finished(r, now)) {
		events(r);
		profile_tick(p);
		now = profile_now();
		if (!p->load_ns)
			begin_load(r, now);
		progress(r, now);
	}
	p->ended_ns = now;
	profile_snapshot(p);
	p->recording = false;
	r->ended_itself = p->root_ended;
	if (r->terminal)
		fprintf(stderr, "\r\033[K");
	end_program(r);
	if (!r->load_ended)
		load_end(r->load);
}

/* The child has said what was wrong; there is nothing to report. */
static int never_ran(const struct profile *p)
{
	int status = p->root_status;

	if (!p->root_ended || p->executed || !WIFEXITED(status))
		return 0;
	return WEXITSTATUS(status);
}

int cmd_profile(int argc, char **argv)
{
	static const struct argp argp = { options, parse, "[--] PROGRAM [ARG...]",
		"Run a program under a test load and find the best sites for its checkpoints.\v"
		"`cairn profile report FILE` shows what a program built with cairn-cc "
		"-fcairn-profile has counted. It has its own options.",
		NULL, NULL, NULL };
	static struct run r;
	static char report[] = "cairn profile report";
	int status;

	if (argc > 1 && !strcmp(argv[1], "report")) {
		argv[1] = report;
		return profile_report_loops(argc - 1, argv + 1);
	}
	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &r.a) != 0)
		return CRN_EXIT_USAGE;
	r.terminal = isatty(STDERR_FILENO);
	r.p.argv = r.a.program;
	r.p.json = r.a.json;
	r.p.recording = true;
	status = profile_start(&r.p);
	if (status)
		return status;
	signals(true);
	go(&r);
	signals(false);
	status = never_ran(&r.p);
	if (status)
		return status;
	if (r.load_ended && r.load_status)
		fprintf(stderr, "cairn profile: the load ended with status %d\n",
			WIFEXITED(r.load_status) ? WEXITSTATUS(r.load_status)
						 : 128 + WTERMSIG(r.load_status));
	if (r.ended_itself && WIFSIGNALED(r.p.root_status))
		fprintf(stderr, "cairn profile: %s was ended by signal %d (%s)\n", r.p.argv[0],
			WTERMSIG(r.p.root_status), strsignal(WTERMSIG(r.p.root_status)));
	profile_report(&r.p, stdout);
	return 0;
}
