/* SPDX-License-Identifier: MIT */
/*
 * A file that the program has closed is kept open until the next checkpoint. Whoever watches it is
 * told that it was closed in time all the same: before the program goes to sleep, before it reads
 * what it has been told itself, and not after it has begun to watch.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include "rows.h"

static int fd, watch, ends[2];
static pid_t child;

/* Opened before the checkpoint: else there would be nothing to be kept. */
static void setup_file(void)
{
	fd = open(letters(), O_WRONLY);
	watch = inotify_init1(IN_NONBLOCK);
	CHECK(fd >= 0 && watch >= 0);
}

static void setup_watched(void)
{
	setup_file();
	CHECK(inotify_add_watch(watch, letters(), IN_CLOSE) > 0);
}

static bool is_told(void)
{
	struct inotify_event event;
	ssize_t n = read(watch, &event, sizeof(event));

	CHECK(n == (ssize_t)sizeof(event) || (n == -1 && errno == EAGAIN));
	return n > 0 && (event.mask & IN_CLOSE_WRITE);
}

static void body_watch(bool again)
{
	CHECK(CALL(close, fd) == 0);
	outside->count++;
	CHECK(CALL(inotify_add_watch, watch, letters(), IN_CLOSE) > 0);
	crash_once();
	CHECK(!is_told());
	close(watch);
}

/* Told of it behind a call that may have slept? */
static void check_told(void)
{
	struct pollfd p = { .fd = watch, .events = POLLIN };

	CHECK(CALL(poll, &p, 1, 0) == 1);
	crash_once();
	CHECK(is_told() && !is_told());
	close(watch);
}

static void body_poll(bool again)
{
	struct pollfd p = { .fd = watch, .events = POLLIN };

	CHECK(CALL(close, fd) == 0);
	outside->count++;
	CHECK(CALL(poll, &p, 1, 10000) == 1);
	check_told();
}

static void body_sleep(bool again)
{
	const struct timespec time = { 0, 1000000 };

	CHECK(CALL(close, fd) == 0);
	outside->count++;
	CHECK(CALL(nanosleep, &time, NULL) == 0);
	check_told();
}

static void body_futex(bool again)
{
	const struct timespec time = { 0, 1000000 };
	int word = 0;

	CHECK(CALL(close, fd) == 0);
	outside->count++;
	CHECK(syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &time, NULL, 0) == -1);
	check_told();
}

static void setup_child(void)
{
	setup_watched();
	child = fork();
	if (!child)
		_exit(0);
	CHECK(child > 0);
}

static void body_child(bool again)
{
	CHECK(CALL(close, fd) == 0);
	outside->count++;
	CHECK(CALL(wait4, child, NULL, 0, NULL) == child);
	check_told();
}

static void setup_pipe(void)
{
	setup_watched();
	CHECK(pipe(ends) == 0 && close(ends[1]) == 0);
}

static void body_pipe(bool again)
{
	char c;

	CHECK(CALL(close, fd) == 0);
	outside->count++;
	CHECK(CALL(read, ends[0], &c, 1) == 0);
	check_told();
}

/* ---- asleep until a child, which watches the file, has been told ----------------------------- */

static int set;
static char place[80];

static int lock_of(int type, int n)
{
	struct flock lock = { .l_type = (short)type };

	return (int)CALL(fcntl, n, F_SETLKW, &lock);
}

/* What the parent waits for, and how the child ends that. */
struct sleep {
	void (*prepare)(void); /* before the fork */
	void (*hinder)(void);  /* in the child, before it watches; else NULL */
	void (*end)(void);     /* in the child, once it has been told */
};

/*
 * A child that is not told in time ends the sleep all the same, and says so: value[0] is what it
 * was told, value[1] that it is ready.
 */
static void setup_sleep(const struct sleep *s)
{
	struct pollfd p;

	setup_watched();
	strcpy(place, letters());
	strcat(place, ".place");
	s->prepare();
	child = fork();
	if (child) {
		CHECK(child > 0);
		while (!__atomic_load_n(&outside->value[7], __ATOMIC_ACQUIRE))
			usleep(1000);
		return;
	}
	close(fd); /* it would have the file open as well */
	p = (struct pollfd){ .fd = watch, .events = POLLIN };
	while (is_told())
		continue;
	if (s->hinder)
		s->hinder();
	__atomic_store_n(&outside->value[7], 1, __ATOMIC_RELEASE);
	while (poll(&p, 1, 3000) == 1 && !is_told())
		continue;
	/* run() has emptied this meanwhile. */
	outside->value[0] = p.revents ? 1 : -1;
	s->end();
	_exit(0);
}

static void begin_sleep(void)
{
	CHECK(CALL(close, fd) == 0);
	outside->count++;
}

static void end_sleep(void)
{
	crash_once();
	CHECK(waitpid(child, NULL, 0) == child && outside->value[0] == 1);
	close(watch);
	unlink(place);
}

static void make_fifo(void)
{
	CHECK(mkfifo(place, 0600) == 0);
}

static void open_fifo(void)
{
	close(open(place, O_WRONLY));
}

static void setup_fifo(void)
{
	setup_sleep(&(struct sleep){ make_fifo, NULL, open_fifo });
}

static void body_fifo(bool again)
{
	int n;

	begin_sleep();
	n = (int)CALL(open, place, O_RDONLY);
	CHECK(n >= 0);
	end_sleep();
	close(n);
}

static void make_file(void)
{
	ends[0] = open(place, O_RDWR | O_CREAT, 0600);
	CHECK(ends[0] >= 0);
}

static void lock_file(void)
{
	CHECK(lock_of(F_WRLCK, ends[0]) == 0);
}

static void unlock_file(void)
{
	CHECK(lock_of(F_UNLCK, ends[0]) == 0);
}

static void setup_lock(void)
{
	setup_sleep(&(struct sleep){ make_file, lock_file, unlock_file });
}

/* A lock for reading is undone, one for writing is not. */
static void body_lock_read(bool again)
{
	begin_sleep();
	CHECK(lock_of(F_RDLCK, ends[0]) == 0);
	end_sleep();
	close(ends[0]);
}

static void body_lock_write(bool again)
{
	begin_sleep();
	CHECK(lock_of(F_WRLCK, ends[0]) == 0);
	end_sleep();
	close(ends[0]);
}

static void flock_file(void)
{
	ends[1] = open(place, O_RDWR);
	CHECK(flock(ends[1], LOCK_EX) == 0);
}

static void funlock_file(void)
{
	CHECK(flock(ends[1], LOCK_UN) == 0);
}

static void setup_flock(void)
{
	setup_sleep(&(struct sleep){ make_file, flock_file, funlock_file });
}

static void body_flock(bool again)
{
	begin_sleep();
	CHECK(CALL(flock, ends[0], LOCK_SH) == 0);
	end_sleep();
	close(ends[0]);
}

/* Full, so that the next byte must wait. */
static void fill(int n)
{
	char some[4096] = "";

	while (send(n, some, sizeof(some), MSG_DONTWAIT) > 0)
		continue;
	CHECK(errno == EAGAIN);
}

static void make_full(void)
{
	CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
	fill(ends[0]);
}

static void empty(void)
{
	char some[4096];

	while (recv(ends[1], some, sizeof(some), MSG_DONTWAIT) > 0)
		continue;
}

static void setup_full(void)
{
	setup_sleep(&(struct sleep){ make_full, NULL, empty });
}

static void body_sendto(bool again)
{
	begin_sleep();
	CHECK(CALL(sendto, ends[0], "x", 1, 0, NULL, 0) == 1);
	end_sleep();
	close(ends[0]);
	close(ends[1]);
}

static void body_write(bool again)
{
	begin_sleep();
	CHECK(CALL(write, ends[0], "x", 1) == 1);
	end_sleep();
	close(ends[0]);
	close(ends[1]);
}

static void make_packets(void)
{
	CHECK(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
}

static void send_packet(void)
{
	CHECK(send(ends[1], "x", 1, 0) == 1);
}

static void setup_packets(void)
{
	setup_sleep(&(struct sleep){ make_packets, NULL, send_packet });
}

static void body_recvmmsg(bool again)
{
	char c;
	struct iovec iov = { &c, 1 };
	struct mmsghdr message = { .msg_hdr = { .msg_iov = &iov, .msg_iovlen = 1 } };

	begin_sleep();
	CHECK(CALL(recvmmsg, ends[0], &message, 1, 0, NULL) == 1);
	end_sleep();
	close(ends[0]);
	close(ends[1]);
}

static void make_semaphore(void)
{
	set = semget(IPC_PRIVATE, 1, 0600);
	CHECK(set >= 0);
}

static void raise_semaphore(void)
{
	CHECK(semop(set, &(struct sembuf){ 0, 1, 0 }, 1) == 0);
}

static void setup_semaphore(void)
{
	setup_sleep(&(struct sleep){ make_semaphore, NULL, raise_semaphore });
}

static void body_semaphore(bool again)
{
	begin_sleep();
	CHECK(syscall(SYS_semop, set, &(struct sembuf){ 0, -1, 0 }, 1) == 0);
	end_sleep();
	semctl(set, 0, IPC_RMID);
}

/* The newer calls for futexes, of which libc makes no use. */
struct waiter {
	uint64_t value, address;
	uint32_t flags, reserved;
};

static void make_word(void)
{
	outside->value[6] = 0;
}

static void wake_word(void)
{
	__atomic_store_n((int *)&outside->value[6], 1, __ATOMIC_RELEASE);
	while (!syscall(SYS_futex, &outside->value[6], FUTEX_WAKE, 1, NULL, NULL, 0) &&
		getppid() != 1 && outside->value[5] == 0)
		usleep(1000);
}

static void setup_word(void)
{
	setup_sleep(&(struct sleep){ make_word, NULL, wake_word });
}

static void body_waitv(bool again)
{
	struct waiter w = { 0, (uintptr_t)&outside->value[6], 2 /* FUTEX2_SIZE_U32 */, 0 };

	begin_sleep();
	CHECK(syscall(SYS_futex_waitv, &w, 1, 0, NULL, 0) == 0 || errno == EAGAIN);
	outside->value[5] = 1;
	end_sleep();
}

static void body_wait_word(bool again)
{
	begin_sleep();
	errno = 0;
	CHECK(syscall(455 /* futex_wait */, &outside->value[6], 0l, 0xfffffffful, 2, NULL, 0) ==
			0 || errno == EAGAIN || errno == ENOSYS);
	outside->value[5] = 1;
	if (errno == ENOSYS)
		tick();
	end_sleep();
}

/* ---- folders --------------------------------------------------------------------------------- */

static char folder[64];

static void setup_folder(void)
{
	strcpy(folder, "/tmp/cairn-row-XXXXXX");
	CHECK(mkdtemp(folder) && chdir(folder) == 0);
}

static bool has_folder(void)
{
	DIR *d = opendir("/proc/self/fd");
	struct dirent *e;
	bool has = false;
	char target[64];

	CHECK(d);
	while ((e = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof(target) - 1);

		target[n > 0 ? n : 0] = 0;
		has |= !strcmp(target, folder);
	}
	closedir(d);
	return has;
}

/* Nothing keeps its file system in use while the program sleeps. */
static void body_folder(bool again)
{
	CHECK(CALL(chdir, "/") == 0);
	outside->count++;
	CHECK(poll(NULL, 0, 1) == 0);
	CHECK(!has_folder());
	crash_once();
	CHECK(rmdir(folder) == 0);
}

/* ---------------------------------------------------------------------------------------------- */

static void body_read(bool again)
{
	CHECK(CALL(close, fd) == 0);
	outside->count++;
	CHECK(is_told());
	crash_once();
	CHECK(!is_told());
	close(watch);
}

/* Nobody may read it by a lease while somebody writes it. */
static void body_lease(bool again)
{
	int n;

	CHECK(CALL(close, fd) == 0);
	n = (int)CALL(open, letters(), O_RDONLY);
	outside->count++;
	CHECK(n >= 0 && CALL(fcntl, n, F_SETLEASE, F_RDLCK) == 0);
	crash_once();
	CHECK(CALL(fcntl, n, F_GETLEASE) == F_RDLCK && close(n) == 0);
	close(watch);
}

const struct row rows_watched[] = {
	{ "close_then_watch", setup_file, body_watch, .output = true },
	{ "close_then_poll", setup_watched, body_poll, .output = true },
	{ "close_then_sleep", setup_watched, body_sleep, .output = true },
	{ "close_then_futex", setup_watched, body_futex, .output = true },
	{ "close_then_wait", setup_child, body_child, .output = true },
	{ "close_then_pipe", setup_pipe, body_pipe, .output = true },
	{ "close_then_read", setup_watched, body_read, .output = true },
	{ "close_then_fifo", setup_fifo, body_fifo, .output = true },
	{ "close_then_lock_read", setup_lock, body_lock_read, .output = true },
	{ "close_then_lock_write", setup_lock, body_lock_write, .output = true },
	{ "close_then_flock", setup_flock, body_flock, .output = true },
	{ "close_then_sendto", setup_full, body_sendto, .output = true },
	{ "close_then_write", setup_full, body_write, .output = true },
	{ "close_then_recvmmsg", setup_packets, body_recvmmsg, .output = true },
	{ "close_then_semaphore", setup_semaphore, body_semaphore, .output = true },
	{ "close_then_waitv", setup_word, body_waitv, .output = true },
	{ "close_then_wait_word", setup_word, body_wait_word, .output = true },
	{ "leave_then_poll", setup_folder, body_folder, .output = true },
	{ "close_then_lease", setup_file, body_lease, .output = true },
	{ NULL },
};
