/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <stdbool.h>
#include <sys/uio.h>
#include <sys/resource.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/memory.h"
#include "os/sys.h"
#include "os/thread.h"

static long map_near(uintptr_t addr, size_t len, int prot, int flags)
{
	return crn_sys6(SYS_mmap, (long)addr, (long)len, prot, flags, -1, 0);
}

static long map(size_t len, int prot, int flags)
{
	return map_near(0, len, prot, flags);
}

size_t crn_memory_space_left(void)
{
	struct {
		uint64_t soft, hard;
	} limit;
	int64_t used_pages = 0;
	uint64_t used;

	if (crn_sys4(SYS_prlimit64, 0, 9 /* RLIMIT_AS */, 0, &limit) < 0 || limit.soft == ~0ull)
		return CRN_SPACE_MAX;
	crn_file_number("/proc/self/statm", &used_pages);
	used = (uint64_t)used_pages << CRN_PAGE_SHIFT;
	return limit.soft > used ? (size_t)(limit.soft - used) : 0;
}

/* Exactly there, where nothing is mapped. */
static int map_free(uintptr_t addr, size_t len, int prot)
{
	long at = crn_sys6(SYS_mmap, (long)addr, (long)len, prot,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

	if (at < 0 && at > -4096)
		return (int)at;
	if (at == (long)addr)
		return 0;
	crn_sys2(SYS_munmap, at, len); /* a kernel that does not know the flag took it as a hint */
	return -EEXIST;
}

int crn_memory_inhibit(uintptr_t addr, size_t len)
{
	return map_free(addr, len, PROT_NONE);
}

/* The first page of an earlier session's stays (session/session.c): then the next place. */
static long reserve_at(uintptr_t addr, size_t len)
{
	int err = -EEXIST;

	if (CRN_RESERVE_PLACES == 1)
		crn_memory_unmap((void *)addr, len);
	for (int i = 0; i < CRN_RESERVE_PLACES && err == -EEXIST; i++, addr += CRN_RESERVE_MAX) {
		err = map_free(addr, len, PROT_NONE);
		if (err >= 0)
			return (long)addr;
	}
	return err;
}

int crn_memory_reserve(void **base, size_t *size)
{
	size_t left = crn_memory_space_left();
	size_t want = CRN_RESERVE_MAX;
	long at;

	/* The program needs address space too: under a limit we leave it half. */
	if (left < CRN_RESERVE_MAX)
		want = left / 2 & ~((2ul << 20) - 1);
	for (; want >= CRN_RESERVE_MIN; want = want / 2 & ~((2ul << 20) - 1)) {
		at = *base ? reserve_at((uintptr_t)*base, want)
			   : map(want, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
		if (at > 0 || (at < -4095))
			break;
	}
	if (want < CRN_RESERVE_MIN)
		return -ENOMEM;
	/*
	 * Without MADV_WIPEONFORK (Linux 4.14) a child could not tell that the engine is not its
	 * own.
	 */
	if (crn_memory_advise((void *)at, want, MADV_WIPEONFORK) < 0) {
		crn_memory_unmap((void *)at, want);
		return -ENOSYS;
	}
	crn_memory_advise((void *)at, want, MADV_DONTDUMP);
	crn_memory_advise((void *)at, want, MADV_NOHUGEPAGE);
	*base = (void *)at;
	*size = want;
	return 0;
}

int crn_memory_hold(void **base, size_t *size)
{
	size_t want = CRN_MIN(crn_memory_space_left() / 4, CRN_HOLD_MAX);
	long at = -ENOMEM;

	for (; want >= CRN_RESERVE_MIN && at < 0 && at >= -4095; want /= 2) {
		*size = crn_page_down(want);
		at = map_near(CRN_HOLD_AT, *size, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
	}
	if (at < 0 && at >= -4095)
		return -ENOMEM;
	*base = (void *)at;
	return 0;
}

int crn_memory_commit(void *addr, size_t len)
{
	return crn_memory_protect(addr, len, PROT_READ | PROT_WRITE) < 0 ? -ENOMEM : 0;
}

static int map_zeros(void **out, size_t len, int flags)
{
	long at = map(len, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags);

	if (at < 0 && at >= -4095)
		return (int)at;
	*out = (void *)at;
	return 0;
}

int crn_memory_map(void **out, size_t len)
{
	return map_zeros(out, len, MAP_PRIVATE);
}

int crn_memory_map_shared(void **out, size_t len)
{
	return map_zeros(out, len, MAP_SHARED);
}

int crn_memory_unmap(void *addr, size_t len)
{
	return (int)crn_sys2(SYS_munmap, addr, len);
}

int crn_memory_protect(void *addr, size_t len, int prot)
{
	return (int)crn_sys3(SYS_mprotect, addr, len, prot);
}

int crn_memory_advise(void *addr, size_t len, int advice)
{
	return (int)crn_sys3(SYS_madvise, addr, len, advice);
}

bool crn_memory_huge_allowed(void)
{
	char text[64]; /* always [madvise] never */
	long n = crn_file_read(
		"/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof(text));

	for (long i = 0; i < n; i++)
		if (crn_starts_with(text + i, "[never]"))
			return false;
	return n > 0;
}

bool crn_memory_mapped(uintptr_t page)
{
	uint8_t resident;

	return crn_sys3(SYS_mincore, page, CRN_PAGE_SIZE, &resident) == 0;
}

bool crn_memory_all_mapped(uintptr_t addr, size_t len)
{
	return crn_sys3(SYS_msync, addr, len, MS_ASYNC) != -ENOMEM;
}

int crn_memory_unguard(void *page)
{
	return crn_memory_advise(page, CRN_PAGE_SIZE, MADV_GUARD_REMOVE);
}

int crn_memory_populate_read(void *addr, size_t len)
{
	int err = crn_memory_advise(addr, len, MADV_POPULATE_READ);
	uint8_t byte;

	if (err != -EINVAL)
		return err;
	/* Before Linux 5.14: read a byte of each page, in a way that cannot raise a signal. */
	for (size_t at = 0; at < len; at += CRN_PAGE_SIZE) {
		long got = crn_memory_peek(&byte, (uint8_t *)addr + at, 1);

		if (got < 0)
			return (int)got;
	}
	return 0;
}

int crn_memory_own(void *page)
{
	int err = crn_memory_advise(page, CRN_PAGE_SIZE, MADV_POPULATE_WRITE);
	uint8_t byte;

	if (err != -EINVAL)
		return err;
	/*
	 * A mapping that the program cannot write to now, or a kernel before 5.14. Then a byte is
	 * written over by itself, which other threads must not do at the same time.
	 */
	if (crn_memory_advise(page, CRN_PAGE_SIZE, MADV_POPULATE_READ) < 0 &&
		crn_thread_count() != 1)
		return -EINVAL;
	CRN_TRY(crn_memory_force_read(&byte, (uintptr_t)page, 1));
	return crn_memory_force_write((uintptr_t)page, &byte, 1);
}

/* Through a pipe: write(2) answers EFAULT where a load would raise a signal. */
static long copy_by_pipe(void *dst, const void *src, size_t len)
{
	size_t done = 0;
	long got = 0;
	int ends[2];

	got = crn_sys2(SYS_pipe2, ends, O_CLOEXEC | O_NONBLOCK);
	if (got < 0)
		return got;
	while (done < len) {
		size_t part = CRN_MIN(len - done, CRN_PAGE_SIZE);

		got = crn_sys3(SYS_write, ends[1], (const uint8_t *)src + done, part);
		if (got <= 0)
			break;
		got = crn_sys3(SYS_read, ends[0], (uint8_t *)dst + done, got);
		if (got <= 0)
			break;
		done += (size_t)got;
	}
	crn_sys1(SYS_close, ends[0]);
	crn_sys1(SYS_close, ends[1]);
	return done ? (long)done : got;
}

long crn_memory_peek(void *dst, const void *src, size_t len)
{
	struct iovec local = { dst, len }, remote = { (void *)src, len };
	long got =
		crn_sys6(SYS_process_vm_readv, crn_getpid(), (long)&local, 1, (long)&remote, 1, 0);

	if (got == -ENOSYS || got == -EPERM)
		got = copy_by_pipe(dst, src, len);
	return got;
}

long crn_memory_poke(void *dst, const void *src, size_t len)
{
	struct iovec local = { (void *)src, len }, remote = { dst, len };
	long got = crn_sys6(
		SYS_process_vm_writev, crn_getpid(), (long)&local, 1, (long)&remote, 1, 0);

	if (got == -ENOSYS || got == -EPERM)
		got = copy_by_pipe(dst, src, len);
	return got;
}

size_t crn_memory_readable(const uintptr_t *at, size_t count)
{
	uint8_t bytes[CRN_PROBE_MAX];
	struct iovec local = { bytes, count }, remote[CRN_PROBE_MAX];
	size_t i;
	long got;

	for (i = 0; i < count; i++) {
		remote[i].iov_base = (void *)at[i];
		remote[i].iov_len = 1;
	}
	got = crn_sys6(SYS_process_vm_readv, crn_getpid(), (long)&local, 1, (long)remote,
		(long)count, 0);
	if (got >= 0)
		return (size_t)got;
	for (i = 0; i < count; i++) {
		if (crn_memory_peek(bytes, (const void *)at[i], 1) != 1)
			break;
	}
	return i;
}

static int write_at(const uintptr_t *at, size_t count)
{
	uint8_t bytes[CRN_PROBE_MAX];
	struct iovec local = { bytes, count }, remote[CRN_PROBE_MAX];
	long got = 0;

	for (size_t i = 0; i < count; i++)
		remote[i] = (struct iovec){ (void *)at[i], 1 };
	for (int nr = SYS_process_vm_readv;; nr = SYS_process_vm_writev) {
		got = crn_sys6(nr, crn_getpid(), (long)&local, 1, (long)remote, (long)count, 0);
		if (got != (long)count)
			return got < 0 ? (int)got : -EFAULT;
		if (nr == SYS_process_vm_writev)
			return 0;
	}
}

int crn_memory_writable(const struct iovec *pieces, size_t count)
{
	uintptr_t at[CRN_PROBE_MAX], end;
	size_t n = 0;
	int err = 0;

	for (size_t i = 0; i < count; i++) {
		end = (uintptr_t)pieces[i].iov_base + pieces[i].iov_len;
		for (uintptr_t a = (uintptr_t)pieces[i].iov_base; a < end && err == 0;
			a = crn_page_down(a) + CRN_PAGE_SIZE) {
			if (n == CRN_PROBE_MAX) {
				err = write_at(at, n);
				n = 0;
			}
			at[n++] = a;
		}
	}
	return err < 0 || !n ? err : write_at(at, n);
}

/* ---- Around protections ------------------------------------------------------------- */

static int through_mem(int fd, int nr, uintptr_t addr, void *buf, size_t len)
{
	long n = crn_sys4(nr, fd, buf, len, addr);

	if (n < 0)
		return (int)n;
	return n == (long)len ? 0 : -EFAULT;
}

int crn_memory_force_open(void)
{
	return crn_fd_open_own("/proc/self/mem", O_RDONLY);
}

int crn_memory_force_read_by(int fd, void *dst, uintptr_t addr, size_t len)
{
	return through_mem(fd, SYS_pread64, addr, dst, len);
}

int crn_memory_force_read(void *dst, uintptr_t addr, size_t len)
{
	int fd = crn_memory_force_open(), err;

	if (fd < 0)
		return fd;
	err = crn_memory_force_read_by(fd, dst, addr, len);
	crn_fd_close(fd);
	return err;
}

int crn_memory_force_write(uintptr_t addr, const void *src, size_t len)
{
	int fd = crn_fd_open_own("/proc/self/mem", O_RDWR), err;

	if (fd < 0)
		return fd;
	err = through_mem(fd, SYS_pwrite64, addr, (void *)src, len);
	crn_fd_close(fd);
	return err;
}

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

int crn_memory_map_at(uintptr_t addr, size_t len)
{
	return map_free(addr, len, PROT_READ | PROT_WRITE);
}

static int wiped_at_fork(void *at, size_t len)
{
	crn_memory_advise(at, len, MADV_DONTDUMP);
	crn_memory_advise(at, len, MADV_NOHUGEPAGE);
	return crn_memory_advise(at, len, MADV_WIPEONFORK) < 0 ? -ENOSYS : 0;
}

int crn_memory_span(void **at, size_t len)
{
	long found;
	int err;

	if (*at) {
		err = crn_memory_map_at((uintptr_t)*at, len);
		if (err < 0)
			return err;
	} else {
		found = map(len, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE);
		if (found < 0 && found >= -4095)
			return (int)found;
		*at = (void *)found;
	}
	err = wiped_at_fork(*at, len);
	if (err < 0)
		crn_memory_unmap(*at, len);
	return err;
}

#ifdef __i386__
int crn_memory_leave(void *at, size_t len)
{
	long got = crn_sys6(SYS_mmap, (long)at, (long)len, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	return got == (long)at ? 0 : (int)got;
}

int crn_memory_enter(void *at, size_t len)
{
	CRN_TRY(crn_memory_unmap(at, len));
	return crn_memory_span(&at, len);
}
#else
int crn_memory_leave(void *at, size_t len)
{
	return crn_memory_unmap(at, len);
}

int crn_memory_enter(void *at, size_t len)
{
	return crn_memory_span(&at, len);
}
#endif

int crn_memory_renew(void *page, size_t len)
{
	long at = crn_sys6(SYS_mmap, (long)page, (long)len, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

	return at == (long)page ? wiped_at_fork(page, len) : (int)at;
}

uintptr_t crn_memory_break(uintptr_t end)
{
	return (uintptr_t)crn_sys1(SYS_brk, end);
}

/* ---- What smaps tells ------------------------------------------------------------------------ */

static const char *parse_hex(const char *s, uintptr_t *out)
{
	for (*out = 0;; s++) {
		unsigned digit = (unsigned char)*s;

		if (digit >= '0' && digit <= '9')
			digit -= '0';
		else if (digit >= 'a' && digit <= 'f')
			digit -= 'a' - 10;
		else
			return s;
		*out = *out << 4 | digit;
	}
}

/* One line of smaps: a mapping's first ("begin-end perms ..."), or one of its fields. */
static bool has_flags_of(const char *line, uintptr_t addr, bool *inside)
{
	uintptr_t begin, end;
	const char *s = parse_hex(line, &begin);

	if (s > line && *s == '-') {
		s = parse_hex(s + 1, &end);
		*inside = *s == ' ' && begin <= addr && addr < end;
		return false;
	}
	return *inside && crn_starts_with(line, "VmFlags:");
}

/* The line of flags of addr's mapping; false if there is none. */
static bool read_flags(uintptr_t addr, char line[256])
{
	int fd = crn_fd_open("/proc/self/smaps", O_RDONLY);
	bool inside = false, found = false;
	size_t length = 0;
	char text[512];
	long n;

	if (fd < 0)
		return false;
	while (!found && (n = crn_fd_read(fd, text, sizeof(text))) > 0) {
		for (long i = 0; i < n && !found; i++) {
			if (text[i] != '\n') {
				if (length < 255)
					line[length++] = text[i];
				continue;
			}
			line[length] = 0;
			length = 0;
			found = has_flags_of(line, addr, &inside);
		}
	}
	crn_fd_close(fd);
	return found;
}

static bool has_flag(const char *line, const char *flag)
{
	for (; *line; line++)
		if (crn_starts_with(line, flag))
			return true;
	return false;
}

unsigned crn_memory_fork_advice(uintptr_t addr)
{
	char line[256];

	if (!read_flags(addr, line))
		return 0;
	return (has_flag(line, " dc") ? CRN_FORK_MISSING : 0) |
		(has_flag(line, " wf") ? CRN_FORK_WIPED : 0);
}

bool crn_memory_was_writable(uintptr_t addr)
{
	char line[256];

	return !read_flags(addr, line) || has_flag(line, " ac") || has_flag(line, " nr");
}

uint64_t crn_memory_faults(void)
{
	struct rusage use = { .ru_minflt = 0 };

	(void)crn_sys2(SYS_getrusage, RUSAGE_SELF, &use);
	return (uint64_t)use.ru_minflt + (uint64_t)use.ru_majflt;
}

long crn_memory_call(long nr, const long args[6])
{
	return crn_sys6(nr, args[0], args[1], args[2], args[3], args[4], args[5]);
}
