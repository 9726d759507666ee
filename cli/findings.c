/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "cairn/cairn.h"
#include "findings.h"
#include "session/session.h"

#define NEEDS_PERFMON "CAP_PERFMON, or sysctl kernel.perf_event_paranoid=1 or lower"
#define NEEDS_TRACEFS                                                                  \
	"access to tracefs: mount -t tracefs -o mode=750,gid=YOURS tracefs "                \
	"/sys/kernel/tracing"

static const char *reason(int error)
{
	switch (error) {
	case -EPERM:
	case -EACCES:
		return "not permitted";
	case -ENOSYS:
	case -ENOTTY:
	case -EINVAL:
		return "not in this kernel, or a filter hides it";
	case -EOPNOTSUPP:
	case -ENOENT:
		return "not in this kernel or on this machine";
	}
	return error ? cairn_strerror(error) : "not in this kernel";
}

/* With a seccomp filter in force, a refusal may be the filter's. */
static const char *filtered(const struct crn_host *h, int error)
{
	bool refusal = error == -EPERM || error == -EACCES || error == -ENOSYS;

	return refusal && h->seccomp > 0 ? " (a seccomp filter is in force)" : "";
}

static struct finding *add(
	struct finding *out, size_t *count, const char *name, bool works, int error)
{
	struct finding *f = &out[(*count)++];

	*f = (struct finding){ .name = name, .works = works, .error = works ? 0 : error };
	return f;
}

static void detail(struct finding *f, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
static void detail(struct finding *f, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(f->detail, sizeof(f->detail), format, ap);
	va_end(ap);
}

/* ---- Memory: what trackers stand on ------------------------------------------------- */

static void find_userfault(struct finding *out, size_t *n, const struct crn_host *h)
{
	static const char *const ways[] = {
		[CRN_UFFD_NOT_AT_ALL] = "",
		[CRN_UFFD_BY_SYSCALL] = "by system call",
		[CRN_UFFD_BY_USER_MODE] = "by system call, user mode only (the unprivileged way)",
		[CRN_UFFD_BY_DEVICE] = "by /dev/userfaultfd",
	};
	bool works = h->uffd_way != CRN_UFFD_NOT_AT_ALL;
	struct finding *f = add(out, n, "userfaultfd", works, h->uffd_error);

	detail(f, works ? "%s" : "%s%s", works ? ways[h->uffd_way] : reason(h->uffd_error),
		works ? "" : filtered(h, h->uffd_error));
	f->cost = "no async, no uffd: fork (80 times the cost and more) or mprotect "
		  "(about 4.5 times)";
	f->enable = h->uffd_error == -ENOSYS ? "a kernel with CONFIG_USERFAULTFD; in a container, "
					       "a seccomp profile that allows it"
					     : "sysctl vm.unprivileged_userfaultfd=1, or access to "
					       "/dev/userfaultfd; in a container, "
					       "a seccomp profile that allows userfaultfd";

	f = add(out, n, "wp_sigbus", h->uffd_sigbus, 0);
	detail(f, "%s",
		h->uffd_sigbus ? "a refused store raises a signal in its own thread"
			       : "userfaultfd has no write protection by SIGBUS here");
	f->cost = "no uffd: mprotect costs 1.5 to 2 times as much per written page";
	f->enable = "Linux 5.7 or newer with CONFIG_HAVE_ARCH_USERFAULTFD_WP";

	f = add(out, n, "wp_async", h->uffd_async, 0);
	detail(f, "%s",
		h->uffd_async ? "seen to let writes through and to report them"
			      : "the kernel cannot resolve write protection by itself");
	f->cost = "no async, the only tracker that sees every write of a whole program cheaply";
	f->enable = "Linux 6.7 or newer";
}

static void find_pagemap(struct finding *out, size_t *n, const struct crn_host *h)
{
	struct finding *f = add(out, n, "pagemap_scan", h->pagemap_scan, h->pagemap_scan_error);

	detail(f, "%s%s", h->pagemap_scan ? "2 cycles per page" : reason(h->pagemap_scan_error),
		h->pagemap_scan ? "" : filtered(h, h->pagemap_scan_error));
	f->cost = "no async";
	f->enable = "Linux 6.7 or newer, /proc mounted";

	f = add(out, n, "procmap_query", h->procmap_query, 0);
	detail(f, "%s",
		h->procmap_query ? "the kernel can be asked about one mapping"
				 : "not in this kernel: the text of /proc/self/maps is read");
	f->cost = "following changed mappings costs about a microsecond per mapping";
	f->enable = "Linux 6.11 or newer";

	f = add(out, n, "softdirty", h->softdirty && crn_host_softdirty_proven(), 0);
	detail(f, "%s",
		f->works ? "seen to be set, cleared and set again"
			 : "the kernel accepts clear_refs but never sets the bit");
	f->cost = "no loss where async works; else the next best for whole programs";
	f->enable = "a kernel with CONFIG_MEM_SOFT_DIRTY";
}

/* ---- Feeds and interception ------------------------------------------------------------ */

static void find_events(struct finding *out, size_t *n, const struct crn_host *h)
{
	struct finding *f = add(out, n, "bpf", h->bpf, h->bpf_error);

	detail(f, "%s%s",
		h->bpf ? "programs can be put on the tracepoints of page faults"
		       : reason(h->bpf_error),
		h->bpf ? "" : filtered(h, h->bpf_error));
	f->cost = "no feeds bpf and bpf-images";
	f->enable = "CAP_BPF and CAP_PERFMON (kernel.unprivileged_bpf_disabled does not give this)";

	f = add(out, n, "perf", h->perf_locks, h->perf_error);
	detail(f, "%s%s%s",
		h->perf_locks ? "page faults and locks can be recorded, the kernel's included"
			      : reason(h->perf_error),
		h->perf_locks ? "" : filtered(h, h->perf_error),
		h->perf_faults && !h->perf_locks ? " (the tracepoints of locks)" : "");
	f->cost = "no feed perf";
	f->enable = h->perf_faults ? NEEDS_TRACEFS : NEEDS_PERFMON;

	f = add(out, n, "perf_changes", h->perf_changes >= 0, h->perf_changes);
	detail(f, "%s%s",
		f->works ? "changes of mappings can be recorded" : reason(h->perf_changes),
		f->works ? "" : filtered(h, h->perf_changes));
	f->cost = "under mprotect a rewind of explicit areas makes a system call per run of pages";
	f->enable = "sysctl kernel.perf_event_paranoid=2, or CAP_PERFMON";

	f = add(out, n, "syscall_user_dispatch", h->sud, h->sud_error);
	detail(f, "%s%s",
		h->sud ? "calls that cannot be patched are still caught" : reason(h->sud_error),
		h->sud ? "" : filtered(h, h->sud_error));
	f->cost = "`cairn run` misses the system calls that it cannot patch, and says which";
	f->enable = "Linux 5.11 or newer with CONFIG_GENERIC_ENTRY";
}

static void find_processor(struct finding *out, size_t *n, const struct crn_host *h)
{
	struct finding *f = add(out, n, "pkeys", h->pkeys, 0);

	detail(f, "%s", h->pkeys ? "protection keys are there" : "no protection keys");
	f->cost = "CAIRN_PROTECT in a program of your own uses mprotect: two system calls more at "
		  "each checkpoint";
	f->enable = NULL;

	f = add(out, n, "fsgsbase", h->fsgsbase, 0);
	detail(f, "%s",
		h->fsgsbase ? "a thread identifies itself without a system call"
			    : "identifying the thread takes a system call");
	f->cost = "about 100 ns at each call into Cairn";
	f->enable = "Linux 5.9 or newer, without nofsgsbase on its command line";

	f = add(out, n, "invariant_tsc", h->invariant_tsc && h->clock.mult, 0);
	detail(f, "%s",
		f->works ? "time is read without a system call"
			 : "the time stamp counter cannot be used");
	f->cost = "figures of time cost two system calls at each checkpoint";
	f->enable = NULL;

	f = add(out, n, "no_shadow_stack", !h->shadow_stack, 0);
	detail(f, "%s",
		h->shadow_stack ? "a user shadow stack is on: restores are refused"
				: "no user shadow stack is in the way");
	f->cost = "a restore cannot bring the shadow stack back";
	f->enable = "GLIBC_TUNABLES=glibc.cpu.x86_shstk=off";

	f = add(out, n, "mappings", h->max_map_count < 0 || h->max_map_count >= 65530, 0);
	detail(f, "vm.max_map_count is %lld", (long long)h->max_map_count);
	f->cost =
		"mprotect splits mappings: at the limit, pages stay open and are copied each time";
	f->enable = "sysctl vm.max_map_count=262144";
}

size_t find_features(struct finding *out, const struct crn_host *host)
{
	size_t count = 0;

	find_userfault(out, &count, host);
	find_pagemap(out, &count, host);
	find_events(out, &count, host);
	find_processor(out, &count, host);
	return count;
}

/* ---- Trackers ------------------------------------------------------------------------------ */

/* What 15 scattered pages written in 64 MiB cost, roughly and relative to each other. */
static const struct {
	const char *name, *cost, *missing;
} known[] = {
	{ "shadow", "stores of a program built with cairn-cc",
		"only in programs built with cairn-cc" },
	{ "undolog", "stores of a program built with cairn-cc",
		"only in those built with -fcairn-tracker=undolog" },
	{ "async", "all writes, also the kernel's; cost 1", "needs wp_async and pagemap_scan" },
	{ "softdirty", "all writes, also the kernel's; cost about 2", "needs softdirty" },
	{ "uffd", "explicit areas, or `cairn run`; cost about 2.5; nothing if nothing was written",
		"needs wp_sigbus" },
	{ "mprotect",
		"explicit areas, or `cairn run`; cost about 4.5; nothing if nothing was written",
		"" },
	{ "fork", "all writes; cost 80 and more, by the size of the program", "fork is refused" },
};

size_t find_trackers(struct tracker_finding *out, size_t max, const struct crn_host *host)
{
	struct crn_tracker_info info;
	size_t count = 0;

	for (; count < max && crn_tracker_info(count, host, &info); count++) {
		struct tracker_finding *t = &out[count];

		*t = (struct tracker_finding){ .name = info.name, .works = info.error >= 0 };
		t->areas_only = info.areas_only;
		t->strategy = info.strategy;
		for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
			if (!strcmp(known[k].name, info.name))
				snprintf(t->detail, sizeof(t->detail), "%s",
					t->works ? known[k].cost : known[k].missing);
	}
	return count;
}

const char *auto_tracker(const struct tracker_finding *trackers, size_t count, bool explicit_areas)
{
	for (size_t i = 0; i < count; i++)
		if (trackers[i].works && (explicit_areas || !trackers[i].areas_only))
			return trackers[i].name;
	return NULL;
}

/* ---- Feeds --------------------------------------------------------------------------------- */

static void find_bpf_feeds(struct feed_finding *bpf, struct feed_finding *images,
	const struct crn_host *h)
{
	const char *enable = h->bpf ? "a kernel with CONFIG_DEBUG_INFO_BTF"
				    : "CAP_BPF and CAP_PERFMON "
				      "(kernel.unprivileged_bpf_disabled does not give this)";
	bool works = h->uffd_async && h->bpf && h->bpf_types;

	*bpf = (struct feed_finding){ "bpf", works, true, "", works ? NULL : enable };
	*images = (struct feed_finding){ "bpf-images", works, false, "", works ? NULL : enable };
	snprintf(bpf->detail, sizeof(bpf->detail), "%s",
		works ? h->capabilities & CRN_CAP_SYS_ADMIN
				? "adds a twelfth to every page fault of the host, for all sessions"
				: "adds a twelfth to every page fault of the host, for each session"
		      : h->bpf ? "the kernel does not tell its types" : reason(h->bpf_error));
	snprintf(images->detail, sizeof(images->detail), "%s",
		works ? "adds half to a fault's cost; no mirror, but up to 16 MiB; explicit areas"
		      : bpf->detail);
}

static void find_perf_feed(struct feed_finding *perf, const struct crn_host *h)
{
	bool works = h->uffd_async && h->perf_locks;

	*perf = (struct feed_finding){ "perf", works, h->perf_others, "", NULL };
	if (!h->perf_locks)
		perf->enable = h->perf_faults ? NEEDS_TRACEFS : NEEDS_PERFMON;
	else if (!h->perf_others)
		perf->enable = "for `auto`: CAP_PERFMON, to see the writes of other processes";
	snprintf(perf->detail, sizeof(perf->detail), "%s%s",
		works ? "adds half to a fault's cost; 216 KiB of locked memory per thread"
		      : h->perf_faults ? "no tracepoints of locks: " : "",
		works ? h->perf_others ? "" : "; by name only" : reason(h->perf_error));
}

size_t find_feeds(struct feed_finding *out, const struct crn_host *h)
{
	struct feed_finding *bpf = &out[0], *perf = &out[1], *scan = &out[2], *images = &out[3];

	find_bpf_feeds(bpf, images, h);
	find_perf_feed(perf, h);
	*scan = (struct feed_finding){ "scan", h->uffd_async && h->pagemap_scan, true, "", NULL };
	snprintf(scan->detail, sizeof(scan->detail), "%s",
		scan->works ? "costs two cycles per page of the surface at every checkpoint"
			    : "needs wp_async and pagemap_scan");
	if (!scan->works)
		scan->enable = "Linux 6.7 or newer";
	return FEEDS_MAX;
}

const char *auto_feed(const struct feed_finding *feeds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (feeds[i].works && feeds[i].by_auto)
			return feeds[i].name;
	return NULL;
}
