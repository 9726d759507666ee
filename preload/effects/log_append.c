/* SPDX-License-Identifier: MIT */
/*
 * Appends to files that nobody is known to read. They are no outputs: a restore cuts the file back
 * to its length at the checkpoint, and the program appends again. This is done only where nobody
 * else can have seen or added anything: the file has grown by exactly what was appended here, and a
 * write lease proves that there is no other open file of it. Otherwise (a log that is being
 * followed, or that several processes write) the file is left as written, and shows that the
 * interval really ran twice.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <time.h>
#include "base/log.h"
#include "effects/effects.h"
#include "effects/hooks.h"
#include "os/proc.h"

#define SIGNAL(n) (1ull << ((n)-1))

struct search {
	const struct stat *file;
	int fd;
};

/* By a descriptor that is no duplicate of ours? */
static int is_open_by(void *ctx, int dir, int number)
{
	const struct search *s = ctx;
	struct stat st;

	(void)dir;
	return number != s->fd && !crn_fd_is_engine(number) &&
		crn_sys2(SYS_fstat, number, &st) == 0 && st.st_ino == s->file->st_ino &&
		st.st_dev == s->file->st_dev && !crn_fd_is_copy(s->fd, number);
}

/*
 * The program may have opened it more than once before there was a session, and read by one
 * descriptor what it appends by the other: a file that cannot be cut back would show it twice.
 */
bool crn_append_is_seen(int fd, struct crn_file *file)
{
	struct stat st;
	struct search s = { .file = &st, .fd = fd };

	if (!file->searched && crn_sys2(SYS_fstat, fd, &st) == 0) {
		file->searched = true;
		file->shared_view = crn_proc_numbers("/proc/self/fd", is_open_by, &s) != 0;
	}
	return file->shared_view;
}

/* scratch[0]: 1 + the index of the inverse that counts what is appended. */
void crn_append_before(struct crn_call *call)
{
	struct crn_effects *e = crn_agent->effects;
	int fd = (int)call->args[0];
	struct crn_file *file = crn_file_of(crn_fd_look(fd));
	struct crn_inverse *inv;
	struct stat st;

	if (file->append_round != e->round) {
		if (crn_sys2(SYS_fstat, fd, &st) < 0)
			return;
		inv = crn_inverse_add(call, CRN_INV_APPEND, fd);
		if (!inv)
			return;
		inv->a = (uint64_t)st.st_size;
		inv->c = (uint64_t)crn_sys3(SYS_lseek, fd, 0, SEEK_CUR);
		file->append_round = e->round;
		file->append_inverse = (uint32_t)(inv - e->inverses);
	}
	call->scratch[0] = 1 + file->append_inverse;
}

void crn_append_after(struct crn_call *call)
{
	struct crn_inverse *inv;
	struct stat st;

	if (!call->scratch[0] || call->result <= 0)
		return;
	inv = &crn_agent->effects->inverses[call->scratch[0] - 1];
	inv->b += (uint64_t)call->result;
	/* A file that does not grow (of /proc, a cgroup's) has done what it was told. */
	if (inv->b == (uint64_t)call->result && crn_sys2(SYS_fstat, (int)call->args[0], &st) == 0 &&
		(uint64_t)st.st_size < inv->a + inv->b)
		crn_call_raise(call);
}

/*
 * Has nobody else opened it? Should somebody try in this very instant, the kernel tells us by a
 * SIGIO, which the program must not get. All signals are blocked here.
 */
static bool is_ours_alone(int fd)
{
	const struct timespec now = {0};
	uint64_t io = SIGNAL(SIGIO), pending = 0;
	bool alone;

	crn_sys2(SYS_rt_sigpending, &pending, sizeof(pending));
	alone = crn_sys3(SYS_fcntl, fd, F_SETLEASE, F_WRLCK) == 0;
	if (alone)
		crn_sys3(SYS_fcntl, fd, F_SETLEASE, F_UNLCK);
	if (alone && !(pending & io))
		crn_sys4(SYS_rt_sigtimedwait, &io, 0, &now, sizeof(io));
	return alone;
}

long crn_append_undo(const struct crn_inverse *inv)
{
	struct stat st;
	long ret;

	if (crn_sys2(SYS_fstat, inv->fd, &st) < 0 || (uint64_t)st.st_size != inv->a + inv->b ||
		!is_ours_alone(inv->fd)) {
		crn_debug("descriptor %d: what was appended since the checkpoint stays", inv->fd);
		return 0;
	}
	ret = crn_sys2(SYS_ftruncate, inv->fd, inv->a);
	if (ret == 0 && (long)inv->c >= 0)
		ret = crn_sys3(SYS_lseek, inv->fd, inv->c, SEEK_SET);
	return ret < 0 ? ret : 0;
}
