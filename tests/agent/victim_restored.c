/* SPDX-License-Identifier: MIT */
/*
 * Crashes on purpose under --recover and looks at itself after each restore: all general and vector
 * registers, flags, red zone, signal mask, alternate stack and memory must be those of the
 * checkpoint. A shared page counts the crashes, because it is not turned back. Run bare it skips
 * the crashes.
 */
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include "expect.h"

struct shared {
	volatile uint64_t crashes, passes;
};
static struct shared *shared;
static int under_cairn;

/*
 * long lap(const uint8_t *pattern, uint8_t *seen, volatile uint64_t *crash): loads rbx, r12, r13,
 * r15 and ymm0-15 from pattern, calls the site, crashes if *crash < limit (rbp), stores them to
 * seen.
 */
long lap(const uint8_t *pattern, uint8_t *seen, volatile uint64_t *crash, uint64_t limit);
void site_here(void);

__asm__(".text\n.globl site_here\n.type site_here,@function\nsite_here:\n"
	"	mov $7, %eax\n	test %eax, %eax\n	ret\n.size site_here, . - site_here\n"
	".globl lap\n.type lap,@function\nlap:\n"
	"	push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15; push %rsi\n"
	"	mov %rdx, %r14\n	mov %rcx, %rbp\n	mov %rdi, %rax\n"
	"	vmovdqu 0(%rax), %ymm0;    vmovdqu 32(%rax), %ymm1;  vmovdqu 64(%rax), %ymm2;  "
	"vmovdqu 96(%rax), %ymm3\n"
	"	vmovdqu 128(%rax), %ymm4;  vmovdqu 160(%rax), %ymm5; vmovdqu 192(%rax), %ymm6; "
	"vmovdqu 224(%rax), %ymm7\n"
	"	vmovdqu 256(%rax), %ymm8;  vmovdqu 288(%rax), %ymm9; vmovdqu 320(%rax), %ymm10; "
	"vmovdqu 352(%rax), %ymm11\n"
	"	vmovdqu 384(%rax), %ymm12; vmovdqu 416(%rax), %ymm13; vmovdqu 448(%rax), %ymm14; "
	"vmovdqu 480(%rax), %ymm15\n"
	"	mov 512(%rax), %rbx; mov 520(%rax), %r12; mov 528(%rax), %r13; mov 536(%rax), "
	"%r15\n"
	"	mov 544(%rax), %rdi; mov 552(%rax), %rsi; mov 560(%rax), %rdx; mov 568(%rax), "
	"%rcx\n"
	"	mov 576(%rax), %r8; mov 584(%rax), %r9; mov 592(%rax), %r10; mov 600(%rax), %r11\n"
	"	call site_here\n"
	"	cmp %rbp, (%r14)\n"
	"	jae 1f\n"
	"	incq (%r14)\n"
	"	vpcmpeqd %ymm3, %ymm3, %ymm3; vpcmpeqd %ymm15, %ymm15, %ymm15\n"
	"	xor %ebx, %ebx; xor %edi, %edi; xor %r11d, %r11d; xor %r15d, %r15d\n"
	"	movl $0, 0\n" /* the crash */
	"1:	pop %rax\n"
	"	vmovdqu %ymm0, 0(%rax);    vmovdqu %ymm1, 32(%rax);  vmovdqu %ymm2, 64(%rax);  "
	"vmovdqu %ymm3, 96(%rax)\n"
	"	vmovdqu %ymm4, 128(%rax);  vmovdqu %ymm5, 160(%rax); vmovdqu %ymm6, 192(%rax); "
	"vmovdqu %ymm7, 224(%rax)\n"
	"	vmovdqu %ymm8, 256(%rax);  vmovdqu %ymm9, 288(%rax); vmovdqu %ymm10, 320(%rax); "
	"vmovdqu %ymm11, 352(%rax)\n"
	"	vmovdqu %ymm12, 384(%rax); vmovdqu %ymm13, 416(%rax); vmovdqu %ymm14, 448(%rax); "
	"vmovdqu %ymm15, 480(%rax)\n"
	"	mov %rbx, 512(%rax); mov %r12, 520(%rax); mov %r13, 528(%rax); mov %r15, "
	"536(%rax)\n"
	"	mov %rdi, 544(%rax); mov %rsi, 552(%rax); mov %rdx, 560(%rax); mov %rcx, "
	"568(%rax)\n"
	"	mov %r8, 576(%rax); mov %r9, 584(%rax); mov %r10, 592(%rax); mov %r11, 600(%rax)\n"
	"	vzeroupper\n"
	"	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n	ret\n.size lap, . "
	"- lap\n");

#define PATTERN 608
static uint8_t pattern[PATTERN], seen[PATTERN];
static volatile int memory_word;

static void test_function_site(void)
{
	for (int i = 0; i < 40; i++) {
		for (int k = 0; k < PATTERN; k++)
			pattern[k] = (uint8_t)(k * 31 + i * 7 + 1);
		memory_word = i;
		poll(NULL, 0, 0); /* a wake-up is complete: the next crash is no repetition */
		lap(pattern, seen, &shared->crashes, under_cairn ? shared->crashes + 1 : 0);
		EXPECT(memory_word == i && !memcmp(pattern, seen, PATTERN));
		shared->passes++;
	}
	EXPECT(!under_cairn || shared->crashes == 40);
}

static void nothing(int sig)
{
	(void)sig;
}

/* The mask and the alternate stack of the checkpoint are back, and timers' signals go on coming. */
static void test_state(void)
{
	static char stack[16384];
	stack_t s = { .ss_sp = stack, .ss_size = sizeof(stack) }, off = { .ss_flags = SS_DISABLE },
		now;
	struct sigaction a = { .sa_handler = nothing };
	struct itimerval storm = { { 0, 500 }, { 0, 500 } }, none = { 0 };
	uint64_t before = shared->crashes;
	sigset_t set;

	EXPECT(!sigaction(SIGALRM, &a, NULL));
	for (int i = 0; i < 40; i++) {
		uint64_t crashed = shared->crashes;

		poll(NULL, 0, 0);
		sigemptyset(&set);
		sigaddset(&set, i & 1 ? SIGUSR1 : SIGUSR2);
		EXPECT(!sigprocmask(SIG_SETMASK, &set, NULL) && !sigaltstack(&s, NULL));
		EXPECT(!setitimer(ITIMER_REAL, &storm, NULL));
		site_here();
		EXPECT(!sigprocmask(SIG_SETMASK, NULL, &set));
		EXPECT(sigismember(&set, SIGUSR1) == (i & 1) &&
			sigismember(&set, SIGUSR2) == !(i & 1));
		EXPECT(!sigaltstack(NULL, &now) && now.ss_sp == stack);
		if (under_cairn && shared->crashes == crashed) {
			sigfillset(&set);
			sigprocmask(SIG_SETMASK, &set, NULL);
			sigaltstack(&off, NULL);
			shared->crashes++;
			*(volatile int *)8 = 1;
		}
		EXPECT(!setitimer(ITIMER_REAL, &none, NULL));
	}
	EXPECT(!under_cairn || shared->crashes == before + 40);
}

int main(int argc, char **argv)
{
	under_cairn = argc > 1 && !strcmp(argv[1], "crash");
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EXPECT(shared != MAP_FAILED);
	test_function_site();
	test_state();
	dprintf(1, "restored: ok, %lu crashes\n", (unsigned long)shared->crashes);
	return 0;
}
