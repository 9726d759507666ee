/* SPDX-License-Identifier: MIT */
/*
 * What each descriptor of the program is. It is found out by fstat when the descriptor first
 * matters, so inherited and passed descriptors need no special case. An entry lives until its
 * number is closed or reused.
 */
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/netlink.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include "base/copy.h"
#include "base/log.h"
#include "os/proc.h"
#include "effects/hold.h"

#ifndef F_DUPFD_QUERY
#define F_DUPFD_QUERY 1027 /* Linux 6.10 */
#endif

/* The limit of the program may be raised at any time: the table reaches as far as it is used. */
static void reach(struct crn_effects *e, uint32_t chunks)
{
	uint32_t now = __atomic_load_n(&e->fd_chunks, __ATOMIC_RELAXED);

	while (now < chunks && !__atomic_compare_exchange_n(&e->fd_chunks, &now, chunks, false,
				       __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static __attribute__((noinline)) void make_chunk(struct crn_effects *e, uint32_t chunk)
{
	e->fds[chunk] = crn_effects_alloc(CRN_FD_CHUNK * sizeof(struct crn_fd));
	reach(e, chunk + 1);
}

static inline struct crn_fd *entry(int fd, bool make)
{
	struct crn_effects *e = crn_agent->effects;
	uint32_t chunk = (uint32_t)fd / CRN_FD_CHUNK;

	if (!e->fds || fd < 0 || chunk >= CRN_FD_CHUNKS_MAX) /* no table without --recover */
		return NULL;
	if (!e->fds[chunk] && make)
		make_chunk(e, chunk);
	return e->fds[chunk] ? &e->fds[chunk][fd % CRN_FD_CHUNK] : NULL;
}

/* Anonymous inodes share one inode; their name tells what they are. */
static enum crn_fd_kind anonymous_kind(int fd)
{
	static const struct {
		const char *name;
		enum crn_fd_kind kind;
	} names[] = {
		{"anon_inode:[eventpoll]", CRN_FD_EPOLL}, {"anon_inode:[eventfd]", CRN_FD_EVENT},
		{"anon_inode:[timerfd]", CRN_FD_TIMER}, {"anon_inode:[signalfd]", CRN_FD_SIGNAL},
		{"anon_inode:inotify", CRN_FD_INOTIFY}, {"anon_inode:[inotify]", CRN_FD_INOTIFY},
	};
	char path[40], target[64];
	long n;

	crn_format(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = crn_path_readlink(path, target, sizeof(target) - 1);
	if (n <= 0)
		return CRN_FD_OTHER;
	target[n] = '\0';
	for (size_t i = 0; i < CRN_ARRAY_SIZE(names); i++)
		if (crn_streq(target, names[i].name))
			return names[i].kind;
	return CRN_FD_OTHER;
}

static enum crn_fd_kind device_kind(const struct stat *st)
{
	unsigned major = major(st->st_rdev), minor = minor(st->st_rdev);

	if (major == 1 && (minor == 3 || minor == 5 || minor == 7 || minor == 8 || minor == 9))
		return CRN_FD_NULL;
	if (major == 4 || major == 5 || (major >= 136 && major <= 143))
		return CRN_FD_TTY;
	return CRN_FD_OTHER;
}

static enum crn_fd_kind socket_kind(int fd)
{
	int type = 0;
	unsigned len = sizeof(type);

	if (crn_sys5(SYS_getsockopt, fd, 1 /* SOL_SOCKET */, 3 /* SO_TYPE */, &type, &len) < 0)
		return CRN_FD_OTHER;
	return type == 1 /* SOCK_STREAM */ ? CRN_FD_STREAM : CRN_FD_DATAGRAM;
}

/* By NETLINK_USERSOCK processes talk to each other. */
static bool is_kernels(int fd)
{
	int domain = 0, protocol = NETLINK_USERSOCK;
	unsigned len = sizeof(domain);

	crn_sys5(SYS_getsockopt, fd, 1 /* SOL_SOCKET */, 39 /* SO_DOMAIN */, &domain, &len);
	if (domain != 16 /* AF_NETLINK */)
		return false;
	crn_sys5(SYS_getsockopt, fd, 1, 38 /* SO_PROTOCOL */, &protocol, &len);
	return protocol != NETLINK_USERSOCK;
}

static enum crn_fd_kind kind_of(int fd, const struct stat *st)
{
	switch (st->st_mode & S_IFMT) {
	case S_IFREG:
		return CRN_FD_REGULAR;
	case S_IFDIR:
		return CRN_FD_DIRECTORY;
	case S_IFSOCK:
		return socket_kind(fd);
	case S_IFIFO:
		return CRN_FD_PIPE;
	case S_IFCHR:
		return device_kind(st);
	case S_IFBLK:
		return CRN_FD_OTHER;
	}
	return anonymous_kind(fd);
}

/* Of these the kernel tells no name of their own. */
static bool is_numbered(enum crn_fd_kind kind)
{
	return kind == CRN_FD_TIMER || kind == CRN_FD_SIGNAL || kind == CRN_FD_INOTIFY;
}

/* The number by which a duplicate of it is known, or -1. */
static int name_of_copy(int fd, enum crn_fd_kind kind)
{
	struct crn_effects *e = crn_agent->effects;

	for (int i = 0; i < (int)(e->fd_chunks * CRN_FD_CHUNK); i++) {
		const struct crn_fd *g = entry(i, false);

		if (!g)
			i |= CRN_FD_CHUNK - 1;
		else if (g->kind == kind && g->ino == (uint64_t)i && i != fd &&
			crn_fd_is_copy(fd, i))
			return i;
	}
	return -1;
}

/*
 * By what an anonymous object is known: the first number of it that was looked at. An eventfd has
 * one of its own (Linux 5.2), whatever the duplicates; sets of epoll are told apart by their
 * mirrors.
 */
static uint64_t anonymous_name(int fd, enum crn_fd_kind kind, bool made)
{
	uint64_t name = 0;
	char id[24];
	int copy;

	if (is_numbered(kind) && !made && (copy = name_of_copy(fd, kind)) >= 0)
		return (uint64_t)copy;
	if (kind != CRN_FD_EVENT || crn_fdinfo(fd, "eventfd-id: ", id, sizeof(id)) < 0)
		return (uint64_t)fd;
	for (const char *c = id; *c >= '0' && *c <= '9'; c++)
		name = name * 10 + (uint64_t)(*c - '0');
	return name | 1ull << 32;
}

static bool is_anonymous(enum crn_fd_kind kind)
{
	return kind == CRN_FD_EPOLL || kind == CRN_FD_EVENT || is_numbered(kind);
}

/* The table entry of a regular file; 0 when there is no room, which makes its writes outputs. */
static uint16_t file_slot(uint64_t dev, uint64_t ino)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 1; i < e->file_count; i++)
		if (e->files[i].ino == ino && e->files[i].dev == dev)
			return (uint16_t)i;
	if (e->file_count >= CRN_FILES_MAX)
		return 0;
	e->files[e->file_count] = (struct crn_file){.dev = dev, .ino = ino};
	return (uint16_t)e->file_count++;
}

struct crn_file *crn_file_of(const struct crn_fd *f)
{
	return f->file ? &crn_agent->effects->files[f->file] : NULL;
}

/* `flags`: those of open(2), or -1 if not known; `made`: just now, it has no duplicates. */
static void describe(int fd, struct crn_fd *f, const struct stat *st, long flags, bool made)
{
	*f = (struct crn_fd){
		.kind = (uint8_t)kind_of(fd, st), .dev = st->st_dev, .ino = st->st_ino
	};
	if (is_anonymous(f->kind)) {
		f->dev = 0;
		f->ino = anonymous_name(fd, f->kind, made);
	}
	/* What inetd starts has its connection three times. */
	if (f->kind == CRN_FD_STREAM && fd <= 2)
		f->flags |= CRN_FDF_COPIED;
	if (f->kind == CRN_FD_DATAGRAM && is_kernels(fd))
		f->flags |= CRN_FDF_KERNEL;
	if (f->kind != CRN_FD_REGULAR)
		return;
	if (!st->st_size)
		f->flags |= CRN_FDF_EMPTY;
	if (flags < 0 || (flags & O_PATH))
		flags = crn_sys2(SYS_fcntl, fd, F_GETFL);
	if (flags < 0)
		return;
	if (flags & O_APPEND)
		f->flags |= CRN_FDF_APPEND;
	if ((flags & O_ACCMODE) == O_WRONLY)
		f->flags |= CRN_FDF_WRITEONLY;
	if ((flags & O_ACCMODE) == O_RDONLY)
		f->flags |= CRN_FDF_READONLY;
	else
		f->file = file_slot(st->st_dev, st->st_ino);
}

static void look(int fd, struct crn_fd *f, bool made)
{
	struct stat st;

	if (crn_sys2(SYS_fstat, fd, &st) < 0)
		*f = (struct crn_fd){.kind = CRN_FD_CLOSED};
	else
		describe(fd, f, &st, -1, made);
}

/* Without --recover there is no table, and nobody asks for more than the kind. */
static enum crn_fd_kind kind_now(int fd)
{
	struct stat st;

	return crn_sys2(SYS_fstat, fd, &st) < 0 ? CRN_FD_CLOSED : kind_of(fd, &st);
}

/* An entry that remembers nothing. */
static struct crn_fd *stranger(enum crn_fd_kind kind)
{
	struct crn_fd *f = &crn_agent->effects->strangers[kind == CRN_FD_CLOSED];

	*f = (struct crn_fd){.kind = (uint8_t)kind};
	return f;
}

struct crn_fd *crn_fd_look(int fd)
{
	struct crn_fd *f, seen;

	if (!crn_agent->effects->fds)
		return stranger(kind_now(fd));
	f = entry(fd, false);
	if (f && f->kind > CRN_FD_CLOSED)
		return f;
	look(fd, &seen, false);
	/* do not remember that: numbers come to life in many ways */
	if (seen.kind == CRN_FD_CLOSED)
		return stranger(CRN_FD_CLOSED);
	/*
	 * Out of the engine's memory, or a number beyond the table: nothing is known, so everything
	 * is an output.
	 */
	f = entry(fd, true);
	if (!f)
		return stranger(CRN_FD_OTHER);
	*f = seen;
	return f;
}

void crn_fd_made(int fd)
{
	struct crn_fd *f = entry(fd, true);

	if (f)
		look(fd, f, true);
}

void crn_fd_forget(int fd)
{
	struct crn_fd *f = entry(fd, false);

	if (f)
		*f = (struct crn_fd){.kind = CRN_FD_UNKNOWN};
}

void crn_fd_forget_range(unsigned from, unsigned to)
{
	struct crn_effects *e = crn_agent->effects;
	unsigned end = CRN_MIN(to, e->fd_chunks * CRN_FD_CHUNK - 1);

	for (unsigned fd = from; fd <= end; fd++) {
		if (!e->fds[fd / CRN_FD_CHUNK]) {
			fd |= CRN_FD_CHUNK - 1;
			continue;
		}
		crn_fd_forget((int)fd);
	}
}

void crn_fd_copy(int newfd, int oldfd)
{
	struct crn_fd *from = entry(oldfd, false), *to = entry(newfd, true);

	if (from && from->kind == CRN_FD_STREAM)
		from->flags |= CRN_FDF_COPIED;
	if (to)
		*to = from && (!is_anonymous(from->kind) || is_numbered(from->kind))
			? *from
			: (struct crn_fd){ .kind = CRN_FD_UNKNOWN };
	if (to) {
		to->seek_round = 0;
		to->hold = 0;
		to->credit = 0;
	}
}

static struct crn_fd *same_object(const struct crn_fd *f, uint32_t *at);

/* ---- status flags ---------------------------------------------------------------------------- */

void crn_fd_accepted(int fd)
{
	struct crn_fd *f = crn_fd_look(fd);

	if (f->kind == CRN_FD_STREAM)
		f->alone = crn_agent->effects->births;
}

void crn_fds_shared(bool lasting)
{
	struct crn_effects *e = crn_agent->effects;

	if (e->births)
		e->births = lasting ? 0 : e->births + 1;
}

void crn_fd_flags_changed(int fd)
{
	const struct crn_fd object = *crn_fd_look(fd);
	struct crn_fd *g;
	uint32_t at = 0;

	if (object.kind == CRN_FD_REGULAR)
		while ((g = same_object(&object, &at)))
			*g = (struct crn_fd){.kind = CRN_FD_UNKNOWN};
}

void crn_fds_changed(void)
{
	crn_agent->effects->flag_changes++;
}

bool crn_fd_never_waits(int fd)
{
	struct crn_effects *e = crn_agent->effects;
	/* There is no table before there is a session, nor without --recover. */
	struct crn_fd *f = e && e->fds ? crn_fd_look(fd) : NULL;
	bool alone = f && f->alone && f->alone == e->births;
	long flags;

	if (alone && f->asked == e->flag_changes)
		return f->never_waits;
	flags = crn_sys2(SYS_fcntl, fd, F_GETFL);
	if (alone && flags >= 0) {
		f->asked = e->flag_changes;
		f->never_waits = flags & O_NONBLOCK;
	}
	return flags >= 0 && (flags & O_NONBLOCK);
}

/* ---- objects --------------------------------------------------------------------------------- */

bool crn_fd_is_socket(const struct crn_fd *f)
{
	return f->kind == CRN_FD_STREAM || f->kind == CRN_FD_DATAGRAM;
}

bool crn_fd_is_pollable(const struct crn_fd *f)
{
	return f->kind >= CRN_FD_STREAM;
}

bool crn_fd_is_object(int fd, uint64_t dev, uint64_t ino)
{
	struct stat st;

	return crn_sys2(SYS_fstat, fd, &st) == 0 && (uint64_t)st.st_dev == dev &&
		(uint64_t)st.st_ino == ino;
}

/* The next entry of the same object, from *at on, or NULL. */
static struct crn_fd *same_object(const struct crn_fd *f, uint32_t *at)
{
	struct crn_effects *e = crn_agent->effects;

	for (; *at / CRN_FD_CHUNK < e->fd_chunks; ++*at) {
		struct crn_fd *g = e->fds[*at / CRN_FD_CHUNK];

		if (!g) {
			*at |= CRN_FD_CHUNK - 1;
			continue;
		}
		g += *at % CRN_FD_CHUNK;
		if (g->kind == f->kind && g->dev == f->dev && g->ino == f->ino)
			return ++*at, g;
	}
	return NULL;
}

bool crn_fd_has_twin(int fd)
{
	const struct crn_fd *f = entry(fd, false), *g;
	uint32_t at = 0;

	if (f && f->kind != CRN_FD_UNKNOWN)
		while ((g = same_object(f, &at)))
			if (g != f)
				return true;
	return false;
}

bool crn_fd_is_name(int fd)
{
	const struct crn_fd *f = entry(fd, false);

	return f && is_numbered(f->kind) && f->ino == (uint64_t)fd;
}

/*
 * What an anonymous object is known by is about to be closed. The number of a duplicate, by which
 * all of them know it from now on, or -1.
 */
int crn_fd_rename(int fd)
{
	const struct crn_fd object = *crn_fd_look(fd);
	struct crn_fd *g;
	uint32_t at = 0;
	int name = -1;

	while ((g = same_object(&object, &at)))
		if ((int)at - 1 != fd) {
			name = name < 0 ? (int)at - 1 : name;
			g->ino = (uint64_t)name;
		}
	return name;
}

bool crn_fd_is_copy(int fd, int other)
{
	long same = crn_sys3(SYS_fcntl, fd, F_DUPFD_QUERY, other);
	int pid = crn_agent->pid;

	return same < 0 ? crn_sys5(SYS_kcmp, pid, pid, KCMP_FILE, fd, other) == 0 : same;
}

void crn_fd_hold_set(int fd, uint8_t hold)
{
	const struct crn_fd *f = entry(fd, false);
	struct crn_fd *g;
	uint32_t at = 0;

	if (f && f->kind == CRN_FD_STREAM)
		while ((g = same_object(f, &at)))
			g->hold = hold;
}

void crn_fd_signals(void)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < e->fd_chunks * CRN_FD_CHUNK; i++) {
		struct crn_fd *f = entry((int)i, false);

		if (!f)
			i |= CRN_FD_CHUNK - 1;
		else if (f->hold == CRN_FDH_OWN)
			f->hold = CRN_FDH_UNKNOWN, f->credit = 0;
	}
}

void crn_fd_locked(int fd)
{
	struct crn_fd *f = crn_fd_look(fd), *g;
	uint32_t at = 0;

	if (f->kind == CRN_FD_REGULAR || f->kind == CRN_FD_DIRECTORY)
		while ((g = same_object(f, &at)))
			g->flags |= CRN_FDF_LOCKED;
}

void crn_fd_credit_set(int fd, uint32_t credit)
{
	struct crn_fd *f = entry(fd, false), *g;
	uint32_t at = 0;

	if (!f || f->kind != CRN_FD_STREAM)
		return;
	if (f->flags & CRN_FDF_COPIED)
		while ((g = same_object(f, &at)))
			g->credit = 0;
	f->credit = credit;
}

void crn_file_opened(int fd, bool fresh, long flags)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_fd *f = entry(fd, true);
	struct stat st;

	if (crn_sys2(SYS_fstat, fd, &st) < 0 || (st.st_mode & S_IFMT) != S_IFREG)
		return;
	/*
	 * Whoever opens a file again may see what was appended to it: from now on its writes are
	 * outputs. A new file may have the inode number of one that is gone.
	 */
	for (uint32_t i = 1; i < e->file_count; i++)
		if (e->files[i].dev == (uint64_t)st.st_dev &&
			e->files[i].ino == (uint64_t)st.st_ino)
			e->files[i].shared_view = !fresh;
	if (!f)
		return;
	describe(fd, f, &st, flags, true);
	if (fresh && f->file)
		e->files[f->file].searched = true;
}

void crn_fd_limit_read(void)
{
	struct rlimit limit = {1024, 1024};

	crn_sys4(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &limit);
	crn_agent->effects->rlimit_nofile = (int)CRN_MIN(limit.rlim_cur, (rlim_t)(1 << 20));
}

static long duplicate(int fd)
{
	int limit = crn_agent->effects->rlimit_nofile;

	return crn_sys3(SYS_fcntl, fd, F_DUPFD_CLOEXEC,
		CRN_MAX(CRN_MIN(limit, 16384) - 1024, limit / 2));
}

int crn_hold_duplicate(int fd)
{
	long high = duplicate(fd);

	/* Beyond the limit, or too close below it: the program has lowered it. */
	if (high == -EINVAL || high == -EMFILE) {
		crn_fd_limit_read();
		high = duplicate(fd);
	}
	if (high >= 0)
		crn_fd_engine((int)high, true);
	return (int)high;
}

void crn_hold_release(int high)
{
	crn_fd_engine(high, false);
	crn_sys1(SYS_close, high);
}
