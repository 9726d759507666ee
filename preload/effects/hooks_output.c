/* SPDX-License-Identifier: MIT */
/*
 * Calls that somebody else can see. Most need nothing but their effect (the checkpoint that
 * follows). This file has the calls that are outputs only sometimes, and those whose consequences
 * are in no checkpoint of one thread.
 */
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include "base/copy.h"
#include "base/log.h"
#include "effects/effects.h"
#include "effects/hooks.h"
#include "effects/inherited_input.h"

const struct crn_hook crn_hook_plain = {NULL, NULL};
const struct crn_hook crn_hook_process_exit = {NULL, NULL};

/* A descriptor goes along that has input to be given again: its receiver does not see that. */
static void warn_of_passed(const struct msghdr *msg)
{
	uint8_t control[512];
	size_t size = CRN_MIN(msg->msg_controllen, sizeof(control));
	struct cmsghdr head;
	int fd;

	if (crn_user_read(control, (uintptr_t)msg->msg_control, size) < 0)
		return;
	for (size_t at = 0; at + sizeof(head) <= size; at += CMSG_ALIGN(head.cmsg_len)) {
		crn_copy(&head, control + at, sizeof(head));
		if (head.cmsg_len < sizeof(head) || head.cmsg_len > size - at)
			return;
		if (head.cmsg_level != SOL_SOCKET || head.cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = sizeof(head); i + sizeof(fd) <= head.cmsg_len; i += sizeof(fd)) {
			crn_copy(&fd, control + at + i, sizeof(fd));
			if (crn_fd_pending(fd))
				crn_warn("descriptor %d is passed on while replayed input is "
					 "pending: its receiver does not see that input", fd);
		}
	}
}

/* Descriptors may go along: their receiver shares them. */
static enum crn_verdict send_before(struct crn_call *call)
{
	struct msghdr msg = { .msg_controllen = 1 };

	if (call->nr == SYS_sendmsg)
		(void)!crn_user_read(&msg, (uintptr_t)call->args[1], sizeof(msg));
	if (call->nr == SYS_sendmmsg || (call->nr == SYS_sendmsg && msg.msg_controllen))
		crn_fds_shared(false);
	if (call->nr == SYS_sendmsg && crn_agent->effects->pending_count)
		warn_of_passed(&msg);
	return CRN_CALL_RUN;
}
const struct crn_hook crn_hook_send = {send_before, NULL};
const struct crn_hook crn_hook_listen = {NULL, NULL};

/*
 * An append to a file that nobody reads back: no output (log_append.c). Not if the offset was
 * journalled, for then the undo would move it back over the append.
 */
static bool is_log_like(const struct crn_call *call, int fd, const struct crn_fd *f)
{
	struct crn_file *file = crn_file_of(f);
	struct stat st;

	if (call->nr != SYS_write && call->nr != SYS_writev)
		return false;
	if (!file || file->shared_view || f->seek_round == crn_agent->effects->round)
		return false;
	if (!(f->flags & CRN_FDF_APPEND) &&
		(!(f->flags & CRN_FDF_WRITEONLY) || crn_sys2(SYS_fstat, fd, &st) < 0 ||
			crn_sys3(SYS_lseek, fd, 0, SEEK_CUR) != st.st_size))
		return false;
	return !crn_append_is_seen(fd, file);
}

bool crn_is_log_write(const struct crn_call *call)
{
	int fd = (int)call->args[0];
	const struct crn_fd *f = crn_fd_look(fd);

	return f->kind == CRN_FD_REGULAR && is_log_like(call, fd, f);
}

static enum crn_verdict write_before(struct crn_call *call)
{
	struct crn_fd *f = crn_fd_look((int)call->args[0]);

	call->scratch[0] = 0;
	if (f->kind == CRN_FD_NULL || f->kind == CRN_FD_CLOSED) {
		call->effect = CRN_EFFECT_NONE;
		return CRN_CALL_RUN;
	}
	if (crn_is_log_write(call)) {
		call->effect = CRN_EFFECT_UNDO;
		crn_append_before(call);
	}
	return CRN_CALL_RUN_THEN;
}

/* Nothing went out: nothing to commit. */
static void write_after(struct crn_call *call)
{
	crn_append_after(call);
	if (call->result == 0)
		call->effect = CRN_EFFECT_NONE;
}
const struct crn_hook crn_hook_write = {write_before, write_after};

static enum crn_verdict sync_before(struct crn_call *call)
{
	struct crn_file *file = crn_file_of(crn_fd_look((int)call->args[0]));

	if (file)
		file->shared_view = true;
	return CRN_CALL_RUN_THEN;
}
const struct crn_hook crn_hook_sync = {sync_before, NULL};

static enum crn_verdict sync_all_before(struct crn_call *call)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 1; i < e->file_count; i++)
		e->files[i].shared_view = true;
	return CRN_CALL_RUN_THEN;
}
const struct crn_hook crn_hook_sync_all = {sync_all_before, NULL};

static enum crn_verdict file_lock_before(struct crn_call *call)
{
	crn_fd_locked((int)call->args[0]);
	return CRN_CALL_RUN_THEN;
}
const struct crn_hook crn_hook_file_lock = {file_lock_before, NULL};

/*
 * What is kept open, to be undone, would keep a file system in its place, or be closed under the
 * eyes of who begins to watch it.
 */
static enum crn_verdict let_go_before(struct crn_call *call)
{
	crn_effects_let_go();
	return CRN_CALL_RUN_THEN;
}
const struct crn_hook crn_hook_let_go = {let_go_before, NULL};

/* rt_sigtimedwait: only a signal that was taken is gone. */
static void take_signal_after(struct crn_call *call)
{
	if (call->result <= 0)
		call->effect = CRN_EFFECT_NONE;
}
const struct crn_hook crn_hook_take_signal = {NULL, take_signal_after};

/*
 * fork, vfork, clone: done, then a checkpoint. A child with memory of its own inherits what is
 * still to be given again; one that becomes another program does not, and is told of.
 */
static enum crn_verdict birth_before(struct crn_call *call)
{
	uint64_t flags = call->nr == SYS_clone ? (uint64_t)call->args[0]
		: call->nr == SYS_vfork ? CLONE_VM | CLONE_VFORK : 0;

	call->scratch[0] = 0;
	if (call->nr == SYS_clone3 &&
		crn_user_read(&flags, (uintptr_t)call->args[0], sizeof(flags)) < 0)
		return CRN_CALL_RUN_THEN;
	call->scratch[0] = !(flags & CLONE_THREAD);
	if (call->scratch[0]) {
		crn_fds_shared(flags & CLONE_FILES);
		crn_effects_let_go();
	}
	if (!crn_agent->effects->pending_count || (flags & CLONE_THREAD))
		return CRN_CALL_RUN_THEN;
	if ((flags & CLONE_VM) || !crn_input_leave())
		crn_warn("a child is born while replayed input is pending; it will not see that "
			 "input");
	return CRN_CALL_RUN_THEN;
}

/* The parent has no use for it: its session is open. What was accepted meanwhile is shared too. */
static void birth_after(struct crn_call *call)
{
	if (call->scratch[0])
		crn_fds_shared(false);
	crn_agent->left_input = NULL;
}
const struct crn_hook crn_hook_birth = {birth_before, birth_after};

/* Another program knows nothing of what we have for it. */
static enum crn_verdict exec_before(struct crn_call *call)
{
	(void)call;
	if (crn_agent->effects->pending_count)
		crn_warn("a program is executed while replayed input is pending: it does not see "
			 "that input");
	return CRN_CALL_RUN;
}
const struct crn_hook crn_hook_exec = {exec_before, NULL};

static enum crn_verdict thread_exit_before(struct crn_call *call)
{
	char name[16] = "", why[96];

	crn_sys2(SYS_prctl, PR_GET_NAME, name);
	crn_format(why, sizeof(why),
		"another thread has run since the checkpoint, and ended: %d (%s)",
		call->thread->tid, name);
	crn_effects_cannot_undo(why);
	return CRN_CALL_RUN;
}
const struct crn_hook crn_hook_thread_exit = {thread_exit_before, NULL};
