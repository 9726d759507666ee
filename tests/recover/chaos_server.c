/* SPDX-License-Identifier: MIT */
/*
 * chaos_server MODE FIGURES CRASHES: a server that crashes at random instants, in a signal handler
 * that a timer brings in the midst of whatever it does, and moves its data in one of many ways:
 *
 *	stream   read in portions, writev            nested    the same, in edge-triggered sets in a set
 *	peek     look ahead, then wait for all       pass      on connections that were passed to it
 *	splice   through a pipe, unseen              sendfile  parts of a file behind each answer
 *	udp      many datagrams with control data    clone     stream, beside a thread by raw clone(2)
 *
 * A frame of a stream is its length (4 bytes) and that many bytes; it is answered with its number
 * on this connection (8 bytes), which only memory knows, and the same bytes. FIGURES is a file that
 * both sides map, which no restore turns back. Each crash is preceded by a byte from a connection
 * that is there to be the suspect, so that nobody else is disconnected.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>
#include "../lib/tcp_pair.h"

#define CONNECTIONS 64
#define FRAME_MAX   32768
#define DECOYS      400

/* Memory that a restore leaves alone; test_chaos.py reads it. */
struct figures {
	volatile uint32_t crashes, skip, helper, done, armed;
};

static struct figures *figures;
static uint32_t crashes_wanted;
static const char *mode;
static int decoys[DECOYS][2], listener, outer, sets[2], through[2], file;

static struct connection {
	uint64_t count;
	uint32_t used;
	char bytes[FRAME_MAX + 4];
} connections[CONNECTIONS];

static void die(const char *what)
{
	perror(what);
	_exit(3);
}

/* The signal is raised again after the recovery: that time it is nothing. */
static void on_alarm(int sig)
{
	uint32_t n = figures->crashes;
	char c;

	(void)sig;
	if (figures->skip || n >= crashes_wanted || n >= DECOYS) {
		figures->skip = 0;
		return;
	}
	figures->crashes = n + 1;
	figures->skip = 1;
	/* A checkpoint may be taken in here: what it comes back to is over. */
	figures->armed = 1;
	if (read(decoys[n][0], &c, 1) == 1 && figures->armed) {
		figures->armed = 0;
		*(volatile int *)16 = 0;
	}
}

static void make_decoys(void)
{
	for (int i = 0; i < DECOYS; i++)
		if (tcp_pair(decoys[i]) < 0 || fcntl(decoys[i][0], F_SETFL, O_NONBLOCK) < 0 ||
			write(decoys[i][1], "x", 1) != 1)
			die("decoy");
}

/* Less than a hundred a second, and never in step with what it interrupts. */
static void start_crashing(void)
{
	const struct itimerval every = {{0, 14983}, {0, 14983}};
	struct sigaction sa = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};

	if (sigaction(SIGALRM, &sa, NULL) < 0 || setitimer(ITIMER_REAL, &every, NULL) < 0)
		die("setitimer");
}

/* ---- streams --------------------------------------------------------------------------------- */

static void send_all(int fd, struct iovec *iov, int count)
{
	while (count) {
		ssize_t n = writev(fd, iov, count);

		if (n < 0 && errno == EAGAIN)
			poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
		else if (n < 0 && errno != EINTR)
			return;
		for (; n > 0 && count && (size_t)n >= iov->iov_len; count--)
			n -= (ssize_t)iov++->iov_len;
		if (n > 0) {
			iov->iov_base = (char *)iov->iov_base + n;
			iov->iov_len -= (size_t)n;
		}
	}
}

/* Behind the answer: so many bytes of the file, from there on. */
static void send_part(int fd, const char *request)
{
	uint32_t from, size;
	off_t at;

	memcpy(&from, request, 4);
	memcpy(&size, request + 4, 4);
	for (at = from; at < (off_t)from + size;) {
		ssize_t n = sendfile(fd, file, &at, from + size - (size_t)at);

		if (n < 0 && errno == EAGAIN)
			poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
		else if (n <= 0 && errno != EINTR)
			return;
	}
}

static void answer(int fd, struct connection *c, uint32_t len)
{
	uint64_t number = c->count++;
	struct iovec iov[2] = {{&number, 8}, {c->bytes + 4, len}};

	send_all(fd, iov, 2);
	if (!strcmp(mode, "sendfile") && len >= 8)
		send_part(fd, c->bytes + 4);
}

static void close_connection(int fd)
{
	connections[fd % CONNECTIONS].used = 0;
	connections[fd % CONNECTIONS].count = 0;
	close(fd);
}

static void serve_stream(int fd)
{
	struct connection *c = &connections[fd % CONNECTIONS];
	uint32_t len;
	ssize_t n;

	while ((n = read(fd, c->bytes + c->used, sizeof(c->bytes) - c->used)) > 0) {
		c->used += (uint32_t)n;
		while (c->used >= 4 && (memcpy(&len, c->bytes, 4), c->used >= 4 + len)) {
			answer(fd, c, len);
			c->used -= 4 + len;
			memmove(c->bytes, c->bytes + 4 + len, c->used);
		}
	}
	if (n == 0 || errno != EAGAIN)
		close_connection(fd);
}

/* The length is looked at first; once all is there it is taken at once. */
static void serve_peek(int fd)
{
	struct connection *c = &connections[fd % CONNECTIONS];
	uint32_t len;
	ssize_t n;
	int there;

	while ((n = recv(fd, &len, 4, MSG_PEEK)) == 4) {
		if (ioctl(fd, FIONREAD, &there) < 0 || (uint32_t)there < 4 + len)
			return;
		if (recv(fd, c->bytes, 4 + len, MSG_WAITALL) != 4 + (ssize_t)len)
			die("recv");
		answer(fd, c, len);
	}
	if (n == 0 || (n < 0 && errno != EAGAIN))
		close_connection(fd);
}

static void serve_splice(int fd)
{
	ssize_t n, m;

	while ((n = splice(fd, NULL, through[1], NULL, 16384, SPLICE_F_NONBLOCK)) > 0) {
		while (n > 0) {
			m = splice(through[0], NULL, fd, NULL, (size_t)n, SPLICE_F_NONBLOCK);
			if (m < 0 && errno == EAGAIN)
				poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
			else if (m <= 0 && errno != EINTR)
				return;
			n -= m > 0 ? m : 0;
		}
	}
	if (n == 0 || errno != EAGAIN)
		close_connection(fd);
}

/* ---- datagrams ------------------------------------------------------------------------------- */

#define BATCH 8

static void serve_udp(int fd)
{
	static struct {
		char bytes[2048], control[256];
		struct sockaddr_in from;
	} slots[BATCH];
	struct mmsghdr m[BATCH];
	struct iovec iov[BATCH];
	int n;

	for (int i = 0; i < BATCH; i++) {
		iov[i] = (struct iovec){slots[i].bytes, sizeof(slots[i].bytes)};
		m[i].msg_hdr = (struct msghdr){&slots[i].from, sizeof(slots[i].from), &iov[i], 1,
			slots[i].control, sizeof(slots[i].control), 0};
	}
	n = recvmmsg(fd, m, BATCH, MSG_DONTWAIT, NULL);
	for (int i = 0; i < n; i++) {
		const struct cmsghdr *c = CMSG_FIRSTHDR(&m[i].msg_hdr);

		if (!c || c->cmsg_type != SCM_TIMESTAMP)
			die("no time");
		sendto(fd, slots[i].bytes, m[i].msg_len, 0, (struct sockaddr *)&slots[i].from,
			sizeof(slots[i].from));
	}
}

/* ---- connections ----------------------------------------------------------------------------- */

static void watch(int fd)
{
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};

	if (!strcmp(mode, "nested"))
		e.events |= EPOLLET;
	if (epoll_ctl(sets[fd % 2], EPOLL_CTL_ADD, fd, &e) < 0)
		die("epoll_ctl");
}

/* A descriptor comes with each byte. */
static void serve_passing(int fd)
{
	char b, control[CMSG_SPACE(sizeof(int))];
	struct iovec iov = {&b, 1};
	struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
		.msg_controllen = sizeof(control)};
	struct cmsghdr *c;
	int passed;

	while (msg.msg_controllen = sizeof(control), recvmsg(fd, &msg, 0) == 1) {
		c = CMSG_FIRSTHDR(&msg);
		if (!c || c->cmsg_type != SCM_RIGHTS)
			die("nothing was passed");
		memcpy(&passed, CMSG_DATA(c), sizeof(int));
		fcntl(passed, F_SETFL, O_NONBLOCK);
		connections[passed % CONNECTIONS].count = 0;
		watch(passed);
	}
}

static void serve(int fd)
{
	static int passing = -1;
	int n;

	if (fd == listener && !strcmp(mode, "udp"))
		return serve_udp(fd);
	if (fd == listener) {
		while ((n = accept4(fd, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
			if (!strcmp(mode, "pass") && passing < 0)
				passing = n;
			watch(n);
		}
		return;
	}
	if (fd == passing)
		serve_passing(fd);
	else if (!strcmp(mode, "peek"))
		serve_peek(fd);
	else if (!strcmp(mode, "splice"))
		serve_splice(fd);
	else
		serve_stream(fd);
}

static void begin(void)
{
	struct sockaddr_in v4 = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {0}};
	struct sockaddr_un un = {.sun_family = AF_UNIX};
	bool udp = !strcmp(mode, "udp"), local = !strcmp(mode, "pass");
	struct sockaddr *a = local ? (void *)&un : (void *)&v4;
	socklen_t len = local ? 2 + 16 : sizeof(v4);
	int on = 1;

	sprintf(un.sun_path + 1, "chaos%010d", getpid());
	listener = socket(a->sa_family, (udp ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK, 0);
	if (bind(listener, a, len) || (!udp && listen(listener, 64)) ||
		getsockname(listener, a, &len))
		die("bind");
	setsockopt(listener, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof(on));
	if (local)
		printf("%s\n", un.sun_path + 1);
	else
		printf("%d\n", ntohs(v4.sin_port));
	fflush(stdout);
}

/* ---- a thread by raw clone ------------------------------------------------------------------- */

/* No libc in it: it has no thread area of its own. It sleeps until it is wanted, and says so. */
static int helper(void *unused)
{
	(void)unused;
	for (;;) {
		while (figures->helper != 1)
			syscall(SYS_futex, &figures->helper, FUTEX_WAIT, 0, NULL, NULL, 0);
		figures->helper = 2;
		syscall(SYS_futex, &figures->helper, FUTEX_WAKE, 1, NULL, NULL, 0);
		while (figures->helper == 2)
			syscall(SYS_futex, &figures->helper, FUTEX_WAIT, 2, NULL, NULL, 0);
	}
	return 0;
}

static bool sleeps(int tid)
{
	char path[64], text[256] = "";
	int fd;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	fd = open(path, O_RDONLY);
	if (fd < 0 || read(fd, text, sizeof(text) - 1) < 0)
		die(path);
	close(fd);
	return strstr(text, ") S ");
}

/*
 * On pages that nobody else writes, asleep before anything else is done, and never the one that the
 * timer's signal finds.
 */
static void start_helper(void)
{
	char *stack = mmap(NULL, 256 << 10, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sigset_t alarm;
	int tid;

	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarm, NULL);
	if (stack == MAP_FAILED || mprotect(stack + (64 << 10), 128 << 10, PROT_READ | PROT_WRITE))
		die("mmap");
	tid = clone(helper, stack + (160 << 10), CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
			CLONE_THREAD | CLONE_SYSVSEM, NULL);
	if (tid < 0)
		die("clone");
	sigprocmask(SIG_UNBLOCK, &alarm, NULL);
	while (!sleeps(tid))
		usleep(1000);
}

/* The crashes are over: is it still there, where it slept? */
static void wake_helper(void)
{
	figures->helper = 1;
	syscall(SYS_futex, &figures->helper, FUTEX_WAKE, 1, NULL, NULL, 0);
	while (figures->helper == 1)
		syscall(SYS_futex, &figures->helper, FUTEX_WAIT, 1, NULL, NULL, 0);
	figures->done = 1;
}

int main(int argc, char **argv)
{
	struct epoll_event events[16], e = {.events = EPOLLIN};
	int fd = argc > 3 ? open(argv[2], O_RDWR) : -1, n, m;
	bool crashing = false;

	if (fd < 0)
		return 2;
	mode = argv[1];
	crashes_wanted = (uint32_t)atoi(argv[3]);
	figures = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	outer = epoll_create1(0);
	for (int i = 0; i < 2; i++) {
		sets[i] = epoll_create1(0);
		e.data.fd = sets[i];
		if (epoll_ctl(outer, EPOLL_CTL_ADD, sets[i], &e) < 0)
			die("epoll_ctl");
	}
	file = memfd_create("file", 0);
	for (uint32_t i = 0; i < 65536; i++)
		if (write(file, &i, 4) != 4)
			die("write");
	if (figures == MAP_FAILED || pipe2(through, O_NONBLOCK) < 0)
		die("pipe");
	if (!strcmp(mode, "clone"))
		start_helper();
	begin();
	watch(listener);
	make_decoys();
	for (;;) {
		n = epoll_wait(outer, events, 2, -1);
		if (!crashing)
			start_crashing(); /* there is a checkpoint now */
		crashing = true;
		for (int i = 0; i < n; i++) {
			m = epoll_wait(events[i].data.fd, events + 2, 14, 0);
			for (int k = 0; k < m; k++)
				serve(events[2 + k].data.fd);
		}
		if (!strcmp(mode, "clone") && figures->crashes >= crashes_wanted && !figures->done)
			wake_helper();
	}
}
