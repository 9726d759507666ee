/* SPDX-License-Identifier: MIT */
/*
 * Mappings are changed between any two rewinds, by any thread: the very next one says so. Rewinds
 * between which none is changed make no system call.
 */
#include "remapped.h"
#include <errno.h>
#include <linux/perf_event.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>
#include <sys/wait.h>
#include "../lib/refused_call.h"
#include "../track/child_find.h"

static void gone(void)
{
	CHECK(munmap(area + 9 * PAGE, PAGE) == 0);
}

static void gone_and_back(void)
{
	gone();
	map_at(area + 9 * PAGE, 1, MAP_FIXED_NOREPLACE);
}

static void over(void)
{
	map_at(area + 9 * PAGE, 1, MAP_FIXED);
}

void over_open(void)
{
	map_at(area + 5 * PAGE, 1, MAP_FIXED);
}

static void over_open_closed(void)
{
	over_open();
	CHECK(mprotect(area + 5 * PAGE, PAGE, PROT_READ) == 0);
}

static void over_shared(void)
{
	CHECK(mmap(area + 9 * PAGE, PAGE, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == area + 9 * PAGE);
}

/* Files are guarded by mprotect. */
static bool closes_by_uffd(void)
{
	return !strcmp(tracker, "uffd") && kind == PLAIN;
}

/* Memory that the tracker has closed and does not let go when it is moved. */
static bool moves_closed(void)
{
	return told_of_nothing() && !closes_by_uffd();
}

static void move(uint8_t *from, uint8_t *to)
{
	CHECK(mremap(from, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	if (!moves_closed())
		*to = 1;
}

static void away(void)
{
	move(area + 9 * PAGE, map_at(NULL, 1, 0));
}

static void away_and_map(void)
{
	away();
	map_at(area + 9 * PAGE, 1, MAP_FIXED_NOREPLACE);
}

static void moved_over(void)
{
	move(map_at(NULL, 1, 0), area + 9 * PAGE);
}

static void shrunk(void)
{
	CHECK(mremap(area, PAGES * PAGE, (PAGES - 1) * PAGE, 0) == area);
}

static void open_all(void)
{
	CHECK(mprotect(area, PAGES * PAGE, PROT_READ | PROT_WRITE) == 0);
}

void open_one(void)
{
	CHECK(mprotect(area + 9 * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0);
}

static void close_all(void)
{
	CHECK(mprotect(area, PAGES * PAGE, PROT_READ) == 0);
}

static void hide_all(void)
{
	CHECK(mprotect(area, PAGES * PAGE, PROT_NONE) == 0);
}

void drop_clean(void)
{
	CHECK(madvise(area + 9 * PAGE, PAGE, MADV_DONTNEED) == 0);
}

static void drop_and_store(void)
{
	drop_clean();
	area[9 * PAGE] = 1;
}

void drop_open(void)
{
	CHECK(madvise(area + 5 * PAGE, PAGE, MADV_DONTNEED) == 0);
}

static void drop_and_touch(void)
{
	drop_clean();
	CHECK_OK(cairn_area_touch(c, area + 9 * PAGE, PAGE));
}

static void drop_and_close(void)
{
	drop_clean();
	close_all();
}

static void move_content(void)
{
	void *to = mremap(area + 9 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);

	if (to == MAP_FAILED)
		test_skip("MREMAP_DONTUNMAP (Linux 5.7)");
	if (!moves_closed())
		*(volatile uint8_t *)to = 1;
}

static void move_content_and_store(void)
{
	move_content();
	area[9 * PAGE] = 1;
}

static void move_open_content(void)
{
	CHECK(mremap(area + 5 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL) !=
		MAP_FAILED);
}

static void over_and_touch(void)
{
	over();
	(void)!cairn_area_touch(c, area + 9 * PAGE, PAGE);
}

static void over_closed(void)
{
	CHECK(mmap(area + 9 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		      0) == area + 9 * PAGE);
}

/* EVENT: told where the keeper reads events; else cairn_area_touch has to come before. */
enum answer { RIGHT, TOLD, EVENT, UNTOLD };

static const struct {
	void (*make)(void);
	enum answer uffd, mprotect;
} changes[] = {
	{ gone, TOLD, TOLD },
	{ gone_and_back, TOLD, TOLD },
	{ over, TOLD, TOLD },
	{ over_open, RIGHT, RIGHT },
	{ over_open_closed, RIGHT, RIGHT },
	{ over_shared, TOLD, TOLD },
	{ away, TOLD, TOLD },
	{ away_and_map, TOLD, TOLD },
	{ moved_over, TOLD, TOLD },
	{ shrunk, TOLD, TOLD },
	{ open_all, RIGHT, TOLD },
	{ open_one, RIGHT, TOLD },
	{ close_all, RIGHT, RIGHT },
	{ hide_all, RIGHT, RIGHT },
	{ drop_open, RIGHT, RIGHT },
	{ drop_clean, EVENT, EVENT },
	{ drop_and_store, EVENT, EVENT },
	{ drop_and_touch, EVENT, EVENT },
	{ drop_and_close, EVENT, EVENT },
	{ over_and_touch, TOLD, EVENT },
	{ move_content, EVENT, EVENT },
	{ move_content_and_store, EVENT, EVENT },
	{ move_open_content, RIGHT, RIGHT },
	{ over_closed, TOLD, EVENT },
};

/* ---- With a keeper, with one that is killed, without ---- */

static enum { KEPT, KILLED, TWIN_KILLED, BOTH_KILLED, ALONE } life;

static void kill_all(const char *name)
{
	pid_t pids[CHILDREN_MAX];
	size_t count;

	child_name = name;
	count = children_find(pids);
	for (size_t i = 0; i < count; i++) {
		CHECK(kill(pids[i], SIGKILL) == 0);
		while (!is_dead(pids[i]))
			usleep(1000);
	}
}

bool events_are_read(void)
{
	pid_t pids[CHILDREN_MAX];

	child_name = "cairn-twin";
	return life != ALONE && children_find(pids) > 0;
}

/* Whoever is left reads on; if nobody is, the next call of ours finds somebody. */
static void kill_some(void)
{
	if (life == KILLED || life == BOTH_KILLED)
		kill_all("cairn-keeper");
	if (life == TWIN_KILLED || life == BOTH_KILLED)
		kill_all("cairn-twin");
	if (life == BOTH_KILLED)
		CHECK_OK(cairn_rewind(c, id));
}

/* ---- By whom ---- */

static void myself(void (*make)(void))
{
	make();
}

void (*_Atomic wanted_of_thread)(void);

void no_more(void)
{
}

/* On another processor, if there is one. */
void *make_change(void *arg)
{
	cpu_set_t all, one;
	void (*make)(void);

	CPU_ZERO(&one);
	CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &all) && (!CPU_COUNT(&one) || cpu != sched_getcpu())) {
			CPU_ZERO(&one);
			CPU_SET(cpu, &one);
		}
	}
	CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
	for (;;) {
		while (!(make = wanted_of_thread))
			sched_yield();
		if (make == no_more)
			return arg;
		make();
		wanted_of_thread = NULL;
	}
}

pthread_t thread;

void its_thread(void (*make)(void))
{
	wanted_of_thread = make;
	while (wanted_of_thread)
		sched_yield();
}

static void new_thread(void (*make)(void))
{
	CHECK(pthread_create(&thread, NULL, make_change, NULL) == 0);
	its_thread(make);
}

/* A child that has the same memory, for a moment. */
void its_child(void (*make)(void))
{
	pid_t pid = vfork();
	int status;

	if (pid == 0) {
		make();
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

void (*maker)(void (*make)(void)) = myself;
void (*maker_begins)(void), (*maker_ends)(void);

void thread_begins(void)
{
	if (maker == its_thread)
		CHECK(pthread_create(&thread, NULL, make_change, NULL) == 0);
	if (maker_begins)
		maker_begins();
}

void thread_ends(void)
{
	if (maker_ends)
		maker_ends();
	if (maker != its_thread && maker != new_thread)
		return;
	wanted_of_thread = no_more;
	pthread_join(thread, NULL);
	wanted_of_thread = NULL;
}

/* The very next rewind says so, however many came before. Other trackers follow every change. */
static void between(size_t which, int rewinds)
{
	enum answer wanted = RIGHT;
	int rc;

	if (told_of_nothing())
		wanted = closes_by_uffd() ? changes[which].uffd : changes[which].mprotect;
	if (wanted == UNTOLD)
		return;
	begin(map_area(), "none");
	if (wanted == EVENT) {
		if (!events_are_read()) {
			CHECK_OK(cairn_close(c));
			return;
		}
		wanted = TOLD;
	}
	thread_begins();
	for (int i = 0; i < rewinds; i++) {
		CHECK_OK(cairn_rewind(c, id));
		CHECK(is_restored());
		for (size_t k = 4; k < 8; k++)
			area[k * PAGE + (size_t)i] ^= 0xff;
	}
	kill_some();
	maker(changes[which].make);
	rc = cairn_rewind(c, id);
	if (rc && strcmp(tracker, "fork") == 0)
		CHECK_RC(rc, CAIRN_ELAYOUT);
	else if (rc != (wanted == TOLD ? CAIRN_ELAYOUT : 0))
		test_fail("change %zu after %d rewinds: %s", which, rewinds, cairn_strerror(rc));
	if (rc) {
		CHECK_RC(cairn_rewind(c, id), rc);
	} else {
		open_all();
		if (!is_restored())
			test_fail("change %zu after %d rewinds: not restored", which, rewinds);
	}
	thread_ends();
	CHECK_OK(cairn_close(c));
}

void all_between(int rewinds)
{
	for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++)
		between(i, rewinds);
}

void rewinds(void)
{
	all_between(0);
	all_between(1);
	all_between(7);
}

void rewinds_of_file(void)
{
	kind = OF_FILE;
	rewinds();
	keeper_killed();
}

void keeper_killed(void)
{
	life = KILLED;
	all_between(2);
	life = TWIN_KILLED;
	all_between(2);
	life = BOTH_KILLED;
	all_between(2);
}

/* So often that there will be no other: the tracker has to do without. */
void keeper_spent(void)
{
	begin(map_at(NULL, PAGES, 0), "none");
	life = BOTH_KILLED;
	for (size_t i = 0; i < 20; i++) {
		kill_some();
		area[(8 + i % 8) * PAGE] ^= 0xff;
		CHECK_OK(cairn_rewind(c, id));
		CHECK(is_restored());
	}
	CHECK(!told_of_nothing() || !events_are_read());
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	over();
	check_exchanged(9, 1);
}

#ifdef __SANITIZE_ADDRESS__
/* Leaks are looked for by a task of its own, which LeakSanitizer could not make. */
int __lsan_is_turned_off(void) __attribute__((visibility("default")));
int __lsan_is_turned_off(void)
{
	return life == ALONE;
}
#endif

void keeper_refused(void)
{
	refuse_call(SYS_clone, EAGAIN);
	life = ALONE;
	all_between(2);
}

void perf_refused(void)
{
	refuse_call(SYS_perf_event_open, EACCES);
	all_between(2);
}

void by_thread(void)
{
	maker = its_thread;
	rewinds();
}

void by_young_thread(void)
{
	maker = new_thread;
	rewinds();
}

void by_child(void)
{
	maker = its_child;
	rewinds();
}

/* ---- Without a system call ---- */

static bool perf_tells(void)
{
	struct perf_event_attr attr = { .type = PERF_TYPE_SOFTWARE, .size = sizeof(attr),
		.config = PERF_COUNT_SW_DUMMY, .exclude_kernel = 1, .exclude_hv = 1, .mmap = 1 };
	int fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* From now on the kernel refuses every call but the end; by _exit AddressSanitizer makes others. */
static void refuse_all_calls(void)
{
	filter_call(SYS_exit_group, SECCOMP_RET_ALLOW, SECCOMP_RET_KILL_PROCESS);
}

static void be_silent(int children)
{
	begin(map_at(NULL, PAGES, 0), "none");
	if (!events_are_read())
		test_skip("userfaultfd with events");
	if (!strcmp(tracker, "mprotect") && !perf_tells())
		test_skip("perf_event_open");
	for (int i = 0; i < 3; i++)
		CHECK_OK(cairn_rewind(c, id));
	for (int i = 0; i < children; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(0);
		CHECK(waitpid(pid, NULL, 0) == pid);
	}
	for (int i = 0; i < 3; i++)
		CHECK_OK(cairn_rewind(c, id));
	refuse_all_calls();
	for (size_t i = 0; i < 100; i++) {
		for (size_t k = 4; k < 8; k++)
			area[k * PAGE + i] ^= 0xff;
		if (cairn_rewind(c, id) || !is_restored())
			syscall(SYS_exit_group, 1);
	}
	syscall(SYS_exit_group, 0);
}

void silent(void)
{
	be_silent(0);
}

/* Many were born between two rewinds, and none of them has our memory. */
void silent_parent(void)
{
	be_silent(100);
}
