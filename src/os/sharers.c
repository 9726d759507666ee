/* SPDX-License-Identifier: MIT */
/*
 * The kernel does not say which processes share a memory. But a process that shares ours has our
 * code size, which everybody may read, and kcmp decides for the few processes of that size. Listing
 * all processes takes time, in which a process may create another one and end before its turn has
 * come. So the list is followed by a list of the process ids that were given out meanwhile, until
 * there were none. A process that shares our memory was created by one that shared it, and one of
 * the two has been met.
 */
#include "os/sharers.h"
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/bits.h"
#include "base/log.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/proc.h"
#include "os/sys.h"
#include "os/thread.h"

#define KCMP_VM      1
#define PASSES_MAX   16
#define NEWBORNS_MAX 4096 /* in one pass */

int crn_shares_memory(int tid)
{
	long order = crn_sys5(SYS_kcmp, crn_getpid(), tid, KCMP_VM, 0, 0);

	/* Where kcmp is forbidden, who is gone is known all the same. */
	if (order < 0 && crn_sys2(SYS_kill, tid, 0) == -ESRCH)
		return -ESRCH;
	return order < 0 ? (int)order : order == 0;
}

struct walk {
	void (*fn)(void *ctx, int tid);
	void *ctx;
	int self; /* what /proc calls us */
	long code_pages, began;
	bool foreign;
	bool whole; /* the first process was seen: none is hidden */
	int leader; /* of the threads at hand */
};

/* The number behind so many blanks; or -errno. */
static long number_behind(const char *s, int blanks)
{
	long number = 0;

	for (; *s && blanks; s++)
		blanks -= *s == ' ';
	if (*s < '0' || *s > '9')
		return -EINVAL;
	for (; *s >= '0' && *s <= '9'; s++)
		number = number * 10 + (*s - '0');
	return number;
}

/* Pages of code, 0 for one without memory; or -errno. */
static long code_pages(const char *folder)
{
	char path[64], text[128];
	long len;

	crn_format(path, sizeof(path), "%s/statm", folder);
	len = crn_file_read(path, text, sizeof(text));
	return len < 0 ? len : number_behind(text, 3); /* size, resident, shared */
}

/* When it was born, or -errno. */
static long began(const char *folder)
{
	char path[64], text[512];
	const char *s;
	long len;

	crn_format(path, sizeof(path), "%s/stat", folder);
	len = crn_file_read(path, text, sizeof(text));
	if (len < 0)
		return len;
	for (s = text + len; s > text && s[-1] != ')';) /* the name may hold anything */
		s--;
	return number_behind(s, 20);
}

/* Known by its code, or by that it has no memory, or is gone, not to have ours. */
static bool has_another(const struct walk *w, long pages)
{
	return (pages >= 0 && pages != w->code_pages) || pages == -ENOENT || pages == -ESRCH;
}

static int look_at(struct walk *w, const char *folder, int name)
{
	int id = w->foreign ? crn_proc_own_id(folder) : name, shares;

	if (id < 0)
		return id == -ENOENT ? 0 : id;
	shares = crn_shares_memory(id);
	if (!shares || shares == -ESRCH)
		return 0;
	if (shares < 0) {
		long then = began(folder);

		/* Somebody else's: he has not our memory, for that is no older than we. */
		if (then >= 0 && then < w->began)
			return 0;
	}
	w->fn(w->ctx, id);
	return 0;
}

static int look_at_thread(void *ctx, int dir, int name)
{
	struct walk *w = ctx;
	char folder[64];

	crn_format(folder, sizeof(folder), "/proc/%d/task/%d", w->leader, name);
	return has_another(w, code_pages(folder)) ? 0 : look_at(w, folder, name);
}

static int look_at_process(void *ctx, int dir, int name)
{
	struct walk *w = ctx;
	char folder[64];
	long pages;
	int err;

	w->whole |= name == 1;
	if (name == w->self)
		return 0;
	crn_format(folder, sizeof(folder), "/proc/%d", name);
	pages = code_pages(folder);
	if (pages == -ENOENT || pages == -ESRCH)
		return 0;
	if (pages == w->code_pages || pages == -EACCES || pages == -EPERM)
		return look_at(w, folder, name);
	if (pages)
		return pages < 0 ? (int)pages : 0;
	/* The kernel's own; or its first thread has ended, and others have not. */
	crn_format(folder, sizeof(folder), "/proc/%d/task", name);
	w->leader = name;
	err = crn_proc_numbers(folder, look_at_thread, w);
	return err == -ENOENT || err == -ESRCH ? 0 : err;
}

/* The number that was given out last in our namespace, or -errno. */
static int newest(void)
{
	int64_t number;

	CRN_TRY(crn_file_number("/proc/sys/kernel/ns_last_pid", &number));
	return (int)number;
}

static int look_at_newborns(struct walk *w, int before)
{
	int pid = crn_getpid();

	for (int pass = 0; pass < PASSES_MAX; pass++) {
		int now = newest();

		if (now < 0 || now == before)
			return now < 0 ? now : 0;
		if (now < before || now - before > NEWBORNS_MAX)
			return -EAGAIN;
		while (before < now) {
			char folder[64];
			int shares = crn_shares_memory(++before);

			crn_format(folder, sizeof(folder), "/proc/%d", before);
			if (!shares || shares == -ESRCH ||
				(!w->foreign && has_another(w, code_pages(folder))))
				continue;
			if (crn_sys3(SYS_tgkill, pid, before, 0) < 0)
				w->fn(w->ctx, before);
		}
	}
	return -EAGAIN;
}

int crn_sharers_each(void (*fn)(void *ctx, int tid), void *ctx)
{
	struct walk w = { .fn = fn, .ctx = ctx, .foreign = crn_proc_is_foreign() };
	char self[16];
	long len;
	int before;

	CRN_TRY(before = newest());
	w.code_pages = code_pages("/proc/self");
	w.began = began("/proc/self");
	CRN_TRY((int)CRN_MIN(w.code_pages, w.began));
	CRN_TRY(len = crn_path_readlink("/proc/self", self, sizeof(self) - 1));
	self[len] = '\0';
	w.self = crn_proc_number(self);
	CRN_TRY(crn_proc_numbers("/proc", look_at_process, &w));
	return w.whole ? look_at_newborns(&w, before) : -EACCES;
}
