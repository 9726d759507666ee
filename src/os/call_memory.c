/* SPDX-License-Identifier: MIT */
#include "os/call_memory.h"
#include "base/bits.h"
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/if.h>
#include <linux/sockios.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/uio.h>

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

/* ---- The table ------------------------------------------------------------------------------- */

enum out_kind {
	OUT_END,
	OUT_BYTES,
	OUT_FIXED,
	OUT_ARRAY,
	OUT_SOCKLEN,
	OUT_IOVEC,
	OUT_MSGHDR,
	OUT_MMSGHDR,
	OUT_FDSET,
	OUT_IOCTL,
	OUT_FCNTL,
	OUT_FUTEX,
	OUT_MESSAGE,
	OUT_PAGES,
	OUT_REGSET,
	OUT_XATTR,
};

struct out {
	uint8_t kind; /* enum out_kind */
	uint8_t arg;
	uint8_t length_arg;
	uint16_t size;
};
#define OUTS_MAX 5

/* These turn the words of a row into a struct. */
#define BYTES(a, n)       { OUT_BYTES, a, n, 0 }
#define FIXED(a, size)    { OUT_FIXED, a, 0, size }
#define ARRAY(a, n, size) { OUT_ARRAY, a, n, size }
#define SOCKLEN(a, p)     { OUT_SOCKLEN, a, p, 0 }
#define IOVEC(a, n)       { OUT_IOVEC, a, n, 0 }
#define MSGHDR(a)         { OUT_MSGHDR, a, 0, 0 }
#define MMSGHDR(a, n)     { OUT_MMSGHDR, a, n, 0 }
#define FDSET(a)          { OUT_FDSET, a, 0, 0 }
#define IOCTL(a)          { OUT_IOCTL, a, 0, 0 }
#define FUTEX(a)          { OUT_FUTEX, a, 0, 0 }
#define FCNTL(a)          { OUT_FCNTL, a, 0, 0 }
#define MESSAGE(a, n)     { OUT_MESSAGE, a, n, 0 }
#define PAGES(a, n)       { OUT_PAGES, a, n, 0 }
#define REGSET(a)         { OUT_REGSET, a, 0, 0 }
#define XATTR(a)          { OUT_XATTR, a, 0, 0 }
#define LOOSE(a, size)    { OUT_FIXED, a, 0, size }

static const struct out table[CRN_CALLS_KNOWN + 1][OUTS_MAX] = {
#define CRN_WRITES(nr, name, ...) [nr] = { __VA_ARGS__ },
#include "os/call_memory.def"
#undef CRN_WRITES
};

static const struct out *row_of(long nr)
{
	static const struct out nothing[OUTS_MAX];

	return nr < 0 || nr > CRN_CALLS_KNOWN ? nothing : table[nr];
}

bool crn_call_writes(long nr)
{
	return row_of(nr)->kind != OUT_END;
}

/* ---- What each kind means -------------------------------------------------------------------- */

static void tell(const struct crn_call_listener *to, uintptr_t addr, size_t len)
{
	if (addr && len)
		to->fn(to->arg, addr, len);
}

static void tell_iovec(const struct crn_call_listener *to, uintptr_t addr, size_t count)
{
	struct iovec iov[16];

	if (count > IOV_MAX) /* the kernel refuses it */
		return;
	for (size_t i = 0; i < count; i += CRN_ARRAY_SIZE(iov)) {
		size_t n = CRN_MIN(count - i, CRN_ARRAY_SIZE(iov));

		if (to->read(iov, addr + i * sizeof(*iov), n * sizeof(*iov)) < 0)
			return;
		for (size_t j = 0; j < n; j++)
			tell(to, (uintptr_t)iov[j].iov_base, iov[j].iov_len);
	}
}

static void tell_msghdr(const struct crn_call_listener *to, uintptr_t addr)
{
	struct msghdr msg;

	if (to->read(&msg, addr, sizeof(msg)) < 0)
		return;
	tell(to, addr, sizeof(msg));
	tell(to, (uintptr_t)msg.msg_name, msg.msg_namelen);
	tell(to, (uintptr_t)msg.msg_control, msg.msg_controllen);
	tell_iovec(to, (uintptr_t)msg.msg_iov, msg.msg_iovlen);
}

/* Requests that hide a second buffer in the first; all others say their size in their number. */
static void tell_ioctl(const struct crn_call_listener *to, unsigned request, uintptr_t addr)
{
	unsigned size = (request >> 16) & 0x3fff, direction = request >> 30;
	struct ifconf list;
	struct ifreq one;

	if (request == SIOCGIFCONF && to->read(&list, addr, sizeof(list)) == 0)
		tell(to, (uintptr_t)list.ifc_buf, (size_t)CRN_MAX(list.ifc_len, 0));
	if (request == SIOCETHTOOL && to->read(&one, addr, sizeof(one)) == 0)
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
static void tell_futex(const struct crn_call_listener *to, const long args[6])
{
	switch ((int)args[1] & FUTEX_CMD_MASK) {
	case FUTEX_WAKE_OP:
		return tell(to, (uintptr_t)args[4], sizeof(int));
	case FUTEX_LOCK_PI:
	case FUTEX_LOCK_PI2_OP:
	case FUTEX_UNLOCK_PI:
	case FUTEX_TRYLOCK_PI:
	case FUTEX_WAIT_REQUEUE_PI:
	case FUTEX_CMP_REQUEUE_PI:
		tell(to, (uintptr_t)args[0], sizeof(int));
		tell(to, (uintptr_t)args[4], sizeof(int));
	}
}

/* struct xattr_args begins with them. */
static void tell_xattr(const struct crn_call_listener *to, uintptr_t addr)
{
	struct {
		uint64_t value;
		uint32_t size, flags;
	} args;

	if (to->read(&args, addr, sizeof(args)) == 0)
		tell(to, args.value, args.size);
}

static void tell_one(
	const struct crn_call_listener *to, const long args[6], const struct out *out)
{
	uintptr_t addr = (uintptr_t)args[out->arg];
	unsigned long n = (unsigned long)args[out->length_arg];
	unsigned len;

	switch (out->kind) {
	case OUT_BYTES:
		return tell(to, addr, n);
	case OUT_FIXED:
		return tell(to, addr, out->size);
	case OUT_ARRAY:
		return tell(to, addr, (size_t)(unsigned)n * out->size);
	case OUT_MESSAGE:
		return tell(to, addr, n + sizeof(long));
	case OUT_PAGES:
		return tell(to, addr, (n + CRN_PAGE_SIZE - 1) >> CRN_PAGE_SHIFT);
	case OUT_SOCKLEN:
		if (addr && to->read(&len, n, sizeof(len)) == 0)
			tell(to, addr, len);
		return;
	case OUT_IOVEC:
		return tell_iovec(to, addr, n);
	case OUT_MSGHDR:
		return tell_msghdr(to, addr);
	case OUT_MMSGHDR:
		n = CRN_MIN(n, (unsigned long)IOV_MAX); /* and no more does the kernel take */
		for (unsigned long i = 0; i < n; i++)
			tell_msghdr(to, addr + i * sizeof(struct mmsghdr));
		return tell(to, addr, n * sizeof(struct mmsghdr));
	case OUT_FDSET:
		return tell(to, addr, ((unsigned)args[0] + 63) / 64 * 8);
	case OUT_IOCTL:
		return tell_ioctl(to, (unsigned)args[1], addr);
	case OUT_FCNTL:
		return tell(to, addr, fcntl_size((int)args[1]));
	case OUT_FUTEX:
		return tell_futex(to, args);
	case OUT_REGSET:
		if (args[0] == PTRACE_GETREGSET)
			tell_iovec(to, addr, 1);
		return;
	case OUT_XATTR:
		return tell_xattr(to, addr);
	}
}

void crn_call_memory(long nr, const long args[6], const struct crn_call_listener *to)
{
	const struct out *row = row_of(nr);

	for (size_t i = 0; i < OUTS_MAX && row[i].kind != OUT_END; i++)
		tell_one(to, args, &row[i]);
}
