/* SPDX-License-Identifier: MIT */
/* The hooks that effects.def names, and what those files offer to others; both by file. */
#ifndef CRN_HOOKS_H
#define CRN_HOOKS_H

#include "effects/effects.h"

/* hooks_input.c */
extern const struct crn_hook crn_hook_read, crn_hook_readv, crn_hook_readv2, crn_hook_accept,
	crn_hook_getsockopt, crn_hook_read_offset;
/* hooks_message.c */
extern const struct crn_hook crn_hook_recvfrom, crn_hook_recvmsg, crn_hook_receive_many;
/* hooks_splice.c */
extern const struct crn_hook crn_hook_splice, crn_hook_vmsplice;
/* hooks_output.c */
extern const struct crn_hook crn_hook_plain, crn_hook_write, crn_hook_send, crn_hook_sync,
	crn_hook_sync_all;
extern const struct crn_hook crn_hook_file_lock, crn_hook_take_signal, crn_hook_birth,
	crn_hook_let_go, crn_hook_exec;
extern const struct crn_hook crn_hook_thread_exit, crn_hook_process_exit, crn_hook_listen;
/* reaped.c */
extern const struct crn_hook crn_hook_wait4, crn_hook_waitid, crn_hook_kill;
/* hooks_descriptor.c */
extern const struct crn_hook crn_hook_open, crn_hook_openat2, crn_hook_creat, crn_hook_close,
	crn_hook_close_range;
extern const struct crn_hook crn_hook_dup, crn_hook_dup_over, crn_hook_fcntl, crn_hook_ioctl,
	crn_hook_lseek;
extern const struct crn_hook crn_hook_create, crn_hook_create_output, crn_hook_pair;
/* hooks_memory.c, hooks_break.c, hooks_remap.c */
extern const struct crn_hook crn_hook_mmap, crn_hook_munmap, crn_hook_mprotect, crn_hook_madvise,
	crn_hook_lock;
extern const struct crn_hook crn_hook_brk, crn_hook_mremap;
/* hooks_process.c */
extern const struct crn_hook crn_hook_sigaction, crn_hook_sigaltstack, crn_hook_alarm,
	crn_hook_setitimer;
extern const struct crn_hook crn_hook_timer_settime, crn_hook_timerfd_settime, crn_hook_setsockopt;
extern const struct crn_hook crn_hook_umask, crn_hook_prctl, crn_hook_arch_prctl, crn_hook_prlimit,
	crn_hook_refuse, crn_hook_chdir;
/* hooks_wait.c */
extern const struct crn_hook crn_hook_poll, crn_hook_select, crn_hook_epoll_wait,
	crn_hook_epoll_ctl, crn_hook_futex;

/* ---- calls about memory: hooks_memory.c */
/*
 * Pages that a madvise drops are saved first where the tracker keeps nothing; advice that would
 * hide writes is turned.
 */
void crn_madvise_prepare(struct crn_call *call);
/* If the call takes memory away: make it, when no checkpoint is being taken. False: it does not. */
bool crn_map_call(struct crn_call *call);
void crn_map_call_make(struct crn_call *call); /* whatever it does */
/*
 * The kernel has refused the call memory. If the program has given up some that waits to be
 * unmapped, it is now: make the call once more.
 */
bool crn_memory_found(struct crn_call *call);
/* Is something of it only waiting to be unmapped? */
bool crn_memory_given_up(uintptr_t addr, size_t len);
/* The program is about to use these addresses: unmap at once what it has given up there. */
void crn_memory_settle_for(struct crn_call *call, uintptr_t addr, size_t len);
/* Unmap it at the next checkpoint, not before. False: it cannot wait, and the call is raised. */
bool crn_unmap_later(struct crn_call *call, uintptr_t addr, size_t len);
/* Whole pages of private memory become zeros until a restore; false: not all of them can. */
bool crn_memory_empty(uintptr_t begin, uintptr_t end);
/* F_ADD_SEALS: the file may have been mapped until just now. Effects lock held. */
enum crn_verdict crn_memory_sealed(struct crn_call *call);

/* ---- hooks_break.c */
void crn_break_settle(void); /* effects lock held */
/* Has the program given up a part of this by a break that has fallen? */
bool crn_break_overlaps(uintptr_t addr, size_t len);

/* ---- hooks_remap.c */
/*
 * Any call under --recover: from here on some mapping may have properties (it is locked, say, or a
 * child does not get it) that a copy would lack.
 */
void crn_memory_marked(const struct crn_call *call);

/* ---- calls.c */
/* Was a site of this kind asked for? */
bool crn_site_configured(enum crn_site_kind kind);
/* Is this row's return something that takes (or may take) a checkpoint, recovery aside? */
bool crn_row_is_site(const struct crn_row *row);

/* ---- hooks_process.c, address_space.c */
/*
 * Answer a call that Cairn cannot follow (io_uring, aio, userfaultfd, shadow stacks): true, with
 * call->result set.
 */
bool crn_refused(struct crn_call *call, const struct crn_row *row);
/* A call about RLIMIT_AS or RLIMIT_DATA: true, with call->result set. */
bool crn_memory_limit_call(struct crn_call *call);

/* ---- calls about files: hooks_output.c, log_append.c */
/* Is this write an append to a file that nobody reads back? */
bool crn_is_log_write(const struct crn_call *call);
/* Around such a write; and taking all of an interval's back. */
void crn_append_before(struct crn_call *call);
void crn_append_after(struct crn_call *call);
long crn_append_undo(const struct crn_inverse *inv);
/* Does the program look at the file by another descriptor, too? */
bool crn_append_is_seen(int fd, struct crn_file *file);

/* ---- hooks_input.c */
/* Remember where a file's offset is, once per interval. */
void crn_offset_journal(struct crn_call *call, int fd);

/* ---- record_locks.c */
/*
 * Would closing this descriptor end a record lock? Then it can neither be kept open nor be closed
 * to undo a call.
 */
bool crn_close_unlocks(int fd);
/* Around a call that sets one; giving it back. */
enum crn_verdict crn_record_lock_before(struct crn_call *call);
void crn_record_lock_after(struct crn_call *call);
long crn_record_lock_undo(const struct crn_inverse *inv);

/* ---- hooks_descriptor.c */
/* The call has made it. `fresh`: what it means has no other number. */
void crn_fd_created(struct crn_call *call, int fd, bool fresh);

/* ---- epoll_mirror.c, hooks_wait.c */
/*
 * A wait has these events, and a restore came by meanwhile. Those of items that it took back are
 * dropped; how many are left.
 */
struct epoll_event;
long crn_epoll_sift(int epfd, struct epoll_event *events, long count);
/* A wait has returned without an error: of what has it said that it is ready? */
void crn_wait_note(const struct crn_call *call);

#endif
