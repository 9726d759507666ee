/* SPDX-License-Identifier: MIT */
/*
 * A checkpoint that a function of the program takes while libc, or a library, calls it: what the
 * caller has saved before does not count as saved behind. WHICH says who calls. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <printf.h>
#include <pthread.h>
#include <search.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cairn/cairn.h"
#include "../lib/harness.h"

static volatile int *turns; /* shared: not turned back */
static cairn_t *session;
static uint64_t id;
static long word = 5;

__attribute__((noinline)) static void take(void)
{
	CHECK(cairn_checkpoint(session, &id) == (*turns ? CAIRN_RESTORED : CAIRN_TAKEN));
	CHECK(word == 1);
}

#if WHICH == 0 /* a stream, by what writes for it */
static ssize_t put(void *cookie, const char *text, size_t len)
{
	(void)cookie, (void)text;
	take();
	return (ssize_t)len;
}

static FILE *stream;

static void prepare(void)
{
	stream = fopencookie(NULL, "w", (cookie_io_functions_t){ .write = put });
	CHECK(stream && !setvbuf(stream, NULL, _IONBF, 0));
}

static void call(void)
{
	word = 1;
	CHECK(fputs("x", stream) >= 0);
	word = 2;
}
#elif WHICH == 1 /* printf, by a conversion of the program's own */
static int print(FILE *to, const struct printf_info *how, const void *const *given)
{
	(void)to, (void)how, (void)given;
	take();
	return 0;
}

static int count(const struct printf_info *how, size_t n, int *types, int *sizes)
{
	(void)how, (void)n, (void)types, (void)sizes;
	return 0;
}

static void prepare(void)
{
	CHECK(!register_printf_specifier('W', print, count));
}

static void call(void)
{
	const char *volatile format = "%W"; /* which no compiler knows */
	char to[8];

	word = 1;
	CHECK(!snprintf(to, sizeof(to), format, 1));
	word = 2;
}
#elif WHICH == 2 /* fork, by a handler */
static void prepare(void)
{
	CHECK(!pthread_atfork(take, NULL, NULL));
}

static void call(void)
{
	word = 1;
	pid_t child = fork();
	if (!child)
		_exit(0);
	word = 2;
	CHECK(waitpid(child, NULL, 0) == child);
}
#elif WHICH == 3 /* libc, through a pointer, with fewer arguments than what it calls */
static int compare(const void *a, const void *b)
{
	return (a > b) - (a < b);
}

static void visit(const void *node, VISIT when, int depth)
{
	(void)node, (void)when, (void)depth;
	take();
}

static void (*volatile walk)(const void *, __action_fn_t) = twalk;
static void *tree;

static void prepare(void)
{
	CHECK(tsearch(&word, &tree, compare));
}

static void call(void)
{
	word = 1;
	walk(tree, visit);
	word = 2;
}
#elif WHICH == 4 /* a library, through a pointer that it has given out */
void (*library_asks(void (*f)(void *, int, long)))(void);

__asm__(".local library_f\n"
	".comm library_f, 8, 8\n"
	".globl library_asks\n"
	"library_asks: movq %rdi, library_f(%rip)\n"
	"	leaq library_run(%rip), %rax\n"
	"	ret\n"
	"library_run: subq $8, %rsp\n"
	"	callq *library_f(%rip)\n"
	"	addq $8, %rsp\n"
	"	ret\n");

static void (*volatile run)(void);

static void asked(void *a, int b, long c)
{
	(void)a, (void)b, (void)c;
	take();
}

static void prepare(void)
{
	run = library_asks(asked);
}

static void call(void)
{
	word = 1;
	run();
	word = 2;
}
#elif WHICH == 5 /* nobody: a block that is not malloc's, and the word before it */
static struct {
	long word;
	char block[56];
} pool[2];
static volatile int used;

__attribute__((malloc, noinline)) static void *allocate(void)
{
	return pool[used++].block;
}

static void prepare(void)
{
	pool[0].word = 1;
}

static void call(void)
{
	word = 1;
	take();
	CHECK(pool[0].word == 1);
	volatile long *block = allocate();
	block[-1] = 2;
	block[0] = 3;
}
#endif

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	(void)argc;
	turns = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(turns != MAP_FAILED);
	o.tracker = argv[1];
	CHECK_OK(cairn_open(&session, &o));
	prepare();
	call();
	if (!(*turns)++) {
		(void)!cairn_restore(session, id);
		test_fail("cairn_restore came back");
	}
	return 0;
}
