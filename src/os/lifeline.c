/* SPDX-License-Identifier: MIT */
#include "os/lifeline.h"

#include <errno.h>
#include <sys/mman.h>
#include "base/bits.h"
#include "base/log.h"
#include "os/memory.h"
#include "os/sys.h"

#define LOCK_EXCLUSIVE 2 /* LOCK_EX */

/* A second open file of the same file: a duplicate would share the lock. */
static int open_again(int fd)
{
	char path[32];

	crn_format(path, sizeof(path), "/proc/self/fd/%d", fd);
	return crn_fd_open(path, O_RDONLY);
}

static int map_locked(int fd, void **mapping)
{
	long at = crn_sys2(SYS_flock, fd, LOCK_EXCLUSIVE);

	if (at < 0)
		return (int)at;
	at = crn_sys6(SYS_mmap, 0, CRN_PAGE_SIZE, PROT_NONE, MAP_SHARED, fd, 0);
	if (at < 0 && at > -4096)
		return (int)at;
	*mapping = (void *)at;
	return crn_memory_advise(*mapping, CRN_PAGE_SIZE, MADV_DONTFORK);
}

int crn_lifeline_open(struct crn_lifeline *l)
{
	/* Empty: nobody reads it, and no limit of file sizes is met. */
	int fd = (int)crn_sys2(SYS_memfd_create, "cairn-life", 1 /* MFD_CLOEXEC */);
	int err;

	*l = (struct crn_lifeline){ .fd = -1 };
	if (fd < 0)
		return fd;
	err = l->fd = open_again(fd);
	if (err >= 0)
		err = crn_fd_identify(l->fd, &l->id);
	if (err >= 0)
		err = map_locked(fd, &l->mapping);
	crn_sys1(SYS_close, fd);
	if (err >= 0)
		return 0;
	crn_fd_close(l->fd);
	crn_lifeline_end(l->mapping);
	*l = (struct crn_lifeline){ .fd = -1 };
	return err;
}

void crn_lifeline_close_fd(struct crn_lifeline *l)
{
	if (crn_fd_is(l->fd, &l->id))
		crn_fd_close(l->fd);
	l->fd = -1;
}

void crn_lifeline_end(void *mapping)
{
	if (mapping)
		(void)crn_memory_unmap(mapping, CRN_PAGE_SIZE);
}
