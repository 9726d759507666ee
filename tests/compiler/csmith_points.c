/* SPDX-License-Identifier: MIT */
/*
 * The differential oracle of instrumented programs. Linked, without hooks, into a random program
 * that calls oracle_point() at the begin of each of its blocks: there checkpoints are taken, and
 * restores leave from there. At each checkpoint all private writable memory of the process is
 * copied (snapshot.h); after a restore to it every byte must be as it was.
 *
 * Environment: ORACLE_TRACKER, ORACLE_SEED; ORACLE_PAUSES: now and then the session rests;
 * ORACLE_LONGS: at any point the interval may go on in page mode. A mismatch ends the process with
 * status 1.
 */
#include <stdio.h>
#include "snapshot.h"

#define KEEP         4
#define COPY_MAX     (16ul << 20)
#define RESTORES_MAX 120

/* All that must survive a restore, in shared memory. */
static struct oracle {
	cairn_t *session;
	uint64_t random;
	unsigned long until; /* points until something happens */
	unsigned long checkpoints, restores, pauses, bytes;
	bool wants_pauses, paused, wants_longs;
	struct snapshot kept[KEEP];
	struct smaps smaps;
} *oracle;

static uint64_t draw(uint64_t below)
{
	return test_draw(&oracle->random, below);
}

static void compare(const struct snapshot *s)
{
	const struct range *r;
	char *p = find_difference(s, &r);

	if (p)
		test_fail("oracle: MISMATCH at %p in %p-%p, checkpoint %lu", (void *)p,
			(void *)r->begin, (void *)r->end, (unsigned long)s->id);
}

static void summary(void)
{
	struct cairn_stats s = { .size = sizeof(s) };

	CHECK_OK(cairn_stats(oracle->session, &s));
	dprintf(2, "oracle: %lu checkpoints, %lu restores, %lu pauses, %lu long, "
		"%lu bytes copied\n", oracle->checkpoints, oracle->restores, oracle->pauses,
		(unsigned long)s.long_intervals, oracle->bytes);
}

static void begin(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	const char *seed = getenv("ORACLE_SEED");

	oracle = mmap(NULL, sizeof(*oracle) + KEEP * COPY_MAX, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(oracle != MAP_FAILED && seed);
	for (size_t i = 0; i < KEEP; i++)
		oracle->kept[i] = (struct snapshot){ .copy_max = COPY_MAX,
			.copy = (char *)(oracle + 1) + i * COPY_MAX };
	oracle->random = strtoul(seed, NULL, 10) * 2654435761u + 88172645463325252u;
	oracle->until = 1;
	oracle->wants_pauses = getenv("ORACLE_PAUSES");
	oracle->wants_longs = getenv("ORACLE_LONGS");
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

/* A host without page mode goes on with hooks. */
static void go_long(void)
{
	int err = cairn_interval_long(oracle->session);

	CHECK(!err || err == CAIRN_ENOTRACK);
}

void oracle_point(void);

void oracle_point(void)
{
	uint64_t id = 0, oldest, newest;
	struct snapshot *s;

	if (!oracle)
		begin();
	if (--oracle->until) {
		if (oracle->wants_longs && !oracle->paused && !draw(6))
			go_long();
		return;
	}
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
	take_snapshot(s, &oracle->smaps, __builtin_frame_address(0));
	oracle->bytes += s->used;
	oracle->checkpoints++;
	if (cairn_checkpoint(oracle->session, &id) == CAIRN_RESTORED)
		compare(find_kept(id));
	else
		s->id = id;
}
