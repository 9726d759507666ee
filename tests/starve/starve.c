/* SPDX-License-Identifier: MIT */
/*
 * starve CASE TRACKER: something runs out or is taken away. The library either goes on and is
 * right, or answers with an error and changes nothing; the program survives either way.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "starve.h"

static void write_all(uint8_t value)
{
	for (size_t i = 0; i < PAGES; i++)
		area[i * PAGE + i] = value;
}

static void expect_all(uint8_t value)
{
	for (size_t i = 0; i < PAGES; i++)
		CHECK_U64(area[i * PAGE + i], value);
}

static __attribute__((noinline)) int take(uint64_t *id)
{
	return cairn_checkpoint(c, id);
}

/* Three checkpoints, the past of each, and back to the first. */
static void use_session(void)
{
	uint64_t id[3];
	uint8_t seen;

	for (uint8_t i = 0; i < 3; i++) {
		write_all((uint8_t)(i + 1));
		CHECK_RC(take(&id[i]), CAIRN_TAKEN);
	}
	write_all(9);
	for (uint8_t i = 0; i < 3; i++) {
		CHECK_OK(cairn_peek(c, id[i], area + 5 * PAGE + 5, &seen, 1));
		CHECK_U64(seen, i + 1u);
	}
	CHECK_OK(cairn_rewind(c, id[1]));
	expect_all(2);
	CHECK_OK(cairn_rewind(c, id[0]));
	expect_all(1);
}

static void open_session(void)
{
	struct cairn_options o = with_defaults();

	map_area(PAGES);
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
}

/* It may work (a tracker that needs none) or be refused; then nothing may be left of it. */
static void open_maybe(void)
{
	struct cairn_options o = with_defaults();
	cairn_t *out = (cairn_t *)0x5a5a;
	int rc = cairn_open(&out, &o);

	if (rc < 0) {
		dprintf(1, "cairn_open was refused: %s\n", cairn_strerror(rc));
		CHECK(out == (cairn_t *)0x5a5a);
		return;
	}
	c = out;
	rc = cairn_area_add(c, area, PAGES * PAGE);
	if (rc < 0)
		dprintf(1, "cairn_area_add was refused: %s\n", cairn_strerror(rc));
	else
		use_session();
	CHECK_OK(cairn_close(c));
}

/* The host can run this tracker at all: else the case says nothing about starving. */
static void demand_tracker(void)
{
	open_session();
	CHECK_OK(cairn_close(c));
}

static void starve_then_recover(int resource, rlim_t value)
{
	struct rlimit old;

	demand_tracker();
	write_all(3);
	limit(resource, value, &old);
	open_maybe();
	unlimit(resource, &old);
	open_session(); /* with the limit gone everything is as before */
	use_session();
	CHECK_OK(cairn_close(c));
}

static void case_descriptors_none(void)
{
	starve_then_recover(RLIMIT_NOFILE, 3);
}

static void case_descriptors_few(void)
{
	starve_then_recover(RLIMIT_NOFILE, 8);
}

static void case_locked_memory(void)
{
	starve_then_recover(RLIMIT_MEMLOCK, 0);
}

/* 256 MiB more than is mapped: no room for a large reservation, enough for a small one. */
static void case_address_space(void)
{
	demand_tracker();
	starve_then_recover(RLIMIT_AS, mapped_bytes() + (256ul << 20));
}

/* A limit on processes: for the tracker whose checkpoints are processes. Root has no such limit. */
static void case_processes(void)
{
	struct rlimit old;
	uint64_t id = ~0ull;
	int rc;

	if (strcmp(tracker, "fork"))
		test_skip("a tracker whose checkpoints are processes");
	if (geteuid() == 0 && setreuid(65534, 65534))
		test_fail("setreuid: errno %d", errno);
	open_session();
	write_all(1);
	limit(RLIMIT_NPROC, 1, &old);
	rc = cairn_checkpoint(c, &id);
	if (rc >= 0)
		test_fail("a checkpoint was taken beyond RLIMIT_NPROC");
	expect_all(1);
	unlimit(RLIMIT_NPROC, &old);
	use_session();
	CHECK_OK(cairn_close(c));
}

/* So little that not even a session fits. */
static void case_memory_tiny(void)
{
	struct cairn_options o = with_defaults();
	cairn_t *out = (cairn_t *)0x5a5a;
	int rc;

	demand_tracker();
	for (o.memory_max = 1; o.memory_max < 4096 * PAGE; o.memory_max *= 3) {
		rc = cairn_open(&out, &o);
		if (rc < 0) {
			CHECK(rc == CAIRN_EMEMORY || rc == CAIRN_EOPTION || rc == -ENOMEM);
			CHECK(out == (cairn_t *)0x5a5a);
			continue;
		}
		c = out;
		rc = cairn_area_add(c, area, PAGES * PAGE);
		CHECK(rc == 0 || rc == CAIRN_EMEMORY);
		CHECK_OK(cairn_close(c));
		out = (cairn_t *)0x5a5a;
	}
}

/*
 * The interval does not fit: that checkpoint fails and its id is used up, the program goes on, the
 * checkpoint before it is still good, and later ones that fit are taken.
 */
static void case_memory_grows(void)
{
	struct cairn_options o = with_defaults();
	struct cairn_stats s = { .size = sizeof(s) };
	size_t pages = 4096; /* 16 MiB in a limit of 8 */
	uint64_t good, failed = ~0ull, next;
	int rc, lost;

	if (!strcmp(tracker, "fork"))
		test_skip("a tracker that keeps pages in the engine's memory");
	map_area(pages);
	o.memory_max = 8ul << 20;
	c = test_open(&o);
	rc = cairn_area_add(c, area, pages * PAGE);
	if (rc < 0)
		test_fail("cairn_area_add of an untouched area: %s", cairn_strerror(rc));
	area[0] = 1;
	CHECK_RC(cairn_checkpoint(c, &good), CAIRN_TAKEN);
	for (size_t i = 0; i < pages; i++)
		area[i * PAGE] = 2;
	rc = cairn_checkpoint(c, &failed);
	CHECK_RC(rc, CAIRN_EMEMORY);
	CHECK(failed == ~0ull); /* an out-parameter of a failed call */
	CHECK_RC(cairn_restore(c, good + 1), CAIRN_EFAILED);
	CHECK_OK(cairn_stats(c, &s));
	CHECK_U64(s.failed, 1);
	if (s.engine_bytes > o.memory_max || s.engine_bytes_max > o.memory_max)
		test_fail("%llu bytes used, the limit is %llu",
			(unsigned long long)s.engine_bytes_max, (unsigned long long)o.memory_max);
	for (size_t i = 0; i < pages; i++)
		CHECK_U64(area[i * PAGE], 2); /* the program goes on */
	lost = cairn_rewind(c, good);
	if (lost == 0) {
		CHECK_U64(area[0], 1);
		for (size_t i = 1; i < pages; i++)
			CHECK_U64(area[i * PAGE], 0);
	} else {
		/*
		 * old contents could not be kept at the stores: it says so and has changed nothing
		 */
		CHECK_RC(lost, CAIRN_EFAILED);
		CHECK_U64(area[PAGE], 2);
	}
	madvise(area, pages * PAGE, MADV_DONTNEED);
	CHECK_OK(cairn_area_remove(c, area, pages * PAGE));
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	use_session();
	CHECK_OK(cairn_range(c, NULL, &next));
	CHECK(next > good + 1);
	CHECK_OK(cairn_close(c));
}

/* More checkpoints are wanted than there is memory for: the oldest go, and none fails. */
static void case_memory_turns(void)
{
	struct cairn_options o = with_defaults();
	uint64_t id, oldest, newest;
	size_t pages = 64;

	map_area(pages);
	o.memory_max = 3ul << 20;
	o.keep = 1000;
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, area, pages * PAGE));
	for (size_t turn = 1; turn <= 600; turn++) {
		for (size_t i = 0; i < 4 * PAGE; i += 8)
			area[(turn * 4 * PAGE + i) % (pages * PAGE)] = (uint8_t)(turn + i / 8);
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	}
	CHECK_OK(cairn_range(c, &oldest, &newest));
	CHECK(newest == id && newest - oldest > 32); /* some 40: a block more or less */
	CHECK_OK(cairn_rewind(c, oldest));
	for (size_t i = 0; i < 4 * PAGE; i += 8)
		CHECK_U64(area[(oldest * 4 * PAGE + i) % (pages * PAGE)],
			(uint8_t)(oldest + i / 8));
	CHECK_OK(cairn_close(c));
}

static void close_streams(void)
{
	for (int fd = 0; fd < 3; fd++)
		close(fd);
}

/* With 0-2 closed, the engine's descriptors must not come to lie there. */
static void case_streams_closed(void)
{
	int saved = fcntl(2, F_DUPFD_CLOEXEC, 100);

	demand_tracker();
	close_streams();
	open_session();
	use_session();
	for (int fd = 0; fd < 3; fd++)
		if (fcntl(fd, F_GETFD) >= 0) {
			dup2(saved, 2);
			test_fail("the engine took descriptor %d", fd);
		}
	CHECK_OK(cairn_close(c));
	dup2(saved, 2);
}

/* The program's streams now lead into a file: no line of ours may come there. */
static void case_streams_redirected(void)
{
	char name[] = "streams-XXXXXX";
	int saved = fcntl(2, F_DUPFD_CLOEXEC, 100), file = mkstemp(name);
	struct cairn_options bad = with_defaults();
	struct stat st;
	cairn_t *none;

	unlink(name);
	open_session();
	dup2(file, 1);
	dup2(file, 2);
	use_session();
	bad.tracker = "no-such-tracker";
	CHECK(cairn_open(&none, &bad) < 0);
	CHECK(cairn_rewind(c, 1ull << 40) < 0);
	CHECK_OK(cairn_close(c));
	CHECK(!fstat(file, &st));
	dup2(saved, 2);
	CHECK_U64((uint64_t)st.st_size, 0);
}

/*
 * A program that closes all but its streams, as daemons do. Without the agent the engine's
 * descriptors go too: then it says so (-EBADF) or does without, and a new session works.
 */
static void case_close_range(void)
{
	uint64_t id;
	int rc;

	open_session();
	write_all(1);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	write_all(2);
	if (syscall(SYS_close_range, 3, ~0u, 0) < 0)
		test_skip("close_range(2) (Linux 5.9)");
	rc = cairn_rewind(c, id);
	if (rc == 0)
		expect_all(1);
	else
		expect_all(2);
	write_all(3);
	rc = cairn_checkpoint(c, &id);
	expect_all(3);
	if (rc == CAIRN_TAKEN) {
		write_all(4);
		rc = cairn_rewind(c, id);
		if (rc == 0)
			expect_all(3);
		else
			expect_all(4);
	}
	if (rc < 0 && rc != -EBADF)
		test_fail("after close_range: %d (%s)", rc, cairn_strerror(rc));
	CHECK_OK(cairn_close(c));
	write_all(5);
	open_session();
	use_session();
	CHECK_OK(cairn_close(c));
}

/*
 * What mprotect closes is no data for the limit, and opening it again may then not be possible: so
 * it stays open, and the checkpoint fails. For good, in a process of its own.
 */
static void limit_data_for_good(void)
{
	struct rlimit most = { 256 << 10, 256 << 10 };
	pid_t pid = fork();
	int status, rc;
	uint64_t id;

	CHECK(pid >= 0);
	if (pid == 0) {
		open_session();
		write_all(1);
		CHECK(setrlimit(RLIMIT_DATA, &most) == 0);
		rc = take(&id);
		write_all(2);
		expect_all(2);
		if (!strcmp(tracker, "mprotect"))
			CHECK_RC(rc, -ENOMEM);
		else if (geteuid() == 0) /* else the engine has no memory for it, perhaps */
			CHECK_RC(rc, CAIRN_TAKEN);
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

/* A soft limit can be raised, for as long as that takes. */
static void case_data_limit(void)
{
	struct rlimit old;
	uint64_t id;

	demand_tracker();
	limit_data_for_good();
	open_session();
	write_all(1);
	limit(RLIMIT_DATA, 256 << 10, &old);
	CHECK_RC(take(&id), CAIRN_TAKEN);
	write_all(2);
	CHECK_OK(cairn_rewind(c, id));
	expect_all(1);
	write_all(2);
	unlimit(RLIMIT_DATA, &old);
	CHECK_RC(take(&id), CAIRN_TAKEN);
	write_all(3);
	CHECK_OK(cairn_rewind(c, id));
	expect_all(2);
	CHECK_OK(cairn_close(c));

	limit(RLIMIT_DATA, 256 << 10, &old);
	open_maybe();
	write_all(4);
	unlimit(RLIMIT_DATA, &old);
	open_session();
	use_session();
	CHECK_OK(cairn_close(c));
}

/* A mapping of the surface that a userfaultfd of the program's own has: said, not left out. */
static void case_foreign_userfault(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register arg = { .mode = UFFDIO_REGISTER_MODE_MISSING };
	struct cairn_options o = with_defaults();
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	uint64_t id;

	demand_tracker();
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) < 0)
		test_skip("userfaultfd");
	map_area(PAGES);
	write_all(1);
	arg.range.start = (uintptr_t)area;
	arg.range.len = PAGES * PAGE;
	CHECK(!ioctl(fd, UFFDIO_REGISTER, &arg));
	o.surface = "all";
	CHECK_RC(cairn_open(&c, &o), -EBUSY);
	/* It is the program's still. */
	CHECK(!ioctl(fd, UFFDIO_UNREGISTER, &arg.range));
	CHECK_OK(cairn_open(&c, &o));
	CHECK_RC(take(&id), CAIRN_TAKEN);
	map_area(PAGES);
	arg.range.start = (uintptr_t)area;
	CHECK(!ioctl(fd, UFFDIO_REGISTER, &arg));
	CHECK_RC(take(&id), -EBUSY);
	CHECK(!ioctl(fd, UFFDIO_UNREGISTER, &arg.range));
	CHECK_RC(take(&id), CAIRN_TAKEN);
	CHECK_OK(cairn_close(c));
}

int main(int argc, char **argv)
{
	static const struct test_case cases[] = {
		{ "descriptors_none", case_descriptors_none },
		{ "descriptors_few", case_descriptors_few },
		{ "address_space", case_address_space },
		{ "memory_tiny", case_memory_tiny },
		{ "memory_grows", case_memory_grows },
		{ "memory_turns", case_memory_turns },
		{ "streams_closed", case_streams_closed },
		{ "streams_redirected", case_streams_redirected },
		{ "close_range", case_close_range },
		{ "processes", case_processes },
		{ "locked_memory", case_locked_memory },
		{ "data_limit", case_data_limit },
		{ "foreign_userfault", case_foreign_userfault },
		{ NULL, NULL },
	};

	tracker = argc > 2 ? argv[2] : "async";
	return test_run_case(cases, argc > 1 ? argv[1] : NULL);
}
