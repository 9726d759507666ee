/* SPDX-License-Identifier: MIT */
/*
 * expected_faults CASE: programs that raise SIGSEGV on purpose and go on from their handlers: for
 * them it is no crash. test_ladder.py knows what each must print.
 */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <ucontext.h>
#include <unistd.h>
#include "../lib/harness.h"
#include "../lib/tcp_pair.h"

static void wake_up(void)
{
	poll(NULL, 0, 0);
}

static void take_input(void)
{
	int pair[2];
	char c;

	if (tcp_pair(pair) || write(pair[1], "x", 1) != 1 || read(pair[0], &c, 1) != 1)
		_exit(3);
}

static sigjmp_buf back;
static volatile int expected; /* faults that its handler has seen */

/* Of an instruction that has three bytes, as a machine's null check. */
static void skip_it(int sig, siginfo_t *info, void *uc)
{
	expected++;
	((ucontext_t *)uc)->uc_mcontext.gregs[REG_RIP] += 3;
}

static void leave_it(int sig, siginfo_t *info, void *uc)
{
	expected++;
	siglongjmp(back, 1);
}

static void handle_faults(void (*handler)(int, siginfo_t *, void *))
{
	static char stack[65536];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof(stack) };
	struct sigaction sa = { .sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK };

	sigaltstack(&alternate, NULL);
	sigaction(SIGSEGV, &sa, NULL);
}

static void check_null(void)
{
	__asm__ volatile("movb $0, (%0)" : : "r"(24ul) : "memory");
}

/* Each is after the read of a request, which must not be forgotten. */
static void expect_faults(void (*fault)(void))
{
	for (int i = 0; i < 20; i++) {
		wake_up();
		take_input();
		fault();
	}
	printf("expected %d\n", expected);
}

/* It has done so before there was a checkpoint: Java does when it starts. */
static void goes_on(void)
{
	handle_faults(skip_it);
	check_null();
	expect_faults(check_null);
}

static void fault_and_return(void)
{
	if (!sigsetjmp(back, 1))
		*(volatile int *)24 = 0;
}

static void leaves_handler(void)
{
	handle_faults(leave_it);
	fault_and_return();
	expect_faults(fault_and_return);
}

static void (*generated)(void);

/* mov $24, %eax; movb $0, (%rax); ret */
static void generates_code(void)
{
	static const unsigned char code[] = { 0xb8, 24, 0, 0, 0, 0xc6, 0x00, 0x00, 0xc3 };
	void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		_exit(3);
	memcpy(at, code, sizeof(code));
	generated = (void (*)(void))at;
	handle_faults(skip_it);
	expect_faults(generated);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "goes_on", goes_on },
		{ "leaves", leaves_handler },
		{ "generated", generates_code },
		{ NULL, NULL },
	};

	setvbuf(stdout, NULL, _IOLBF, 0);
	return test_run_case(cases, argv[1]);
}
