/* SPDX-License-Identifier: MIT */
#include "os/proc.h"

#include <errno.h>
#include <fcntl.h>
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/sys.h"
#include "os/thread.h"

#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#define TREE_CLONE     1
#define TREE_RECURSIVE 0x8000 /* where parts of /proc are mounted over, as in containers */

#define BELOW "/proc/"

struct dirent_head {
	uint64_t inode, offset;
	uint16_t length;
	uint8_t type;
	char name[];
} __attribute__((packed));

/* Set by the agent, whose image is no part of a surface, or by code with hooks, whose tracker does
 * not put back what has none. */
static int kept = -1;

bool crn_proc_keep(void)
{
	int flags = TREE_CLONE | O_CLOEXEC;
	long fd;

	if (kept >= 0)
		return true;
	fd = crn_sys3(SYS_open_tree, AT_FDCWD, "/proc", flags);
	if (fd < 0)
		fd = crn_sys3(SYS_open_tree, AT_FDCWD, "/proc", flags | TREE_RECURSIVE);
	kept = crn_fd_raise((int)fd);
	return kept >= 0;
}

/* The path in the kept mount, if it was not there in the program's root; else NULL. */
static const char *elsewhere(const char *path, long result)
{
	if (result != -ENOENT || kept < 0 || !crn_starts_with(path, BELOW))
		return NULL;
	return path + sizeof(BELOW) - 1;
}

static long open_at(int dir, const char *path, int flags)
{
	long fd;

	do
		fd = crn_sys4(SYS_openat, dir, path, flags, 0600);
	while (fd == -EINTR);
	return fd;
}

long crn_path_open(const char *path, int flags)
{
	long fd = open_at(AT_FDCWD, path, flags);
	const char *below = elsewhere(path, fd);

	return below ? open_at(kept, below, flags) : fd;
}

long crn_path_readlink(const char *path, char *target, size_t size)
{
	long n = crn_sys4(SYS_readlinkat, AT_FDCWD, path, target, size);
	const char *below = elsewhere(path, n);

	return below ? crn_sys4(SYS_readlinkat, kept, below, target, size) : n;
}

int crn_proc_number(const char *name)
{
	int number = *name ? 0 : -1;

	for (; *name; name++) {
		if (*name < '0' || *name > '9')
			return -1;
		number = number * 10 + (*name - '0');
	}
	return number;
}

uint64_t crn_proc_digits(const char **at, unsigned base)
{
	uint64_t value = 0;

	for (;; (*at)++) {
		unsigned c = (unsigned char)**at;
		unsigned digit = c >= '0' && c <= '9' ? c - '0' : (c | 32u) - 'a' + 10;

		if (digit >= base)
			return value;
		value = value * base + digit;
	}
}

int crn_proc_numbers(
	const char *path, int (*fn)(void *ctx, int dir, int number), void *ctx)
{
	int dir = (int)crn_path_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), result = 0;
	char list[1024] __attribute__((aligned(8)));
	long got = 0;

	if (dir < 0)
		return dir;
	while (!result && (got = crn_sys3(SYS_getdents64, dir, list, sizeof(list))) > 0) {
		for (long at = 0; at < got && !result;) {
			const struct dirent_head *entry = (const struct dirent_head *)(list + at);
			int number = crn_proc_number(entry->name);

			if (number >= 0)
				result = fn(ctx, dir, number);
			at += entry->length;
		}
	}
	crn_sys1(SYS_close, dir);
	return got < 0 ? (int)got : result;
}

int crn_fdinfo(int fd, const char *field, char *out, size_t size)
{
	char path[40], text[1024];
	size_t n = 0;
	long len;

	crn_format(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	len = crn_file_read(path, text, sizeof(text));
	if (len < 0)
		return (int)len;
	for (const char *line = text; *line; line += *line == '\n') {
		if (crn_starts_with(line, field)) {
			for (line += crn_strlen(field); *line && *line != '\n' && n < size - 1;)
				out[n++] = *line++;
			out[n] = '\0';
			return 0;
		}
		while (*line && *line != '\n')
			line++;
	}
	return -ENOENT;
}

bool crn_proc_is_foreign(void)
{
	char link[16];
	long n = crn_path_readlink("/proc/self", link, sizeof(link) - 1);

	if (n <= 0)
		return false;
	link[n] = 0;
	return crn_proc_number(link) != crn_getpid();
}

bool crn_proc_children_elsewhere(void)
{
	char mine[32], theirs[32];
	long n = crn_path_readlink("/proc/thread-self/ns/pid", mine, sizeof(mine));
	long m = crn_path_readlink(
		"/proc/thread-self/ns/pid_for_children", theirs, sizeof(theirs));

	if (n < 0 && m < 0)
		return false;
	for (long i = 0; n == m && i < n; i++)
		if (mine[i] != theirs[i])
			return true;
	return n != m; /* the new one has no init yet, and no name */
}

/*
 * The task's ids, one for each namespace from that of /proc down: the one at that place, or 0; and
 * how many there are, or -errno.
 */
static int ids_of(const char *folder, int place, int *id)
{
	char path[64], text[4096];
	const char *s;
	long len;
	int count = 0;

	*id = 0;
	crn_format(path, sizeof(path), "%s/status", folder);
	CRN_TRY(len = crn_file_read(path, text, sizeof(text)));
	for (s = text; *s && !crn_starts_with(s, "\nNSpid:"); s++)
		;
	if (!*s)
		return -EMSGSIZE;
	for (s++; *s && *s != '\n'; s++) {
		bool digit = *s >= '0' && *s <= '9';

		if (digit && !(s[-1] >= '0' && s[-1] <= '9'))
			count++;
		if (digit && count == place)
			*id = *id * 10 + (*s - '0');
	}
	return count;
}

int crn_proc_own_id(const char *folder)
{
	int unused, id, place, err;

	CRN_TRY(place = ids_of("/proc/self", 0, &unused));
	err = ids_of(folder, place, &id);
	if (err == -ESRCH)
		return -ENOENT;
	return err < 0 ? err : id ? id : -ENOENT;
}
