/* SPDX-License-Identifier: MIT */
/*
 * Table 1 of the SMC paper ("the various operations performed by incremental checkpointing"),
 * redone on this host, with the rows that write tracking by userfaultfd and PAGEMAP_SCAN adds. What
 * the kernel offers, without the library: these are the figures that the choice of a tracker rests
 * on.
 */
#include <fcntl.h>
#include <nmmintrin.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "measure.h"
#include "page_tracking.h"

#define TABLE "table1"
#define PAGES 64 /* per batch */

static char *area, *copy;
static uint64_t sink; /* keeps checksums from being optimised away */

/* ---- Lines 1 and 2: copy on write after fork ---------------------------------- */

/* A child that holds the pages of this moment until it is killed. */
static pid_t freeze(void)
{
	pid_t pid = fork();

	if (pid == 0)
		for (;;)
			pause();
	if (pid < 0)
		fail("fork", "not possible");
	return pid;
}

static void thaw(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void run_fork(struct series *write, struct series *whole, char *base, size_t bytes)
{
	uint64_t begin = tick(), between, end;
	pid_t pid = freeze();

	between = tick();
	for (size_t i = 0; i < PAGES; i++)
		++*(volatile uint64_t *)(base + i * (bytes / PAGES));
	end = tick();
	series_add(write, between, end);
	thaw(pid);
	series_add(whole, begin, tick());
}

static void fork_rows(void)
{
	static const size_t sizes[] = { PAGES * PAGE, 64 * MIB, 1024 * MIB };
	int reps = toy ? 3 : 200;

	for (int s = 0; s < (toy ? 1 : 3); s++) {
		struct series write = { 0 }, whole = { 0 };
		char *base = sizes[s] > PAGES * PAGE ? map_pages(sizes[s]) : area;

		for (int i = 0; i < (s == 2 ? reps / 20 : reps); i++)
			run_fork(&write, &whole, base, sizes[s]);
		emit(TABLE, "write to a page under COW after fork", &write, PAGES,
			"\"line\":1,\"kib\":%zu", sizes[s] / 1024);
		emit(TABLE, "fork, write 64 pages, end the child", &whole, 1,
			"\"line\":2,\"kib\":%zu", sizes[s] / 1024);
		series_free(&write);
		series_free(&whole);
		if (base != area)
			munmap(base, sizes[s]);
	}
}

/* ---- Lines 3 to 5: copying, with checksums ------------------------------------- */

static uint64_t crc_page(const char *page)
{
	const uint64_t *w = (const uint64_t *)page;
	uint64_t crc = 0;

	for (size_t i = 0; i < PAGE / 8; i++)
		crc = _mm_crc32_u64(crc, w[i]);
	return crc;
}

/* Three streams hide the latency of the instruction (three cycles on most machines). */
static uint64_t crc_page_3(const char *page)
{
	const uint64_t *w = (const uint64_t *)page;
	uint64_t a = 0, b = 0, c = 0;

	for (size_t i = 0; i < 170; i++) {
		a = _mm_crc32_u64(a, w[i]);
		b = _mm_crc32_u64(b, w[170 + i]);
		c = _mm_crc32_u64(c, w[340 + i]);
	}
	return a ^ b << 1 ^ c << 2 ^ _mm_crc32_u64(w[510], w[511]);
}

static void copy_rows(void)
{
	struct series plain = { 0 }, crc = { 0 }, crc3 = { 0 };

	for (int i = 0; i < (toy ? 3 : 2000); i++) {
		uint64_t t0 = tick(), t1, t2, t3;

		for (int p = 0; p < PAGES; p++) {
			memcpy(copy + p * PAGE, area + p * PAGE, PAGE);
			++*(volatile uint64_t *)(area + p * PAGE);
		}
		t1 = tick();
		for (int p = 0; p < PAGES; p++) {
			sink += crc_page(area + p * PAGE);
			memcpy(copy + p * PAGE, area + p * PAGE, PAGE);
			++*(volatile uint64_t *)(area + p * PAGE);
		}
		t2 = tick();
		for (int p = 0; p < PAGES; p++) {
			sink += crc_page_3(area + p * PAGE);
			memcpy(copy + p * PAGE, area + p * PAGE, PAGE);
			++*(volatile uint64_t *)(area + p * PAGE);
		}
		t3 = tick();
		series_add(&plain, t0, t1);
		series_add(&crc, t1, t2);
		series_add(&crc3, t2, t3);
	}
	emit(TABLE, "copy a page and write to it", &plain, PAGES, "\"line\":3");
	emit(TABLE, "copy, checksum (crc32c), write", &crc, PAGES, "\"line\":4");
	emit(TABLE, "copy, checksum (crc32c, 3 streams), write", &crc3, PAGES, "\"line\":4");
}

/* ---- Lines 5 and 6: soft-dirty bits ---------------------------------------------- */

static void soft_dirty_rows(void)
{
	struct series read_bits = { 0 }, clear = { 0 };
	uint64_t entry = 0;
	int pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	int refs = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
	off_t at = (uintptr_t)area / PAGE * 8;

	/* Clearing "works" on kernels without the feature; only a bit that comes back proves it. */
	if (pagemap < 0 || refs < 0 || write(refs, "4", 1) != 1)
		goto missing;
	++*(volatile uint64_t *)area;
	if (pread(pagemap, &entry, 8, at) != 8 || !(entry >> 55 & 1))
		goto missing;
	for (int i = 0; i < (toy ? 3 : 1000); i++) {
		uint64_t t0, t1;

		++*(volatile uint64_t *)area;
		t0 = tick();
		if (pread(pagemap, &entry, 8, at) == 8 && (entry >> 55 & 1))
			memcpy(copy, area, PAGE);
		t1 = tick();
		if (write(refs, "4", 1) != 1)
			fail("clear_refs", "failed");
		series_add(&read_bits, t0, t1);
		series_add(&clear, t1, tick());
	}
	emit(TABLE, "soft-dirty: read the bit, copy the page", &read_bits, 1, "\"line\":5");
	emit(TABLE, "soft-dirty: clear all bits of the process", &clear, 1, "\"line\":6");
	return;
missing:
	emit_missing(TABLE, "soft-dirty", "this kernel has no CONFIG_MEM_SOFT_DIRTY");
}

/* ---- The rows that WP_ASYNC adds ---------------------------------------------------- */

static void async_batch_rows(struct tracking *t)
{
	struct series fault = { 0 }, full = { 0 };

	for (int i = 0; i < (toy ? 3 : 1000); i++) {
		uint64_t t0, t1;

		tracking_protect(t, area, PAGES * PAGE);
		t0 = tick();
		for (int p = 0; p < PAGES; p++)
			++*(volatile uint64_t *)(area + p * PAGE);
		t1 = tick();
		if (tracking_scan(t, area, PAGES * PAGE, true) != PAGES)
			fail("PAGEMAP_SCAN", "missed a page");
		memcpy(copy, area, PAGES * PAGE);
		series_add(&fault, t0, t1);
		series_add(&full, t0, tick());
	}
	emit(TABLE, "async: first write to a page", &fault, PAGES, "\"batch\":%d", PAGES);
	emit(TABLE, "async: write, scan and protect, copy", &full, PAGES, "\"batch\":%d", PAGES);
}

static void async_single_rows(struct tracking *t)
{
	struct series fault = { 0 }, look = { 0 }, scan = { 0 }, protect = { 0 }, full = { 0 };

	for (int i = 0; i < (toy ? 3 : 1000); i++) {
		uint64_t t0, t1, t2, t3, t4;

		tracking_protect(t, area, PAGE);
		t0 = tick();
		++*(volatile uint64_t *)area;
		t1 = tick();
		if (tracking_scan(t, area, PAGE, false) != 1)
			fail("PAGEMAP_SCAN", "missed the page");
		memcpy(copy, area, PAGE);
		t2 = tick();
		if (tracking_scan(t, area, PAGE, true) != 1)
			fail("PAGEMAP_SCAN", "missed the page");
		memcpy(copy, area, PAGE);
		t3 = tick();
		tracking_protect(t, area, PAGE);
		t4 = tick();
		series_add(&fault, t0, t1);
		series_add(&look, t1, t2);
		series_add(&scan, t2, t3);
		series_add(&protect, t3, t4);
		series_add(&full, t0 + (t2 - t1), t3);
	}
	emit(TABLE, "async: first write to a page", &fault, 1, "\"batch\":1");
	emit(TABLE, "async: scan one page, copy", &look, 1, "\"batch\":1");
	emit(TABLE, "async: scan and protect one page, copy", &scan, 1, "\"batch\":1");
	emit(TABLE, "async: protect one page (UFFDIO_WRITEPROTECT)", &protect, 1, "\"batch\":1");
	emit(TABLE, "async: write, scan and protect, copy", &full, 1, "\"batch\":1");
}

int main(int argc, char **argv)
{
	struct tracking t;
	const char *why;

	measure_begin(argc, argv);
	area = map_pages(PAGES * PAGE);
	copy = map_pages(PAGES * PAGE);
	fork_rows();
	copy_rows();
	soft_dirty_rows();
	why = tracking_open(&t, area, PAGES * PAGE);
	if (why) {
		emit_missing(TABLE, "async", why);
		return 0;
	}
	async_single_rows(&t);
	async_batch_rows(&t);
	if (sink == 42)
		puts(""); /* it is a checksum: somebody must look at it */
	return 0;
}
