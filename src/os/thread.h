/* SPDX-License-Identifier: MIT */
/* Threads of this process, as the kernel knows them. */
#ifndef CRN_OS_THREAD_H
#define CRN_OS_THREAD_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/bits.h"
#include "os/sys.h"

static inline int crn_gettid(void)
{
	return (int)crn_sys0(SYS_gettid);
}

static inline int crn_getpid(void)
{
	return (int)crn_sys0(SYS_getpid);
}

/*
 * Does an agent take checkpoints of this process? It answers in the place of the kernel, which
 * looks at no argument here.
 */
#define CRN_ASK_AGENT 0x6361726el
static inline bool crn_has_agent(void)
{
	return crn_sys2(SYS_getpid, CRN_ASK_AGENT, ~CRN_ASK_AGENT) == -EALREADY;
}

#define CRN_MILLISECOND 1000000u

/* Sleep for so many nanoseconds, less than a second; a signal ends it early. */
static inline void crn_doze(uint32_t ns)
{
	const int64_t time[2] = { 0, ns };

	crn_sys2(SYS_nanosleep, time, NULL);
}

static inline void crn_yield(void)
{
	crn_sys0(SYS_sched_yield);
}

static inline void crn_pause(void)
{
	__asm__ volatile("pause" ::: "memory");
}

static inline bool crn_thread_gone(int tid)
{
	return crn_sys3(SYS_tgkill, crn_getpid(), tid, 0) == -ESRCH;
}

/* Wait while *word == expected, at most timeout_ns (0: forever). 0, -EAGAIN, -ETIMEDOUT, -EINTR. */
int crn_futex_wait(uint32_t *word, uint32_t expected, uint64_t timeout_ns);
int crn_futex_wake(uint32_t *word, int count);

/*
 * One round of waiting while *word == value, *round of them so far. The first rounds spin, the
 * others sleep: who we wait for may have a lower priority than we. Nobody has to wake us.
 */
static inline void crn_wait_while(_Atomic uint32_t *word, uint32_t value, unsigned *round)
{
	if ((*round)++ < 64)
		crn_pause();
	else
		crn_futex_wait((uint32_t *)word, value, 100000);
}

/*
 * Call fn for each thread id of this process until it returns non-zero, which is handed back;
 * threads may come and go meanwhile. -errno if /proc cannot be read.
 */
int crn_thread_each(int (*fn)(void *ctx, int tid), void *ctx);
/* How many there are now, or -errno. */
int crn_thread_count(void);

/*
 * Another thread: is it asleep for a signal or an event, or stopped? Then it is in the middle of no
 * page fault and holds no lock of the kernel's. False if that cannot be told.
 */
bool crn_thread_rests(int tid);

/* A futex that a thread sleeps on while it holds what is expected. */
struct crn_futex_wait {
	const uint32_t *word;
	uint32_t expected;
	bool is_private;
};

/* Does another thread sleep on one? False if that cannot be told. */
bool crn_thread_waits(int tid, struct crn_futex_wait *out);
/* Wake all who sleep there in the same way. */
int crn_futex_wake_as(const struct crn_futex_wait *wait);

/* Is there no thread but the calling one? From handlers. */
bool crn_thread_alone(void);

/* Does this process have one thread, and nobody else its memory? False if that is not known. */
bool crn_memory_alone(void);

/*
 * Does another process use this memory (CLONE_VM without CLONE_THREAD)? False also if that cannot
 * be known: if there are more threads than one, or unshare is forbidden.
 */
bool crn_memory_shared(void);

/* Memory that the kernel writes for one thread whenever it likes; a restore leaves it alone. */
struct crn_thread_words {
	uintptr_t clear_tid;   /* CLONE_CHILD_CLEARTID word, 4 bytes; 0: none or unknown */
	uintptr_t robust_list; /* struct robust_list_head; 0: none */
	size_t robust_len;
	uintptr_t rseq; /* registered rseq area as libc tells; 0: none or unknown */
	size_t rseq_len;
};

/*
 * glibc has a thread's variables between its stack and its descriptor, to which the TLS base
 * points. Where do they begin, above `sp`? The descriptor itself if that cannot be told.
 */
uintptr_t crn_thread_locals(uintptr_t descriptor, uintptr_t sp);

/*
 * The memory that libc, or the program, has given a thread that libc made: from a guard page, if
 * there is one, to behind its descriptor. False if the descriptor does not tell.
 */
bool crn_thread_block(uintptr_t descriptor, struct crn_range *out);

/* Of the calling thread. Fields that the kernel or libc do not tell are 0. */
void crn_thread_words(struct crn_thread_words *out);
/* From a thread's descriptor to its robust list, as libc has it; 0: it has none. */
uintptr_t crn_thread_list_at(void);

/* Where another thread's robust list head is. 0 or -errno; a thread without one has head 0. */
static inline int crn_robust_list_of(int tid, uintptr_t *head, size_t *len)
{
	return (int)crn_sys3(SYS_get_robust_list, tid, head, len);
}

/* The calling thread's; 0 takes it away. */
static inline int crn_robust_list_set(uintptr_t head)
{
	return (int)crn_sys2(SYS_set_robust_list, head, 3 * sizeof(long));
}

/* The calling thread's TLS base by system call, where the processor does not let us read it. */
static inline uintptr_t crn_tls_base(void)
{
	uintptr_t base = 0;

#ifdef __i386__
	uint16_t selector;

	/* libc keeps it there, too. */
	__asm__ volatile("mov %%gs, %0" : "=r"(selector));
	if (selector)
		__asm__ volatile("mov %%gs:0, %0" : "=r"(base));
#else
	crn_sys2(SYS_arch_prctl, 0x1003 /* ARCH_GET_FS */, &base);
#endif
	return base;
}

#endif
