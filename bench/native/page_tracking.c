/* SPDX-License-Identifier: MIT */
#include "page_tracking.h"

#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "measure.h"

/* Newer than many installed headers: Linux 6.7, include/uapi/linux/{userfaultfd,fs}.h. */
#define FEATURE_WP_UNPOPULATED (1ull << 13)
#define FEATURE_WP_ASYNC       (1ull << 15)
#define USER_MODE_ONLY         1

struct scan_arguments {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};

#define SCAN             _IOWR('f', 16, struct scan_arguments)
#define SCAN_PROTECT     3ull /* WP_MATCHING | CHECK_WPASYNC */
#define SCAN_CHECK_ASYNC 2ull
#define PAGE_WRITTEN     2ull

const char *tracking_open(struct tracking *t, void *base, size_t bytes)
{
	struct uffdio_api api = { .api = UFFD_API,
		.features = FEATURE_WP_ASYNC | FEATURE_WP_UNPOPULATED };
	struct uffdio_register area = { .range = { (uintptr_t)base, bytes },
		.mode = UFFDIO_REGISTER_MODE_WP };

	t->uffd = syscall(SYS_userfaultfd, O_CLOEXEC | USER_MODE_ONLY);
	if (t->uffd < 0)
		return "userfaultfd is not allowed here";
	if (ioctl(t->uffd, UFFDIO_API, &api) < 0 || ioctl(t->uffd, UFFDIO_REGISTER, &area) < 0)
		return "this kernel has no asynchronous write protection (Linux 6.7)";
	t->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	if (t->pagemap < 0 || tracking_scan(t, base, bytes, false) < 0)
		return "this kernel has no PAGEMAP_SCAN (Linux 6.7)";
	return NULL;
}

void tracking_close(struct tracking *t)
{
	close(t->pagemap);
	close(t->uffd);
}

long tracking_runs(struct tracking *t, void *base, size_t bytes, bool protect,
	struct tracking_run *runs, size_t room)
{
	struct scan_arguments scan = { .size = sizeof(scan),
		.flags = protect ? SCAN_PROTECT : SCAN_CHECK_ASYNC,
		.start = (uintptr_t)base,
		.end = (uintptr_t)base + bytes,
		.vec = (uintptr_t)runs,
		.vec_len = room,
		.category_mask = PAGE_WRITTEN,
		.return_mask = PAGE_WRITTEN };

	return ioctl(t->pagemap, SCAN, &scan);
}

long tracking_scan(struct tracking *t, void *base, size_t bytes, bool protect)
{
	struct tracking_run runs[64];
	long count = tracking_runs(t, base, bytes, protect, runs, 64), pages = 0;

	for (long i = 0; i < count; i++)
		pages += (runs[i].end - runs[i].begin) / PAGE;
	return count < 0 ? count : pages;
}

void tracking_protect(struct tracking *t, void *base, size_t bytes)
{
	struct uffdio_writeprotect area = { .range = { (uintptr_t)base, bytes },
		.mode = UFFDIO_WRITEPROTECT_MODE_WP };

	if (ioctl(t->uffd, UFFDIO_WRITEPROTECT, &area) < 0)
		fail("UFFDIO_WRITEPROTECT", "failed");
}
