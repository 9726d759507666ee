/* SPDX-License-Identifier: MIT */
/*
 * prices_session TRACKER: what a first store costs is tried when a session opens, not derived from
 * other calls. Where each system call is made slow, a fault that makes none costs what it did. The
 * trial leaves nothing behind: no count, no mapping. What a hot page costs is kept by how many are
 * hot, and what it costs while more are comes down as long as fewer are; or none.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../lib/harness.h"
#include "session/engine.h"
#include "session/prices.h"

#define PAGE  4096ul
#define SLOW  4000u /* instructions; a look at an argument keeps the kernel from skipping them */
#define TRIES 5

static void slow_calls_down(void)
{
	static struct sock_filter code[SLOW + 1];
	struct sock_fprog program = { .len = SLOW + 1, .filter = code };

	for (size_t i = 0; i < SLOW; i++)
		code[i] = (struct sock_filter)BPF_STMT(
			BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[i % 6]));
	code[SLOW] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	CHECK_OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	CHECK_OK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static size_t count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	size_t count = 0;

	CHECK(maps);
	for (int c; (c = getc(maps)) != EOF;)
		count += c == '\n';
	fclose(maps);
	return count;
}

/* A session, and pages that are no area of it yet. */
static cairn_t *open_beside(const char *tracker, size_t pages, uint8_t **area)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	*area = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		0);
	CHECK(*area != MAP_FAILED);
	o.tracker = tracker;
	o.surface = "none";
	return test_open(&o);
}

static struct cairn_stats opened(const char *tracker)
{
	struct cairn_stats s = { .size = sizeof(s) };
	uint8_t *area;
	cairn_t *c = open_beside(tracker, 1, &area);
	uint64_t id;

	CHECK_OK(cairn_stats(c, &s));
	CHECK_U64(s.faults, 0);
	CHECK_U64(s.scans, 0);
	CHECK_U64(s.promotions, 0);
	CHECK_OK(cairn_area_add(c, area, PAGE));
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	*(volatile uint8_t *)area = 1;
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	CHECK_OK(cairn_close(c));
	return s;
}

static uint64_t fault_price(const char *tracker, bool slow)
{
	uint64_t price = 0;
	int ends[2], status;
	pid_t child;

	CHECK_OK(pipe(ends));
	child = fork();
	CHECK(child >= 0);
	if (!child) {
		if (slow)
			slow_calls_down();
		price = opened(tracker).price_fault;
		_exit(write(ends[1], &price, sizeof(price)) != sizeof(price));
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(read(ends[0], &price, sizeof(price)) == sizeof(price));
	close(ends[0]);
	close(ends[1]);
	return price;
}

/* Checkpoints with the first `count` pages written before each; so many are hot then. */
static size_t hot_after(cairn_t *c, volatile uint8_t *area, size_t count, unsigned checkpoints)
{
	uint64_t id;

	for (unsigned i = 0; i < checkpoints; i++) {
		for (size_t n = 0; n < count; n++)
			area[n * PAGE]++;
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	}
	return crn_speculation_hot(c->speculation);
}

static void measured(cairn_t *c, uint32_t price, unsigned times)
{
	while (times--) {
		c->predictor.price_hot = price;
		crn_prices_follow(c);
	}
}

static void check_sizes(const char *tracker)
{
	uint8_t *area;
	cairn_t *c = open_beside(tracker, 64, &area);
	struct crn_costs *costs = &c->port.costs;
	uint32_t of_many;

	CHECK_OK(cairn_area_add(c, area, 64 * PAGE));
	CHECK_U64(hot_after(c, area, 40, 4), 40);
	measured(c, 5000, 200);
	of_many = costs->sizes[5];
	CHECK(of_many > 4000);
	CHECK(costs->copy > 4000);
	for (size_t size = 0; size < 5; size++)
		CHECK_U64(costs->sizes[size], 0);
	CHECK_U64(hot_after(c, area, 3, 20000), 3);
	measured(c, 100, 100);
	CHECK(costs->sizes[1] && costs->sizes[1] < 1000);
	CHECK(costs->copy < 1000);
	CHECK_U64(crn_costs_copy(costs, 3, 64), costs->sizes[5]);
	CHECK_U64(crn_costs_copy(costs, 3, 31), costs->copy);
	CHECK(costs->sizes[5] < of_many && costs->sizes[5] > 1000);
	measured(c, 100, 64 * 32 * 20);
	CHECK(costs->sizes[5] < 2 * costs->copy);
	CHECK_OK(cairn_close(c));
}

/* Where no page is worth its price none is measured: it comes down all the same, in time. */
static void check_dear(const char *tracker)
{
	uint8_t *area;
	cairn_t *c = open_beside(tracker, 1, &area);
	struct crn_costs *costs = &c->port.costs;
	const uint32_t first = costs->copy, least = costs->protect;

	costs->copy = costs->sizes[0] = costs->sizes[9] = 16 * first;
	for (unsigned i = 1; i <= 400000; i++) {
		c->predictor.price_protect = least;
		crn_prices_follow(c);
		if (i == 40000)
			CHECK(costs->copy > 8 * first && costs->copy < 12 * first);
	}
	CHECK(costs->copy >= first && costs->copy < 2 * first);
	CHECK(costs->sizes[0] < 2 * first && costs->sizes[9] < 2 * first);
	CHECK_U64(costs->protect, least);
	CHECK_OK(cairn_close(c));
}

int main(int argc, char **argv)
{
	size_t mappings;
	bool same = false;

	CHECK(argc > 1);
	(void)opened(argv[1]); /* what is mapped once and stays */
	mappings = count_mappings();
	(void)opened(argv[1]);
	CHECK_U64(count_mappings(), mappings + 1); /* its page */
	/* Under the others the kernel calls a handler, which makes calls. */
	for (int i = 0; !same && i < TRIES; i++)
		same = strcmp(argv[1], "async") != 0 ||
		       fault_price(argv[1], true) < fault_price(argv[1], false) * 2;
	CHECK(same);
	check_sizes(argv[1]);
	check_dear(argv[1]);
	return 0;
}
