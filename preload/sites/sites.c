/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "effects/hold.h"
#include "effects/planted.h"
#include "os/descriptor.h"
#include "os/host.h"
#include "os/thread.h"
#include "session/session.h"
#include "sites/sites.h"
#include "sites_text.h"

#define PLACES 4 /* for sessions that are opened before rights end */

static bool lock_try(void)
{
	return !__atomic_exchange_n(&crn_agent->site_lock, 1, __ATOMIC_ACQUIRE);
}

static void lock_take(void)
{
	for (unsigned spins = 0; !lock_try(); spins++)
		spins < 100 ? crn_pause() : crn_yield();
}

static void lock_drop(void)
{
	__atomic_store_n(&crn_agent->site_lock, 0, __ATOMIC_RELEASE);
}

uint64_t crn_sites_taken(void)
{
	return crn_agent->sites ? crn_agent->sites->taken : 0;
}

bool crn_site_is_outgoing(const struct crn_call *call)
{
	long fd = call->nr == SYS_splice || call->nr == SYS_copy_file_range ? call->args[2]
		: call->nr == SYS_tee ? call->args[1] : call->args[0];
	struct stat st;

	return call->result > 0 && crn_sys2(SYS_fstat, fd, &st) == 0 &&
		(st.st_mode & S_IFMT) != S_IFREG;
}

/* ---- the session ----------------------------------------------------------------------------- */

/*
 * FILE is the trace of the process that `cairn run` became; each of its children that comes to a
 * site has FILE.PID.
 */
static void start_trace(cairn_t *session)
{
	const struct crn_config *config = &crn_agent->config;
	char path[sizeof(config->trace) + 16], digits[12];
	size_t len = crn_strlen(config->trace), n = 0;
	uint32_t pid = (uint32_t)crn_agent->pid;
	int err;

	if (!len)
		return;
	crn_copy(path, config->trace, len + 1);
	if (crn_agent->pid != config->trace_pid) {
		path[len++] = '.';
		for (; pid; pid /= 10)
			digits[n++] = (char)('0' + pid % 10);
		while (n)
			path[len++] = digits[--n];
		path[len] = 0;
	}
	err = crn_trace_start(session, path);
	if (err < 0)
		crn_error("no trace %s: %s", path, cairn_strerror(err));
}

void crn_agent_sites(char *out, size_t size)
{
	crn_sites_text(&crn_agent->config, out, size);
}

/* What the program does with its mappings and memory is followed from here on. */
static int open_session(const char *tracker, uint32_t flags)
{
	const struct crn_config *config = &crn_agent->config;
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	struct crn_range own[2];
	cairn_t *session;
	int ret;

	options.tracker = tracker[0] ? tracker : NULL;
	options.feed = config->feed[0] ? config->feed : NULL;
	options.strategy = config->strategy[0] ? config->strategy : NULL;
	options.surface = config->surface[0] ? config->surface : NULL;
	options.keep = config->keep ? config->keep : config->recover ? 8 : 1;
	options.flags = config->flags | flags;
	options.memory_max = config->memory_max;
	crn_agent_memory(own);
	crn_space_open();
	ret = crn_session_open(&session, &options, own, CRN_ARRAY_SIZE(own));
	crn_space_settle(ret == 0);
	if (ret < 0)
		return ret;
	crn_agent->session = session;
	/* Every change of the mappings passes through our hooks: the map is read only after one. */
	crn_maps_watch(session);
	crn_maps_changed(session);
	return 0;
}

/* What a first checkpoint needs beside the session. */
static int open_tables(void)
{
	cairn_t *session = crn_agent->session;
	int ret;

	crn_agent->sites = crn_session_alloc(session, sizeof(*crn_agent->sites));
	ret = crn_agent->sites ? crn_effects_open() : CAIRN_EMEMORY;
	if (ret < 0) {
		crn_agent->session = NULL;
		crn_agent->sites = NULL;
		cairn_close(session);
		return ret;
	}
	start_trace(session);
	if (crn_stat_open(crn_agent->sites) < 0)
		crn_debug("no statistics page");
	return 0;
}

static bool limit_below(int resource, uint64_t least)
{
	uint64_t limit[2];

	return crn_sys4(SYS_prlimit64, 0, resource, NULL, limit) == 0 && limit[0] < least;
}

/* As after a change of the root. */
static bool without_proc(void)
{
	char text[64];
	long n = crn_file_read("/proc/self/stat", text, sizeof(text));

	return n < 0 && n != -EMFILE && n != -ENFILE;
}

/* What may be why, as the rest of a line: no /proc, a lowered limit. */
static const char *reason_behind(int err)
{
	if (without_proc())
		return "; /proc cannot be read: mount it in the root of this process";
	if (err == CAIRN_EMEMORY || err == -ENOMEM) {
		if (limit_below(RLIMIT_AS, RLIM_INFINITY))
			return "; RLIMIT_AS (ulimit -v) is low";
		if (limit_below(RLIMIT_DATA, RLIM_INFINITY))
			return "; RLIMIT_DATA (ulimit -d) is low";
	}
	if (err == CAIRN_ENOTRACK && crn_sys2(SYS_prctl, PR_GET_DUMPABLE, 0) == 2)
		return "; fs.suid_dumpable is 2, and this process has changed its user";
	if ((err == -EMFILE || err == CAIRN_ENOTRACK) && limit_below(RLIMIT_NOFILE, 64))
		return "; RLIMIT_NOFILE (ulimit -n) is low";
	return "";
}

static void begin_opening(void)
{
	__atomic_store_n(&crn_agent->opening, 1, __ATOMIC_SEQ_CST);
}

static void end_opening(void)
{
	__atomic_store_n(&crn_agent->opening, 0, __ATOMIC_SEQ_CST);
}

/*
 * At the first site at which no vfork child lives that would meet closed pages without our
 * descriptors. A session that cannot be opened is reported once; the program runs on without.
 */
static bool session_ready(void)
{
	int ret = 0;

	if (crn_agent->sites)
		return true;
	if (crn_agent->session_refused)
		return false;
	begin_opening();
	if (!crn_agent->session && crn_output_matters() && crn_vfork_lives()) {
		end_opening();
		return false;
	}
	crn_maps_hold();
	if (!crn_agent->session)
		ret = open_session(crn_agent->config.tracker, 0);
	if (ret == 0)
		ret = open_tables();
	crn_maps_release();
	end_opening();
	if (ret == 0) {
		crn_threads_let_pass();
		return true;
	}
	crn_agent->session_refused = true;
	crn_error("no checkpoints: %s%s", cairn_strerror(ret), reason_behind(ret));
	return false;
}

static bool is_one_of(const char *name, const char *one, const char *other)
{
	return !name[0] || crn_streq(name, one) || crn_streq(name, other);
}

/* Would a session have a feed now that it cannot have without these rights? */
static bool rights_matter(void)
{
	const struct crn_config *config = &crn_agent->config;

	return config->site_count && is_one_of(config->tracker, "auto", "async") &&
		!crn_streq(config->feed, "scan") && is_one_of(config->surface, "all", "program") &&
		crn_capabilities() & (CRN_CAP_PERFMON | CRN_CAP_SYS_ADMIN);
}

/*
 * Each session that has a feed of its own costs every page fault of the host something, and a
 * server may have hundreds of workers. So there are a few places, names of sockets, of which nobody
 * has two and which are free again when a process ends. A descriptor, or -errno.
 */
static int take_place(void)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int fd = (int)crn_sys3(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int err = fd;

	for (unsigned place = 0; fd >= 0 && place < PLACES; place++) {
		size_t len = crn_format(name.sun_path + 1, sizeof(name.sun_path) - 1,
			"cairn-rights-%u", place);

		err = (int)crn_sys3(SYS_bind, fd, &name,
			offsetof(struct sockaddr_un, sun_path) + 1 + len);
		if (err >= 0)
			return crn_fd_raise(fd);
	}
	if (fd >= 0)
		crn_sys1(SYS_close, fd);
	return err;
}

/* A feed that is asked for needs no place, nor does the one that all sessions share. */
static void open_fed(void)
{
	const char *feed = crn_agent->config.feed;
	bool asked = feed[0] && !crn_streq(feed, "auto");
	int place;

	if (asked) {
		(void)open_session("async", 0);
		return;
	}
	if (crn_capabilities() & CRN_CAP_SYS_ADMIN && open_session("async", CRN_FEED_SHARED) >= 0)
		return;
	place = take_place();
	if (place >= 0 && open_session("async", 0) < 0)
		crn_fd_close(place);
}

/* If this fails the first site opens a session that scans, or says why not. */
static void open_early(void)
{
	begin_opening();
	crn_maps_hold();
	open_fed();
	crn_maps_release();
	end_opening();
}

void crn_site_rights_end(void)
{
	lock_take();
	if (!crn_agent->session && !crn_agent->session_refused && rights_matter())
		open_early();
	lock_drop();
}

/* ---- one checkpoint -------------------------------------------------------------------------- */

/*
 * What is held is sent; then memory, then this thread's registers as they will be when the call
 * returns (`entry`: as they were when it was begun), then the new interval. The effects' lock is
 * held throughout, so that no other thread's call falls between the old interval and the new one.
 */
static bool take(struct crn_call *call, bool entry)
{
	struct crn_agent *a = crn_agent;
	struct crn_thread *t = call->thread;
	uint64_t id = 0;
	int ret;

	if (crn_unlikely(t->fault.frame))
		crn_fault_passed(t, t->regs->rsp);
	crn_effects_lock();
	crn_hold_send();
	crn_effects_settle();
	if (a->config.context.kind)
		(void)!cairn_context(a->session, crn_context_key(call));
	ret = crn_memory_checkpoint(a->session, &id);
	if (ret < 0) {
		a->sites->failed++;
		crn_hold_not_covered();
		a->effects->let_go = false;
		crn_effects_cannot_undo("the last checkpoint failed");
		crn_effects_unlock();
		crn_stat_update(a->sites, false);
		return false;
	}
	crn_context_capture(t, &t->context);
	t->context.regs.rax = (uint64_t)(entry ? call->nr : call->result);
	a->effects->waited |= crn_row_of(call->nr)->site == CRN_CALL_WAIT;
	a->effects->at_wait = entry && crn_row_of(call->nr)->site == CRN_CALL_WAIT;
	a->newest = id;
	a->sites->taken++;
	a->effects->owner = t;
	crn_effects_commit();
	t->interval = a->effects->interval;
	crn_effects_unlock();
	crn_stat_update(a->sites, false);
	return true;
}

void crn_site_hit(struct crn_call *call, enum crn_site_kind kind)
{
	const struct crn_config *config = &crn_agent->config;
	bool due = false;

	if (!lock_try()) {
		if (crn_agent->sites)
			__atomic_add_fetch(&crn_agent->sites->nested, 1, __ATOMIC_RELAXED);
		return;
	}
	if (session_ready()) {
		for (uint32_t i = 0; i < config->site_count; i++)
			if (config->sites[i].kind == kind && (!call->spec || call->spec == i + 1))
				due |= crn_agent->sites->hits[i]++ %
						CRN_MAX(config->sites[i].every, 1u) ==
					0;
		if (due && !call->covered) {
			crn_agent->sites->outputs += kind == CRN_SITE_OUTPUT;
			take(call, false);
		}
	}
	lock_drop();
}

void crn_site_output(struct crn_call *call)
{
	lock_take();
	if (session_ready() && !(crn_sites_taken() > 1 && crn_planted(CRN_PLANT_OUTPUTS))) {
		crn_agent->sites->outputs++;
		take(call, false);
	}
	lock_drop();
}

void crn_site_commit(struct crn_call *call)
{
	lock_take();
	if (session_ready()) {
		crn_agent->sites->outputs++;
		call->covered = take(call, true);
	}
	lock_drop();
}

/* The kernel's own answers, which libc asks for at any time. */
static bool is_netlink(int fd)
{
	int domain = AF_NETLINK;
	unsigned len = sizeof(domain);

	crn_sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
	return domain == AF_NETLINK;
}

/* A read from a socket, or from standard input if somebody may be writing to it. */
static bool brings_request(const struct crn_call *call)
{
	int fd = (int)call->args[0];
	uint8_t terminal[64];
	struct stat st;

	if (call->nr == SYS_accept || call->nr == SYS_accept4 || crn_sys2(SYS_fstat, fd, &st) < 0)
		return false;
	if (S_ISSOCK(st.st_mode))
		return !is_netlink(fd);
	return fd == 0 && (S_ISFIFO(st.st_mode) || (S_ISCHR(st.st_mode) &&
		crn_sys3(SYS_ioctl, fd, TCGETS, terminal) == 0));
}

void crn_site_first_input(struct crn_call *call)
{
	if (crn_agent->session_refused || !brings_request(call))
		return;
	lock_take();
	if (!crn_agent->sites && session_ready())
		call->covered = take(call, true);
	lock_drop();
}

void crn_site_late(struct crn_call *call)
{
	if (!lock_try())
		return; /* whoever takes a checkpoint sends everything */
	if (session_ready() && crn_hold_is_late()) {
		crn_agent->sites->outputs++;
		take(call, false);
	}
	lock_drop();
}

/* Nothing of the program's may be left in our keeping. False: it cannot be given back now. */
static bool let_go(void)
{
	struct crn_effects *e = crn_agent->effects;
	bool alone = crn_agent->thread_count == 1;

	if (!e)
		return true;
	crn_effects_lock();
	/* Input and children to be told of again; pages that only a closed tracker leaves open. */
	if (e->pending_count || crn_reaped_pending(-1) ||
		(e->kernel_needs_open_pages && !alone)) {
		crn_effects_unlock();
		return false;
	}
	crn_hold_send();
	crn_effects_settle();
	crn_effects_commit();
	e->open = false;
	crn_effects_unlock();
	return true;
}

static void end(void)
{
	bool protects = crn_agent->effects && crn_agent->effects->kernel_needs_open_pages;
	cairn_t *session = crn_agent->session;

	crn_sites_exit();
	crn_timer_end();
	crn_agent->config.site_count = 0;
	crn_agent->config.recover = false;
	crn_agent->config.stats = false;
	crn_agent->session_refused = true;
	crn_agent->session = NULL;
	crn_agent->effects = NULL;
	crn_agent->recover = NULL;
	crn_agent->sites = NULL;
	crn_agent->stat = NULL;
	/* Other threads may be on their way out of the tables: those stay. */
	if (session && protects)
		cairn_close(session);
	crn_threads_let_pass();
}

void crn_sites_end(const char *why, const char *else_what)
{
	lock_take();
	if (crn_agent->config.site_count && !let_go()) {
		crn_warn("%s: checkpoints go on, and %s", why, else_what);
	} else if (crn_agent->config.site_count) {
		crn_warn("%s: no checkpoints and no recovery from here on", why);
		end();
	}
	lock_drop();
}

void crn_sites_root_changed(void)
{
	if (crn_agent->session && without_proc())
		crn_sites_end("the program has changed its root to a folder without /proc",
			"each recovery is refused");
}

/* A child that has no session yet, and is about to exec, has nothing to say. */
void crn_sites_traced(void)
{
	if (crn_agent->session)
		crn_sites_end("the program has asked to be traced",
			"it stops at the agent's signals");
	else
		end();
	if (!crn_agent->config.site_count)
		crn_dispatch_disarm();
}

void crn_sites_exit(void)
{
	if (crn_agent->session)
		crn_profile_finish(crn_agent->session);
	/* A process that passed no site (a short-lived child) has nothing to say. */
	if (crn_agent->config.stats && crn_agent->sites) {
		crn_agent->config.stats = false; /* once */
		crn_stat_summary();
	}
	if (crn_agent->session)
		(void)crn_trace_finish(crn_agent->session);
}
