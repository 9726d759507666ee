/* SPDX-License-Identifier: MIT */
/*
 * frozen_children CASE: the checkpoints of tracker "fork" are processes, and the program never
 * meets
 * them. Each case is one promise of os/process.h or track/fork.c.
 */
#include <dirent.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include "frozen.h"

cairn_t *c;
volatile uint8_t *area;

/* ---- The session -------------------- */

static void *map_pages(size_t pages, int sharing)
{
	void *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		test_fail("mmap: errno %d", errno);
	return at;
}

void open_session(uint32_t keep)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	o.tracker = "fork";
	o.surface = "none";
	o.keep = keep;
	c = test_open(&o);
	area = map_pages(PAGES, MAP_PRIVATE);
	CHECK_OK(cairn_area_add(c, (void *)area, PAGES * PAGE));
}

uint64_t checkpoint(void)
{
	uint64_t id = ~0ull;

	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	return id;
}

void write_all(uint8_t value)
{
	for (size_t i = 0; i < PAGES; i++)
		area[i * PAGE + i] = value;
}

void expect_all(uint8_t value)
{
	for (size_t i = 0; i < PAGES; i++)
		CHECK_U64(area[i * PAGE + i], value);
}

/* ---- Who the children are -------------------- */

/* The state letter and the parent of a process; 0 if it is not there. */
static char look_at(pid_t pid, pid_t *parent, bool *frozen)
{
	char path[32], text[256] = { 0 }, *name_end, state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	name_end = strrchr(text, ')');
	*frozen = strstr(text, "(cairn-frozen)") != NULL;
	return sscanf(name_end, ") %c %d", &state, parent) == 2 ? state : 0;
}

size_t frozen_find(pid_t pids[FROZEN_MAX])
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	size_t count = 0;

	CHECK(proc != NULL);
	while ((entry = readdir(proc))) {
		pid_t parent, pid = atoi(entry->d_name);
		bool frozen;
		char state = pid > 0 ? look_at(pid, &parent, &frozen) : 0;

		if (state && state != 'Z' && state != 'X' && frozen && parent == getpid() &&
			count < FROZEN_MAX)
			pids[count++] = pid;
	}
	closedir(proc);
	return count;
}

bool is_dead(pid_t pid)
{
	pid_t parent;
	bool frozen;
	char state = look_at(pid, &parent, &frozen);

	return !state || state == 'Z' || state == 'X' || !frozen;
}

void expect_deaths(const pid_t *pids, size_t count)
{
	for (int waited = 0; waited < PATIENCE_MS; waited += 10) {
		size_t dead = 0;

		for (size_t i = 0; i < count; i++)
			dead += is_dead(pids[i]);
		if (dead == count)
			return;
		usleep(10000);
	}
	test_fail("a frozen child lives on");
}

/* The number of children that live is soon `want`, and stays so. */
static void expect_count(size_t want)
{
	pid_t pids[FROZEN_MAX];
	size_t count = 0;

	for (int waited = 0; waited < PATIENCE_MS; waited += 10) {
		count = frozen_find(pids);
		if (count == want)
			break;
		usleep(10000);
	}
	CHECK_U64(count, want);
}

/* ---- Not met -------------------- */

static volatile sig_atomic_t sigchlds;

static void on_sigchld(int sig)
{
	sigchlds++;
}

static void expect_no_children(void)
{
	siginfo_t info;

	CHECK(wait(NULL) == -1 && errno == ECHILD);
	CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
	CHECK(waitpid(0, NULL, WUNTRACED) == -1 && errno == ECHILD);
	CHECK(waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOHANG) == -1 && errno == ECHILD);
}

static void case_unseen(void)
{
	pid_t pid = getpid(), child, pids[FROZEN_MAX];
	uint64_t id = 0;
	size_t count;

	signal(SIGCHLD, on_sigchld);
	open_session(2);
	for (uint8_t i = 0; i < 6; i++) { /* four of them die on the way */
		write_all(i);
		id = checkpoint();
		expect_no_children();
	}
	count = frozen_find(pids);
	for (size_t i = 0; i < count; i++)
		CHECK(getsid(pids[i]) != getsid(0) && getpgid(pids[i]) != getpgid(0));
	CHECK_OK(cairn_rewind(c, id - 1));
	expect_all(4);
	expect_no_children();
	CHECK(getpid() == pid && syscall(SYS_getpid) == pid);
	CHECK_U64((uint64_t)sigchlds, 0);
	child = fork(); /* what is the program's own is seen as ever */
	if (child == 0)
		_exit(7);
	while (wait(NULL) != child)
		CHECK(errno == EINTR);
	CHECK_U64((uint64_t)sigchlds, 1);
	CHECK_OK(cairn_close(c));
	CHECK_U64(frozen_find(pids), 0);
	expect_no_children();
	CHECK_U64((uint64_t)sigchlds, 1);
}

static void count_case(uint32_t keep)
{
	uint64_t oldest, newest;

	open_session(keep);
	expect_count(1); /* checkpoint 0 */
	for (uint32_t i = 0; i < 3 * keep; i++) {
		write_all((uint8_t)i);
		(void)checkpoint();
	}
	expect_count(keep);
	CHECK_OK(cairn_range(c, &oldest, &newest));
	CHECK_U64(newest - oldest + 1, keep);
	CHECK_OK(cairn_rewind(c, oldest)); /* all newer ones are gone */
	expect_count(1);
	CHECK_OK(cairn_close(c));
	expect_count(0);
}

static void case_count_1(void)
{
	count_case(1);
}

static void case_count_4(void)
{
	count_case(4);
}

/* ---- Nothing is held open -------------------- */

static int lock_file(bool fresh)
{
	int fd = open("locked", O_RDWR | (fresh ? O_CREAT | O_TRUNC : 0), 0600);

	CHECK(fd >= 0);
	return fd;
}

/* Take a lock, have it in a checkpoint, close; then somebody else gets it at once. */
static void lock_case(int (*lock)(int fd))
{
	int fd, other;

	open_session(2);
	fd = lock_file(true);
	CHECK(!lock(fd));
	(void)checkpoint();
	other = lock_file(false);
	close(fd);
	if (lock(other))
		test_fail("the lock is still held: errno %d", errno);
	CHECK_OK(cairn_close(c));
}

static int take_flock(int fd)
{
	return flock(fd, LOCK_EX | LOCK_NB);
}

static int take_ofd(int fd)
{
	struct flock l = { .l_type = F_WRLCK };

	return fcntl(fd, F_OFD_SETLK, &l);
}

static void case_flock_lock(void)
{
	lock_case(take_flock);
}

static void case_ofd_lock(void)
{
	lock_case(take_ofd);
}

/* Only another process can tell whether a POSIX lock is held. */
static void case_posix_lock(void)
{
	struct flock l = { .l_type = F_WRLCK };
	int fd, status;
	pid_t pid;

	open_session(2);
	fd = lock_file(true);
	CHECK(!fcntl(fd, F_SETLK, &l));
	(void)checkpoint();
	close(fd);
	pid = fork();
	if (pid == 0)
		_exit(fcntl(lock_file(false), F_SETLK, &l) ? 1 : 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_U64((uint64_t)status, 0);
	CHECK_OK(cairn_close(c));
}

static void expect_eof(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	char byte;

	CHECK_U64((uint64_t)poll(&p, 1, 0), 1);
	CHECK_U64((uint64_t)read(fd, &byte, 1), 0);
}

static void case_pipes(void)
{
	int ends[2], pair[2];

	open_session(2);
	CHECK(!pipe(ends) && !socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	(void)checkpoint();
	close(ends[1]);
	expect_eof(ends[0]);
	close(pair[1]);
	expect_eof(pair[0]);
	CHECK(!pipe(ends));
	(void)checkpoint();
	signal(SIGPIPE, SIG_IGN);
	close(ends[0]);
	CHECK(write(ends[1], "x", 1) == -1 && errno == EPIPE);
	CHECK_OK(cairn_close(c));
}

static void case_port(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	open_session(2);
	CHECK(!bind(fd, (struct sockaddr *)&at, len) && !listen(fd, 5));
	CHECK(!getsockname(fd, (struct sockaddr *)&at, &len));
	(void)checkpoint();
	close(fd);
	fd = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(fd, (struct sockaddr *)&at, len) || listen(fd, 5))
		test_fail("the port cannot be bound again: errno %d", errno);
	CHECK_OK(cairn_close(c));
}

/* ---- Memory that a child does not get -------------------- */

static void case_shared(void)
{
	uint8_t *shared = map_pages(2, MAP_SHARED);
	uint64_t id;

	open_session(2);
	write_all(1);
	shared[0] = 1;
	CHECK_RC(cairn_area_add(c, shared, 2 * PAGE), CAIRN_ESHARED);
	id = checkpoint();
	write_all(2);
	shared[0] = 2;
	CHECK_OK(cairn_rewind(c, id));
	expect_all(1);
	CHECK_U64(shared[0], 2);
	CHECK_OK(cairn_close(c));
}

/* In a child of the program the advice still counts. */
static void expect_advice(volatile uint8_t *wiped, volatile uint8_t *missing)
{
	int ends[2], status;
	pid_t pid;

	CHECK(!pipe(ends));
	pid = fork();
	if (pid == 0) {
		if (write(ends[1], (const void *)missing, 1) != -1 || errno != EFAULT)
			_exit(1);
		_exit(*wiped == 0 ? 0 : 2);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_U64((uint64_t)status, 0);
	close(ends[0]);
	close(ends[1]);
}

/* With `late` the checkpoints before the advice have proved that nothing is missing. */
static void advice_case(bool late)
{
	volatile uint8_t *wiped = map_pages(4, MAP_PRIVATE), *missing = map_pages(4, MAP_PRIVATE);
	uint64_t id;
	uint8_t seen;

	open_session(4);
	CHECK_OK(cairn_area_add(c, (void *)wiped, 4 * PAGE));
	CHECK_OK(cairn_area_add(c, (void *)missing, 4 * PAGE));
	wiped[0] = missing[0] = 1;
	if (late)
		(void)checkpoint();
	CHECK(!madvise((void *)wiped, 4 * PAGE, MADV_WIPEONFORK));
	CHECK(!madvise((void *)missing, 4 * PAGE, MADV_DONTFORK));
	wiped[PAGE] = missing[PAGE] = 2;
	id = checkpoint();
	wiped[0] = missing[0] = 3;
	wiped[PAGE] = missing[PAGE] = 3;
	wiped[2 * PAGE] = missing[2 * PAGE] = 3;
	CHECK_OK(cairn_peek(c, id, (void *)wiped, &seen, 1));
	CHECK_U64(seen, 1);
	CHECK_OK(cairn_peek(c, id, (void *)missing, &seen, 1));
	CHECK_U64(seen, 1);
	(void)checkpoint();
	expect_advice(wiped, missing);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(wiped[0] == 1 && wiped[PAGE] == 2 && wiped[2 * PAGE] == 0);
	CHECK(missing[0] == 1 && missing[PAGE] == 2 && missing[2 * PAGE] == 0);
	expect_advice(wiped, missing);
	CHECK_OK(cairn_close(c));
}

static void case_advice(void)
{
	advice_case(false);
}

static void case_late_advice(void)
{
	advice_case(true);
}

/* ---- No child to be had -------------------- */

/* From now on a clone without flags (no libc makes one) fails with this error. */
static void refuse_clone(int err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		test_skip("seccomp filters (CONFIG_SECCOMP_FILTER)");
}

static void refused_case(int err)
{
	struct cairn_stats s = { .size = sizeof(s) };
	uint64_t id, none = ~0ull;

	open_session(4);
	write_all(1);
	id = checkpoint();
	write_all(2);
	refuse_clone(err);
	CHECK_RC(cairn_checkpoint(c, &none), CAIRN_EMEMORY);
	CHECK(none == ~0ull);
	expect_all(2); /* the program goes on */
	CHECK_RC(cairn_rewind(c, id + 1), CAIRN_EFAILED);
	CHECK_OK(cairn_stats(c, &s));
	CHECK_U64(s.failed, 1);
	expect_count(2); /* no half-made one */
	CHECK_OK(cairn_rewind(c, id));
	expect_all(1);
	CHECK_OK(cairn_close(c));
}

static void case_no_memory(void)
{
	refused_case(ENOMEM);
}

/* RLIMIT_NPROC, or the limit of a control group. */
static void case_no_process(void)
{
	refused_case(EAGAIN);
}

/* ---- Children that somebody else ends -------------------- */

static void case_killed(void)
{
	pid_t pids[FROZEN_MAX];
	uint64_t id;
	size_t count;

	open_session(2);
	write_all(1);
	id = checkpoint();
	write_all(2);
	count = frozen_find(pids);
	CHECK_U64(count, 2);
	for (size_t i = 0; i < count; i++)
		CHECK(!kill(pids[i], SIGKILL));
	expect_deaths(pids, count);
	CHECK_RC(cairn_rewind(c, id), CAIRN_EFAILED);
	expect_all(2);
	id = checkpoint();
	write_all(3);
	CHECK_OK(cairn_rewind(c, id));
	expect_all(2);
	CHECK_OK(cairn_close(c));
}

/*
 * What they wait for is closed with the rest: it is said, and a new session is as good as the
 * first.
 */
static void case_close_range(void)
{
	pid_t pids[FROZEN_MAX];
	uint64_t id;
	size_t count;

	open_session(2);
	write_all(1);
	id = checkpoint();
	count = frozen_find(pids);
	CHECK_U64(count, 2);
	write_all(2);
	if (syscall(SYS_close_range, 3, ~0u, 0) < 0)
		test_skip("close_range(2) (Linux 5.9)");
	CHECK_RC(cairn_rewind(c, id), -EBADF);
	expect_all(2);
	CHECK_RC(cairn_checkpoint(c, &id), -EBADF);
	expect_deaths(pids, count);
	CHECK_OK(cairn_close(c));
	open_session(2);
	write_all(3);
	id = checkpoint();
	write_all(4);
	CHECK_OK(cairn_rewind(c, id));
	expect_all(3);
	CHECK_OK(cairn_close(c));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} cases[] = {
		{ "unseen", case_unseen },
		{ "count_1", case_count_1 },
		{ "count_4", case_count_4 },
		{ "flock_lock", case_flock_lock },
		{ "ofd_lock", case_ofd_lock },
		{ "posix_lock", case_posix_lock },
		{ "pipes", case_pipes },
		{ "port", case_port },
		{ "shared", case_shared },
		{ "advice", case_advice },
		{ "late_advice", case_late_advice },
		{ "no_memory", case_no_memory },
		{ "no_process", case_no_process },
		{ "killed", case_killed },
		{ "close_range", case_close_range },
		{ "exit", case_exit },
		{ "sigkill", case_sigkill },
		{ "exec", case_exec },
		{ "thread_exec", case_thread_exec },
		{ "thread_exit", case_thread_exit },
		{ "main_exit", case_main_exit },
	};

	if (argc == 2 && !strcmp(argv[1], "sleep"))
		sleep_after_exec();
	for (size_t i = 0; argc == 2 && i < sizeof(cases) / sizeof(cases[0]); i++) {
		if (!strcmp(cases[i].name, argv[1])) {
			cases[i].run();
			return 0;
		}
	}
	test_fail("no such case");
}
