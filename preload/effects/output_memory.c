/* SPDX-License-Identifier: MIT */
/*
 * Memory that the kernel writes on the program's behalf. Under "uffd" and "mprotect" such a write
 * into a clean page fails with EFAULT (measured; a read that spans a clean page comes back short).
 * So every buffer that the table names is opened first, with its real length. The program's memory
 * is read and written by a copy of our own that fails where its pointer is bad (crn_user_copy): a
 * bad pointer stays the program's EFAULT. A way through the kernel for each header and each vector
 * of a recvmmsg(2) would take longer than the call.
 */
#include <limits.h>
#include <linux/sched.h>
#include <sys/uio.h>
#include "base/copy.h"
#include "effects/effects.h"
#include "effects/hooks.h"
#include "os/call_memory.h"
#include "os/memory.h"
#include "session/session.h"

int crn_user_read(void *dst, uintptr_t src, size_t len)
{
	return crn_user_copy(dst, (const void *)src, len);
}

int crn_user_peek(void *dst, uintptr_t src, size_t len)
{
	return crn_memory_peek(dst, (const void *)src, len) == (long)len ? 0 : -EFAULT;
}

int crn_user_write(uintptr_t dst, const void *src, size_t len)
{
	crn_output_memory(dst, len);
	/*
	 * SAFETY: crn_user_copy fails where the pointer is bad. It is a store of this thread, for
	 * what the kernel writes by process_vm_writev feeds cannot report: each such call would
	 * make the next checkpoint scan.
	 */
	return crn_user_copy((void *)dst, src, len);
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

/* ---- Births ---------------------------------------------------------------------------------- */

/* libc's descriptor of a thread, from its thread pointer upwards: tid words and rseq area in it. */
#define DESCRIPTOR_SIZE 4096

/* What a clone asks for; false: it is none, or cannot be read. */
static bool clone_arguments(const struct crn_in_flight *call, struct clone_args *args,
	int (*read)(void *dst, uintptr_t src, size_t len))
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
		read(args, (uintptr_t)call->args[0],
			CRN_MIN(sizeof(*args), (size_t)call->args[1])) == 0;
}

static void tell(const struct crn_call_listener *to, uintptr_t addr, size_t len)
{
	if (addr && len)
		to->fn(to->arg, addr, len);
}

static void tell_clone(const struct crn_call_listener *to, const struct crn_in_flight *call)
{
	struct clone_args args;

	if (!clone_arguments(call, &args, to->read))
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
	if (!clone_arguments(call, &args, crn_user_read) || !(args.flags & CLONE_THREAD))
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

static void tell_ranges(const struct crn_in_flight *call, const struct crn_call_listener *to)
{
	crn_call_memory(call->nr, call->args, to);
	tell_clone(to, call);
}

void crn_output_ranges(const struct crn_in_flight *call, crn_output_fn fn, void *arg)
{
	tell_ranges(call, &(struct crn_call_listener){ fn, crn_user_peek, arg });
}

static void open_range(void *arg, uintptr_t addr, size_t len)
{
	crn_output_memory(addr, len);
}

void crn_output_memory_of(const struct crn_in_flight *call)
{
	open_thread(call);
	tell_ranges(call, &(struct crn_call_listener){ open_range, crn_user_read, NULL });
}
