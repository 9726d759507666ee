/* SPDX-License-Identifier: MIT */
/*
 * Loops that `cairn profile` must find, and others that it must not fall for. argv[1]:
 *
 *	serve    waits in read, in a loop of serve(), through next_request(); before that a loop of
 *	         start_up() that waits as well, but ends
 *	crunch   computes in a loop of crunch(), by calls of step()
 *	retry    waits in poll in a loop of retry_poll(), which is called in the loop of work()
 *	family   two kinds of children beside a parent that waits for them
 *	threads  a thread in a loop of poll beside a first thread that only waits for it
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OWN __attribute__((noinline, noclone))

static volatile unsigned long sum;

static OWN void nap(int ms)
{
	poll(NULL, 0, ms);
	sum++;
}

static OWN void start_up(void)
{
	for (int i = 0; i < 60; i++)
		nap(5);
	sum++;
}

static OWN int next_request(char *out, size_t size)
{
	ssize_t n = read(STDIN_FILENO, out, size);

	sum += (unsigned long)n;
	return n > 0;
}

static OWN void serve(void)
{
	char text[64];

	while (next_request(text, sizeof(text)))
		sum++;
	sum++;
}

static OWN void step(unsigned long i)
{
	char text[64];

	for (int n = 0; n < 300; n++)
		sum += (unsigned long)snprintf(text, sizeof(text), "%lu", i * sum);
}

static OWN void crunch(void)
{
	for (unsigned long i = 0;; i++)
		step(i);
}

static OWN int retry_poll(void)
{
	int n = 0;

	for (int i = 0; i < 3; i++)
		n += poll(NULL, 0, 2);
	sum++;
	return n;
}

static OWN void work(void)
{
	for (;;)
		sum += (unsigned long)retry_poll() + 1;
}

static OWN void child(void (*life)(void))
{
	pid_t pid = fork();

	if (pid == 0) {
		life();
		_exit(0);
	}
	sum++;
}

static OWN void slow(void)
{
	for (;;)
		nap(10);
}

static OWN void family(void)
{
	for (int i = 0; i < 3; i++)
		child(work);
	child(slow);
	while (wait(NULL) > 0 || errno == EINTR)
		sum++;
}

static void *thread(void *arg)
{
	(void)arg;
	work();
	return NULL;
}

static OWN void threads(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, thread, NULL) == 0)
		pthread_join(t, NULL);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";

	if (!strcmp(what, "serve")) {
		start_up();
		serve();
	} else if (!strcmp(what, "crunch")) {
		crunch();
	} else if (!strcmp(what, "retry")) {
		work();
	} else if (!strcmp(what, "family")) {
		family();
	} else if (!strcmp(what, "threads")) {
		threads();
	} else {
		return 2;
	}
	return 0;
}
