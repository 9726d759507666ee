/* SPDX-License-Identifier: MIT */
/*
 * Where log lines go: a descriptor of the engine's own. The statics are written once, before
 * the first checkpoint, so that a restore of .data puts back what is there already.
 */
#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/descriptor.h"
#include "os/log_writer.h"
#include "os/sys.h"

static int log_fd = -1;
static struct crn_fd_identity log_id;

/* Under its number may be a file of the program's by now: no line of ours may come there. */
static void write_line(const char *line, size_t len)
{
	if (crn_fd_is(log_fd, &log_id))
		crn_fd_write_line(log_fd, line, len);
}

static enum crn_log_level level_wanted(void)
{
	static const char *const names[] = { "error", "warn", "info", "debug" };
	char text[16];

	if (crn_environment("CAIRN_LOG", text, sizeof(text)) >= 0)
		for (size_t i = 0; i < CRN_ARRAY_SIZE(names); i++)
			if (crn_streq(text, names[i]))
				return (enum crn_log_level)i;
	return CRN_LOG_WARN;
}

/* The descriptor that CAIRN_LOG_FD names, if it is a number and open. */
static int fd_wanted(void)
{
	char text[16];
	int fd = 0;

	if (crn_environment("CAIRN_LOG_FD", text, sizeof(text)) <= 0)
		return -ENOENT;
	for (const char *at = text; *at; at++) {
		if (*at < '0' || *at > '9' || fd > 1 << 20)
			return -EINVAL;
		fd = fd * 10 + (*at - '0');
	}
	return crn_sys3(SYS_fcntl, fd, F_GETFD, 0) < 0 ? -EBADF : fd;
}

/*
 * What inetd starts has its peer there as well: it must be sent no line of ours, nor may a
 * duplicate keep the connection open when the program has closed it.
 */
static bool is_the_peer(void)
{
	struct crn_fd_identity in, errors;
	int type;
	unsigned len = sizeof(type);

	return crn_sys5(SYS_getsockopt, 2, SOL_SOCKET, SO_TYPE, &type, &len) == 0 &&
		crn_fd_identify(0, &in) == 0 && crn_fd_identify(2, &errors) == 0 &&
		in.dev == errors.dev && in.ino == errors.ino;
}

int crn_log_start(void)
{
	int fd;

	if (crn_fd_is(log_fd, &log_id))
		return log_fd;
	fd = fd_wanted();
	if (fd < 0)
		fd = is_the_peer() ? -EBADF : crn_fd_dup_high(2);
	if (fd < 0)
		return fd;
	log_fd = fd;
	(void)crn_fd_identify(fd, &log_id);
	crn_log_init(write_line, level_wanted());
	return fd;
}
