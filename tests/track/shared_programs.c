/* SPDX-License-Identifier: MIT */
/*
 * shared_programs CASE: sessions of many processes on one set of BPF programs (bpf_hub.h).
 *
 *	family    MEMBERS workers of another user, whose areas have the same addresses, store at the
 *	          same time, each to other pages: each sees its own stores, all of them, and no
 *	          other's; three links serve all, and nobody holds a descriptor of a map
 *	stolen    the same, and each takes the first one's entry away: `family` must notice
 *	gone      processes that end, are killed, execute or close leave no entries behind
 *	overflow  one fills its ring; the other one has no reason to doubt
 *	stuck     somebody was killed who held the lock: the next one has a feed all the same
 *	queue     many join at once, and each takes long: one hub takes them all
 *	replaced  the keeper is killed, and the program puts other files in the links' places
 *	stopped   somebody is stopped who makes a hub: the others agree on another one
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "../lib/harness.h"
#include "base/log.h"
#include "os/bpf.h"
#include "os/host.h"
#include "track/feeds/bpf_attach.h"
#include "track/feeds/bpf_hub.h"

#define PAGE	4096ul
#define MEMBERS 14
#define PAGES	(MEMBERS * 4ul)
#define TURNS	30
#define NOBODY	65534
#define MANY	20000ul /* more pages than a ring has entries */
#define DEATHS	40 /* more than gather before they are removed */
#define QUEUE	9
#define SLOW_US 700000 /* so that the last one waits longer than for a dead one */

static struct shared {
	_Atomic unsigned arrived;
	_Atomic bool proven; /* the first member's feed */
	uint64_t first_mm;
} *shared;

static bool stolen, slow, stops;
static pid_t main_pid;
static volatile uint8_t *area;
static cairn_t *c;

/* ---- What is wrapped ------------------------------------------------------------------------- */

int __real_crn_bpf_kind(uint32_t *kind);
int __wrap_crn_bpf_kind(uint32_t *kind);

/* Hubs of this test's own: other sessions on this host are neither disturbed nor counted. */
int __wrap_crn_bpf_kind(uint32_t *kind)
{
	int err = __real_crn_bpf_kind(kind);

	*kind ^= (uint32_t)main_pid;
	return err;
}

int __real_crn_bpf_table_put(int table, uint64_t key, int array);
int __wrap_crn_bpf_table_put(int table, uint64_t key, int array);

int __wrap_crn_bpf_table_put(int table, uint64_t key, int array)
{
	if (stolen && key != CRN_HUB_RECORD) {
		if (!shared->first_mm)
			shared->first_mm = key;
		else
			(void)__real_crn_bpf_table_put(table, shared->first_mm, array);
	}
	if (slow)
		usleep(SLOW_US);
	return __real_crn_bpf_table_put(table, key, array);
}

int __real_crn_bpf_link_number(int link, uint32_t *number);
int __wrap_crn_bpf_link_number(int link, uint32_t *number);

/* Called by whoever makes a hub, before it is ready. */
int __wrap_crn_bpf_link_number(int link, uint32_t *number)
{
	if (stops)
		raise(SIGSTOP);
	stops = false;
	return __real_crn_bpf_link_number(link, number);
}

/* ---- What all cases need --------------------------------------------------------------------- */

static volatile uint8_t *map_pages(size_t count, int flags)
{
	void *p = mmap(NULL, count * PAGE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	CHECK(p != MAP_FAILED);
	return p;
}

static void open_session(size_t pages)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	o.tracker = "async";
	o.feed = "bpf";
	o.strategy = "none";
	o.surface = "none";
	o.keep = 4;
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, (void *)area, pages * PAGE));
}

static struct cairn_stats stats(void)
{
	struct cairn_stats s = { .size = sizeof(s) };

	CHECK_OK(cairn_stats(c, &s));
	return s;
}

static uint64_t checkpoint(void)
{
	uint64_t id;

	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	return id;
}

static int status_of(pid_t pid)
{
	int status;

	CHECK(waitpid(pid, &status, 0) == pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Wait until `count` have come here, for the n-th time. */
static void meet(unsigned count, unsigned n)
{
	shared->arrived++;
	while (shared->arrived < count * n)
		usleep(200);
}

/* ---- A family -------------------------------------------------------------------------------- */

static uint8_t value(unsigned me, unsigned turn)
{
	return (uint8_t)(1 + me * 7 + turn * 3);
}

static void store_own(unsigned me, uint8_t byte)
{
	for (size_t p = me; p < PAGES; p += MEMBERS)
		area[p * PAGE + me] = byte;
}

static void expect_own(unsigned me, uint8_t byte)
{
	for (size_t p = 0; p < PAGES; p++)
		CHECK_U64(area[p * PAGE + me], p % MEMBERS == me ? byte : 0);
}

static void work(unsigned me)
{
	const uint64_t own = PAGES / MEMBERS;
	struct cairn_stats before, after;
	unsigned met = 0;
	uint64_t id;

	while (stolen && me && !shared->proven)
		usleep(200);
	open_session(PAGES);
	shared->proven = true;
	CHECK(!setgid(NOBODY) && !setuid(NOBODY));
	store_own(me, 0);
	id = checkpoint();
	meet(MEMBERS, ++met);
	before = stats();
	for (unsigned turn = 0; turn < TURNS; turn++) {
		store_own(me, value(me, turn));
		meet(MEMBERS, ++met); /* the others have stored by now as well */
		id = checkpoint();
		store_own(me, 0xee);
		CHECK_OK(cairn_rewind(c, id));
		expect_own(me, value(me, turn));
	}
	after = stats();
	CHECK(!strcmp(after.feed, "bpf"));
	CHECK(after.scans - before.scans < TURNS / 2);
	/* Also what a rewind has put back is written again: twice a turn, and no page more. */
	CHECK(after.pages_saved - before.pages_saved <= 2 * own * TURNS);
	CHECK(after.pages_saved - before.pages_saved >= own * TURNS);
	meet(MEMBERS + 1, 1000); /* until the parent has seen us, and ends us */
}

struct seen {
	uint32_t links[4 * MEMBERS];
	unsigned link_count, map_count, links_open;
};

static void see_descriptor(struct seen *s, const char *text)
{
	const char *at = strstr(text, "link_id:");
	uint32_t id = at ? (uint32_t)strtoul(at + 8, NULL, 10) : 0;
	unsigned i = 0;

	s->map_count += strstr(text, "map_type:") != NULL;
	if (!at)
		return;
	s->links_open++;
	while (i < s->link_count && s->links[i] != id)
		i++;
	if (i == s->link_count && i < 4 * MEMBERS)
		s->links[s->link_count++] = id;
}

static void see_descriptors(struct seen *s, pid_t pid)
{
	char path[300], text[1024];
	struct dirent *e;
	ssize_t got;
	DIR *dir;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fdinfo", pid);
	dir = opendir(path);
	CHECK(dir);
	while ((e = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/fdinfo/%s", pid, e->d_name);
		fd = open(path, O_RDONLY);
		got = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
		text[got > 0 ? got : 0] = 0;
		see_descriptor(s, text);
		close(fd);
	}
	closedir(dir);
}

static void run_family(void)
{
	pid_t pids[MEMBERS];
	struct seen s = { 0 };
	int status = 0;
	pid_t dead = 0;

	area = map_pages(PAGES, MAP_PRIVATE);
	for (unsigned i = 0; i < MEMBERS; i++) {
		pids[i] = fork();
		CHECK(pids[i] >= 0);
		if (!pids[i]) {
			work(i);
			_exit(0);
		}
	}
	/* All meetings of theirs, and at the last one they wait for us. */
	while (shared->arrived < MEMBERS * (TURNS + 2)) {
		dead = waitpid(-1, &status, WNOHANG);
		if (dead > 0)
			break; /* the others would wait for it */
		usleep(1000);
	}
	for (unsigned i = 0; i < MEMBERS && dead <= 0; i++)
		see_descriptors(&s, pids[i]);
	for (unsigned i = 0; i < MEMBERS; i++)
		kill(pids[i], SIGKILL);
	if (dead > 0 && WIFEXITED(status) && WEXITSTATUS(status) == TEST_SKIP)
		test_skip("feed bpf");
	if (stolen) {
		CHECK(dead > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 1);
		return;
	}
	CHECK(dead <= 0);
	CHECK_U64(s.link_count, CRN_LINKS);
	CHECK_U64(s.links_open, CRN_LINKS * MEMBERS); /* each keeps the programs alive by itself */
	CHECK_U64(s.map_count, 0);
}

/* ---- Entries --------------------------------------------------------------------------------- */

/* Of all hubs of our kind; also their locks are taken, if that is wanted. */
static unsigned count_entries(bool lock)
{
	char name[CRN_BPF_NAME];
	uint32_t kind, number = 0, record;
	unsigned count = 0;
	uint64_t key = 0;
	void *page;

	CHECK(crn_bpf_kind(&kind) >= 0);
	crn_format(name, sizeof(name), "cairn_%x", kind);
	while (crn_bpf_map_next(&number) >= 0) {
		int table = crn_bpf_map_named(number, name);

		if (table < 0)
			continue;
		for (bool first = true; crn_bpf_table_next(table, &key, first) >= 0; first = false)
			count += key != CRN_HUB_RECORD;
		if (lock && crn_bpf_table_get(table, CRN_HUB_RECORD, &record) >= 0 &&
			crn_bpf_array_page(record, &page) >= 0)
			((uint32_t *)page)[2] = 1; /* struct record, in bpf_hub.c */
		close(table);
	}
	return count;
}

static void end_somehow(unsigned how, char *self)
{
	open_session(PAGES);
	area[0] = 1;
	(void)checkpoint();
	if (how % 4 == 0)
		_exit(0);
	if (how % 4 == 1)
		execl(self, self, "nothing", NULL);
	if (how % 4 == 2) {
		CHECK_OK(cairn_close(c));
		_exit(0);
	}
	raise(SIGKILL);
}

static void run_gone(char *self)
{
	unsigned before, after;

	area = map_pages(PAGES, MAP_PRIVATE);
	open_session(PAGES); /* without a member there is no hub */
	before = count_entries(false);
	for (unsigned i = 0; i < DEATHS; i++) {
		pid_t pid = fork();

		if (!pid)
			end_somehow(i, self);
		CHECK_U64(status_of(pid), i % 4 == 3 ? 128 + SIGKILL : 0);
	}
	after = count_entries(false);
	dprintf(1, "%u entries before, %u after %u deaths\n", before, after, DEATHS);
	/* Now and then one takes out what those before it have left. */
	CHECK(before >= 1);
	CHECK(after <= before + CRN_HUB_DEAD + 3);
}

static void run_overflow(void)
{
	struct cairn_stats before, after;
	pid_t pid;

	area = map_pages(MANY, MAP_PRIVATE);
	open_session(PAGES);
	area[0] = 1;
	(void)checkpoint();
	before = stats();
	pid = fork();
	if (!pid) {
		open_session(MANY);
		for (size_t p = 0; p < MANY; p++)
			area[p * PAGE] = 2;
		(void)checkpoint();
		_exit(strcmp(stats().feed, "bpf") || stats().scans == 0);
	}
	for (unsigned turn = 0; turn < 20; turn++) {
		area[0] = (uint8_t)turn;
		(void)checkpoint();
		usleep(2000);
	}
	CHECK_U64(status_of(pid), 0);
	after = stats();
	CHECK(!strcmp(after.feed, "bpf"));
	CHECK(after.scans - before.scans < 10);
}

static void run_stuck(void)
{
	pid_t pid;

	area = map_pages(PAGES, MAP_PRIVATE);
	open_session(PAGES);
	CHECK(count_entries(true) >= 1);
	pid = fork();
	if (!pid) {
		open_session(PAGES);
		area[PAGE] = 7;
		(void)checkpoint();
		area[PAGE] = 8;
		CHECK_OK(cairn_rewind(c, 1));
		CHECK_U64(area[PAGE], 7);
		_exit(strcmp(stats().feed, "bpf") != 0);
	}
	CHECK_U64(status_of(pid), 0);
	area[0] = 5; /* who is there already notices nothing */
	(void)checkpoint();
	area[0] = 6;
	CHECK_OK(cairn_rewind(c, 1));
	CHECK_U64(area[0], 5);
	CHECK(!strcmp(stats().feed, "bpf"));
}

/* ---- Waiting --------------------------------------------------------------------------------- */

/* Opens a session and stays until it is killed. */
static pid_t begin_member(void)
{
	pid_t pid = fork();

	CHECK(pid >= 0);
	if (pid)
		return pid;
	open_session(PAGES);
	CHECK(!strcmp(stats().feed, "bpf"));
	shared->arrived++;
	for (;;)
		pause();
}

/* False: one of them has ended. */
static bool all_arrive(unsigned count)
{
	while (shared->arrived < count) {
		if (waitpid(-1, NULL, WNOHANG) > 0)
			return false;
		usleep(1000);
	}
	return true;
}

static void run_queue(void)
{
	pid_t pids[QUEUE];
	struct seen s = { 0 };
	bool arrived;

	area = map_pages(PAGES, MAP_PRIVATE);
	open_session(PAGES);
	slow = true;
	for (unsigned i = 0; i < QUEUE; i++)
		pids[i] = begin_member();
	arrived = all_arrive(QUEUE);
	for (unsigned i = 0; i < QUEUE; i++) {
		if (arrived)
			see_descriptors(&s, pids[i]);
		kill(pids[i], SIGKILL);
	}
	CHECK(arrived);
	CHECK_U64(s.link_count, CRN_LINKS);
}

/* It is stopped in the middle of making a hub. */
static pid_t begin_maker(void)
{
	pid_t pid = fork();
	int status;

	CHECK(pid >= 0);
	if (!pid) {
		stops = true;
		open_session(PAGES);
		_exit(strcmp(stats().feed, "bpf") != 0);
	}
	CHECK(waitpid(pid, &status, WUNTRACED) == pid);
	CHECK(WIFSTOPPED(status));
	return pid;
}

static void run_stopped(void)
{
	pid_t maker, pids[2];
	struct seen s = { 0 };
	bool arrived = true;

	area = map_pages(PAGES, MAP_PRIVATE);
	open_session(PAGES); /* or skip; children inherit links */
	CHECK_OK(cairn_close(c));
	maker = begin_maker();
	for (unsigned i = 0; i < 2; i++) {
		pids[i] = begin_member();
		arrived = arrived && all_arrive(i + 1);
	}
	for (unsigned i = 0; i < 2 && arrived; i++)
		see_descriptors(&s, pids[i]);
	kill(maker, SIGCONT);
	CHECK_U64(status_of(maker), 0);
	for (unsigned i = 0; i < 2; i++)
		kill(pids[i], SIGKILL);
	CHECK(arrived);
	CHECK_U64(s.links_open, CRN_LINKS * 2);
	CHECK_U64(s.link_count, CRN_LINKS);
}

/* ---- Without a keeper ------------------------------------------------------------------------ */

static void kill_keeper(void)
{
	siginfo_t info;
	char text[64];
	int fd = open("/proc/thread-self/children", O_RDONLY);
	ssize_t got = read(fd, text, sizeof(text) - 1);
	pid_t pid;

	CHECK(got > 0);
	text[got] = 0;
	pid = (pid_t)strtol(text, NULL, 10);
	CHECK(pid > 0 && !kill(pid, SIGKILL));
	CHECK(!waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT | __WALL));
	close(fd);
}

static unsigned replace_links(void)
{
	int other = eventfd(0, 0);
	unsigned count = 0;

	CHECK(other >= 0);
	for (int fd = 3; fd < (int)sysconf(_SC_OPEN_MAX) && fd < 20000; fd++) {
		char path[64], to[64] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		if (readlink(path, to, sizeof(to) - 1) > 0 && strstr(to, "bpf-link")) {
			CHECK(dup2(other, fd) == fd);
			count++;
		}
	}
	return count;
}

static void run_replaced(void)
{
	uint64_t id;

	area = map_pages(PAGES, MAP_PRIVATE);
	open_session(PAGES);
	store_own(0, 1);
	(void)checkpoint();
	(void)checkpoint();
	kill_keeper();
	CHECK_U64(replace_links(), CRN_LINKS);
	usleep(100000);
	for (unsigned turn = 0; turn < 3; turn++) {
		store_own(0, value(0, turn));
		id = checkpoint();
		store_own(0, 0xee);
		CHECK_OK(cairn_rewind(c, id));
		expect_own(0, value(0, turn));
	}
}

int main(int argc, char **argv)
{
	const char *what = argc == 2 ? argv[1] : "";

	if (!strcmp(what, "nothing"))
		return 0;
	if (getuid() || !(crn_capabilities() & CRN_CAP_SYS_ADMIN))
		test_skip("root, with CAP_SYS_ADMIN");
	main_pid = getpid();
	shared = (void *)map_pages(1, MAP_SHARED);
	stolen = !strcmp(what, "stolen");
	if (stolen || !strcmp(what, "family"))
		run_family();
	else if (!strcmp(what, "gone"))
		run_gone(argv[0]);
	else if (!strcmp(what, "overflow"))
		run_overflow();
	else if (!strcmp(what, "stuck"))
		run_stuck();
	else if (!strcmp(what, "queue"))
		run_queue();
	else if (!strcmp(what, "replaced"))
		run_replaced();
	else if (!strcmp(what, "stopped"))
		run_stopped();
	else
		test_fail("usage: shared_programs CASE");
	return 0;
}
