/* SPDX-License-Identifier: MIT */
/*
 * frozen_children CASE: the checkpoints of tracker "fork" are processes, and the program never
 * meets
 * them. Each case is one promise of os/process.h or track/fork/fork.c.
 */
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/sched.h>
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

void *map_pages(size_t pages, int sharing)
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

/* The number of children that live is soon `want`, and stays so. */
static void expect_count(size_t want)
{
	pid_t pids[FROZEN_MAX];
	size_t count = 0;

	for (int waited = 0; waited < PATIENCE_MS; waited += 10) {
		count = children_find(pids);
		if (count == want)
			break;
		usleep(10000);
	}
	CHECK_U64(count, want);
}

/* ---- Not met -------------------- */

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
	count = children_find(pids);
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
	CHECK_U64(children_find(pids), 0);
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

/* Take a lock, have it in a checkpoint, close; then somebody else gets it at once. */
static void lock_case(int (*lock)(int fd))
{
	int fd, other;

	open_session(2);
	fd = test_file();
	CHECK(!lock(fd));
	(void)checkpoint();
	other = test_file_again(fd);
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
	int fd, other, status;
	pid_t pid;

	open_session(2);
	fd = test_file();
	CHECK(!fcntl(fd, F_SETLK, &l));
	(void)checkpoint();
	other = test_file_again(fd);
	close(fd);
	pid = fork();
	if (pid == 0)
		_exit(fcntl(other, F_SETLK, &l) ? 1 : 0);
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

/* ---- Files that are cut short -------------------- */

static int cut_file;

/* A file of PAGES pages, each beginning with 'f', mapped privately and added. */
static volatile uint8_t *map_file(void)
{
	volatile uint8_t *map;

	cut_file = memfd_create("cut", MFD_CLOEXEC);
	CHECK(cut_file >= 0 && !ftruncate(cut_file, PAGES * PAGE));
	for (size_t i = 0; i < PAGES; i++)
		CHECK(pwrite(cut_file, "f", 1, (off_t)(i * PAGE)) == 1);
	map = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, cut_file, 0);
	CHECK(map != MAP_FAILED);
	CHECK_OK(cairn_area_add(c, (void *)map, PAGES * PAGE));
	return map;
}

static int ignore_change(void *ctx, void *addr, size_t len, const void *from, const void *to)
{
	return 0;
}

/* Everything that would have to show what is lost says so, and nothing changes. */
static void expect_refused(volatile uint8_t *map, uint64_t id, size_t page)
{
	uint8_t live = area[0], byte;

	CHECK_RC(cairn_rewind(c, id), CAIRN_ELAYOUT);
	CHECK_RC(cairn_restore(c, id), CAIRN_ELAYOUT);
	CHECK(area[0] == live);
	CHECK(cairn_peek(c, id, (void *)(map + page * PAGE), &byte, 1) < 0);
	CHECK(cairn_changes(c, id, CAIRN_NOW, ignore_change, NULL) < 0);
}

/*
 * The kernel takes pages that are cut off away from the children too. `page` of the mapping was
 * written before the checkpoint, or nothing of it was.
 */
static void cut_case(size_t page, size_t left)
{
	volatile uint8_t *map;
	uint64_t id, whole;

	open_session(4);
	map = map_file();
	if (page)
		map[page * PAGE] = 'p';
	write_all(1);
	id = checkpoint();
	map[0] = 'x';
	write_all(2);
	CHECK(!ftruncate(cut_file, (off_t)(left * PAGE)));
	CHECK(!ftruncate(cut_file, PAGES * PAGE));
	expect_refused(map, id, PAGES - 1);
	expect_all(2);
	whole = checkpoint(); /* of what there is now */
	map[0] = 'y';
	CHECK_OK(cairn_rewind(c, whole));
	CHECK(map[0] == (left ? 'x' : 0) && map[(PAGES - 1) * PAGE] == 0);
	expect_refused(map, id, PAGES - 1);
	CHECK(!ftruncate(cut_file, (off_t)(left * PAGE))); /* and again, not regrown */
	expect_refused(map, whole, PAGES - 1);
	write_all(3);
	(void)checkpoint();
	CHECK_OK(cairn_area_remove(c, (void *)map, PAGES * PAGE));
	id = checkpoint();
	write_all(4);
	CHECK_OK(cairn_rewind(c, id));
	expect_all(3);
	CHECK_OK(cairn_close(c));
}

static void case_cut_file(void)
{
	cut_case(3, 1);
}

static void case_cut_unwritten(void)
{
	cut_case(0, 1);
}

static void case_cut_last(void)
{
	cut_case(PAGES - 1, PAGES - 1);
}

static void case_cut_to_nothing(void)
{
	cut_case(3, 0);
}

/* What is read-only at the checkpoint is kept as well, and a file that nobody cuts is no matter. */
static void case_file(void)
{
	volatile uint8_t *map;
	uint64_t id;

	open_session(4);
	map = map_file();
	map[2 * PAGE] = 'p';
	CHECK(!mprotect((void *)map, PAGES * PAGE, PROT_READ));
	id = checkpoint();
	CHECK(!mprotect((void *)map, PAGES * PAGE, PROT_READ | PROT_WRITE));
	map[PAGE] = map[2 * PAGE] = map[(PAGES - 1) * PAGE] = 'q';
	CHECK_OK(cairn_rewind(c, id));
	CHECK(!mprotect((void *)map, PAGES * PAGE, PROT_READ | PROT_WRITE));
	CHECK(map[PAGE] == 'f' && map[2 * PAGE] == 'p' && map[(PAGES - 1) * PAGE] == 'f');
	CHECK(!mprotect((void *)map, PAGES * PAGE, PROT_READ));
	CHECK_OK(cairn_close(c));
}

/* ---- No child to be had -------------------- */

/* From now on a clone with no flag but CLONE_FILES (no libc makes one) fails with this error. */
static void refuse_clone(int err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CLONE_FILES, 0, 1),
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
	count = children_find(pids);
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

/* They wait for the end of the program's memory, not for that of a descriptor. */
static void case_close_range(void)
{
	pid_t pids[FROZEN_MAX];
	uint64_t ids[3];

	open_session(3);
	for (uint8_t i = 0; i < 3; i++) {
		write_all(i);
		ids[i] = checkpoint();
		if (syscall(SYS_close_range, 3, ~0u, 0) < 0)
			test_skip("close_range(2) (Linux 5.9)");
	}
	write_all(9);
	usleep(100000);
	CHECK_U64(children_find(pids), 3);
	CHECK_OK(cairn_rewind(c, ids[1]));
	expect_all(1);
	CHECK_OK(cairn_rewind(c, ids[0]));
	expect_all(0);
	CHECK_OK(cairn_close(c));
	expect_count(0);
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
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
		{ "advice_parts", case_advice_parts },
		{ "advice_file", case_advice_file },
		{ "sparse", case_sparse },
		{ "file", case_file },
		{ "cut_file", case_cut_file },
		{ "cut_unwritten", case_cut_unwritten },
		{ "cut_last", case_cut_last },
		{ "cut_to_nothing", case_cut_to_nothing },
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
		{ NULL, NULL },
	};

	child_name = "cairn-frozen";
	if (argc == 2 && !strcmp(argv[1], "sleep"))
		sleep_after_exec();
	return test_run_case(cases, argc > 1 ? argv[1] : NULL);
}
