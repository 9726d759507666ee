/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include "base/bits.h"
#include "base/copy.h"
#include "os/descriptor.h"
#include "os/proc.h"
#include "os/signal.h"
#include "os/sys.h"

static int soft_limit(void)
{
	struct {
		uint64_t soft, hard;
	} limit;

	if (crn_sys4(SYS_prlimit64, 0, 7 /* RLIMIT_NOFILE */, 0, &limit) < 0)
		return 1024;
	return (int)CRN_MIN(limit.soft, (uint64_t)CRN_FD_CEILING);
}

int crn_fd_identify(int fd, struct crn_fd_identity *out)
{
	struct stat64 st;
	int err = (int)crn_sys2(SYS_fstat, fd, &st);

	if (err < 0)
		return err;
	*out = (struct crn_fd_identity){ st.st_dev, st.st_ino };
	return 0;
}

bool crn_fd_is(int fd, const struct crn_fd_identity *id)
{
	struct crn_fd_identity now;

	if (fd < 0)
		return false;
	if (crn_fd_watch)
		return true;
	return crn_fd_identify(fd, &now) >= 0 && now.dev == id->dev && now.ino == id->ino;
}

int crn_fd_dup_high(int fd)
{
	int limit = soft_limit();
	long got = -EMFILE;

	/*
	 * F_DUPFD takes the lowest free number from its argument on. A window below the limit keeps
	 * our few descriptors together; lower windows are for programs that use all of their
	 * numbers.
	 */
	for (int floor = limit - CRN_MIN(limit / 4 + 1, 64); floor >= 0;
		floor = floor * 3 / 4 - 1) {
		got = crn_sys3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, floor);
		if (got >= 0 || (got != -EMFILE && got != -EINVAL))
			break;
	}
	if (got >= 0 && crn_fd_watch)
		crn_fd_watch((int)got, true);
	return (int)got;
}

int crn_fd_raise(int fd)
{
	int high;

	if (fd < 0)
		return fd;
	high = crn_fd_dup_high(fd);
	crn_fd_close(fd);
	return high;
}

int crn_fd_open(const char *path, int flags)
{
	return crn_fd_raise((int)crn_path_open(path, flags | O_CLOEXEC));
}

/*
 * 2 (fs.suid_dumpable: core dumps for root alone) cannot be set again, and 0 would take them away:
 * such a process stays as it is.
 */
long crn_path_open_own(const char *path, int flags)
{
	long fd = crn_path_open(path, flags);

	if ((fd != -EACCES && fd != -EPERM) || crn_sys2(SYS_prctl, PR_GET_DUMPABLE, 0) != 0 ||
		crn_sys2(SYS_prctl, PR_SET_DUMPABLE, 1) < 0)
		return fd;
	fd = crn_path_open(path, flags);
	crn_sys2(SYS_prctl, PR_SET_DUMPABLE, 0);
	return fd;
}

int crn_fd_open_own(const char *path, int flags)
{
	return crn_fd_raise((int)crn_path_open_own(path, flags | O_CLOEXEC));
}

void crn_fd_close(int fd)
{
	/* SAFETY: never retried after EINTR: Linux has freed the number by then. */
	if (fd < 0)
		return;
	if (crn_fd_watch)
		crn_fd_watch(fd, false);
	crn_sys1(SYS_close, fd);
}

/* Beyond RLIMIT_FSIZE, a sandbox's favourite, ftruncate would raise SIGXFSZ. */
static bool too_large(uint64_t size)
{
	uint64_t limit[2];

	return crn_sys4(SYS_prlimit64, 0, RLIMIT_FSIZE, NULL, limit) == 0 && limit[0] < size;
}

int crn_fd_memory(const char *name, uint64_t size)
{
	int fd;
	long err;

	if (too_large(size))
		return -EFBIG;
	fd = (int)crn_sys2(SYS_memfd_create, name, 1 /* MFD_CLOEXEC */);

	fd = crn_fd_raise(fd);
	if (fd < 0)
		return fd;
	err = crn_sys2(SYS_ftruncate, fd, size);
	if (err < 0) {
		crn_fd_close(fd);
		return (int)err;
	}
	return fd;
}

long crn_fd_read(int fd, void *buf, size_t len)
{
	long got;

	do
		got = crn_sys3(SYS_read, fd, buf, len);
	while (got == -EINTR);
	return got;
}

int crn_fd_write(int fd, const void *buf, size_t len)
{
	const char *at = buf;

	while (len) {
		long done = crn_sys3(SYS_write, fd, at, len);

		if (done == -EINTR)
			continue;
		if (done < 0)
			return (int)done;
		at += done;
		len -= (size_t)done;
	}
	return 0;
}

#define WRITE_SIGNALS (1ull << (SIGPIPE - 1) | 1ull << (SIGXFSZ - 1))

void crn_write_signals_hush(struct crn_hushed *h)
{
	h->pending = 0;
	h->mask = crn_signal_mask(SIG_BLOCK, WRITE_SIGNALS);
	crn_sys2(SYS_rt_sigpending, &h->pending, sizeof(h->pending));
}

void crn_write_signals_restore(const struct crn_hushed *h, long result)
{
	const uint64_t set = WRITE_SIGNALS, none[2] = { 0 };

	/* Ours is taken back; one that was pending before is the program's. */
	if ((result == -EPIPE || result == -EFBIG) && !(h->pending & set))
		crn_sys4(SYS_rt_sigtimedwait, &set, NULL, none, sizeof(set));
	crn_signal_mask(SIG_SETMASK, h->mask);
}

int crn_fd_write_line(int fd, const void *buf, size_t len)
{
	struct crn_hushed hushed;
	int err;

	crn_write_signals_hush(&hushed);
	err = crn_fd_write(fd, buf, len);
	crn_write_signals_restore(&hushed, err);
	return err;
}

long crn_file_read(const char *path, char *buf, size_t size)
{
	int fd = (int)crn_path_open(path, O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	long got = 0;

	if (fd < 0)
		return fd;
	while (used < size - 1) {
		got = crn_fd_read(fd, buf + used, size - 1 - used);
		if (got <= 0)
			break;
		used += (size_t)got;
	}
	crn_fd_close(fd);
	if (got < 0)
		return got;
	buf[used] = '\0';
	return (long)used;
}

int crn_file_number(const char *path, int64_t *out)
{
	bool negative;
	int64_t value = 0;
	char text[32];
	char *at = text;
	long len = crn_file_read(path, text, sizeof(text));

	if (len < 0)
		return (int)len;
	negative = *at == '-';
	at += negative;
	if (*at < '0' || *at > '9')
		return -EINVAL;
	if (at[0] == '0' && at[1] == 'x') {
		for (at += 2;; at++) {
			int digit = *at >= '0' && *at <= '9' ? *at - '0' : (*at | 32) - 'a' + 10;

			if (digit < 0 || digit > 15)
				break;
			value = value << 4 | digit;
		}
	} else {
		for (; *at >= '0' && *at <= '9'; at++)
			value = value * 10 + (*at - '0');
	}
	*out = negative ? -value : value;
	return 0;
}

/* One byte at a time out of a buffered file; -1 at its end or on an error. */
struct byte_stream {
	int fd;
	size_t at, end;
	char buf[512];
};

static int next_byte(struct byte_stream *s)
{
	if (s->at == s->end) {
		long got = crn_fd_read(s->fd, s->buf, sizeof(s->buf));

		if (got <= 0)
			return -1;
		s->at = 0;
		s->end = (size_t)got;
	}
	return (unsigned char)s->buf[s->at++];
}

/* Reads one NAME=value entry; true and the value in buf if it is ours. *c is the last byte read. */
static bool environment_entry(
	struct byte_stream *s, int *c, const char *name, char *buf, size_t size, size_t *len)
{
	size_t match = 0;

	while (name[match] && *c == (unsigned char)name[match]) {
		match++;
		*c = next_byte(s);
	}
	if (name[match] || *c != '=') {
		while (*c > 0)
			*c = next_byte(s);
		return false;
	}
	for (*len = 0; (*c = next_byte(s)) > 0; (*len)++)
		if (*len < size - 1)
			buf[*len] = (char)*c;
	buf[CRN_MIN(*len, size - 1)] = '\0';
	return true;
}

long crn_environment(const char *name, char *buf, size_t size)
{
	struct byte_stream s = { .at = 0, .end = 0 };
	size_t len = 0;
	bool found = false;
	int c;

	s.fd = (int)crn_path_open_own("/proc/self/environ", O_RDONLY | O_CLOEXEC);
	if (s.fd < 0)
		return s.fd;
	while (!found && (c = next_byte(&s)) >= 0)
		found = environment_entry(&s, &c, name, buf, size, &len);
	crn_fd_close(s.fd);
	return found ? (long)len : -ENOENT;
}
