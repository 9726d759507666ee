/* SPDX-License-Identifier: MIT */
#include "os/mapped_file.h"
#include <errno.h>
#include <linux/stat.h>
#include <time.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/memory.h"
#include "os/own_locks.h"
#include "os/proc.h"
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

struct wanted {
	const struct crn_mapping *part;
	bool anywhere, whole; /* whole: all of it must lie in the file */
	long at;              /* out: the address or -errno */
};

static int map_named(void *arg)
{
	struct wanted *w = arg;
	const struct crn_mapping *m = w->part;
	const size_t len = m->end - m->begin;
	int fd = (int)crn_path_open(m->name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	long size;

	w->at = fd;
	if (fd < 0)
		return fd;
	size = crn_sys3(SYS_lseek, fd, 0, SEEK_END);
	/* What lies beyond its end can be mapped, and not read. */
	if (w->whole && size >= 0 && (uint64_t)size <= m->offset + len - CRN_PAGE_SIZE)
		w->at = -ENODATA;
	else
		w->at = crn_sys6(SYS_mmap, w->anywhere ? 0 : (long)m->begin, (long)len, m->prot,
			MAP_PRIVATE | (w->anywhere ? 0 : MAP_FIXED_NOREPLACE), fd, (long)m->offset);
	return fd;
}

/* `part` of a mapping, where it says or (`anywhere`) where there is room. The address or -errno. */
static long map_part(struct crn_maps *maps, struct crn_mapping part, bool anywhere)
{
	struct wanted w = { .part = &part, .anywhere = anywhere, .whole = part.prot };
	size_t len = part.end - part.begin;
	int err;

	CRN_TRY(crn_beside_locks(map_named, &w));
	if (w.at < 0 && w.at > -4096)
		return w.at;
	/* A kernel that does not know the flag took it as a hint. */
	err = !anywhere && w.at != (long)part.begin ? -EEXIST : 0;
	part.begin = (uintptr_t)w.at;
	if (err >= 0)
		err = verify(maps, &part);
	if (err < 0)
		crn_sys2(SYS_munmap, w.at, len);
	return err < 0 ? err : w.at;
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

/* ---- Which file is it? -------------------------------------------------------------------- */

#define HANDLE_BYTES 128 /* the kernel's MAX_HANDLE_SZ */
#define FUSE	     0x65735546u
#define TICK_MAX     2 /* seconds: FAT's */
#define LINKS	     "/proc/self/map_files/"
#define LINK_BYTES   (sizeof(LINKS) + 4 * sizeof(uintptr_t) + 1)

/* struct file_handle. */
struct handle {
	uint32_t bytes;
	int32_t type;
	uint8_t at[HANDLE_BYTES];
};

/* A name, or a link of the kernel's that is to be followed. */
struct place {
	const char *name;
	bool link;
};

/* 0: there is none. Fowler, Noll and Vo's hash. */
static uint64_t age_by_handle(struct place p)
{
	struct handle h = { .bytes = HANDLE_BYTES };
	uint64_t hash = 0xcbf29ce484222325ull;
	int mount;

	if (crn_sys5(SYS_name_to_handle_at, AT_FDCWD, p.name, &h, &mount,
		    p.link ? AT_SYMLINK_FOLLOW : 0) < 0)
		return 0;
	for (size_t i = offsetof(struct handle, type);
		i < offsetof(struct handle, at) + CRN_MIN(h.bytes, (uint32_t)HANDLE_BYTES); i++)
		hash = (hash ^ ((const uint8_t *)&h)[i]) * 0x100000001b3ull;
	return hash | 1;
}

static uint64_t in_ns(const struct statx_timestamp *t)
{
	return (uint64_t)t->tv_sec * 1000000000u + t->tv_nsec;
}

static int look_at(struct place p, struct crn_file_identity *out)
{
	struct statx s;
	long err = crn_sys5(SYS_statx, AT_FDCWD, p.name, p.link ? 0 : AT_SYMLINK_NOFOLLOW,
		STATX_INO | STATX_BTIME | STATX_CTIME, &s);

	*out = (struct crn_file_identity){ .timed = true };
	if (err < 0)
		return (int)err;
	out->device = (uint64_t)s.stx_dev_major << 32 | s.stx_dev_minor;
	out->inode = s.stx_ino;
	out->age = in_ns(s.stx_mask & STATX_BTIME ? &s.stx_btime : &s.stx_ctime);
	return 0;
}

/* Of FUSE a handle is good only as long as the kernel knows the file. */
static bool has_handles(struct place p)
{
	uint64_t s[32]; /* more than any struct statfs, which begins with the type */

	return crn_sys2(SYS_statfs, p.name, s) >= 0 && (uint32_t)s[0] != FUSE;
}

/* Another file may have the same time if that is no more than a tick ago. */
static bool is_past(uint64_t ns)
{
	struct {
		int64_t s, ns;
	} now;

	return crn_sys2(SYS_clock_gettime, CLOCK_REALTIME, &now) >= 0 &&
		ns / 1000000000u + TICK_MAX < (uint64_t)now.s;
}

static int identify(struct place p, struct crn_file_identity *out)
{
	uint64_t age = 0;
	int err = look_at(p, out);

	if (err < 0)
		return err;
	if (has_handles(p))
		age = age_by_handle(p);
	if (age) {
		out->timed = false;
		out->age = age;
	} else if (!is_past(out->age)) {
		out->age = 0;
	}
	return 0;
}

static bool leads_to(struct place p, const struct crn_file_identity *was)
{
	struct crn_file_identity now;

	if (!was->age)
		return false;
	if (!was->timed)
		return age_by_handle(p) == was->age;
	return look_at(p, &now) >= 0 && now.device == was->device && now.inode == was->inode &&
		now.age == was->age;
}

int crn_file_identify(const char *name, struct crn_file_identity *out)
{
	return identify((struct place){ .name = name }, out);
}

bool crn_file_is(const char *name, const struct crn_file_identity *was)
{
	return leads_to((struct place){ .name = name }, was);
}

/* ---- By the mapping itself ---------------------------------------------------------------- */

static char *put_hex(char *to, uintptr_t value)
{
	unsigned digits = 1;

	while (digits < 2 * sizeof(value) && value >> 4 * digits)
		digits++;
	while (digits--)
		*to++ = "0123456789abcdef"[value >> 4 * digits & 15];
	return to;
}

static struct place link_of(char text[LINK_BYTES], uintptr_t begin, uintptr_t end)
{
	char *at = text + sizeof(LINKS) - 1;

	crn_copy(text, LINKS, sizeof(LINKS) - 1);
	at = put_hex(at, begin);
	*at++ = '-';
	*put_hex(at, end) = '\0';
	return (struct place){ .name = text, .link = true };
}

int crn_mapping_identify(uintptr_t begin, uintptr_t end, struct crn_file_identity *out)
{
	char text[LINK_BYTES];

	return identify(link_of(text, begin, end), out);
}

bool crn_mapping_is(uintptr_t begin, uintptr_t end, const struct crn_file_identity *was)
{
	char text[LINK_BYTES];

	return leads_to(link_of(text, begin, end), was);
}

bool crn_mapping_has_name(const struct crn_maps *maps, const struct crn_mapping *m)
{
	struct crn_mapping page = { .end = CRN_PAGE_SIZE, .name = m->name }, now;
	struct wanted w = { .part = &page, .anywhere = true };
	bool same;

	if (crn_beside_locks(map_named, &w) < 0 || (w.at < 0 && w.at > -4096))
		return false;
	same = crn_maps_ask(maps, (uintptr_t)w.at, &now) > 0 && now.inode == m->inode &&
		crn_mapping_device(&now) == crn_mapping_device(m);
	crn_sys2(SYS_munmap, w.at, CRN_PAGE_SIZE);
	return same;
}
