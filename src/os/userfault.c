/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include "base/bits.h"
#include "os/descriptor.h"
#include "os/sys.h"
#include "os/thread.h"
#include "os/userfault.h"

/* <linux/userfaultfd.h>, the parts used here. */
struct range_arg {
	uint64_t start, len;
};

struct api_arg {
	uint64_t api, features, ioctls;
};

struct register_arg {
	struct range_arg range;
	uint64_t mode, ioctls;
};

struct protect_arg {
	struct range_arg range;
	uint64_t mode;
};

struct zeropage_arg {
	struct range_arg range;
	uint64_t mode;
	int64_t done;
};

#define API              0xaaull
#define API_IOCTL        0xc018aa3ful /* _IOWR(0xaa, 0x3f, struct api_arg) */
#define REGISTER_IOCTL   0xc020aa00ul /* _IOWR(0xaa, 0x00, struct register_arg) */
#define UNREGISTER_IOCTL 0x8010aa01ul /* _IOR(0xaa, 0x01, struct range_arg) */
#define PROTECT_IOCTL    0xc018aa06ul /* _IOWR(0xaa, 0x06, struct protect_arg) */
#define ZEROPAGE_IOCTL   0xc020aa04ul /* _IOWR(0xaa, 0x04, struct zeropage_arg) */
#define NEW_IOCTL        0x0000aa00ul /* _IO(0xaa, 0x00), on /dev/userfaultfd */
#define REGISTER_WP      2ull
#define PROTECT_ON       1ull
#define PROTECT_NO_WAKE  2ull
#define USER_MODE_ONLY   1

_Static_assert(sizeof(struct api_arg) == 0x18, "ABI");
_Static_assert(sizeof(struct register_arg) == 0x20, "ABI");
_Static_assert(sizeof(struct protect_arg) == 0x18, "ABI");
_Static_assert(sizeof(struct zeropage_arg) == 0x20, "ABI");

static int open_by_device(int flags)
{
	int device = (int)crn_sys4(SYS_openat, AT_FDCWD, "/dev/userfaultfd", O_RDWR | O_CLOEXEC, 0);
	int fd;

	if (device < 0)
		return device;
	fd = (int)crn_sys3(SYS_ioctl, device, NEW_IOCTL, flags);
	crn_fd_close(device);
	return fd;
}

/* A bare descriptor, low. Kernel-mode faults included if we may have them. */
static int open_any(enum crn_uffd_way *way)
{
	int flags = O_CLOEXEC | O_NONBLOCK;
	int first, fd;

	*way = CRN_UFFD_BY_SYSCALL;
	first = (int)crn_sys1(SYS_userfaultfd, flags);
	if (first >= 0)
		return first;
	*way = CRN_UFFD_BY_DEVICE;
	fd = open_by_device(flags);
	if (fd >= 0)
		return fd;
	*way = CRN_UFFD_BY_USER_MODE;
	fd = (int)crn_sys1(SYS_userfaultfd, flags | USER_MODE_ONLY);
	if (fd >= 0)
		return fd;
	*way = CRN_UFFD_NOT_AT_ALL;
	return first;
}

/* The same with these features. `all`: those that the kernel has. */
static int open_enabled(uint64_t features, uint64_t *all, enum crn_uffd_way *way)
{
	struct api_arg arg = { API, features, 0 };
	int fd = open_any(way);
	int err;

	if (fd < 0)
		return fd;
	err = (int)crn_sys3(SYS_ioctl, fd, API_IOCTL, &arg);
	if (err < 0) {
		crn_fd_close(fd);
		return err;
	}
	*all = arg.features;
	return fd;
}

int crn_uffd_open(uint64_t features, enum crn_uffd_way *way)
{
	enum crn_uffd_way how;
	uint64_t all;
	int fd = open_enabled(features, &all, &how);

	if (fd < 0)
		return fd;
	if ((all & features) != features) {
		crn_fd_close(fd);
		return -EINVAL;
	}
	fd = crn_fd_raise(fd);
	if (fd >= 0 && way)
		*way = how;
	return fd;
}

int crn_uffd_features(uint64_t *features, enum crn_uffd_way *way)
{
	enum crn_uffd_way how;
	uint64_t all;
	int fd = open_enabled(0, &all, &how);

	if (fd < 0)
		return fd;
	crn_fd_close(fd);
	*features = all;
	*way = how;
	return 0;
}

int crn_uffd_register(int uffd, uintptr_t addr, size_t len)
{
	struct register_arg arg = { { addr, len }, REGISTER_WP, 0 };

	return (int)crn_sys3(SYS_ioctl, uffd, REGISTER_IOCTL, &arg);
}

int crn_uffd_unregister(int uffd, uintptr_t addr, size_t len)
{
	struct range_arg arg = { addr, len };

	return (int)crn_sys3(SYS_ioctl, uffd, UNREGISTER_IOCTL, &arg);
}

/* The kernel looks at the mapping before it finds that there is a page already. */
int crn_uffd_whole(int uffd, uintptr_t addr, size_t len)
{
	struct zeropage_arg arg = { { addr, len }, 0, 0 };
	int err;

	while ((err = (int)crn_sys3(SYS_ioctl, uffd, ZEROPAGE_IOCTL, &arg)) == -EAGAIN) {
		if (arg.done > 0)
			return 0; /* a part of it was empty */
		crn_yield();
	}
	return err == -EEXIST ? 0 : CRN_MIN(err, 0);
}

_Static_assert(sizeof(struct crn_uffd_event) == 32, "ABI");

/* Read an event, if there is one, and act on it like any reader. Any context. */
static void read_event(struct crn_uffd_events *e, int uffd)
{
	struct crn_uffd_event *at = &e->log[atomic_fetch_add(&e->seen, 1) % CRN_UFFD_LOG];

	at->kind = 0;
	if (crn_sys3(SYS_read, uffd, at, sizeof(*at)) > 0 && at->kind == CRN_UFFD_REMOVED)
		atomic_store(&e->dropped, 1u);
	else if (at->kind == CRN_UFFD_REMAPPED)
		(void)crn_uffd_unregister(uffd, at->args[1], at->args[2]);
	atomic_fetch_add(&e->done, 1);
}

int crn_uffd_protect_beside(
	int uffd, uintptr_t addr, size_t len, bool protect, struct crn_uffd_events *e)
{
	struct protect_arg arg = { { addr, len }, protect ? PROTECT_ON : PROTECT_NO_WAKE };
	int err;

	/*
	 * -EAGAIN: another thread is in the middle of munmap, mremap or fork. It needs the
	 * processor; or, where there are events, somebody to read its own, which its readers may
	 * not live to do.
	 */
	while ((err = (int)crn_sys3(SYS_ioctl, uffd, PROTECT_IOCTL, &arg)) == -EAGAIN) {
		if (e)
			read_event(e, uffd);
		crn_yield();
	}
	return err;
}

int crn_uffd_protect(int uffd, uintptr_t addr, size_t len, bool protect)
{
	return crn_uffd_protect_beside(uffd, addr, len, protect, NULL);
}

bool crn_uffd_protect_single(int uffd, uintptr_t addr)
{
	return crn_uffd_protect(uffd, addr, CRN_PAGE_SIZE, true) != -EINVAL;
}
