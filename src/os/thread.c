/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include "base/bits.h"
#include "os/descriptor.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/guarded.h"
#include "os/proc.h"
#include "os/thread.h"

struct kernel_timespec {
	int64_t seconds, nanoseconds;
};

#define FUTEX_WAIT        0u
#define FUTEX_WAKE        1u
#define FUTEX_WAIT_BITSET 9u
#define FUTEX_PRIVATE     128u
#define FUTEX_FLAGS       (FUTEX_PRIVATE | 256u) /* and the clock of the timeout */
#define UNSHARE_VM         0x100

int crn_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns)
{
	struct kernel_timespec t = { (int64_t)(timeout_ns / 1000000000),
		(int64_t)(timeout_ns % 1000000000) };

	return (int)crn_sys4(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE, expected,
		timeout_ns ? &t : NULL);
}

int crn_futex_wake(uint32_t *word, int count)
{
	return (int)crn_sys3(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE, count);
}

/* `name` is what /proc calls it. */
typedef int (*task_fn)(void *ctx, int tid, int name);

struct tasks {
	task_fn fn;
	void *ctx;
	bool foreign;
};

static int task(void *ctx, int dir, int name)
{
	const struct tasks *t = ctx;
	char folder[40];
	int tid = name;

	if (t->foreign) {
		crn_format(folder, sizeof(folder), "/proc/self/task/%d", name);
		tid = crn_proc_own_id(folder);
	}
	return tid > 0 ? t->fn(t->ctx, tid, name) : tid == -ENOENT ? 0 : tid;
}

static int each_task(task_fn fn, void *ctx)
{
	struct tasks t = { fn, ctx, crn_proc_is_foreign() };

	return crn_proc_numbers("/proc/self/task", task, &t);
}

struct each {
	int (*fn)(void *ctx, int tid);
	void *ctx;
};

static int call_each(void *ctx, int tid, int name)
{
	struct each *e = ctx;

	return e->fn(e->ctx, tid);
}

int crn_thread_each(int (*fn)(void *ctx, int tid), void *ctx)
{
	struct each e = { fn, ctx };

	return each_task(call_each, &e);
}

static int name_if(void *ctx, int tid, int name)
{
	return tid == *(int *)ctx ? name : 0;
}

bool crn_thread_rests(int tid)
{
	char path[48], text[256];
	const char *state = text;

	crn_format(path, sizeof(path), "/proc/self/task/%d/stat",
		crn_proc_is_foreign() ? each_task(name_if, &tid) : tid);
	if (crn_file_read(path, text, sizeof(text)) < 0)
		return false;
	for (const char *s = text; *s; s++) /* the name before it may hold anything */
		if (*s == ')')
			state = s;
	return state[0] == ')' && state[1] == ' ' &&
		(state[2] == 'S' || state[2] == 't' || state[2] == 'T');
}

/* " 0x" is before it. */
static uintptr_t next_argument(const char **at)
{
	for (int i = 0; i < 3 && **at; i++)
		++*at;
	return (uintptr_t)crn_proc_digits(at, 16);
}

bool crn_thread_waits(int tid, struct crn_futex_wait *out)
{
	char path[48], text[256];
	const char *at = text;
	unsigned how;

	crn_format(path, sizeof(path), "/proc/self/task/%d/syscall",
		crn_proc_is_foreign() ? each_task(name_if, &tid) : tid);
	if (crn_file_read(path, text, sizeof(text)) < 0 || text[0] < '0' || text[0] > '9' ||
		crn_proc_digits(&at, 10) != SYS_futex)
		return false;
	out->word = (const uint32_t *)next_argument(&at);
	how = (unsigned)next_argument(&at);
	out->expected = (uint32_t)next_argument(&at);
	out->is_private = how & FUTEX_PRIVATE;
	return (how & ~FUTEX_FLAGS) == FUTEX_WAIT || (how & ~FUTEX_FLAGS) == FUTEX_WAIT_BITSET;
}

int crn_futex_wake_as(const struct crn_futex_wait *wait)
{
	return (int)crn_sys3(SYS_futex, wait->word,
		FUTEX_WAKE | (wait->is_private ? FUTEX_PRIVATE : 0), INT32_MAX);
}

static int count_one(void *ctx, int tid)
{
	(*(int *)ctx)++;
	return 0;
}

int crn_thread_count(void)
{
	int count = 0;
	int err = crn_thread_each(count_one, &count);

	return err < 0 ? err : count;
}

/*
 * What unshare refuses a process that has other threads, or (CLONE_VM) whose memory others use; of
 * any other it changes nothing. A sandbox may refuse it as well.
 */
bool crn_thread_alone(void)
{
	long err = crn_sys1(SYS_unshare, 0x10000 /* CLONE_THREAD */);

	return err >= 0 || (err != -EINVAL && crn_thread_count() == 1);
}

bool crn_memory_alone(void)
{
	return crn_sys1(SYS_unshare, UNSHARE_VM) >= 0;
}

bool crn_memory_shared(void)
{
	/* Twice: what it saw the first time may have been a thread that was about to end. */
	return crn_sys1(SYS_unshare, UNSHARE_VM) == -EINVAL && crn_thread_count() == 1 &&
		crn_sys1(SYS_unshare, UNSHARE_VM) == -EINVAL;
}

/*
 * What glibc 2.35 and later tell of their rseq registration. Weak: absent with other libcs and in a
 * program whose libc registered none (__rseq_size is 0 then).
 */
extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

/* glibc says 20 or more for its 32-byte area; the kernel rounds to 32 as well. */
#define RSEQ_AREA_MIN 32u

void crn_thread_words(struct crn_thread_words *out)
{
	uintptr_t thread_pointer;

	*out = (struct crn_thread_words){ 0 };
	/*
	 * PR_GET_TID_ADDRESS is there only in kernels that can checkpoint; the robust list always
	 * is.
	 */
	if (crn_sys2(SYS_prctl, 40 /* PR_GET_TID_ADDRESS */, &out->clear_tid) < 0)
		out->clear_tid = 0;
	if (crn_sys3(SYS_get_robust_list, 0, &out->robust_list, &out->robust_len) < 0)
		out->robust_list = out->robust_len = 0;
	if (!&__rseq_offset || !&__rseq_size || !__rseq_size)
		return;
	thread_pointer = crn_tls_base();
	if (!thread_pointer)
		return;
	out->rseq = thread_pointer + (uintptr_t)__rseq_offset;
	out->rseq_len = CRN_MAX(__rseq_size, RSEQ_AREA_MIN);
}

uintptr_t crn_thread_list_at(void)
{
	struct crn_thread_words mine;

	crn_thread_words(&mine);
	return mine.robust_list ? mine.robust_list - crn_tls_base() : 0;
}

/* ---- Thread-local variables -------------------------------------------------------------- */

#define MODULES_MAX 4096

static bool read_words(uintptr_t *to, uintptr_t from, size_t count)
{
	return crn_guarded_copy(to, (const void *)from, count * sizeof(*to)) >= 0;
}

/*
 * The descriptor begins with its address, that of a vector, and its address once more (debuggers
 * go by that, too). The vector has two words for each module, the first of which is where its
 * variables are; before it there is its length. musl's lies between stack and variables.
 */
uintptr_t crn_thread_locals(uintptr_t descriptor, uintptr_t sp)
{
	uintptr_t head[3], length, at, first = descriptor;

	if (!read_words(head, descriptor, 3) || head[0] != descriptor || head[2] != descriptor ||
		(head[1] > sp && head[1] < descriptor) ||
		!read_words(&length, head[1] - 2 * sizeof(at), 1) || length > MODULES_MAX)
		return descriptor;
	for (size_t i = 1; i <= length; i++) {
		if (!read_words(&at, head[1] + 2 * i * sizeof(at), 1))
			return descriptor;
		if (at > sp && at < first)
			first = at;
	}
	return first;
}

/* ---- Stacks ------------------------------------------------------------------------------ */

#define DESCRIPTOR_WORDS 512u
#define BLOCK_MIN        4096u
#define TIDS_MAX         (1u << 22) /* of Linux: a tid, before a pointer, is no such pair */
#define ABOVE_MAX        8192u /* from a descriptor to the end of its block */

/*
 * The descriptor has the block's address, and behind it its length. No other pair of its words is a
 * pointer far below the descriptor and the distance to just above it.
 */
bool crn_thread_block(uintptr_t descriptor, struct crn_range *out)
{
	uintptr_t begin, length;

	if (!read_words(&begin, descriptor, 1))
		return false;
	for (size_t i = 1; i < DESCRIPTOR_WORDS; i++, begin = length) {
		if (!read_words(&length, descriptor + i * sizeof(length), 1))
			return false;
		if (begin < TIDS_MAX || begin > descriptor - BLOCK_MIN || length < BLOCK_MIN ||
			length <= descriptor - begin ||
			length > descriptor - begin + ABOVE_MAX)
			continue;
		*out = (struct crn_range){ begin, begin + length };
		return true;
	}
	return false;
}
