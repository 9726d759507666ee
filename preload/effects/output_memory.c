/* SPDX-License-Identifier: MIT */
/*
 * Memory that the kernel writes on the program's behalf. Under "uffd" and "mprotect" such a write
 * into a clean page fails with EFAULT (measured; a read that spans a clean page comes back short),
 * so every buffer that the table names is opened first, with its real length. Reading the program's
 * memory goes through the kernel: a bad pointer must stay the program's EFAULT.
 */
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/sched.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "base/copy.h"
#include "effects/effects.h"
#include "effects/hooks.h"
#include "os/memory.h"
#include "session/session.h"

/* Not in the headers of older systems. */
#define FUTEX_LOCK_PI2_OP 13
#ifndef F_GETOWN_EX
#define F_GETOWN_EX 16
#endif
#ifndef F_OWNER_GETOWNER_UIDS
#define F_OWNER_GETOWNER_UIDS 17
#endif
#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#endif
#ifndef F_GET_RW_HINT
#define F_GET_RW_HINT      1035
#define F_GET_FILE_RW_HINT 1037
#endif

int crn_user_read(void *dst, uintptr_t src, size_t len)
{
	return crn_memory_peek(dst, (const void *)src, len) == (long)len ? 0 : -EFAULT;
}

int crn_user_write(uintptr_t dst, const void *src, size_t len)
{
	struct iovec local = {(void *)src, len}, remote = {(void *)dst, len};

	crn_output_memory(dst, len);
	/*
	 * SAFETY: through the kernel, so that a bad pointer is an error and not a fault inside the
	 * agent.
	 */
	return crn_sys6(SYS_process_vm_writev, crn_agent->pid, (long)&local, 1, (long)&remote, 1,
		       0) == (long)len
		? 0
		: -EFAULT;
}

void crn_output_memory(uintptr_t addr, size_t len)
{
	struct crn_effects *e = crn_agent->effects;
	uintptr_t end;

	if (!e || !e->kernel_needs_open_pages || !addr || !len)
		return;
	end = addr + CRN_MIN(len, (size_t)SSIZE_MAX);
	if (end < addr ||
		cairn_area_touch(crn_agent->session, (void *)addr, end - addr) != CAIRN_ENOTAREA)
		return;
	/* Partly outside the surface: page by page, whatever is inside. */
	end = CRN_MIN(end, addr + (64ul << 20));
	for (uintptr_t page = crn_page_down(addr); page < end; page += CRN_PAGE_SIZE)
		(void)!cairn_area_touch(crn_agent->session, (void *)page, CRN_PAGE_SIZE);
}

/* Who wants to be told of a call's ranges. */
struct listener {
	crn_output_fn fn;
	void *arg;
};

static void tell(const struct listener *to, uintptr_t addr, size_t len)
{
	if (addr && len)
		to->fn(to->arg, addr, len);
}

static void tell_iovec(const struct listener *to, uintptr_t addr, size_t count)
{
	struct iovec iov[16];

	count = CRN_MIN(count, (size_t)IOV_MAX);
	for (size_t i = 0; i < count; i += CRN_ARRAY_SIZE(iov)) {
		size_t n = CRN_MIN(count - i, CRN_ARRAY_SIZE(iov));

		if (crn_user_read(iov, addr + i * sizeof(*iov), n * sizeof(*iov)) < 0)
			return;
		for (size_t j = 0; j < n; j++)
			tell(to, (uintptr_t)iov[j].iov_base, iov[j].iov_len);
	}
}

static void tell_msghdr(const struct listener *to, uintptr_t addr)
{
	struct msghdr msg;

	if (crn_user_read(&msg, addr, sizeof(msg)) < 0)
		return;
	tell(to, addr, sizeof(msg));
	tell(to, (uintptr_t)msg.msg_name, msg.msg_namelen);
	tell(to, (uintptr_t)msg.msg_control, msg.msg_controllen);
	tell_iovec(to, (uintptr_t)msg.msg_iov, msg.msg_iovlen);
}

/* Requests that hide a second buffer in the first; all others say their size in their number. */
static void tell_ioctl(const struct listener *to, unsigned request, uintptr_t addr)
{
	unsigned size = (request >> 16) & 0x3fff, direction = request >> 30;
	struct ifconf list;
	struct ifreq one;

	if (request == SIOCGIFCONF && crn_user_read(&list, addr, sizeof(list)) == 0)
		tell(to, (uintptr_t)list.ifc_buf, (size_t)CRN_MAX(list.ifc_len, 0));
	if (request == SIOCETHTOOL && crn_user_read(&one, addr, sizeof(one)) == 0)
		tell(to, (uintptr_t)one.ifr_data, CRN_PAGE_SIZE);
	/* The old ones, without direction bits, have no more than a termios or an ifreq. */
	tell(to, addr, direction & 2 ? size : direction ? 0 : 256);
}

static size_t fcntl_size(int command)
{
	switch (command) {
	case F_GETLK:
	case F_OFD_GETLK:
		return sizeof(struct flock);
	case F_GETOWN_EX:
	case F_GET_RW_HINT:
	case F_GET_FILE_RW_HINT:
	case F_OWNER_GETOWNER_UIDS:
		return 8;
	}
	return 0;
}

/* The words that these operations change; the others only read theirs. */
static void tell_futex(const struct listener *to, const struct crn_in_flight *call)
{
	switch ((int)call->args[1] & FUTEX_CMD_MASK) {
	case FUTEX_WAKE_OP:
		return tell(to, (uintptr_t)call->args[4], sizeof(int));
	case FUTEX_LOCK_PI:
	case FUTEX_LOCK_PI2_OP:
	case FUTEX_UNLOCK_PI:
	case FUTEX_TRYLOCK_PI:
	case FUTEX_WAIT_REQUEUE_PI:
	case FUTEX_CMP_REQUEUE_PI:
		tell(to, (uintptr_t)call->args[0], sizeof(int));
		tell(to, (uintptr_t)call->args[4], sizeof(int));
	}
}

/* struct xattr_args begins with them. */
static void tell_xattr(const struct listener *to, uintptr_t addr)
{
	struct {
		uint64_t value;
		uint32_t size, flags;
	} args;

	if (crn_user_read(&args, addr, sizeof(args)) == 0)
		tell(to, args.value, args.size);
}

static void tell_one(
	const struct listener *to, const struct crn_in_flight *call, const struct crn_out *out)
{
	uintptr_t addr = (uintptr_t)call->args[out->arg];
	unsigned long n = (unsigned long)call->args[out->length_arg];
	unsigned len;

	switch (out->kind) {
	case CRN_OUT_BYTES:
		return tell(to, addr, n);
	case CRN_OUT_FIXED:
		return tell(to, addr, out->size);
	case CRN_OUT_ARRAY:
		return tell(to, addr, (size_t)(unsigned)n * out->size);
	case CRN_OUT_MESSAGE:
		return tell(to, addr, n + sizeof(long));
	case CRN_OUT_PAGES:
		return tell(to, addr, (n + CRN_PAGE_SIZE - 1) >> CRN_PAGE_SHIFT);
	case CRN_OUT_SOCKLEN:
		if (addr && crn_user_read(&len, n, sizeof(len)) == 0)
			tell(to, addr, len);
		return;
	case CRN_OUT_IOVEC:
		return tell_iovec(to, addr, n);
	case CRN_OUT_MSGHDR:
		return tell_msghdr(to, addr);
	case CRN_OUT_MMSGHDR:
		n = CRN_MIN(n, (unsigned long)IOV_MAX); /* and no more does the kernel take */
		for (unsigned long i = 0; i < n; i++)
			tell_msghdr(to, addr + i * sizeof(struct mmsghdr));
		return tell(to, addr, n * sizeof(struct mmsghdr));
	case CRN_OUT_FDSET:
		return tell(to, addr, ((unsigned)call->args[0] + 63) / 64 * 8);
	case CRN_OUT_IOCTL:
		return tell_ioctl(to, (unsigned)call->args[1], addr);
	case CRN_OUT_FCNTL:
		return tell(to, addr, fcntl_size((int)call->args[1]));
	case CRN_OUT_FUTEX:
		return tell_futex(to, call);
	case CRN_OUT_REGSET:
		if (call->args[0] == PTRACE_GETREGSET)
			tell_iovec(to, addr, 1);
		return;
	case CRN_OUT_XATTR:
		return tell_xattr(to, addr);
	}
}

/* ---- Births ---------------------------------------------------------------------------------- */

/* libc's descriptor of a thread, from its thread pointer upwards: tid words and rseq area in it. */
#define DESCRIPTOR_SIZE 4096

/* What a clone asks for; false: it is none, or cannot be read. */
static bool clone_arguments(const struct crn_in_flight *call, struct clone_args *args)
{
	crn_fill(args, 0, sizeof(*args));
	if (call->nr == SYS_clone) {
		args->flags = (uint64_t)call->args[0];
		args->parent_tid = args->pidfd = (uint64_t)call->args[2];
		args->child_tid = (uint64_t)call->args[3];
		args->tls = (uint64_t)call->args[4];
		return true;
	}
	return call->nr == SYS_clone3 &&
		crn_user_read(args, (uintptr_t)call->args[0],
			CRN_MIN(sizeof(*args), (size_t)call->args[1])) == 0;
}

static void tell_clone(const struct listener *to, const struct crn_in_flight *call)
{
	struct clone_args args;

	if (!clone_arguments(call, &args))
		return;
	if (args.flags & CLONE_PARENT_SETTID)
		tell(to, args.parent_tid, sizeof(int));
	if (args.flags & CLONE_PIDFD)
		tell(to, args.pidfd, sizeof(int));
	if (args.flags & CLONE_THREAD && args.flags & CLONE_SETTLS)
		tell(to, args.tls, DESCRIPTOR_SIZE);
	if (args.flags & CLONE_THREAD && args.flags & (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID))
		tell(to, args.child_tid, sizeof(int));
}

/*
 * A thread that is being born, or says where its rseq area or its tid word is: the kernel writes
 * there unasked, and its failure is silent (the tid) or deadly (rseq). The descriptor is made known
 * before the call, so that no checkpoint of another thread closes it in between.
 */
static void open_thread(const struct crn_in_flight *call)
{
	struct clone_args args;

	if (call->nr == SYS_rseq)
		return crn_thread_memory(crn_agent->session, (uintptr_t)call->args[0],
			(uint32_t)call->args[1]);
	if (call->nr == SYS_set_tid_address)
		return crn_thread_memory(
			crn_agent->session, (uintptr_t)call->args[0], sizeof(int));
	if (!clone_arguments(call, &args) || !(args.flags & CLONE_THREAD))
		return;
	if (args.flags & CLONE_SETTLS)
		crn_thread_memory(crn_agent->session, (uintptr_t)args.tls, DESCRIPTOR_SIZE);
	if (args.flags & (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID))
		crn_thread_memory(crn_agent->session, (uintptr_t)args.child_tid, sizeof(int));
}

/* The session may have been opened while the thread was being born: too late for open_thread. */
void crn_call_thread_begins(const struct crn_thread *t)
{
	if (crn_agent && t->descriptor && crn_output_matters() && crn_output_ready())
		crn_thread_memory(crn_agent->session, t->descriptor, DESCRIPTOR_SIZE);
}

/* ---- A call ---------------------------------------------------------------------------------- */

void crn_output_ranges(const struct crn_in_flight *call, crn_output_fn fn, void *arg)
{
	const struct listener to = { fn, arg };
	const struct crn_row *row = crn_row_of(call->nr);

	for (size_t i = 0; i < CRN_OUTS_MAX && row->outs[i].kind != CRN_OUT_END; i++)
		tell_one(&to, call, &row->outs[i]);
	tell_clone(&to, call);
}

static void open_range(void *arg, uintptr_t addr, size_t len)
{
	crn_output_memory(addr, len);
}

void crn_output_memory_of(const struct crn_in_flight *call)
{
	open_thread(call);
	crn_output_ranges(call, open_range, NULL);
}
