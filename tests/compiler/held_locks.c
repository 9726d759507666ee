/* SPDX-License-Identifier: MIT */
/*
 * A signal handler leaves, by a restore, what it has interrupted at any instruction of malloc,
 * free, mmap and munmap; and a process forks while another thread is in one. Nobody waits
 * afterwards for a lock that nobody has. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>
#include "../lib/harness.h"
#include "../lib/single_step.h"

#define PAGE  4096ul
#define STEP  7 /* of the instructions each so-many-th */
#define FORKS 100

void *__libc_malloc(size_t size); /* as a function of libc would return one */

/* Survives restores. */
static struct shared {
	cairn_t *session;
	volatile long n, steps; /* at step n a signal is sent, whose handler restores */
	uint64_t id;
	_Atomic bool over;
} *shared;

static void *volatile block;

UNHOOKED static void trapped(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	if (!stepped_to(&shared->steps, shared->n, context))
		return;
	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR1); /* may have to wait */
}

static void restore(int sig)
{
	(void)sig;
	CHECK_OK(cairn_restore(shared->session, shared->id)); /* does not return */
}

static void own_block(void)
{
	void *volatile p = malloc(100);

	free(p);
}

static void libc_block(void)
{
	free(block);
	own_block();
}

static void mapping(void)
{
	void *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(at != MAP_FAILED);
	*(volatile char *)at = 1;
	CHECK(!munmap(at, PAGE));
}

static void step_through(void (*work)(void))
{
	sigset_t none;

	block = __libc_malloc(100);
	shared->n = -STEP;
	CHECK(cairn_checkpoint(shared->session, &shared->id) >= 0);
	CHECK(!sigemptyset(&none) && !pthread_sigmask(SIG_SETMASK, &none, NULL));
	shared->n += STEP;
	shared->steps = 0;
	alarm(100);
	single_step(true);
	work();
	single_step(false);
	CHECK(shared->n > 100 && shared->n >= shared->steps);
	alarm(100);
	for (int i = 0; i < 3; i++) { /* what was put off is done */
		uint64_t id;

		CHECK_RC(cairn_checkpoint(shared->session, &id), CAIRN_TAKEN);
		own_block();
		mapping();
	}
}

static void *sleep_on(void *unused)
{
	return (void *)(intptr_t)pause();
}

static void *free_always(void *unused)
{
	while (!shared->over)
		free(__libc_malloc(10));
	return unused;
}

/* Locks count from the second thread on. */
static void child(void)
{
	pthread_t thread;

	alarm(20);
	CHECK(!pthread_create(&thread, NULL, sleep_on, NULL));
	own_block();
	mapping();
	_exit(0);
}

static void fork_beside(void)
{
	pthread_t thread;

	CHECK(!pthread_create(&thread, NULL, free_always, NULL));
	for (int i = 0; i < FORKS; i++) {
		pid_t pid = fork();
		int status;

		if (!pid)
			child();
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && !status);
	}
	shared->over = true;
	CHECK(!pthread_join(thread, NULL));
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = trapped, .sa_flags = SA_SIGINFO };
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	sigset_t all, mask;
	pthread_t thread;

	CHECK(argc == 2);
	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED && !sigaction(SIGTRAP, &action, NULL));
	CHECK(signal(SIGUSR1, restore) != SIG_ERR);
	CHECK(!sigfillset(&all) && !pthread_sigmask(SIG_SETMASK, &all, &mask));
	CHECK(!pthread_create(&thread, NULL, sleep_on, NULL));
	CHECK(!pthread_sigmask(SIG_SETMASK, &mask, NULL));
	own_block(); /* each heap that is opened in vain would take its address space */
	o.tracker = argv[1];
	o.threads = CAIRN_THREADS_ONE;
	CHECK_OK(cairn_open(&shared->session, &o));
	CHECK_OK(cairn_area_exclude(shared->session, shared, PAGE));
	step_through(own_block);
	step_through(libc_block);
	step_through(mapping);
	fork_beside();
	CHECK_OK(cairn_close(shared->session));
	return 0;
}
