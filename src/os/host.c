/* SPDX-License-Identifier: MIT */
/*
 * The feature probe. Every probe works on pages and descriptors of its own. Where that is possible
 * without raising a signal, it tests what a feature promises, because some kernels accept a call
 * and do nothing (clear_refs without soft-dirty is the known case).
 */
#include <cpuid.h>
#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/descriptor.h"
#include "os/guarded.h"
#include "os/host.h"
#include "os/maps.h"
#include "os/memory.h"
#include "os/pagemap.h"
#include "os/perf.h"
#include "os/proc.h"
#include "os/process.h"
#include "os/signal.h"
#include "os/sys.h"
#include "os/thread.h"

/* ---- userfaultfd and the pagemap ------------------------------------------- */

static void probe_pagemap(struct crn_host *h)
{
	struct crn_scan scan = { .category_mask = CRN_PAGE_PRESENT,
		.return_mask = CRN_PAGE_PRESENT };
	struct crn_page_run run;
	uint64_t entry = 0;
	volatile uint8_t *page;
	void *map;
	int fd;

	fd = crn_pagemap_open();
	h->pagemap = fd >= 0;
	h->pagemap_error = h->pagemap_scan_error = fd < 0 ? fd : 0;
	if (fd < 0)
		return;
	if (crn_memory_map(&map, CRN_PAGE_SIZE) < 0)
		goto out;
	page = map;
	*page = 1;
	if (crn_pagemap_entries(fd, (uintptr_t)map, &entry, 1) == 0)
		h->softdirty = entry & CRN_PAGEMAP_SOFT_DIRTY;
	scan.start = (uintptr_t)map;
	scan.end = scan.start + CRN_PAGE_SIZE;
	scan.vec = (uintptr_t)&run;
	scan.vec_len = 1;
	h->pagemap_scan_error = (int)CRN_MIN(crn_pagemap_scan(fd, &scan), 0l);
	h->pagemap_scan = !h->pagemap_scan_error;
	crn_memory_unmap(map, CRN_PAGE_SIZE);
out:
	crn_fd_close(fd);
}

/* Have the kernel write a byte at `at`: 0, or -EFAULT where a store would raise a signal. */
static int kernel_write(void *at)
{
	return (int)CRN_MIN(crn_sys3(SYS_getrandom, at, 1, 1 /* GRND_NONBLOCK */), 0l);
}

/* A protected page must refuse the kernel's write, and take it once it is opened. */
static bool sigbus_works(void)
{
	bool good = false;
	uint8_t *page;
	void *map;
	int fd;

	fd = crn_uffd_open(CRN_UFFD_SIGBUS | CRN_UFFD_PAGEFAULT_FLAG_WP, NULL);
	if (fd < 0)
		return false;
	if (crn_memory_map(&map, CRN_PAGE_SIZE) < 0)
		goto out;
	page = map;
	*(volatile uint8_t *)page = 1;
	if (crn_uffd_register(fd, (uintptr_t)page, CRN_PAGE_SIZE) >= 0 &&
		crn_uffd_protect(fd, (uintptr_t)page, CRN_PAGE_SIZE, true) >= 0)
		good = kernel_write(page) == -EFAULT &&
			crn_uffd_protect(fd, (uintptr_t)page, CRN_PAGE_SIZE, false) >= 0 &&
			kernel_write(page) == 0;
	crn_memory_unmap(map, CRN_PAGE_SIZE);
out:
	crn_fd_close(fd);
	return good;
}

/*
 * Of two protected pages, one populated and one not, both are written: both must be reported, once.
 */
static bool async_reports(int pagemap, uint8_t *pages)
{
	uintptr_t begin = (uintptr_t)pages, end = begin + 3 * CRN_PAGE_SIZE, cursor = begin;
	struct crn_page_run runs[3];

	if (crn_pagemap_written(pagemap, &cursor, end, true, runs, 3) != 0)
		return false;
	*(volatile uint8_t *)pages = 2;
	if (kernel_write(pages + CRN_PAGE_SIZE) < 0)
		return false;
	cursor = begin;
	if (crn_pagemap_written(pagemap, &cursor, end, true, runs, 3) != 1)
		return false;
	if (runs[0].begin != begin || runs[0].end != begin + 2 * CRN_PAGE_SIZE)
		return false;
	cursor = begin;
	return crn_pagemap_written(pagemap, &cursor, end, true, runs, 3) == 0;
}

static bool async_works(void)
{
	bool good = false;
	void *map;
	int fd, pagemap;

	fd = crn_uffd_open(
		CRN_UFFD_WP_ASYNC | CRN_UFFD_WP_UNPOPULATED | CRN_UFFD_PAGEFAULT_FLAG_WP, NULL);
	if (fd < 0)
		return false;
	pagemap = crn_pagemap_open();
	if (pagemap < 0)
		goto out_fd;
	if (crn_memory_map(&map, 3 * CRN_PAGE_SIZE) < 0)
		goto out_pagemap;
	*(volatile uint8_t *)map = 1;
	if (crn_uffd_register(fd, (uintptr_t)map, 3 * CRN_PAGE_SIZE) >= 0 &&
		crn_uffd_protect(fd, (uintptr_t)map, 3 * CRN_PAGE_SIZE, true) >= 0)
		good = async_reports(pagemap, map);
	crn_memory_unmap(map, 3 * CRN_PAGE_SIZE);
out_pagemap:
	crn_fd_close(pagemap);
out_fd:
	crn_fd_close(fd);
	return good;
}

static void probe_userfault(struct crn_host *h)
{
	uint64_t sigbus = CRN_UFFD_SIGBUS | CRN_UFFD_PAGEFAULT_FLAG_WP;

	h->uffd_error = crn_uffd_features(&h->uffd_features, &h->uffd_way);
	if (h->uffd_error < 0)
		return;
	if ((h->uffd_features & sigbus) == sigbus)
		h->uffd_sigbus = sigbus_works();
	if (h->uffd_features & CRN_UFFD_WP_ASYNC && h->pagemap_scan)
		h->uffd_async = async_works();
}

static void probe_maps(struct crn_host *h)
{
	h->procmap_query = crn_maps_has_query();
}

/* ---- Feeds and interception ------------------------------------------------- */

static void probe_dispatch(struct crn_host *h)
{
	/*
	 * SAFETY: ON with a selector in kernel space is refused with EFAULT before anything
	 * changes; a kernel that does not know the option says EINVAL.
	 */
	h->sud_error = (int)crn_sys5(
		SYS_prctl, PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, -4096l);
	h->sud = h->sud_error == -EFAULT;
	if (h->sud)
		h->sud_error = 0;
}

/* union bpf_attr for BPF_PROG_LOAD and BPF_RAW_TRACEPOINT_OPEN, up to what is used. */
union bpf_arg {
	struct {
		uint32_t type, insn_count;
		uint64_t insns, license;
		uint32_t log_level, log_size;
		uint64_t log_buf;
		uint32_t kern_version, flags;
	} load;
	struct {
		uint64_t name;
		uint32_t program;
	} open;
};

static void probe_bpf(struct crn_host *h)
{
	static const uint64_t insns[] = { 0x00000000000000b7ull /* r0 = 0 */, 0x95ull /* exit */ };
	union bpf_arg arg = { .load = { .type = 17 /* RAW_TRACEPOINT */, .insn_count = 2 } };
	int program, link, types;

	types = (int)crn_sys4(
		SYS_openat, AT_FDCWD, "/sys/kernel/btf/vmlinux", O_RDONLY | O_CLOEXEC, 0);
	h->bpf_types = types >= 0;
	crn_fd_close(types);
	arg.load.insns = (uintptr_t)insns;
	arg.load.license = (uintptr_t) "GPL";
	program = (int)crn_sys3(SYS_bpf, 5 /* BPF_PROG_LOAD */, &arg, sizeof(arg));
	h->bpf_error = CRN_MIN(program, 0);
	if (program < 0)
		return;
	crn_fill(&arg, 0, sizeof(arg));
	arg.open.name = (uintptr_t) "page_fault_user";
	arg.open.program = (uint32_t)program;
	link = (int)crn_sys3(SYS_bpf, 17 /* BPF_RAW_TRACEPOINT_OPEN */, &arg, sizeof(arg));
	h->bpf_error = CRN_MIN(link, 0);
	h->bpf = link >= 0;
	crn_fd_close(link);
	crn_fd_close(program);
}

/* The events that feed perf opens. Who may not see others may still see himself. */
static void probe_perf(struct crn_host *h)
{
	struct crn_perf_points points = { 0 };
	struct crn_perf_event lock = { .kind = CRN_PERF_POINT, .tid = crn_gettid(), .cpu = -1 };
	struct crn_perf_event fault = {
		.kind = CRN_PERF_KERNEL_FAULTS, .tid = lock.tid, .cpu = -1 };
	struct crn_perf_event other = { .kind = CRN_PERF_POINT_TASK, .tid = -1, .cpu = 0 };
	struct crn_perf_event change = { .kind = CRN_PERF_CHANGES, .tid = lock.tid, .cpu = -1 };
	const size_t ring = 2 * CRN_PAGE_SIZE;
	void *memory;

	h->perf_error = h->perf_changes = crn_perf_reserve(&memory, 4 * ring);
	if (h->perf_error < 0)
		return;
	h->perf_changes = crn_perf_open(&change, (uint8_t *)memory + 3 * ring, 1);
	h->perf_error = crn_perf_open(&fault, memory, 1);
	h->perf_faults = h->perf_error >= 0;
	if (h->perf_faults) {
		h->perf_error = crn_perf_points(&points);
		lock.point = other.point = points.acquired;
	}
	if (h->perf_error >= 0)
		h->perf_error = crn_perf_open(&lock, (uint8_t *)memory + ring, 1);
	h->perf_locks = h->perf_error >= 0;
	if (h->perf_locks)
		h->perf_error = crn_perf_open(&other, (uint8_t *)memory + 2 * ring, 1);
	h->perf_others = h->perf_error >= 0;
	crn_memory_unmap(memory, 4 * ring);
}

/* ---- Processor, machine, user ----------------------------------------------- */

/*
 * Bytes of the auxiliary vector. A process that has changed its user may not open the file, which
 * is all that kernels before 6.4 have.
 */
static long auxiliary(uint64_t *to, size_t size)
{
	long got = crn_sys5(SYS_prctl, 0x41555856 /* PR_GET_AUXV */, to, size, 0, 0);
	int fd;

	if (got >= 0)
		return CRN_MIN(got, (long)size);
	fd = (int)crn_path_open_own("/proc/self/auxv", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return fd;
	got = crn_fd_read(fd, to, size);
	crn_fd_close(fd);
	return got;
}

static uint64_t hardware_caps2(void)
{
	uint64_t aux[64];
	long got = auxiliary(aux, sizeof(aux));

	for (long i = 0; i + 1 < got / 8; i += 2)
		if (aux[i] == 26 /* AT_HWCAP2 */)
			return aux[i + 1];
	return 0;
}

/* What is switched on, and part of what the kernel saves. */
static unsigned kept_state(void)
{
	unsigned a, b, c, d;

	if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 27 /* OSXSAVE */))
		return 0;
	__asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
	return a;
}

#define DRAW 256 /* bytes: as many come in one piece, whatever signals do */

static bool draw_keys(void)
{
	for (size_t i = 0; i < sizeof(crn_guarded_keys); i += DRAW)
		if (crn_sys3(SYS_getrandom, crn_guarded_keys + i, DRAW, 1 /* GRND_NONBLOCK */) !=
			DRAW)
			return false;
	return true;
}

/* Where there are no random keys pages are compared with each other. */
static void choose_registers(unsigned features, unsigned more)
{
	enum crn_registers widest = crn_registers_for(features, more, kept_state());

	if (crn_guarded_registers == widest)
		return; /* by another session */
	if (widest == CRN_LINES_HASHED && !draw_keys())
		widest = CRN_LINES_WHOLE;
	crn_guarded_registers = (uint8_t)widest;
}

static void probe_processor(struct crn_host *h)
{
	unsigned a, b, c, d;
	uint64_t shadow = 0;

	if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
		h->pkeys = c & 1u << 4; /* OSPKE: the kernel has switched them on */
		choose_registers(b, c);
	}
	if (__get_cpuid_count(0xd, 0, &a, &b, &c, &d))
		h->xsave_size = b;
	if (__get_cpuid_count(0xd, 1, &a, &b, &c, &d)) {
		h->xsavec = a & 1u << 1;
		if (h->xsavec)
			h->xsave_size = CRN_MAX((size_t)b, h->xsave_size);
	}
	if (__get_cpuid(0x80000007u, &a, &b, &c, &d))
		h->invariant_tsc = d & 1u << 8;
	h->fsgsbase = hardware_caps2() & 2;
	if (crn_sys2(SYS_arch_prctl, 0x5005 /* ARCH_SHSTK_STATUS */, &shadow) >= 0)
		h->shadow_stack = shadow & 1;
}

static int seccomp_mode(void)
{
	static const char key[] = "\nSeccomp:\t";
	char text[2048];
	long len = crn_file_read("/proc/self/status", text, sizeof(text));

	for (long i = 0; i + (long)sizeof(key) < len; i++)
		if (crn_starts_with(text + i, key))
			return text[i + (long)sizeof(key) - 1] - '0';
	return -1;
}

uint64_t crn_capabilities(void)
{
	struct {
		uint32_t version;
		int32_t pid;
	} head = { 0x20080522 /* _LINUX_CAPABILITY_VERSION_3 */, 0 };
	struct {
		uint32_t effective, permitted, inheritable;
	} caps[2] = { { 0, 0, 0 }, { 0, 0, 0 } };

	if (crn_sys2(SYS_capget, &head, caps) < 0)
		return 0;
	return (uint64_t)caps[1].effective << 32 | caps[0].effective;
}

static void probe_machine(struct crn_host *h)
{
	struct {
		int64_t uptime;
		uint64_t loads[3], total, free, shared, buffers, swap, swap_free;
		uint16_t procs, pad;
		uint64_t high, high_free;
		uint32_t unit;
		char reserved[64];
	} info;

	h->max_map_count = h->perf_paranoid = -1;
	h->unprivileged_userfaultfd = h->unprivileged_bpf_disabled = -1;
	crn_file_number("/proc/sys/vm/max_map_count", &h->max_map_count);
	crn_file_number("/proc/sys/kernel/perf_event_paranoid", &h->perf_paranoid);
	crn_file_number("/proc/sys/vm/unprivileged_userfaultfd", &h->unprivileged_userfaultfd);
	crn_file_number(
		"/proc/sys/kernel/unprivileged_bpf_disabled", &h->unprivileged_bpf_disabled);
	h->seccomp = seccomp_mode();
	h->euid = (uint32_t)crn_sys0(SYS_geteuid);
	h->capabilities = crn_capabilities();
	if (crn_sys1(SYS_sysinfo, &info) >= 0)
		h->memory_bytes = info.total * (info.unit ? info.unit : 1);
}

void crn_host_probe(struct crn_host *out)
{
	static const struct {
		const char *name;
		void (*probe)(struct crn_host *h);
	} probes[] = {
		{ "machine", probe_machine },
		{ "processor", probe_processor },
		{ "pagemap", probe_pagemap },
		{ "PROCMAP_QUERY", probe_maps },
		{ "userfaultfd", probe_userfault },
		{ "syscall user dispatch", probe_dispatch },
	};

	crn_fill(out, 0, sizeof(*out));
	for (size_t i = 0; i < CRN_ARRAY_SIZE(probes); i++) {
		out->probing = probes[i].name;
		probes[i].probe(out);
	}
	out->probing = "clock";
	crn_clock_init(&out->clock);
	out->probing = NULL;
}

void crn_host_probe_feeds(struct crn_host *out)
{
	out->probing = "bpf";
	probe_bpf(out);
	out->probing = "perf_event_open";
	probe_perf(out);
	out->probing = NULL;
}

/* ---- soft-dirty, to the end --------------------------------------------------- */

static bool bit_of(int pagemap, const void *page)
{
	uint64_t entry = 0;

	return crn_pagemap_entries(pagemap, (uintptr_t)page, &entry, 1) == 0 &&
		entry & CRN_PAGEMAP_SOFT_DIRTY;
}

/* In the child: its own page tables, so clear_refs touches nothing of the program's. */
static bool softdirty_cycle(volatile uint8_t *page)
{
	int pagemap, clear;

	*page = 1;
	pagemap = (int)crn_path_open_own("/proc/self/pagemap", O_RDONLY);
	clear = (int)crn_path_open_own("/proc/self/clear_refs", O_WRONLY);
	if (pagemap < 0 || clear < 0 || !bit_of(pagemap, (void *)page))
		return false;
	if (crn_sys3(SYS_write, clear, "4", 1) != 1 || bit_of(pagemap, (void *)page))
		return false;
	*page = 2;
	return bit_of(pagemap, (void *)page);
}

/*
 * SAFETY: exit signal 0: the program sees no SIGCHLD and its wait() does not find this child (only
 * __WALL does). The child runs nothing but raw system calls, signals blocked: a handler of the
 * program's would run in it as well.
 */
static bool child_proves(volatile uint8_t *page, uint32_t *said)
{
	uint64_t mask;
	int pid, state;

	if (crn_proc_children_elsewhere()) {
		crn_info("tracker softdirty is not tested: children are in another PID namespace");
		return false;
	}
	mask = crn_signals_block();
	pid = (int)crn_sys5(SYS_clone, 0, 0, 0, 0, 0);
	if (pid == 0) {
		uint32_t word = softdirty_cycle(page) ? 1 : (uint32_t)-ENOSYS;

		__atomic_store_n(said, word, __ATOMIC_RELEASE);
		crn_process_wake(said);
		for (;;)
			crn_sys1(SYS_exit_group, 0);
	}
	crn_signal_mask(SIG_SETMASK, mask);
	if (pid < 0)
		return false;
	state = crn_process_await(said, pid);
	if (state != -ECHILD)
		crn_process_end(pid, false);
	return state == 1;
}

bool crn_host_softdirty_proven(void)
{
	bool good = false;
	void *map, *said;

	if (crn_memory_map(&map, CRN_PAGE_SIZE) < 0)
		return false;
	if (crn_memory_map_shared(&said, CRN_PAGE_SIZE) >= 0) {
		good = child_proves(map, said);
		crn_memory_unmap(said, CRN_PAGE_SIZE);
	}
	crn_memory_unmap(map, CRN_PAGE_SIZE);
	return good;
}
