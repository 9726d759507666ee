/* SPDX-License-Identifier: MIT */
/*
 * Record locks (fcntl F_SETLK). They belong to the process, and end with the first close of any
 * descriptor of the file, including one of ours. So a descriptor that is kept open, or will be
 * closed, to undo a call must not be of such a file.
 *
 * A shared lock that is taken where the process had none is undone by giving it back. All other
 * locking is an output: a write lock keeps others away from what the program changes in shared
 * memory, which no restore brings back, and a lock that was given back may be somebody else's by
 * now.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include "effects/effects.h"
#include "effects/hooks.h"
#include "os/own_locks.h"

/*
 * Is any byte of it locked, by whomever? An open file description has none of the process's locks:
 * for one, those are another's. False also if the file cannot be asked.
 */
static bool is_free(int fd, uint64_t start, uint64_t len)
{
	struct flock lock = { .l_type = F_WRLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)start,
		.l_len = (off_t)len };

	return crn_sys3(SYS_fcntl, fd, F_OFD_GETLK, &lock) >= 0 && lock.l_type == F_UNLCK;
}

bool crn_close_unlocks(int fd)
{
	return crn_agent->effects->file_locks && !is_free(fd, 0, 0);
}

/* Files that are kept open to be opened again, and are this one. Were there any? */
static bool let_go_of(int fd)
{
	struct crn_effects *e = crn_agent->effects;
	struct stat st, kept;
	bool any = false;

	if (crn_sys2(SYS_fstat, fd, &st) < 0)
		return false;
	for (uint32_t i = 0; i < e->inverse_count; i++) {
		struct crn_inverse *inv = &e->inverses[i];

		if (inv->kind != CRN_INV_REOPEN || inv->other < 0 ||
			crn_sys2(SYS_fstat, inv->other, &kept) < 0 ||
			kept.st_ino != st.st_ino || kept.st_dev != st.st_dev)
			continue;
		crn_hold_release(inv->other);
		inv->other = -1;
		any = true;
	}
	if (any)
		crn_effects_cannot_undo("a file that is locked has been closed for good");
	return any;
}

/* Shared, and the first there? Then scratch[1], scratch[2]: its beginning and length. */
static bool can_be_undone(struct crn_call *call)
{
	struct flock lock;
	uint64_t last;

	if (crn_user_read(&lock, (uintptr_t)call->args[2], sizeof(lock)) < 0 ||
		lock.l_type != F_RDLCK || lock.l_whence != SEEK_SET || lock.l_start < 0 ||
		lock.l_len < 0 || !crn_agent->effects->births)
		return false;
	call->scratch[1] = (uint64_t)lock.l_start;
	call->scratch[2] = (uint64_t)lock.l_len;
	last = lock.l_len ? call->scratch[1] + call->scratch[2] - 1 : UINT64_MAX;
	return is_free((int)call->args[0], call->scratch[1], call->scratch[2]) ||
		crn_own_locks(call->scratch[1], last) == 0;
}

enum crn_verdict crn_record_lock_before(struct crn_call *call)
{
	bool kept = let_go_of((int)call->args[0]);

	crn_agent->effects->file_locks = true;
	call->scratch[0] = !kept && can_be_undone(call);
	if (!call->scratch[0])
		crn_call_raise(call);
	return CRN_CALL_RUN_THEN;
}

void crn_record_lock_after(struct crn_call *call)
{
	struct crn_inverse *inv;

	if (!call->scratch[0])
		return;
	inv = crn_inverse_add(call, CRN_INV_UNLOCK, (int)call->args[0]);
	if (!inv)
		return;
	inv->a = call->scratch[1];
	inv->b = call->scratch[2];
}

long crn_record_lock_undo(const struct crn_inverse *inv)
{
	struct flock lock = { .l_type = F_UNLCK,
		.l_whence = SEEK_SET,
		.l_start = (off_t)inv->a,
		.l_len = (off_t)inv->b };

	return crn_sys3(SYS_fcntl, inv->fd, F_SETLK, &lock);
}
