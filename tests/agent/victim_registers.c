/* SPDX-License-Identifier: MIT */
/*
 * Every register, every flag that a program can set, the vector registers and the red zone must be
 * the same behind a system call as before it, but for rax, rcx and r11; while signals arrive as
 * fast as timers and another thread can send them, and their handlers make system calls and spoil
 * vector registers.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include "expect.h"

/*
 * long probe(struct image *in, struct image *out, long nr): loads all of `in`, makes the call,
 * stores all to `out`. The red zone is filled from in->zone and read back.
 */
struct image {
	uint64_t gpr[13]; /* rbx rbp r8 r9 r10 r12 r13 r14 r15 rdi rsi rdx flags */
	uint64_t rax;
	uint8_t pad[16];
	uint8_t vector[16][32];
	uint64_t zone[16];
};

long probe(struct image *in, struct image *out, long nr);
extern const char probe_syscall[];

__asm__(".text\n.globl probe\n.type probe,@function\nprobe:\n"
	"	push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
	"	push %rsi; push %rdx\n"
	"	mov %rdi, %rax\n"
	"	.set i, 0\n"
	"	.rept 16\n"
	"	mov 640+8*i(%rax), %rcx\n"
	"	mov %rcx, -8-8*i(%rsp)\n"
	"	.set i, i+1\n"
	"	.endr\n"
	"	lea 128(%rax), %rcx\n"
	"	vmovdqu 0(%rcx), %ymm0;    vmovdqu 32(%rcx), %ymm1;  vmovdqu 64(%rcx), %ymm2;  "
	"vmovdqu 96(%rcx), %ymm3\n"
	"	vmovdqu 128(%rcx), %ymm4;  vmovdqu 160(%rcx), %ymm5; vmovdqu 192(%rcx), %ymm6; "
	"vmovdqu 224(%rcx), %ymm7\n"
	"	vmovdqu 256(%rcx), %ymm8;  vmovdqu 288(%rcx), %ymm9; vmovdqu 320(%rcx), %ymm10; "
	"vmovdqu 352(%rcx), %ymm11\n"
	"	vmovdqu 384(%rcx), %ymm12; vmovdqu 416(%rcx), %ymm13; vmovdqu 448(%rcx), %ymm14; "
	"vmovdqu 480(%rcx), %ymm15\n"
	"	mov 0(%rax), %rbx; mov 8(%rax), %rbp; mov 16(%rax), %r8; mov 24(%rax), %r9; mov "
	"32(%rax), %r10\n"
	"	mov 40(%rax), %r12; mov 48(%rax), %r13; mov 56(%rax), %r14; mov 64(%rax), %r15\n"
	"	mov 72(%rax), %rdi; mov 80(%rax), %rsi; mov 88(%rax), %rdx\n"
	"	lea -256(%rsp), %rsp\n"
	"	push 96(%rax)\n"
	"	mov 256+8(%rsp), %rax\n" /* nr */
	"	popfq\n"
	"	lea 256(%rsp), %rsp\n"
	"probe_syscall:\n"
	"	syscall\n"
	"	lea -256(%rsp), %rsp\n"
	"	pushfq\n"
	"	mov 256+8+8(%rsp), %rcx\n" /* out */
	"	mov %rax, 104(%rcx)\n"
	"	pop 96(%rcx)\n"
	"	lea 256(%rsp), %rsp\n"
	"	cld\n"
	"	mov %rbx, 0(%rcx); mov %rbp, 8(%rcx); mov %r8, 16(%rcx); mov %r9, 24(%rcx); mov "
	"%r10, 32(%rcx)\n"
	"	mov %r12, 40(%rcx); mov %r13, 48(%rcx); mov %r14, 56(%rcx); mov %r15, 64(%rcx)\n"
	"	mov %rdi, 72(%rcx); mov %rsi, 80(%rcx); mov %rdx, 88(%rcx)\n"
	"	.set i, 0\n"
	"	.rept 16\n"
	"	mov -8-8*i(%rsp), %rax\n"
	"	mov %rax, 640+8*i(%rcx)\n"
	"	.set i, i+1\n"
	"	.endr\n"
	"	lea 128(%rcx), %rax\n"
	"	vmovdqu %ymm0, 0(%rax);    vmovdqu %ymm1, 32(%rax);  vmovdqu %ymm2, 64(%rax);  "
	"vmovdqu %ymm3, 96(%rax)\n"
	"	vmovdqu %ymm4, 128(%rax);  vmovdqu %ymm5, 160(%rax); vmovdqu %ymm6, 192(%rax); "
	"vmovdqu %ymm7, 224(%rax)\n"
	"	vmovdqu %ymm8, 256(%rax);  vmovdqu %ymm9, 288(%rax); vmovdqu %ymm10, 320(%rax); "
	"vmovdqu %ymm11, 352(%rax)\n"
	"	vmovdqu %ymm12, 384(%rax); vmovdqu %ymm13, 416(%rax); vmovdqu %ymm14, 448(%rax); "
	"vmovdqu %ymm15, 480(%rax)\n"
	"	mov 104(%rcx), %rax\n"
	"	vzeroupper\n"
	"	pop %rdx; pop %rsi\n"
	"	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
	"	ret\n"
	".size probe, . - probe\n");

static atomic_ulong handled;
static atomic_bool over;
static pthread_t target;

static void spoil(void)
{
	__asm__ volatile("vpcmpeqd %%ymm0, %%ymm0, %%ymm0; vpcmpeqd %%ymm7, %%ymm7, %%ymm7;"
			 "vpcmpeqd %%ymm15, %%ymm15, %%ymm15; vzeroupper" ::
				 : "xmm0", "xmm7", "xmm15");
}

static void on_signal(int sig, siginfo_t *info, void *uc)
{
	int e = errno;

	(void)info;
	(void)uc;
	spoil();
	EXPECT(syscall(SYS_getppid) == getppid());
	EXPECT(getpid() > 0);
	__asm__ volatile("std; cld");
	atomic_fetch_add(&handled, 1);
	errno = e;
	EXPECT(sig == SIGALRM || sig == SIGPROF || sig == SIGUSR1 || sig == SIGRTMIN);
}

static void *sender(void *arg)
{
	(void)arg;
	while (!atomic_load(&over)) {
		pthread_kill(target, SIGUSR1);
		for (volatile int i = 0; i < 300; i++)
			;
	}
	return NULL;
}

static void storm_begin(pthread_t *t)
{
	struct sigaction a = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART };
	struct itimerval real = { { 0, 70 }, { 0, 70 } }, prof = { { 0, 1000 }, { 0, 1000 } };
	struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	struct itimerspec every = { { 0, 50000 }, { 0, 50000 } };
	timer_t timer;

	sigemptyset(&a.sa_mask);
	EXPECT(!sigaction(SIGALRM, &a, NULL) && !sigaction(SIGPROF, &a, NULL) &&
		!sigaction(SIGUSR1, &a, NULL));
	EXPECT(!sigaction(SIGRTMIN, &a, NULL));
	EXPECT(!setitimer(ITIMER_REAL, &real, NULL) && !setitimer(ITIMER_PROF, &prof, NULL));
	EXPECT(!timer_create(CLOCK_MONOTONIC, &ev, &timer) &&
		!timer_settime(timer, 0, &every, NULL));
	target = pthread_self();
	EXPECT(!pthread_create(t, NULL, sender, NULL));
}

static void fill(struct image *in, uint64_t seed)
{
	uint8_t *p = (uint8_t *)in;

	for (size_t i = 0; i < sizeof(*in); i++) {
		seed = seed * 6364136223846793005ull + 1442695040888963407ull;
		p[i] = (uint8_t)(seed >> 56);
	}
	/* CF PF AF ZF SF DF OF may be anything; the interrupt flag and bit 1 are set. */
	in->gpr[12] = (in->gpr[12] & 0xcd5) | 0x202;
}

static void check(const struct image *in, const struct image *out, long expected)
{
	EXPECT((long)out->rax == expected);
	EXPECT(!memcmp(in->gpr, out->gpr, sizeof(in->gpr)));
	EXPECT(!memcmp(in->vector, out->vector, sizeof(in->vector)));
	EXPECT(!memcmp(in->zone, out->zone, sizeof(in->zone)));
}

/* A site: the engine copies and compares pages, also where no upper half of a register is used. */
static void wait_for_nothing(struct image *in, uint64_t seed)
{
	struct timeval none = { 0, 0 };
	struct image out;

	fill(in, seed);
	if (seed % 2)
		for (int i = 0; i < 16; i++)
			memset(in->vector[i] + 16, 0, 16);
	in->gpr[2] = (uint64_t)&none;			       /* r8 */
	in->gpr[4] = in->gpr[9] = in->gpr[10] = in->gpr[11] = 0; /* r10, rdi, rsi, rdx */
	probe(in, &out, SYS_select);
	check(in, &out, (long)out.rax == -EINTR ? -EINTR : 0);
}

/* With AC, under which an unaligned access raises SIGBUS: the agent's own are not the program's. */
static long call_aligned(long nr, long a, long b, long c)
{
	unsigned long flags;
	long result;

	__asm__ volatile("leaq -128(%%rsp), %%rsp\n\t"
			 "pushfq\n\torl $0x40000, (%%rsp)\n\tpopfq\n\t"
			 "syscall\n\t"
			 "pushfq\n\tmovq (%%rsp), %1\n\tandl $~0x40000, (%%rsp)\n\tpopfq\n\t"
			 "leaq 128(%%rsp), %%rsp"
			 : "=a"(result), "=&r"(flags)
			 : "a"(nr), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory", "cc");
	EXPECT(flags & 0x40000);
	return result;
}

static void check_alignment_flag(void)
{
	for (int i = 0; i < 100; i++) {
		EXPECT(call_aligned(SYS_getppid, 0, 0, 0) == getppid());
		EXPECT(call_aligned(SYS_poll, 0, 0, 0) == 0); /* a site */
		EXPECT(call_aligned(SYS_close, -1, 0, 0) == -EBADF);
	}
}

int main(int argc, char **argv)
{
	struct timespec t0, t;
	struct image in, out;
	pthread_t thread;
	uint64_t rounds = 0;
	long ms = argc > 1 ? atol(argv[1]) : 2000, pid = getpid();

	check_alignment_flag();
	storm_begin(&thread);
	clock_gettime(CLOCK_MONOTONIC, &t0);
	do {
		fill(&in, ++rounds);
		check(&in, (probe(&in, &out, SYS_getpid), &out), pid);
		fill(&in, ~rounds);
		check(&in, (probe(&in, &out, 9999), &out), -ENOSYS);
		wait_for_nothing(&in, rounds);
		EXPECT(getpid() == pid && syscall(SYS_getpid) == pid);
		errno = 0;
		EXPECT(close(-1) < 0 && errno == EBADF);
		clock_gettime(CLOCK_MONOTONIC, &t);
	} while ((t.tv_sec - t0.tv_sec) * 1000 + (t.tv_nsec - t0.tv_nsec) / 1000000 < ms);
	atomic_store(&over, true);
	pthread_join(thread, NULL);
	dprintf(2, "%lu rounds, %lu signals\n", (unsigned long)rounds, (unsigned long)handled);
	EXPECT(handled > (unsigned long)ms / 10);
	puts("registers: ok");
	return 0;
}
