/* SPDX-License-Identifier: MIT */
/*
 * What this kernel, machine and user allow, probed once; the rest of the engine asks for features
 * here, never for versions. Probing leaves no trace in the program: it uses pages, descriptors and
 * programs of its own and gives them back, raises no signal, and changes no setting of the process.
 * EPERM and ENOSYS are findings, kept in the *_error fields.
 */
#ifndef CRN_OS_HOST_H
#define CRN_OS_HOST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "os/clock.h"
#include "os/userfault.h"

struct crn_host {
	/* userfaultfd */
	enum crn_uffd_way uffd_way;
	uint64_t uffd_features; /* enum crn_uffd_feature */
	int uffd_error;         /* 0, or why there is none */
	bool uffd_sigbus;       /* WP with SIGBUS delivery: seen to refuse a write */
	bool uffd_async;        /* WP_ASYNC: seen to let a write through and to report it */

	/* /proc */
	bool pagemap;
	bool pagemap_scan;
	bool procmap_query;
	int pagemap_error, pagemap_scan_error;

	/*
	 * Bit 55 is set on a page that was just written. crn_host_softdirty_proven() is the whole
	 * truth.
	 */
	bool softdirty;

	bool sud; /* syscall user dispatch */
	int sud_error;

	/* Feeds of addresses; filled by crn_host_probe_feeds() alone. */
	bool bpf; /* raw tracepoint programs load, and page_fault_user can be opened */
	bool bpf_types; /* the kernel tells where the members of its structures are */
	int bpf_error;
	bool perf_faults; /* a page fault ring of this thread, kernel-mode samples included */
	bool perf_locks;  /* and tracepoints of its taking of locks */
	bool perf_others; /* and of everybody's */
	int perf_error;   /* of the first of these that cannot be had */
	int perf_changes; /* a ring of this thread's changes of mappings: 0 or -errno */

	/* The processor */
	bool pkeys;
	bool fsgsbase;
	bool shadow_stack; /* user shadow stacks are on for this thread */
	bool invariant_tsc;
	size_t xsave_size; /* for all enabled state, XSAVEC's compact form where there is one */
	bool xsavec;

	/* The machine and the user */
	uint64_t memory_bytes;
	int64_t max_map_count; /* -1: unknown, here and below */
	int64_t perf_paranoid;
	int64_t unprivileged_userfaultfd;
	int64_t unprivileged_bpf_disabled;
	int seccomp; /* 0 none, 1 strict, 2 filter, -1 unknown */
	uint32_t euid;
	uint64_t capabilities; /* effective */
	struct crn_clock clock;

	/*
	 * What is being probed right now: names the culprit if a seccomp filter kills. Static
	 * storage.
	 */
	const char *probing;
};

/* Fill *out, all but the feeds. Never fails. About half a millisecond. */
void crn_host_probe(struct crn_host *out);

/* Try BPF and perf as well. Attaching and detaching can take the kernel ten milliseconds. */
void crn_host_probe_feeds(struct crn_host *out);

/* Effective rights of the calling thread, a bit each. Async-signal-safe. */
uint64_t crn_capabilities(void);
#define CRN_CAP_SYS_ADMIN (1ull << 21)
#define CRN_CAP_PERFMON	  (1ull << 38)

/*
 * Does soft-dirty work, as seen in a child with its own copy of the page tables: set by a write,
 * cleared by clear_refs, set again by the next write? (Kernels without it accept the clear_refs
 * write all the same.) Forks, so it costs as much as a fork; call it only for a tracker about to be
 * opened.
 */
bool crn_host_softdirty_proven(void);

#endif
