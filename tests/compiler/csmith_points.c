/* SPDX-License-Identifier: MIT */
/*
 * The differential oracle of instrumented programs. Linked, without hooks, into a random program
 * that calls oracle_point() at the begin of each of its blocks: there checkpoints are taken, and
 * restores leave from there. At each checkpoint all private writable memory of the process is
 * copied; after a restore to it every byte must be as it was, but for
 *
 *	- the engine's and the run-time's (MADV_WIPEONFORK: "wf" in smaps)
 *	- segments of shared libraries, which have no hooks, and what lies right behind them (.bss)
 *	- the stack below the frame that took the checkpoint
 *
 * Environment: ORACLE_TRACKER, ORACLE_SEED; ORACLE_PAUSES: now and then the session rests. A
 * mismatch ends the process with status 1.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "../lib/harness.h"

#define KEEP         4
#define RANGES_MAX   64
#define COPY_MAX     (16ul << 20)
#define RESTORES_MAX 120

struct range {
	char *begin, *end;
	size_t at; /* of its copy */
};

struct snapshot {
	uint64_t id;
	struct range ranges[RANGES_MAX];
	size_t count;
	char *copy;
};

/* All that must survive a restore, in shared memory. */
static struct oracle {
	cairn_t *session;
	uint64_t random;
	unsigned long until; /* points until something happens */
	unsigned long checkpoints, restores, pauses, bytes;
	bool wants_pauses, paused;
	struct snapshot kept[KEEP];
	char text[1 << 18];         /* of smaps */
} *oracle;

static uint64_t draw(uint64_t below)
{
	uint64_t x = oracle->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	oracle->random = x;
	return x % below;
}

static void add_range(struct snapshot *s, size_t *used, char *begin, char *end)
{
	CHECK(s->count < RANGES_MAX && *used + (size_t)(end - begin) <= COPY_MAX);
	s->ranges[s->count++] = (struct range){ begin, end, *used };
	memcpy(s->copy + *used, begin, (size_t)(end - begin));
	*used += (size_t)(end - begin);
}

static size_t read_smaps(void)
{
	int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t n;

	CHECK(fd >= 0);
	while ((n = read(fd, oracle->text + used, sizeof(oracle->text) - 1 - used)) > 0)
		used += (size_t)n;
	close(fd);
	oracle->text[used] = 0;
	CHECK(used < sizeof(oracle->text) - 1);
	return used;
}

/* The mappings, each with its flags. No stdio: its buffers are memory of the process. */
static void take_snapshot(struct snapshot *s, char *frame)
{
	char self[512], *line = oracle->text, *library_end = NULL;
	size_t used = 0;
	ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

	CHECK(len > 0);
	self[len] = 0;
	read_smaps();
	s->count = 0;
	while (*line) {
		char *rest, *flags = strstr(line, "\nVmFlags:");
		char *begin = (char *)strtoul(line, &rest, 16);
		char *end = (char *)strtoul(rest + 1, &rest, 16);
		char *newline = strchr(line, '\n');
		char *path = memchr(rest, '/', (size_t)(newline - rest));
		int other = path && strcmp(path, self), library;

		CHECK(flags);
		flags = strchr(flags + 1, '\n');
		*newline = *flags = 0;
		library = other || (!path && !strchr(rest, '[') && begin == library_end);
		if (other)
			library_end = end;
		if (!strncmp(rest, " rw-p", 5) && !library && !strstr(newline + 1, " wf"))
			add_range(s, &used, frame > begin && frame < end ? frame : begin, end);
		line = flags + 1;
	}
	oracle->bytes += used;
}

static void compare(const struct snapshot *s)
{
	for (size_t i = 0; i < s->count; i++) {
		const struct range *r = &s->ranges[i];

		for (char *p = r->begin; p < r->end; p++)
			if (*p != s->copy[r->at + (size_t)(p - r->begin)])
				test_fail("oracle: MISMATCH at %p in %p-%p, checkpoint %lu",
					(void *)p, (void *)r->begin, (void *)r->end,
					(unsigned long)s->id);
	}
}

static void summary(void)
{
	dprintf(2, "oracle: %lu checkpoints, %lu restores, %lu pauses, %lu bytes copied\n",
		oracle->checkpoints, oracle->restores, oracle->pauses, oracle->bytes);
}

static void begin(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	const char *seed = getenv("ORACLE_SEED");

	oracle = mmap(NULL, sizeof(*oracle) + KEEP * COPY_MAX, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(oracle != MAP_FAILED && seed);
	for (size_t i = 0; i < KEEP; i++)
		oracle->kept[i].copy = (char *)(oracle + 1) + i * COPY_MAX;
	oracle->random = strtoul(seed, NULL, 10) * 2654435761u + 88172645463325252u;
	oracle->until = 1;
	oracle->wants_pauses = getenv("ORACLE_PAUSES");
	o.tracker = getenv("ORACLE_TRACKER");
	o.keep = KEEP;
	CHECK(!atexit(summary));
	CHECK_OK(cairn_open(&oracle->session, &o));
}

/* Of the checkpoints that can be named: any. NULL: there is none with registers yet. */
static struct snapshot *any_kept(uint64_t oldest, uint64_t newest)
{
	struct snapshot *kept[KEEP];
	size_t count = 0;

	for (size_t i = 0; i < KEEP; i++)
		if (oracle->kept[i].id >= (oldest ? oldest : 1) && oracle->kept[i].id <= newest)
			kept[count++] = &oracle->kept[i];
	return count ? kept[draw(count)] : NULL;
}

/* One that cannot be named any more, or will not when there is one checkpoint more. */
static struct snapshot *free_slot(uint64_t oldest, uint64_t newest)
{
	struct snapshot *found = &oracle->kept[0];

	for (size_t i = 0; i < KEEP; i++) {
		struct snapshot *s = &oracle->kept[i];

		if (s->id < oldest || s->id > newest)
			return s;
		if (s->id < found->id)
			found = s;
	}
	return found;
}

/* Where a restore came back to; what was taken after it is gone. */
static struct snapshot *find_kept(uint64_t id)
{
	struct snapshot *found = NULL;

	for (size_t i = 0; i < KEEP; i++) {
		if (oracle->kept[i].id == id)
			found = &oracle->kept[i];
		else if (oracle->kept[i].id > id)
			oracle->kept[i].id = 0;
	}
	CHECK(found);
	return found;
}

/* True: it rests from here to one of the next points. */
static bool rest(void)
{
	if (oracle->paused && !draw(4)) {
		CHECK_OK(cairn_resume(oracle->session));
		for (size_t i = 0; i < KEEP; i++)
			oracle->kept[i].id = 0;
		oracle->paused = false;
	} else if (!oracle->paused && oracle->wants_pauses && !draw(6)) {
		CHECK_OK(cairn_pause(oracle->session));
		oracle->paused = true;
		oracle->pauses++;
	}
	return oracle->paused;
}

void oracle_point(void);

void oracle_point(void)
{
	uint64_t id = 0, oldest, newest;
	struct snapshot *s;

	if (!oracle)
		begin();
	if (--oracle->until)
		return;
	/* Rarer and rarer, so that long programs end. */
	oracle->until = 1 + draw(4 + oracle->checkpoints / 4);
	if (rest())
		return;
	CHECK_OK(cairn_range(oracle->session, &oldest, &newest));
	s = any_kept(oldest, newest);
	if (s && draw(2) && oracle->restores < RESTORES_MAX) {
		oracle->restores++;
		CHECK_OK(cairn_restore(oracle->session, s->id)); /* does not return */
	}
	s = free_slot(oldest, newest);
	take_snapshot(s, __builtin_frame_address(0));
	oracle->checkpoints++;
	if (cairn_checkpoint(oracle->session, &id) == CAIRN_RESTORED)
		compare(find_kept(id));
	else
		s->id = id;
}
