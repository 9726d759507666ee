/* SPDX-License-Identifier: MIT */
/*
 * The room that talks to the kernel, against what libc and the text of /proc say; and the
 * formatting of log lines against printf.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>
#include "base/bits.h"
#include "base/log.h"
#include "os/descriptor.h"
#include "os/host.h"
#include "os/maps.h"
#include "os/memory.h"
#include "os/pagemap.h"
#include "os/signal.h"
#include "os/thread.h"
#include "track/feeds/births.h"

/* ---- Log lines ---- */

static char expected[600], got[600];

#define SAME(...)                                                                           \
	do {                                                                                \
		int want_ = snprintf(expected, sizeof(expected), __VA_ARGS__);              \
		assert_int_equal(crn_format(got, sizeof(got), __VA_ARGS__), (size_t)want_); \
		assert_string_equal(got, expected);                                         \
	} while (0)

static void formats(void **state)
{
	SAME("plain");
	SAME("%d %d %d", 0, INT_MAX, INT_MIN);
	SAME("%u|%5u|%-5u|%05u", UINT_MAX, 42u, 42u, 42u);
	SAME("%x %8x %08x %#x", 0xdeadbeefu, 0xfu, 0xfu, 0x10u);
	SAME("%ld %lu %lx", LONG_MIN, ULONG_MAX, ULONG_MAX);
	SAME("%lld %llu", LLONG_MIN, ULLONG_MAX);
	SAME("%zu", (size_t)-1);
	SAME("%s|%10s|%-10s|%.3s|%.*s", "abc", "abc", "abc", "abcdef", 2, "abcdef");
	SAME("%c%c%%", 'a', 'b');
	SAME("%p", (void *)0x7fff1234);
	SAME("%5d|%-5d|%05d", -42, -42, -42);
}

static void formats_cut(void **state)
{
	char small[8];

	memset(small, 'x', sizeof(small));
	assert_int_equal(crn_format(small, 5, "%s", "abcdefgh"), 8);
	assert_string_equal(small, "abcd");
	assert_int_equal(small[5], 'x');
	assert_int_equal(crn_format(NULL, 0, "%d", 12345), 5);
}

static char line[1024];
static size_t line_len;
static int line_count;

static void keep_line(const char *text, size_t len)
{
	memcpy(line, text, len);
	line[line_len = len] = '\0';
	line_count++;
}

static void log_lines(void **state)
{
	char text[1000];

	crn_log_init(keep_line, CRN_LOG_WARN);
	crn_warn("page %d", 7);
	assert_string_equal(line, "cairn: warning: page 7\n");
	line_count = 0;
	crn_info("not shown");
	assert_int_equal(line_count, 0);
	/* A line that is too long is cut, and is still one line. */
	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	crn_error("%s", text);
	assert_int_equal(line_len, CRN_LOG_LINE_MAX);
	assert_int_equal(line[line_len - 1], '\n');
	assert_null(memchr(line, '\n', line_len - 1));
}

/* ---- Mappings ---- */

/* What sscanf reads in the same file. */
struct text_mapping {
	unsigned long begin, end, offset, inode;
	unsigned major, minor;
	char perms[5];
	char name[4200];
};

static int read_text(struct text_mapping *out, int max)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char *text = NULL;
	size_t size = 0;
	int count = 0;

	while (count < max && getline(&text, &size, f) > 0) {
		struct text_mapping *m = &out[count++];

		m->name[0] = '\0';
		assert_true(sscanf(text, "%lx-%lx %4s %lx %x:%x %lu %4199[^\n]", &m->begin, &m->end,
				    m->perms, &m->offset, &m->major, &m->minor, &m->inode,
				    m->name) >= 7);
	}
	free(text);
	fclose(f);
	return count;
}

static void same_mapping(const struct crn_mapping *m, const struct text_mapping *t)
{
	assert_int_equal(m->begin, t->begin);
	assert_int_equal(m->end, t->end);
	assert_int_equal(m->offset, t->offset);
	assert_int_equal(m->inode, t->inode);
	assert_int_equal(m->dev_major, t->major);
	assert_int_equal(m->dev_minor, t->minor);
	assert_int_equal(!!(m->prot & PROT_READ), t->perms[0] == 'r');
	assert_int_equal(!!(m->prot & PROT_WRITE), t->perms[1] == 'w');
	assert_int_equal(!!(m->prot & PROT_EXEC), t->perms[2] == 'x');
	assert_int_equal(m->shared, t->perms[3] == 's');
	assert_string_equal(m->name, t->name);
}

static struct text_mapping texts[1024];
static char maps_buffer[CRN_MAPS_BUFFER];

static void walk(bool query)
{
	uint8_t *many =
		mmap(NULL, 600 * CRN_PAGE_SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct crn_maps maps;
	struct crn_mapping m;
	int count, seen = 0, writable = 0;

	for (int i = 0; i < 600; i += 2)
		assert_int_equal(
			mprotect(many + i * CRN_PAGE_SIZE, CRN_PAGE_SIZE, PROT_READ | PROT_WRITE),
			0);
	assert_int_equal(crn_maps_open(&maps, maps_buffer), 0);
	if (query && !maps.query)
		skip();
	maps.query = query;
	count = read_text(
		texts, 1024); /* opens and allocates first, so that the walk sees the same */
	count = read_text(texts, 1024);
	assert_int_equal(crn_maps_begin(&maps, 0, 0), 0);
	for (; crn_maps_next(&maps, &m) > 0; seen++) {
		assert_true(seen < count);
		same_mapping(&m, &texts[seen]);
	}
	/* The ioctl leaves the vsyscall page out. */
	assert_true(seen == count || (query && seen == count - 1));
	assert_true(seen > 600);

	assert_int_equal(
		crn_maps_begin(&maps, (uintptr_t)many, CRN_MAPS_WRITABLE | CRN_MAPS_NO_NAMES), 0);
	while (crn_maps_next(&maps, &m) > 0 && m.begin < (uintptr_t)many + 600 * CRN_PAGE_SIZE) {
		assert_true(m.prot & PROT_WRITE);
		writable++;
	}
	assert_int_equal(writable, 300);

	assert_int_equal(crn_maps_find(&maps, (uintptr_t)many + 5 * CRN_PAGE_SIZE + 17, &m), 1);
	assert_int_equal(m.begin, (uintptr_t)many + 5 * CRN_PAGE_SIZE);
	assert_int_equal(m.prot, PROT_READ);
	munmap(many, 600 * CRN_PAGE_SIZE);
	assert_int_equal(crn_maps_find(&maps, (uintptr_t)many + 5 * CRN_PAGE_SIZE, &m), 0);
	crn_maps_close(&maps);
}

static void maps_by_query(void **state)
{
	walk(true);
}

static void maps_by_text(void **state)
{
	walk(false);
}

/* ---- Pages ---- */

static void populated(void **state)
{
	size_t pages = 300;
	uint8_t *m = mmap(NULL, pages * CRN_PAGE_SIZE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint8_t there[300] = { 0 }, seen[300] = { 0 };
	struct crn_host host;
	int fd = crn_pagemap_open();
	uintptr_t cursor = (uintptr_t)m, end = cursor + pages * CRN_PAGE_SIZE;
	uint64_t entry;

	assert_true(fd >= 0);
	madvise(m, pages * CRN_PAGE_SIZE, MADV_NOHUGEPAGE);
	for (size_t i = 0; i < pages; i += i % 7 ? 1 : 3) {
		m[i * CRN_PAGE_SIZE] = 1;
		there[i] = 1;
	}
	crn_host_probe(&host);
	for (size_t i = 0; host.pagemap_scan && i < pages; i += 5)
		(void)*(volatile uint8_t *)(m + i * CRN_PAGE_SIZE); /* the shared zero page */
	/* Few runs at a time, so that the cursor has to move on. */
	while (cursor < end) {
		struct crn_page_run runs[4];
		long n = crn_pagemap_populated(fd, &cursor, end, runs, 4);

		assert_true(n >= 0);
		for (long k = 0; k < n; k++)
			for (uintptr_t a = runs[k].begin; a < runs[k].end; a += CRN_PAGE_SIZE)
				seen[(a - (uintptr_t)m) / CRN_PAGE_SIZE]++;
	}
	assert_memory_equal(seen, there, sizeof(seen));
	assert_int_equal(crn_pagemap_entries(fd, (uintptr_t)m, &entry, 1), 0);
	assert_true(entry & CRN_PAGEMAP_PRESENT);
	crn_fd_close(fd);
	munmap(m, pages * CRN_PAGE_SIZE);
}

static void peeks(void **state)
{
	char from[] = "text", to[8] = "";
	void *none = mmap(NULL, CRN_PAGE_SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_int_equal(crn_memory_peek(to, from, 5), 5);
	assert_string_equal(to, "text");
	assert_int_equal(crn_memory_peek(to, none, 1), -EFAULT);
	munmap(none, CRN_PAGE_SIZE);
}

/* The reserve is zeros in a child, and takes no more than half of a limit. */
static void reserves(void **state)
{
	struct rlimit limit, small;
	void *base = NULL; /* anywhere */
	size_t size;
	int status;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	skip(); /* their shadow is larger than the limits set here */
#endif
	assert_int_equal(crn_memory_reserve(&base, &size), 0);
	assert_int_equal(crn_memory_commit(base, 2 << 20), 0);
	*(volatile char *)base = 1;
	if (fork() == 0)
		_exit(*(volatile char *)base);
	wait(&status);
	assert_int_equal(status, 0);
	assert_int_equal(*(volatile char *)base, 1);
	assert_int_equal(crn_memory_unmap(base, size), 0);

	base = NULL;
	getrlimit(RLIMIT_AS, &limit);
	small = limit;
	small.rlim_cur = 4ul << 30;
	setrlimit(RLIMIT_AS, &small);
	assert_int_equal(crn_memory_reserve(&base, &size), 0);
	setrlimit(RLIMIT_AS, &limit);
	assert_true(size <= 2ul << 30 && size >= 1ul << 29);
	crn_memory_unmap(base, size);
}

/* ---- Descriptors, threads, time ---- */

static void high_descriptors(void **state)
{
	struct rlimit limit, small;
	int fd = crn_fd_open("/proc/self/maps", O_RDONLY), fds[64], low;

	getrlimit(RLIMIT_NOFILE, &limit);
	assert_true(fd >= (int)CRN_MIN(limit.rlim_cur, (rlim_t)CRN_FD_CEILING) * 3 / 4);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	crn_fd_close(fd);
	low = open("/proc/self/maps", O_RDONLY); /* nothing low was left behind */
	assert_true(low < 64);
	close(low);

	/* Under a tiny limit there is still room, until there is none. */
	small = limit;
	small.rlim_cur = 40;
	setrlimit(RLIMIT_NOFILE, &small);
	for (int i = 0; i < 64; i++)
		fds[i] = crn_fd_open("/proc/self/maps", O_RDONLY);
	setrlimit(RLIMIT_NOFILE, &limit);
	assert_true(fds[0] >= 0 && fds[20] >= 0);
	assert_int_equal(fds[63], -EMFILE);
	for (int i = 0; i < 64; i++)
		crn_fd_close(fds[i]);
}

static void environment(void **state)
{
	char value[300], cut[4];

	assert_int_equal(crn_environment("CRN_OS_TEST", value, sizeof(value)), 5);
	assert_string_equal(value, "a=b c");
	assert_int_equal(crn_environment("CRN_OS_TEST", cut, sizeof(cut)), 5);
	assert_string_equal(cut, "a=b");
	assert_int_equal(crn_environment("CRN_OS", value, sizeof(value)), -ENOENT);
	assert_int_equal(crn_environment("CRN_OS_TEST_", value, sizeof(value)), -ENOENT);
}

static void *wait_for_end(void *arg)
{
	pthread_barrier_wait(arg);
	pthread_barrier_wait(arg);
	return NULL;
}

/*
 * The files of a process that has changed its user belong to root. They are opened all the same,
 * and its core dumps stay what they were: if they are for root alone, nothing is.
 */
static int other_user_s(void)
{
	int clear, before;
	char text[16];

	if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
		return 2;
	before = prctl(PR_GET_DUMPABLE);
	if (before == 1 && prctl(PR_SET_DUMPABLE, before = 0) < 0)
		return 3;
	if ((crn_environment("CRN_OS_TEST", text, sizeof(text)) == 5) != (before == 0))
		return 4;
	clear = crn_fd_open_own("/proc/self/clear_refs", O_WRONLY);
	if (clear != -ENOENT && (clear >= 0) != (before == 0))
		return 5;
	return prctl(PR_GET_DUMPABLE) == before ? 0 : 6;
}

static void other_user(void **state)
{
	int status;

	if (fork() == 0)
		_exit(other_user_s());
	wait(&status);
	assert_int_equal(status, 0);
}

static void threads(void **state)
{
	pthread_barrier_t barrier;
	pthread_t id;
	struct crn_thread_words words;

	assert_int_equal(crn_thread_count(), 1);
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&id, NULL, wait_for_end, &barrier);
	pthread_barrier_wait(&barrier);
	assert_int_equal(crn_thread_count(), 2);
	pthread_barrier_wait(&barrier);
	pthread_join(id, NULL);
	crn_thread_words(&words);
	assert_int_equal(words.robust_len, 24);
	assert_int_equal(*(int *)words.clear_tid, getpid());
}

static bool agrees(const struct crn_clock *clock)
{
	struct timespec pause = { 0, 50 * 1000 * 1000 };
	uint64_t kernel, ours;

	kernel = crn_clock_kernel_ns();
	ours = crn_clock_ns(clock);
	nanosleep(&pause, NULL);
	kernel = crn_clock_kernel_ns() - kernel;
	ours = crn_clock_ns(clock) - ours;
	return ours > kernel - kernel / 50 && ours < kernel + kernel / 50;
}

/* To 2 %, once: other work may come in between two readings. */
static void clock_agrees(void **state)
{
	struct crn_clock clock;
	int attempts = 0;

	crn_clock_init(&clock);
	while (!agrees(&clock))
		assert_true(++attempts < 40);
}

static void probe_leaves_no_trace(void **state)
{
	uint64_t mask = crn_signal_mask_get();
	struct crn_host host;
	int before, after, low;

	before = read_text(texts, 1024);
	before = read_text(texts, 1024);
	low = dup(0);
	close(low);
	crn_host_probe(&host);
	crn_host_probe_feeds(&host);
	after = read_text(texts, 1024);
	assert_int_equal(before, after);
	after = dup(0);
	assert_int_equal(after, low);
	close(after);
	assert_int_equal(crn_signal_mask_get(), mask);
	assert_null(host.probing);
	assert_true(host.memory_bytes > 1 << 20);
	/* Seen working implies that the kernel names it. */
	assert_true(
		!host.uffd_async || (host.uffd_features & CRN_UFFD_WP_ASYNC && host.pagemap_scan));
}

/* ---- Rings ---- */

/* A store astray has wiped records that the head counts. */
static void wiped_records(void **state)
{
	static uint8_t ring[2 * CRN_PAGE_SIZE] __attribute__((aligned(4096)));
	struct crn_births births = { .pid = crn_getpid() };
	bool ended = false;
	uint64_t at = 0;

	(void)state;
	((struct perf_event_mmap_page *)ring)->data_head = 64;
	alarm(60); /* it would be read for ever */
	assert_true(crn_births_read(&births, ring, 1, &at, &ended));
	alarm(0);
	assert_int_equal(at, 64);
	assert_true(births.broken && !ended);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(formats),
		cmocka_unit_test(formats_cut),
		cmocka_unit_test(log_lines),
		cmocka_unit_test(maps_by_query),
		cmocka_unit_test(maps_by_text),
		cmocka_unit_test(populated),
		cmocka_unit_test(peeks),
		cmocka_unit_test(reserves),
		cmocka_unit_test(high_descriptors),
		cmocka_unit_test(environment),
		cmocka_unit_test(other_user),
		cmocka_unit_test(threads),
		cmocka_unit_test(clock_agrees),
		cmocka_unit_test(probe_leaves_no_trace),
		cmocka_unit_test(wiped_records),
	};

	/* The environment that /proc shows is that of the start. */
	if (!getenv("CRN_OS_TEST")) {
		setenv("CRN_OS_TEST", "a=b c", 1);
		execv("/proc/self/exe", argv);
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
