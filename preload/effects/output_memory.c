/* SPDX-License-Identifier: MIT */
/*
 * Memory that the kernel writes on the program's behalf. Under "uffd" and "mprotect" such a write
 * into a clean page fails with EFAULT (measured; a read that spans a clean page comes back short),
 * so every buffer that the table names is opened first, with its real length. Reading the program's
 * memory goes through the kernel: a bad pointer must stay the program's EFAULT.
 */
#include <limits.h>
#include <linux/sched.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "effects/effects.h"
#include "effects/hooks.h"
#include "os/memory.h"
#include "session/session.h"

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
	for (uintptr_t page = crn_page_down(addr); page < end && page - addr < (64ul << 20);
		page += CRN_PAGE_SIZE)
		(void)!cairn_area_touch(crn_agent->session, (void *)page, CRN_PAGE_SIZE);
}

static void open_iovec(uintptr_t addr, size_t count)
{
	struct iovec iov[16];

	count = CRN_MIN(count, (size_t)IOV_MAX);
	for (size_t i = 0; i < count; i += CRN_ARRAY_SIZE(iov)) {
		size_t n = CRN_MIN(count - i, CRN_ARRAY_SIZE(iov));

		if (crn_user_read(iov, addr + i * sizeof(*iov), n * sizeof(*iov)) < 0)
			return;
		for (size_t j = 0; j < n; j++)
			crn_output_memory((uintptr_t)iov[j].iov_base, iov[j].iov_len);
	}
}

static void open_msghdr(uintptr_t addr)
{
	struct msghdr msg;

	if (crn_user_read(&msg, addr, sizeof(msg)) < 0)
		return;
	crn_output_memory(addr, sizeof(msg));
	crn_output_memory((uintptr_t)msg.msg_name, msg.msg_namelen);
	crn_output_memory((uintptr_t)msg.msg_control, msg.msg_controllen);
	open_iovec((uintptr_t)msg.msg_iov, msg.msg_iovlen);
}

/* The size that the request number itself carries, if it says that the kernel writes. */
static size_t ioctl_size(unsigned request)
{
	unsigned size = (request >> 16) & 0x3fff, direction = request >> 30;

	if (direction & 2)
		return size;
	return direction ? 0 : 256;
}

static void open_one(const struct crn_call *call, const struct crn_out *out)
{
	uintptr_t addr = (uintptr_t)call->args[out->arg];
	unsigned long n = (unsigned long)call->args[out->length_arg];
	unsigned len;

	if (!addr)
		return;
	switch (out->kind) {
	case CRN_OUT_BYTES:
		return crn_output_memory(addr, n);
	case CRN_OUT_FIXED:
		return crn_output_memory(addr, out->size);
	case CRN_OUT_ARRAY:
		return crn_output_memory(addr, (size_t)(unsigned)n * out->size);
	case CRN_OUT_SOCKLEN:
		if (crn_user_read(&len, n, sizeof(len)) == 0)
			crn_output_memory(addr, len);
		return;
	case CRN_OUT_IOVEC:
		return open_iovec(addr, n);
	case CRN_OUT_MSGHDR:
		return open_msghdr(addr);
	case CRN_OUT_MMSGHDR:
		for (unsigned long i = 0; i < CRN_MIN(n, 1024ul); i++)
			open_msghdr(addr + i * sizeof(struct mmsghdr));
		return crn_output_memory(addr, CRN_MIN(n, 1024ul) * sizeof(struct mmsghdr));
	case CRN_OUT_FDSET:
		return crn_output_memory(addr, ((unsigned)call->args[0] + 63) / 64 * 8);
	case CRN_OUT_IOCTL:
		return crn_output_memory(addr, ioctl_size((unsigned)call->args[1]));
	case CRN_OUT_LOOSE:
		return crn_output_memory(addr, CRN_PAGE_SIZE);
	}
}

/* libc's descriptor of a thread, from its thread pointer upwards: tid words and rseq area in it. */
#define DESCRIPTOR_SIZE 4096

/*
 * A thread that is being born, or says where its rseq area or its tid word is: the kernel writes
 * there unasked, and its failure is silent (the tid) or deadly (rseq). The descriptor is made known
 * before the call, so that no checkpoint of another thread closes it in between.
 */
static void open_thread(const struct crn_call *call)
{
	struct clone_args args = {0};

	switch (call->nr) {
	case SYS_rseq:
		crn_thread_memory(crn_agent->session, (uintptr_t)call->args[0],
			(uint32_t)call->args[1]);
		return;
	case SYS_set_tid_address:
		crn_thread_memory(crn_agent->session, (uintptr_t)call->args[0], sizeof(int));
		return;
	case SYS_clone:
		args.flags = (uint64_t)call->args[0];
		args.parent_tid = (uint64_t)call->args[2];
		args.child_tid = (uint64_t)call->args[3];
		args.tls = (uint64_t)call->args[4];
		break;
	case SYS_clone3:
		(void)!crn_user_read(&args, (uintptr_t)call->args[0],
			CRN_MIN(sizeof(args), (size_t)call->args[1]));
		break;
	default:
		return;
	}
	if (args.flags & (CLONE_PARENT_SETTID | CLONE_PIDFD))
		crn_output_memory((uintptr_t)args.parent_tid, sizeof(int));
	if (args.flags & CLONE_PIDFD)
		crn_output_memory((uintptr_t)args.pidfd, sizeof(int));
	if (!(args.flags & CLONE_THREAD))
		return;
	if (args.flags & CLONE_SETTLS)
		crn_thread_memory(crn_agent->session, (uintptr_t)args.tls, DESCRIPTOR_SIZE);
	if (args.flags & (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID))
		crn_thread_memory(crn_agent->session, (uintptr_t)args.child_tid, sizeof(int));
}

void crn_output_memory_of(const struct crn_call *call, const struct crn_row *row)
{
	open_thread(call);
	for (size_t i = 0; i < CRN_OUTS_MAX && row->outs[i].kind != CRN_OUT_END; i++)
		open_one(call, &row->outs[i]);
}
