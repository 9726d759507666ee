/* SPDX-License-Identifier: MIT */
/*
 * fault_handover CASE TRACKER: first stores of several threads at once, while what serves them is
 * given back: by the first fault of a forked child, by a child that opens a session of its own, by
 * cairn_close. Nobody dies of it, every store is there, and the program's own handlers are its own.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "../lib/harness.h"

#define PAGE     4096ul
#define THREADS  8
#define EACH     8 /* pages of a thread */
#define PAGES    (THREADS * EACH)
#define CHILDREN 60
#define CLOSES   40

static const char *tracker;
static volatile uint8_t *area;
static atomic_int go, stop, handled;
static uint8_t *_Atomic closed; /* a page of the program's own, which it has closed */

/* The program's own, from before the session: it opens what the program has closed. */
static void on_own_fault(int sig, siginfo_t *info, void *uc)
{
	(void)uc;
	if (info->si_code != SEGV_ACCERR || (uint8_t *)info->si_addr != closed)
		test_fail("signal %d, code %d, at %p given to the program", sig, info->si_code,
			info->si_addr);
	CHECK(mprotect(closed, PAGE, PROT_READ | PROT_WRITE) == 0);
	handled++;
}

static void handle_own_faults(void)
{
	struct sigaction act = { .sa_sigaction = on_own_fault, .sa_flags = SA_SIGINFO };

	CHECK(sigaction(SIGSEGV, &act, NULL) == 0 && sigaction(SIGBUS, &act, NULL) == 0);
}

/* A crash of the program's own still goes to its handler, with the truth. */
static void check_own_fault(void)
{
	int before = handled;
	uint8_t *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(page != MAP_FAILED);
	closed = page;
	*(volatile uint8_t *)page = 1;
	CHECK(handled == before + 1);
	munmap(page, PAGE);
}

/* All pages of all threads lie side by side: neighbours are written at once. */
static void *store_once(void *arg)
{
	size_t self = (size_t)arg;

	while (!go)
		;
	for (size_t i = 0; i < EACH; i++)
		area[(i * THREADS + self) * PAGE + self] += 1;
	return NULL;
}

static void *store_on(void *arg)
{
	size_t self = (size_t)arg, i = 0;

	for (; !stop; i++)
		area[((i % EACH) * THREADS + self) * PAGE + 8 * self] += 1;
	return (void *)i;
}

static void start(pthread_t id[THREADS], size_t count, void *(*fn)(void *))
{
	for (size_t i = 0; i < count; i++)
		CHECK(pthread_create(&id[i], NULL, fn, (void *)i) == 0);
}

static cairn_t *open_session(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;
	uint64_t id;

	o.tracker = tracker;
	o.surface = "none";
	o.strategy = "none";
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, (void *)area, PAGES * PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	return c;
}

/* Of a file: under uffd, too, it is mprotect that closes it, which a child inherits. */
static void map_area(void)
{
	int fd = test_file();

	CHECK(ftruncate(fd, PAGES * PAGE) == 0);
	area = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	CHECK(area != MAP_FAILED);
	close(fd);
}

static void check_child(pid_t child)
{
	int status = 0;

	CHECK(child > 0 && waitpid(child, &status, 0) == child);
	if (status)
		test_fail("the child died: status %x", status);
}

static _Noreturn void store_in_child(size_t threads, bool opens)
{
	pthread_t id[THREADS];
	pid_t child;

	start(id, threads, store_once);
	go = 1;
	if (opens)
		open_session();
	for (size_t i = 0; i < threads; i++)
		pthread_join(id[i], NULL);
	for (size_t i = 0; i < PAGES; i++)
		CHECK(area[i * PAGE + i % THREADS] == (i % THREADS < threads));
	check_own_fault();
	child = fork(); /* a grandchild inherits nothing closed, and no session */
	if (!child) {
		area[0] = 1;
		check_own_fault();
		_exit(0);
	}
	check_child(child);
	_exit(0);
}

static void children(bool open)
{
	cairn_t *c;

	handle_own_faults();
	map_area();
	c = open_session();
	for (int i = 0; i < CHILDREN; i++) {
		pid_t child = fork();

		if (!child)
			store_in_child(2 + i % (THREADS - 1), open);
		check_child(child);
	}
	CHECK_OK(cairn_close(c));
	check_own_fault();
}

static void child_faults(void)
{
	children(false);
}

static void child_opens(void)
{
	children(true);
}

/* Sessions come and go while other threads store. */
static void close_faults(void)
{
	pthread_t id[THREADS];

	handle_own_faults();
	map_area();
	start(id, 4, store_on);
	for (int i = 0; i < CLOSES; i++) {
		CHECK_OK(cairn_close(open_session()));
		check_own_fault();
	}
	stop = 1;
	for (size_t i = 0; i < 4; i++) {
		uint64_t sum = 0, want;
		void *count;

		pthread_join(id[i], &count);
		for (size_t k = 0; k < EACH; k++)
			sum += area[(k * THREADS + i) * PAGE + 8 * i];
		want = 0;
		for (size_t k = 0; k < EACH; k++) /* bytes wrap */
			want += (uint8_t)(((size_t)count + EACH - 1 - k) / EACH);
		CHECK_U64(sum, want);
	}
	check_own_fault();
}

/* One thread alone: nothing of the session's is left behind. */
static void given_back(void)
{
	struct sigaction now;
	cairn_t *c;
	pid_t child;

	handle_own_faults();
	map_area();
	c = open_session();
	child = fork();
	if (!child) {
		area[0] = 1;
		CHECK(sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_sigaction == on_own_fault);
		check_own_fault();
		_exit(0);
	}
	check_child(child);
	CHECK_OK(cairn_close(c));
	CHECK(sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_sigaction == on_own_fault);
	CHECK(sigaction(SIGBUS, NULL, &now) == 0 && now.sa_sigaction == on_own_fault);
}

static const struct test_case cases[] = {
	{ "child_faults", child_faults },
	{ "child_opens", child_opens },
	{ "close_faults", close_faults },
	{ "given_back", given_back },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	alarm(100);
	tracker = argc > 2 ? argv[2] : "mprotect";
	return test_run_case(cases, argc > 1 ? argv[1] : NULL);
}
