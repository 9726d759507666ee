/* SPDX-License-Identifier: MIT */
/*
 * Checkpoints at functions that were named to the compiler (-fcairn-site); the program itself knows
 * nothing of them. Linked only into programs that have such a site.
 *
 * A restore returns from __cairn_site like any call: registers and the active stack are as they
 * were, so the code around the call needs to know nothing, either.
 */
#include "base/bits.h"
#include "base/log.h"
#include "cairn/cairn.h"
#include "os/descriptor.h"
#include "os/log_writer.h"
#include "os/thread.h"
#include "rt/rt.h"

char *getenv(const char *name);
int strcmp(const char *a, const char *b);

/* -fcairn-keep=K: no variable but a symbol whose address is K. */
extern const char __cairn_site_keep[] __attribute__((weak));
extern char *__libc_stack_end __attribute__((weak)); /* of the main thread */

/* CAIRN_STATS=json, CAIRN_MEMORY_MAX=BYTES, CAIRN_SITE_EVERY=N. */
static bool wants_figures;
static uint64_t memory_max, every_site;

static uint64_t number_of(const char *name)
{
	const char *text = getenv(name);
	uint64_t number = 0;

	while (text && *text >= '0' && *text <= '9')
		number = number * 10 + (uint64_t)(*text++ - '0');
	return number;
}

/* At the start: programs clear their environment. */
static __attribute__((constructor)) void ask_environment(void)
{
	const char *wanted = getenv("CAIRN_STATS");

	wants_figures = wanted && !strcmp(wanted, "json");
	memory_max = number_of("CAIRN_MEMORY_MAX");
	every_site = number_of("CAIRN_SITE_EVERY");
}

/*
 * LMC, Table I: what of the stack a checkpoint at a site copies. Greatest so far; of the main
 * thread, where the stack's end is known.
 */
static void note_stack(struct crn_rt *rt)
{
	char *here = __builtin_frame_address(0);
	uint64_t size;

	if (!wants_figures || !&__libc_stack_end || here >= __libc_stack_end)
		return;
	size = (uint64_t)(__libc_stack_end - here);
	if (size > rt->site_stack && crn_gettid() == crn_getpid())
		rt->site_stack = size;
}

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
 * checkpoint, which every `every`-th time takes. The first call opens the session; in a forked
 * child, whose page of state the kernel has wiped, the child's own. `flags`: CRN_SITE_* (rt/abi.h).
 */
__attribute__((visibility("default"))) void __cairn_site(
	uint32_t *count, uint32_t every, uint32_t flags);

void __cairn_site(uint32_t *count, uint32_t every, uint32_t flags)
{
	struct crn_rt *rt = &__cairn_rt;
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	uint64_t id;
	int err;

	if (++*count < (every_site ? every_site : every))
		return;
	*count = 0;
	if (crn_unlikely(!rt->site_session)) {
		if (rt->site_refused)
			return;
		if (flags & CRN_SITE_ONE_THREAD)
			options.threads = CAIRN_THREADS_ONE;
		if (__cairn_site_keep)
			options.keep = (uint32_t)(uintptr_t)__cairn_site_keep;
		options.memory_max = memory_max;
		err = cairn_open(&rt->site_session, &options);
		if (err < 0) {
			rt->site_refused = true;
			say("no session", err);
			return;
		}
	}
	note_stack(rt);
	err = cairn_checkpoint(rt->site_session, &id);
	if (crn_unlikely(err < 0))
		say("no checkpoint", err);
	else if (flags & CRN_SITE_LONG)
		(void)!cairn_interval_long(rt->site_session); /* else with hooks, as logged */
}


#define NUMBER(name) ", \"" name "\": %" CRN_64 "u"

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
		"{\"pid\": %d, \"tracker\": \"%s\"" NUMBER("checkpoints") NUMBER("failed")
		NUMBER("restores") NUMBER("saved") NUMBER("checkpoint_ns")
		NUMBER("engine_bytes_max") NUMBER("stack_bytes")
		NUMBER("long_intervals") "}\n",
		crn_getpid(), s.tracker, s.checkpoints, s.failed, s.restores, s.faults,
		s.checkpoint_ns, s.engine_bytes_max, __cairn_rt.site_stack, s.long_intervals);
	fd = crn_log_start();
	if (fd >= 0)
		(void)!crn_fd_write_line(fd, line, CRN_MIN(len, sizeof(line) - 1));
}
