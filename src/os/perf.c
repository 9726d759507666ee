/* SPDX-License-Identifier: MIT */
#include "os/perf.h"
#include <errno.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <time.h>
#include "base/bits.h"
#include "base/log.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/memory.h"
#include "os/other_task.h"
#include "os/sys.h"
#include "os/thread.h"

#define NR_FSOPEN   430
#define NR_FSCONFIG 431
#define NR_FSMOUNT  432
#define FSCONFIG_CREATE 6
#define USER_TIME_NS 100000

/* ---- Tracepoints ------------------------------------------------------------------------- */

/* A file system that is mounted nowhere, and gone when the descriptor is closed. */
static int detached_tracefs(void)
{
	int fs = (int)crn_sys2(NR_FSOPEN, "tracefs", 1 /* CLOEXEC */), fd;

	if (fs < 0)
		return fs;
	fd = (int)crn_sys5(NR_FSCONFIG, fs, FSCONFIG_CREATE, 0, 0, 0);
	if (fd >= 0)
		fd = (int)crn_sys3(NR_FSMOUNT, fs, 1 /* CLOEXEC */, 0);
	crn_fd_close(fs);
	return fd;
}

static int number_of(int dir, const char *path)
{
	char text[16];
	int fd = (int)crn_sys4(SYS_openat, dir, path, O_RDONLY | O_CLOEXEC, 0), number = 0;
	long got;

	if (fd < 0)
		return fd;
	got = crn_fd_read(fd, text, sizeof(text));
	crn_fd_close(fd);
	for (long i = 0; i < got && text[i] >= '0' && text[i] <= '9'; i++)
		number = number * 10 + (text[i] - '0');
	return number ? number : -ENOENT;
}

static int points_in(int dir, struct crn_perf_points *out)
{
	CRN_TRY(out->acquired = number_of(dir, "events/mmap_lock/mmap_lock_acquire_returned/id"));
	CRN_TRY(out->hotplug = number_of(dir, "events/cpuhp/cpuhp_enter/id"));
	return 0;
}

int crn_perf_points(struct crn_perf_points *out)
{
	static const char *const usual[] = { "/sys/kernel/tracing", "/sys/kernel/debug/tracing" };
	int err = -ENOENT, dir;

	for (size_t i = 0; i <= CRN_ARRAY_SIZE(usual); i++) {
		dir = i < CRN_ARRAY_SIZE(usual)
			? (int)crn_sys4(SYS_openat, AT_FDCWD, usual[i],
				  O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)
			: detached_tracefs();
		err = dir < 0 ? dir : points_in(dir, out);
		crn_fd_close(dir);
		if (err >= 0)
			return 0;
	}
	return err;
}

/* ---- Events ------------------------------------------------------------------------------ */

/* In a thread that is gone when this returns. */
static int open_event(const struct perf_event_attr *attr, struct crn_perf_event *e)
{
	struct crn_call call = { .nr = SYS_perf_event_open,
		.args = { (long)attr, e->tid, e->cpu, -1, PERF_FLAG_FD_CLOEXEC } };

	CRN_TRY(crn_call_by_thread(&call));
	e->by = call.tid;
	return (int)call.result;
}

/* What is particular to a kind. */
static void describe(struct perf_event_attr *attr, enum crn_perf_kind kind)
{
	switch (kind) {
	case CRN_PERF_USER_FAULTS:
		attr->type = PERF_TYPE_SOFTWARE;
		attr->config = PERF_COUNT_SW_PAGE_FAULTS;
		attr->sample_type = PERF_SAMPLE_ADDR;
		attr->exclude_kernel = 1;
		break;
	case CRN_PERF_KERNEL_FAULTS:
		attr->type = PERF_TYPE_SOFTWARE;
		attr->config = PERF_COUNT_SW_PAGE_FAULTS;
		attr->sample_type = PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR;
		attr->exclude_user = 1;
		break;
	case CRN_PERF_POINT:
		attr->sample_type = PERF_SAMPLE_TIME;
		break;
	case CRN_PERF_POINT_TASK:
		attr->sample_type = PERF_SAMPLE_TID;
		break;
	case CRN_PERF_POINT_RAW:
		attr->sample_type = PERF_SAMPLE_RAW;
		break;
	case CRN_PERF_TASKS:
		attr->type = PERF_TYPE_SOFTWARE;
		attr->config = PERF_COUNT_SW_DUMMY;
		attr->sample_period = 0;
		attr->exclude_kernel = 1;
		attr->task = 1;
		break;
	case CRN_PERF_USER_TIME:
		attr->type = PERF_TYPE_SOFTWARE;
		attr->config = PERF_COUNT_SW_CPU_CLOCK;
		attr->sample_period = USER_TIME_NS;
		attr->exclude_kernel = 1;
		break;
	case CRN_PERF_CHANGES:
		attr->type = PERF_TYPE_SOFTWARE;
		attr->config = PERF_COUNT_SW_DUMMY;
		attr->sample_period = 0;
		attr->exclude_kernel = 1;
		attr->mmap = attr->mmap_data = 1; /* executable ones, and the others */
		break;
	}
}

int crn_perf_open(struct crn_perf_event *e, void *at, size_t pages)
{
	struct perf_event_attr attr = {
		.size = PERF_ATTR_SIZE_VER5,
		.type = PERF_TYPE_TRACEPOINT,
		.config = (uint64_t)e->point,
		.sample_period = 1,
		.exclude_hv = 1,
		/* Nobody is ever woken up. */
		.watermark = 1,
		.wakeup_watermark = INT32_MAX,
		.use_clockid = 1, /* one that never goes back from one processor to the next */
		.clockid = CLOCK_MONOTONIC,
	};
	int fd, prot = e->kind == CRN_PERF_CHANGES ? PROT_READ : PROT_READ | PROT_WRITE;
	long err = 0;

	describe(&attr, e->kind);
	CRN_TRY(fd = open_event(&attr, e));
	if (e->filter)
		err = crn_sys3(SYS_ioctl, fd, PERF_EVENT_IOC_SET_FILTER, e->filter);
	if (err >= 0)
		err = crn_sys6(SYS_mmap, (long)at, (long)((1 + pages) * CRN_PAGE_SIZE),
			prot, MAP_SHARED | MAP_FIXED, fd, 0);
	if (err >= 0 && e->keep) {
		err = crn_sys3(SYS_ioctl, fd, PERF_EVENT_IOC_ID, &e->id);
		e->fd = fd = crn_fd_raise(fd);
		return (int)CRN_MIN(CRN_MIN(err, fd), 0l);
	}
	crn_fd_close(fd);
	return (int)CRN_MIN(err, 0l);
}

int crn_perf_mute(int fd, uint64_t id, bool mute)
{
	uint64_t now = 0;

	CRN_TRY((int)crn_sys3(SYS_ioctl, fd, PERF_EVENT_IOC_ID, &now));
	if (now != id)
		return -EBADF;
	return (int)crn_sys3(SYS_ioctl, fd,
		mute ? PERF_EVENT_IOC_DISABLE : PERF_EVENT_IOC_ENABLE, 0);
}

int crn_perf_reserve(void **out, size_t len)
{
	long at = crn_sys6(SYS_mmap, 0, len, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (at < 0 && at > -4096)
		return (int)at;
	(void)crn_memory_advise((void *)at, len, MADV_DONTFORK);
	*out = (void *)at;
	return 0;
}

void crn_perf_unmap(void *at, size_t len)
{
	long got = crn_sys6(SYS_mmap, (long)at, (long)len, PROT_NONE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	if (got >= 0)
		(void)crn_memory_advise(at, len, MADV_DONTFORK);
}

/* ---- Rings ------------------------------------------------------------------------------- */

uint64_t crn_perf_head(const void *ring)
{
	return __atomic_load_n(
		&((const struct perf_event_mmap_page *)ring)->data_head, __ATOMIC_ACQUIRE);
}

uint64_t crn_perf_freed(const void *ring)
{
	return ((const struct perf_event_mmap_page *)ring)->data_tail;
}

void crn_perf_free_until(void *ring, uint64_t tail)
{
	__atomic_store_n(&((struct perf_event_mmap_page *)ring)->data_tail, tail, __ATOMIC_RELEASE);
}

static const void *at_word(const void *ring, size_t pages, uint64_t at)
{
	return (const uint8_t *)ring + CRN_PAGE_SIZE + (at & (pages * CRN_PAGE_SIZE - 1));
}

struct crn_perf_record crn_perf_header(const void *ring, size_t pages, uint64_t at)
{
	struct crn_perf_record r = *(const struct crn_perf_record *)at_word(ring, pages, at);

	/* Zeros, which the program has written astray, would be read for ever. */
	r.size = CRN_MAX(r.size, (uint16_t)sizeof(r));
	return r;
}

uint64_t crn_perf_word(const void *ring, size_t pages, uint64_t at, size_t i)
{
	return *(const uint64_t *)at_word(ring, pages, at + sizeof(struct crn_perf_record) + 8 * i);
}
