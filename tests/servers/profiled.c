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
 *	passing  a loop of turns(), each of which starts a thread and waits for its end
 *	sends    receives and sends datagrams in a loop of answers(), without a function in between,
 *	         beside a thread that only sleeps in a loop
 *	accepts  takes a client in each turn, by take_client(), from a listener that does not wait;
 *	         polls it now and then
 *	helpers  a loop of forks(), whose children each read a file in a few turns of read_parts()
 *	places   a start-up that waits in a hundred places, each twice; then a loop of work_in_two()
 *	writes   a long write to a pipe that is read late; says `full` or `short`
 *	becomes  a thread in a loop, beside which the first one executes `retry`
 *	counts   computes; at SIGTERM it says how many turns there were
 *	daemon   the same, in a child, after its parent has ended
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
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

static void *one_nap(void *arg)
{
	(void)arg;
	nap(2);
	return NULL;
}

static OWN void turns(void)
{
	pthread_t t;

	for (;;)
		if (pthread_create(&t, NULL, one_nap, NULL) == 0)
			pthread_join(t, NULL);
}

static void *sleeps(void *arg)
{
	for (;;)
		usleep(5000);
	return arg;
}

static OWN void answers(void)
{
	struct sockaddr_in me = { .sin_family = AF_INET };
	socklen_t len = sizeof(me);
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	char text[64] = "x";
	pthread_t t;

	me.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (pthread_create(&t, NULL, sleeps, NULL) != 0 ||
		bind(fd, (struct sockaddr *)&me, len) < 0 ||
		getsockname(fd, (struct sockaddr *)&me, &len) < 0)
		return;
	for (;;) {
		sendto(fd, text, 1, 0, (struct sockaddr *)&me, len);
		recvfrom(fd, text, sizeof(text), 0, NULL, NULL);
		usleep(1000);
	}
}

static OWN void take_client(int listener, const struct sockaddr_un *me, socklen_t len, bool polls)
{
	struct pollfd p = { .fd = listener, .events = POLLIN };
	int client = socket(AF_UNIX, SOCK_STREAM, 0), fd;

	if (polls)
		poll(&p, 1, 20);
	if (connect(client, (const struct sockaddr *)me, len) < 0)
		exit(1);
	fd = accept(listener, NULL, NULL);
	usleep(500);
	sum += (unsigned long)fd;
	close(fd);
	close(client);
}

static OWN void accepts(void)
{
	struct sockaddr_un me = { .sun_family = AF_UNIX };
	socklen_t len = sizeof(me.sun_family); /* the kernel chooses a name */
	int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);

	if (bind(listener, (struct sockaddr *)&me, len) < 0 || listen(listener, 4) < 0)
		return;
	len = sizeof(me);
	if (getsockname(listener, (struct sockaddr *)&me, &len) < 0)
		return;
	for (unsigned turn = 0;; turn++)
		take_client(listener, &me, len, turn % 100 == 0);
}

static OWN void read_part(int fd)
{
	char part[64];

	sum += (unsigned long)read(fd, part, sizeof(part));
}

static OWN void read_parts(int fd)
{
	for (int i = 0; i < 6; i++)
		read_part(fd);
	_exit(sum == 0);
}

static OWN void forks(void)
{
	int fd = open("/dev/zero", O_RDONLY);

	for (;;) {
		if (fork() == 0)
			read_parts(fd);
		wait(NULL);
		nap(5);
	}
}

/* Another stack at each depth. */
static OWN void down(int depth, int ms)
{
	if (depth)
		down(depth - 1, ms);
	else
		nap(ms);
	sum++;
}

static OWN void start_in_places(void)
{
	for (int depth = 0; depth < 50; depth++)
		for (int i = 0; i < 2; i++)
			down(depth, 3);
	for (int depth = 0; depth < 50; depth++) {
		down(depth, 3);
		down(depth, 3);
	}
}

static OWN void work_in_two(void)
{
	for (;;) {
		down(1, 5);
		down(2, 5);
	}
}

static OWN int writes(void)
{
	size_t size = 1 << 20;
	char *text = calloc(1, size);
	int fd[2];

	if (!text || pipe(fd) < 0)
		return 1;
	if (fork() == 0) {
		usleep(600000);
		while (read(fd[0], text, size) > 0)
			;
		_exit(0);
	}
	fprintf(stderr, write(fd[1], text, size) == (ssize_t)size ? "full\n" : "short\n");
	return 0;
}

static volatile unsigned long turn_count;

static void say_count(int sig)
{
	(void)sig;
	dprintf(STDERR_FILENO, "turns %lu\n", turn_count);
	_exit(0);
}

static OWN void counts(void)
{
	signal(SIGTERM, say_count);
	for (;; turn_count++)
		step(turn_count);
}

static OWN int becomes(char *program)
{
	char retry[] = "retry", *argv[] = { program, retry, NULL };
	pthread_t t;

	if (pthread_create(&t, NULL, thread, NULL) != 0)
		return 1;
	usleep(300000);
	execv(program, argv);
	return 1;
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
	} else if (!strcmp(what, "passing")) {
		turns();
	} else if (!strcmp(what, "sends")) {
		answers();
	} else if (!strcmp(what, "accepts")) {
		accepts();
	} else if (!strcmp(what, "helpers")) {
		forks();
	} else if (!strcmp(what, "places")) {
		start_in_places();
		work_in_two();
	} else if (!strcmp(what, "writes")) {
		return writes();
	} else if (!strcmp(what, "becomes")) {
		return becomes(argv[0]);
	} else if (!strcmp(what, "counts")) {
		counts();
	} else if (!strcmp(what, "daemon")) {
		if (fork() == 0)
			counts();
	} else {
		return 2;
	}
	return 0;
}
