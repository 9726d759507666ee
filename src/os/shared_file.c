/* SPDX-License-Identifier: MIT */
#include "os/shared_file.h"
#include <errno.h>
#include <sys/mman.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/memory.h"
#include "os/sys.h"

long crn_path_absolute(const char *path, char *out, size_t size)
{
	size_t len = crn_strlen(path), at = 0;

	if (path[0] != '/') {
		long got = crn_sys2(SYS_getcwd, out, size);

		if (got < 0)
			return got == -ERANGE ? -ENAMETOOLONG : got;
		at = (size_t)got;
		out[at - 1] = '/'; /* in place of the NUL */
	}
	if (at + len >= size)
		return -ENAMETOOLONG;
	crn_copy(out + at, path, len + 1);
	return (long)(at + len);
}

long crn_path_executed(char *out, size_t size)
{
	long got = crn_sys4(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", out, size - 1);

	if (got >= 0)
		out[got] = '\0';
	return got;
}

static int map_shared(int fd, void **out, size_t len)
{
	long at = crn_sys6(SYS_mmap, 0, (long)len, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_NORESERVE, fd, 0);

	if (at < 0 && at > -4096)
		return (int)at;
	*out = (void *)at;
	return 0;
}

int crn_shared_create(const char *path, uint64_t size, void **out, size_t len)
{
	int fd = (int)crn_sys4(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
		0666);
	int err;

	if (fd < 0)
		return fd;
	err = (int)crn_sys2(SYS_ftruncate, fd, size);
	if (err >= 0)
		err = map_shared(fd, out, len);
	crn_fd_close(fd);
	if (err < 0)
		(void)crn_sys3(SYS_unlinkat, AT_FDCWD, path, 0);
	return err;
}

int64_t crn_shared_open(const char *path, void **out, size_t len)
{
	int fd = (int)crn_sys4(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	int64_t size;
	int err;

	if (fd < 0)
		return fd;
	size = crn_sys3(SYS_lseek, fd, 0, SEEK_END);
	err = size < 0 ? (int)size : map_shared(fd, out, len);
	crn_fd_close(fd);
	return err < 0 ? err : size;
}

/* Not ftruncate: two processes may do this at once, and one of them would cut it. */
int crn_shared_extend(int fd, uint64_t size)
{
	static const char zero;
	long done = crn_sys4(SYS_pwrite64, fd, &zero, 1, size - 1);

	return done < 0 ? (int)done : 0;
}

int crn_shared_rename(const char *from, const char *to, int replace)
{
	int err;

	if (replace)
		return (int)crn_sys4(SYS_renameat, AT_FDCWD, from, AT_FDCWD, to);
	err = (int)crn_sys5(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
	(void)crn_sys3(SYS_unlinkat, AT_FDCWD, from, 0);
	return err;
}
