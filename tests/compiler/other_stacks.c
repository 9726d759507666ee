/* SPDX-License-Identifier: MIT */
/*
 * A function stores, another stack goes on and takes a checkpoint, and the function stores there
 * again: what its first store has saved is saved no more. The ways to another stack: a function
 * without bitcode, a naked one, assembly, and swapcontext. argv: TRACKER.
 */
#include <stdint.h>
#include <string.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

#define STACK 65536

/* As <ucontext.h> has it, but for the attribute that says that it returns twice. */
struct context {
	uintptr_t words[128];
};
int getcontext(struct context *c);
void makecontext(struct context *c, void (*run)(void), int count);
int swapcontext(struct context *from, const struct context *to);

static char stacks[4][STACK] __attribute__((aligned(64)));
static void *top, *other;
static struct context top_context, other_context;
static long words[4];

#ifdef __x86_64__
#define SWITCH                                                                  \
	"push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n\t"  \
	"mov %rsp, (%rdi)\n\t"                                                  \
	"mov %rsi, %rsp\n\t"                                                    \
	"pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n\t"        \
	"ret\n\t"
#define REGISTERS 6
#else
#define SWITCH                                                    \
	"mov 4(%esp), %eax; mov 8(%esp), %edx\n\t"                \
	"push %ebp; push %ebx; push %esi; push %edi\n\t"          \
	"mov %esp, (%eax)\n\t"                                    \
	"mov %edx, %esp\n\t"                                      \
	"pop %edi; pop %esi; pop %ebx; pop %ebp\n\t"              \
	"ret\n\t"
#define REGISTERS 4
#endif

void switch_native(void **save, void *to);
__asm__(".pushsection .text\n"
	".globl switch_native\n"
	".type switch_native, @function\n"
	"switch_native:\n\t" SWITCH ".popsection");

__attribute__((naked, noinline)) static void switch_naked(void **save, void *to)
{
	__asm__(SWITCH);
}

__attribute__((always_inline)) static inline void switch_in_place(void **save, void *to)
{
#ifdef __x86_64__
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\t"
			 "push %%rbp\n\t"
			 "push %%rbx\n\t"
			 "lea 1f(%%rip), %%rax\n\t"
			 "push %%rax\n\t"
			 "mov %%rsp, (%0)\n\t"
			 "mov %1, %%rsp\n\t"
			 "ret\n"
			 "1:\n\t"
			 "pop %%rbx\n\t"
			 "pop %%rbp\n\t"
			 "lea 128(%%rsp), %%rsp"
			 : "+D"(save), "+S"(to)
			 :
			 : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
			 "r15", "memory", "cc");
#else
	__asm__ volatile("push %%ebp\n\t"
			 "push %%ebx\n\t"
			 "push $1f\n\t"
			 "mov %%esp, (%0)\n\t"
			 "mov %1, %%esp\n\t"
			 "ret\n"
			 "1:\n\t"
			 "pop %%ebx\n\t"
			 "pop %%ebp"
			 : "+D"(save), "+S"(to)
			 :
			 : "eax", "ecx", "edx", "memory", "cc");
#endif
}

#define TURNS(name, i, go)                   \
	static void name(void)               \
	{                                    \
		for (;;) {                   \
			words[i] = 1;        \
			go;                  \
			words[i] = 2;        \
			go;                  \
		}                            \
	}

TURNS(turn_native, 0, switch_native(&other, top))
TURNS(turn_naked, 1, switch_naked(&other, top))
TURNS(turn_in_place, 2, switch_in_place(&other, top))
TURNS(turn_context, 3, swapcontext(&other_context, &top_context))

/* A stack whose first frame begins with `run`, below `words` registers. */
static void *new_stack(int i, void (*run)(void), int registers)
{
	void **sp = (void **)(stacks[i] + STACK - 64);

	*--sp = 0;
	*--sp = (void *)run;
	return sp - registers;
}

static void go(int i)
{
	switch (i) {
	case 0:
		switch_native(&top, other);
		break;
	case 1:
		switch_naked(&top, other);
		break;
	case 2:
		switch_in_place(&top, other);
		break;
	default:
		swapcontext(&top_context, &other_context);
	}
}

static void begin(int i)
{
	void (*const run[])(void) = { turn_native, turn_naked, turn_in_place };

	if (i < 3) {
		other = new_stack(i, run[i], i < 2 ? REGISTERS : 0);
	} else {
		CHECK(!getcontext(&other_context));
		other_context.words[2] = (uintptr_t)stacks[i]; /* uc_stack */
		other_context.words[4] = STACK;
		makecontext(&other_context, turn_context, 0);
	}
	go(i);
}

int main(int argc, char **argv)
{
	uint64_t id;
	cairn_t *c;

	CHECK(argc == 2);
	c = test_open_built(argv[1]);
	for (int i = 0; i < 4; i++) {
		begin(i);
		CHECK(words[i] == 1);
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
		go(i);
		CHECK(words[i] == 2);
		CHECK_OK(cairn_rewind(c, id));
		if (words[i] != 1)
			test_fail("way %d: %ld", i, words[i]);
	}
	CHECK_OK(cairn_close(c));
	return 0;
}
