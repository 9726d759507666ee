/* SPDX-License-Identifier: MIT */
/*
 * Checkpoints at functions that were named to the compiler (-fcairn-site): the program itself knows
 * nothing of them. Linked only into programs that have such a site.
 *
 * A restore comes back out of __cairn_site like any return: registers and the active stack are as
 * they were, so code around the call needs to know nothing of it either.
 */
#include "base/bits.h"
#include "base/log.h"
#include "cairn/cairn.h"
#include "os/descriptor.h"
#include "rt/rt.h"

char *getenv(const char *name);
int strcmp(const char *a, const char *b);
int getpid(void);

/* -fcairn-keep=K: no variable but a symbol whose address is K. */
extern const char __cairn_site_keep[] __attribute__((weak));

/* Once for each process, and for the rest of its life. */
static void say(const char *what, int err)
{
	struct crn_rt *rt = &__cairn_rt;

	if (!rt->site_told)
		crn_error("site: %s: %s", what, cairn_strerror(err));
	rt->site_told = true;
}

/*
 * The pass inserts calls by this name: the site was reached; *count is how often since its last
 * checkpoint, which every `every`-th time takes. The first call opens the session, with `threads`
 * (enum cairn_threads); in a forked child, whose page of state the kernel has wiped, the child's
 * own.
 */
__attribute__((visibility("default"))) void __cairn_site(
	uint32_t *count, uint32_t every, uint32_t threads);

void __cairn_site(uint32_t *count, uint32_t every, uint32_t threads)
{
	struct crn_rt *rt = &__cairn_rt;
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	uint64_t id;
	int err;

	if (++*count < every)
		return;
	*count = 0;
	if (crn_unlikely(!rt->site_session)) {
		if (rt->site_refused)
			return;
		options.threads = threads;
		if (__cairn_site_keep)
			options.keep = (uint32_t)(uintptr_t)__cairn_site_keep;
		err = cairn_open(&rt->site_session, &options);
		if (err < 0) {
			rt->site_refused = true;
			say("no session", err);
			return;
		}
	}
	err = cairn_checkpoint(rt->site_session, &id);
	if (crn_unlikely(err < 0))
		say("no checkpoint", err);
}

/* CAIRN_STATS=json. Asked at the start: programs clear their environment. */
static bool wants_figures;

static __attribute__((constructor)) void ask_for_figures(void)
{
	const char *wanted = getenv("CAIRN_STATS");

	wants_figures = wanted && !strcmp(wanted, "json");
}

/* As the agent's --stats=json, at the end of each process that has sites. */
static __attribute__((destructor)) void tell_figures(void)
{
	struct cairn_stats s = { .size = sizeof(s) };
	char line[512];
	size_t len;
	int fd;

	if (!wants_figures || !__cairn_rt.site_session ||
		cairn_stats(__cairn_rt.site_session, &s) < 0)
		return;
	len = crn_format(line, sizeof(line),
		"{\"pid\": %d, \"tracker\": \"%s\", \"checkpoints\": %lu, \"failed\": %lu, "
		"\"restores\": %lu, \"saved\": %lu, \"checkpoint_ns\": %lu, "
		"\"engine_bytes_max\": %lu}\n",
		getpid(), s.tracker, s.checkpoints, s.failed, s.restores, s.faults, s.checkpoint_ns,
		s.engine_bytes_max);
	fd = crn_log_start();
	if (fd >= 0)
		(void)!crn_fd_write_line(fd, line, CRN_MIN(len, sizeof(line) - 1));
}
