/* SPDX-License-Identifier: MIT */
/*
 * One line for each recovery, and one for each refusal, whatever the log level: they are why the
 * program was started under Cairn. Scripts that watch a server read these lines, so keep their
 * shape.
 *
 *	cairn: recovered (3): SIGSEGV at 0x0 in debugCommand+0x2f4 (redis-server);
 *		31 pages, 93 us; suspect 127.0.0.1:40312
 *	cairn: recovery refused: SIGSEGV at 0x0 in work+0x10 (server):
 *		another thread has run since the checkpoint: 4711 (bio_lazy_free)
 */
#include "base/bits.h"
#include "base/log.h"
#include "os/descriptor.h"
#include "os/log_writer.h"
#include "recover/recover.h"

static const char *signal_name(int sig)
{
	switch (sig) {
	case SIGSEGV: return "SIGSEGV";
	case SIGBUS: return "SIGBUS";
	case SIGFPE: return "SIGFPE";
	case SIGILL: return "SIGILL";
	}
	return "a signal";
}

static void say(const char *line, size_t len)
{
	int fd = crn_log_start();

	if (fd >= 0)
		crn_fd_write_line(fd, line, CRN_MIN(len, (size_t)CRN_LOG_LINE_MAX - 1));
}

void crn_report_recovery(
	const struct crn_crash *crash, uint64_t pages, uint64_t ns, const char *suspect)
{
	char symbol[160], line[CRN_LOG_LINE_MAX];

	crn_symbol(crash->pc, symbol, sizeof(symbol));
	say(line,
		crn_format(line, sizeof(line),
			"cairn: recovered (%lu): %s at %p in %s; %lu pages, %lu us; suspect %s\n",
			crn_agent->recover->recoveries, signal_name(crash->sig),
			(void *)crash->address, symbol, pages, ns / 1000, suspect));
}

void crn_report_refusal(const struct crn_crash *crash, const char *why, int tid)
{
	char symbol[160], path[64], name[24] = "", line[CRN_LOG_LINE_MAX], thread[48] = "";
	long n;

	crn_symbol(crash->pc, symbol, sizeof(symbol));
	if (tid) {
		crn_format(path, sizeof(path), "/proc/self/task/%d/comm", tid);
		n = crn_file_read(path, name, sizeof(name));
		if (n > 0 && name[n - 1] == '\n')
			name[n - 1] = '\0';
		crn_format(thread, sizeof(thread), ": %d (%s)", tid, name);
	}
	say(line,
		crn_format(line, sizeof(line), "cairn: recovery refused: %s at %p in %s: %s%s\n",
			signal_name(crash->sig), (void *)crash->address, symbol, why, thread));
}

void crn_report_own(int sig, uintptr_t pc)
{
	char line[CRN_LOG_LINE_MAX];

	say(line,
		crn_format(line, sizeof(line),
			"cairn: the program goes on by itself after %s at %p: its handler gets "
			"such signals from now on, and no recovery begins with them\n",
			signal_name(sig), (void *)pc));
}
