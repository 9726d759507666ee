/* SPDX-License-Identifier: MIT */
/*
 * vanishing TRACKER WAY STRATEGY: an area that another thread takes away and brings back all
 * the time. Whatever the engine does at that moment, it may not be killed for it, and memory beside
 * the area is as exact as ever. Ways: "cut" a file under its private mapping, "unmap", "guard"
 * (MADV_GUARD_INSTALL), "close" (PROT_NONE, mapped anew).
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include "../lib/harness.h"

#define PAGE          4096ul
#define PAGES         64ul
#define BYTES         (PAGES * PAGE)
#define SECONDS       1
#define GUARD_INSTALL 102
#define GUARD_REMOVE  103
/* Where no mapping of anybody else's comes to lie while nothing is there. */
#define PLACE         ((void *)0x20000000)

static int fd = -1;
static volatile uint8_t *area;
static atomic_bool stop;

static bool map(int prot)
{
	int flags = MAP_PRIVATE | MAP_FIXED | (fd < 0 ? MAP_ANONYMOUS : 0);

	return mmap(PLACE, BYTES, prot, flags, fd, 0) == PLACE;
}

static bool cut(void)
{
	return !ftruncate(fd, PAGE) && !ftruncate(fd, BYTES);
}

static bool unmap(void)
{
	return !munmap(PLACE, BYTES) && map(PROT_READ | PROT_WRITE);
}

static bool guard(void)
{
	return !madvise(PLACE, BYTES, GUARD_INSTALL) && !madvise(PLACE, BYTES, GUARD_REMOVE);
}

static bool close_it(void)
{
	return map(PROT_NONE) && map(PROT_READ | PROT_WRITE);
}

static const struct way {
	const char *name;
	bool (*go_and_come)(void);
} ways[] = { { "cut", cut }, { "unmap", unmap }, { "guard", guard }, { "close", close_it } };

static void *vanish(void *arg)
{
	const struct way *way = arg;

	while (!stop)
		CHECK(way->go_and_come());
	return NULL;
}

static const struct way *find_way(const char *name)
{
	for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
		if (!strcmp(ways[i].name, name))
			return &ways[i];
	test_fail("no such way: %s", name);
}

/* A store that answers EFAULT where the page is gone, instead of a signal. */
static void store(volatile uint8_t *at, uint8_t value)
{
	struct iovec local = { &value, 1 }, remote = { (void *)at, 1 };

	(void)!process_vm_writev(getpid(), &local, 1, &remote, 1, 0);
}

static int see_change(void *ctx, void *addr, size_t len, const void *from, const void *to)
{
	*(uint64_t *)ctx += len;
	return 0;
}

/* Only the area may be the reason why a call is refused. */
static bool done(int rc, const char *what)
{
	if (rc < 0 && rc != CAIRN_ELAYOUT && rc != CAIRN_EEVICTED && rc != CAIRN_EFAILED &&
		rc != CAIRN_ENOTAREA && rc != -EAGAIN)
		test_fail("%s: %d (%s)", what, rc, cairn_strerror(rc));
	return rc >= 0;
}

/* `steady`: the mapping is there all the time, so that a restore cannot meet it half way. */
static void round_trip(cairn_t *c, volatile uint8_t *beside, uint8_t value, bool steady)
{
	uint8_t bytes[PAGE];
	uint64_t id, seen = 0;

	for (size_t i = 1; i < PAGES; i++)
		store(area + i * PAGE, value);
	beside[0] = value;
	if (!done(cairn_checkpoint(c, &id), "cairn_checkpoint"))
		return;
	for (size_t i = 1; i < PAGES; i += 3)
		store(area + i * PAGE, (uint8_t)(value + 1));
	beside[0] = (uint8_t)(value + 1);
	for (size_t i = 0; i < PAGES; i += 5)
		(void)done(cairn_peek(c, id, (void *)(area + i * PAGE), bytes, PAGE), "cairn_peek");
	(void)done(cairn_changes(c, id, CAIRN_NOW, see_change, &seen), "cairn_changes");
	CHECK_OK(cairn_peek(c, id, (void *)beside, bytes, 1));
	CHECK_U64(bytes[0], value);
	if (steady && done(cairn_rewind(c, id), "cairn_rewind"))
		CHECK_U64(beside[0], value);
	else
		CHECK_U64(beside[0], (uint8_t)(value + 1));
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	const struct way *way = find_way(argc > 2 ? argv[2] : "cut");
	time_t end = time(NULL) + SECONDS;
	volatile uint8_t *beside;
	pthread_t thread;
	cairn_t *c;

	if (way->go_and_come == cut) {
		fd = memfd_create("cut", MFD_CLOEXEC);
		CHECK(fd >= 0 && !ftruncate(fd, BYTES));
	}
	CHECK(map(PROT_READ | PROT_WRITE));
	area = PLACE;
	if (way->go_and_come == guard && !guard())
		test_skip("MADV_GUARD_INSTALL (Linux 6.13)");
	beside = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(beside != MAP_FAILED);
	o.tracker = argc > 1 ? argv[1] : "async";
	o.strategy = argc > 3 ? argv[3] : "none";
	o.surface = "none";
	o.keep = 4;
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, PLACE, BYTES));
	CHECK_OK(cairn_area_add(c, (void *)beside, PAGE));
	CHECK(!pthread_create(&thread, NULL, vanish, (void *)way));
	for (uint8_t value = 1; time(NULL) < end; value += 2)
		round_trip(c, beside, value, way->go_and_come == cut || way->go_and_come == guard);
	stop = true;
	CHECK(!pthread_join(thread, NULL));
	/* Where it was found gone it is no area any more. */
	if (cairn_area_remove(c, PLACE, BYTES) < 0)
		dprintf(2, "it was found gone\n");
	CHECK_OK(cairn_area_add(c, PLACE, BYTES));
	round_trip(c, beside, 101, true);
	CHECK_OK(cairn_close(c));
	return 0;
}
