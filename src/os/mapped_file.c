/* SPDX-License-Identifier: MIT */
#include "os/mapped_file.h"
#include <errno.h>
#include "base/bits.h"
#include "base/status.h"
#include "os/memory.h"
#include "os/sys.h"

bool crn_mapped_file_same(const struct crn_mapping *m, const struct crn_mapping *was)
{
	return !m->shared && m->inode == was->inode && m->dev_major == was->dev_major &&
		m->dev_minor == was->dev_minor &&
		m->offset - m->begin == was->offset - was->begin;
}

/* Asked of the mapping: stat's device is another one on some file systems. */
static int verify(struct crn_maps *maps, const struct crn_mapping *want)
{
	struct crn_mapping m;
	int found = crn_maps_find(maps, want->begin, &m);

	if (found < 0)
		return found;
	return found && crn_mapped_file_same(&m, want) ? 0 : -ESTALE;
}

/* `part` of a mapping, where it says or (`anywhere`) where there is room. The address or -errno. */
static long map_part(struct crn_maps *maps, struct crn_mapping part, bool anywhere)
{
	int fd = crn_fd_open(part.name, O_RDONLY | O_NONBLOCK), err = 0;
	size_t len = part.end - part.begin;
	long size, at;

	if (fd < 0)
		return fd;
	size = crn_sys3(SYS_lseek, fd, 0, SEEK_END);
	/* What lies beyond its end can be mapped, and not read. */
	if (size >= 0 && part.prot && (uint64_t)size <= part.offset + len - CRN_PAGE_SIZE)
		at = -ENODATA;
	else
		at = crn_sys6(SYS_mmap, anywhere ? 0 : (long)part.begin, (long)len, part.prot,
			MAP_PRIVATE | (anywhere ? 0 : MAP_FIXED_NOREPLACE), fd, (long)part.offset);
	crn_fd_close(fd);
	if (at < 0 && at > -4096)
		return at;
	if (!anywhere && at != (long)part.begin)
		err = -EEXIST; /* a kernel that does not know the flag took it as a hint */
	part.begin = (uintptr_t)at;
	if (err >= 0)
		err = verify(maps, &part);
	if (err < 0)
		crn_sys2(SYS_munmap, at, len);
	return err < 0 ? err : at;
}

int crn_mapped_file_put(struct crn_maps *maps, const struct crn_mapping *was)
{
	return (int)CRN_MIN(0l, map_part(maps, *was, false));
}

int crn_mapped_file_try(struct crn_maps *maps, const struct crn_mapping *was)
{
	struct crn_mapping last = *was;
	long at;

	last.offset += was->end - CRN_PAGE_SIZE - was->begin;
	last.begin = was->end - CRN_PAGE_SIZE;
	at = map_part(maps, last, true);
	if (at < 0 && at > -4096)
		return (int)at;
	crn_sys2(SYS_munmap, at, CRN_PAGE_SIZE);
	return 0;
}
