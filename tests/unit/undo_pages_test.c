/* SPDX-License-Identifier: MIT */
/*
 * Undo pages against the plainest model there is, a full copy of the area at every interval_begin:
 * random stores, touches, hot pages, rewinds, older rewinds and intervals, under both trackers;
 * then the single behaviours that the model does not reach. usage: undo_pages_test [SEED]
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>
#include "undo_model.h"
#include "track/faults.h"

static void random_page_op(struct rig *r)
{
	uintptr_t addr = (uintptr_t)r->live + rnd(BYTES);
	size_t len = 1 + rnd((uint32_t)((uintptr_t)r->live + BYTES - addr));
	int differing = 0;

	if (len > 10 * CRN_PAGE_SIZE)
		len = 10 * CRN_PAGE_SIZE;
	switch (rnd(4)) {
	case 0:
		assert_int_equal(r->ops->page.unprotect(r->t, addr, len), 0);
		/* The kernel may write there now, and give the pages back. */
		if (!(r->area.flags & CRN_AREA_HOT) && crn_page_down(addr) == addr)
			assert_int_equal(madvise((void *)addr, len, MADV_DONTNEED), 0);
		break;
	case 1:
		assert_int_equal(r->ops->page.set_hot(r->t, addr, len, true), 0);
		break;
	case 2:
		assert_int_equal(r->ops->page.set_hot(r->t, addr, len, false), 0);
		break;
	default:
		for (size_t p = 0; p < PAGES; p++)
			differing += memcmp(r->live + p * CRN_PAGE_SIZE,
					     r->begin + p * CRN_PAGE_SIZE, CRN_PAGE_SIZE) != 0;
		assert_int_equal(r->ops->page.collect(r->t, (uintptr_t)r->live, BYTES), differing);
	}
}

static void model(const struct crn_tracker_ops *ops, uint32_t flags, uint32_t keep)
{
	struct rig *r = rig_new(ops, flags, 64 << 20);

	r->env.keep = keep;
	if (keep > 16)
		sink_absorbs(&r->sink);
	else
		r->sink.exchange = keep > 1 ? sink_exchange : sink_exchange_last;
	memcpy(r->before, r->begin, BYTES);
	for (int round = 0; round < 2000; round++) {
		random_stores(r);
		switch (rnd(8)) {
		case 0:
			rewind_interval(r);
			break;
		case 1:
			rewind_further(r);
			break;
		case 2:
			look_everywhere(r);
			break;
		case 3:
			random_page_op(r);
			break;
		default:
			end_interval(r);
		}
		assert_int_equal(r->lost, 0);
	}
	assert_true(r->taken > 1000);
	assert_true(keep <= 16 || r->absorbed > 100);
	assert_true(keep > 16 || r->exchanged > 100);
	rig_free(r);
}

static void model_mprotect(void **state)
{
	model(&crn_tracker_mprotect, 0, 1);
	model(&crn_tracker_mprotect, 0, 8);
	model(&crn_tracker_mprotect, 0, 1000);
}

static void model_uffd(void **state)
{
	model(&crn_tracker_uffd, 0, 1);
	model(&crn_tracker_uffd, 0, 8);
	model(&crn_tracker_uffd, 0, 1000);
}

static void model_hot(void **state)
{
	model(&crn_tracker_mprotect, CRN_AREA_HOT, 1);
	model(&crn_tracker_mprotect, CRN_AREA_HOT, 8);
	model(&crn_tracker_uffd, CRN_AREA_HOT, 1000);
}

/* Where userfaultfd cannot go, uffd is mprotect. */
static void model_uffd_fallback(void **state)
{
	model(&crn_tracker_uffd, CRN_AREA_FILE, 1);
}

/* ---- Single behaviours ---- */

static void quiet_checkpoint(void **state)
{
	struct rig *r = rig_new(&crn_tracker_mprotect, 0, 64 << 20);

	r->live[0] = 1;
	end_interval(r);
	r->taken = 0;
	r->prepared = 77;
	end_interval(r);
	assert_int_equal(r->taken, 0);
	assert_int_equal(r->prepared, 77); /* not even asked */
	rig_free(r);
}

static void coalesced(void **state)
{
	struct rig *r = rig_new(&crn_tracker_mprotect, 0, 64 << 20);

	for (int p = 0; p < PAGES; p += 2)
		r->live[p * CRN_PAGE_SIZE]++;
	end_interval(r);
	assert_int_equal(r->ops->faults(r->t), PAGES / 2);
	assert_int_equal(r->ops->bytes(r->t), 0);
	/* All are protected again: each faults again. */
	for (int p = 0; p < PAGES; p += 2)
		r->live[p * CRN_PAGE_SIZE]++;
	assert_int_equal(r->ops->faults(r->t), PAGES);
	assert_int_equal(r->ops->bytes(r->t), BYTES / 2);
	rewind_interval(r);
	/* And stay open after a rewind. */
	for (int p = 0; p < PAGES; p += 2)
		r->live[p * CRN_PAGE_SIZE]++;
	assert_int_equal(r->ops->faults(r->t), PAGES);
	rewind_interval(r);
	rig_free(r);
}

static void no_memory(void **state)
{
	struct rig *r = rig_new(&crn_tracker_mprotect, 0, 512 << 10);
	void *frame;

	while ((frame = crn_frame_alloc(r->arena)))
		;
	r->live[5]++; /* goes through all the same */
	assert_int_equal(r->lost, 1);
	/* A failed prepare changes nothing. */
	r->ops->page.set_hot(r->t, (uintptr_t)r->live, 1, true);
	assert_int_equal(r->ops->interval_end(r->t, &r->sink), CAIRN_EMEMORY);
	assert_int_equal(r->taken, 0);
	rig_free(r);
}

struct storm {
	struct rig *r;
	pthread_barrier_t *start;
	unsigned seed;
};

static void *store_all(void *arg)
{
	struct storm *s = arg;

	pthread_barrier_wait(s->start);
	for (int p = 0; p < PAGES; p++) {
		volatile uint8_t *at = s->r->live + ((p * 7 + s->seed) % PAGES) * CRN_PAGE_SIZE;

		at[s->seed] = (uint8_t)(p + 1);
	}
	return NULL;
}

/* Four threads fault on the same pages at once: one pre-image each, and no store is lost. */
static void threads(const struct crn_tracker_ops *ops)
{
	struct rig *r = rig_new(ops, 0, 64 << 20);

	for (int round = 0; round < 200; round++) {
		pthread_t ids[4];
		struct storm storms[4];
		pthread_barrier_t start;

		pthread_barrier_init(&start, NULL, 4);
		for (unsigned i = 0; i < 4; i++) {
			storms[i] = (struct storm){ r, &start, i };
			pthread_create(&ids[i], NULL, store_all, &storms[i]);
		}
		for (int i = 0; i < 4; i++)
			pthread_join(ids[i], NULL);
		for (unsigned i = 0; i < 4; i++)
			for (int p = 0; p < PAGES; p++)
				assert_int_equal(
					r->live[((p * 7 + i) % PAGES) * CRN_PAGE_SIZE + i], p + 1);
		assert_int_equal(r->ops->bytes(r->t), BYTES);
		if (round & 1)
			end_interval(r);
		else
			rewind_interval(r);
		for (int p = 0; p < PAGES; p++)
			memset(r->live + p * CRN_PAGE_SIZE, 0, 4);
		end_interval(r);
	}
	rig_free(r);
}

static void threads_mprotect(void **state)
{
	threads(&crn_tracker_mprotect);
}

static void threads_uffd(void **state)
{
	threads(&crn_tracker_uffd);
}

static volatile int going;

static void *store_on(void *arg)
{
	struct rig *r = arg;

	for (unsigned n = 1; going; n++)
		((volatile uint32_t *)r->live)[(n * 37 % PAGES) * 1024 + 1]++;
	return NULL;
}

static int count_only(struct crn_sink *s, uintptr_t addr, size_t len, void *old, bool owned)
{
	rig_of_sink(s)->taken++;
	if (owned)
		crn_frame_free(rig_of_sink(s)->arena, old);
	return 0;
}

/* Intervals end while another thread stores: no deadlock, no lost store, no frame lost. */
static void intervals_under_fire(void **state)
{
	struct rig *r = rig_new(&crn_tracker_mprotect, 0, 64 << 20);
	pthread_t id;

	r->sink.take = count_only;
	going = 1;
	pthread_create(&id, NULL, store_on, r);
	for (int i = 0; i < 2000; i++) {
		assert_int_equal(r->ops->interval_end(r->t, &r->sink), 0);
		if (i % 100 == 0)
			usleep(1000);
	}
	going = 0;
	pthread_join(id, NULL);
	assert_int_equal(r->ops->interval_end(r->t, &r->sink), 0);
	assert_int_equal(r->ops->bytes(r->t), 0);
	assert_int_equal(r->lost, 0);
	r->sink.take = sink_take;
	rig_free(r);
}

/* The program's own handler gets what is not ours, and the default action still kills. */
static sigjmp_buf out;
static volatile uintptr_t chained_addr;

static void chained(int sig, siginfo_t *info, void *uc)
{
	chained_addr = (uintptr_t)info->si_addr;
	siglongjmp(out, 1);
}

static void chains(void **state)
{
	struct sigaction mine = { .sa_sigaction = chained, .sa_flags = SA_SIGINFO }, old;
	uint8_t *forbidden =
		mmap(NULL, CRN_PAGE_SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct rig *r;
	int status;
	pid_t pid;

	sigaction(SIGSEGV, &mine, &old);
	r = rig_new(&crn_tracker_mprotect, 0, 64 << 20);
	r->live[0]++;
	assert_int_equal(chained_addr, 0);
	if (!sigsetjmp(out, 1))
		*(volatile uint8_t *)forbidden = 1;
	assert_ptr_equal(chained_addr, forbidden);
	/* A page of ours that the program has made read-only is its own affair. */
	assert_int_equal(r->ops->page.unprotect(r->t, (uintptr_t)r->live, CRN_PAGE_SIZE), 0);
	assert_int_equal(mprotect(r->live, CRN_PAGE_SIZE, PROT_READ), 0);
	assert_int_equal(
		r->ops->page.protection(r->t, (uintptr_t)r->live, CRN_PAGE_SIZE, PROT_READ), 0);
	chained_addr = 0;
	if (!sigsetjmp(out, 1))
		*(volatile uint8_t *)r->live = 1;
	assert_ptr_equal(chained_addr, r->live);
	end_interval(r);
	chained_addr = 0;
	if (!sigsetjmp(out, 1))
		*(volatile uint8_t *)r->live = 1;
	assert_ptr_equal(chained_addr, r->live);
	assert_int_equal(mprotect(r->live, CRN_PAGE_SIZE, PROT_READ | PROT_WRITE), 0);
	assert_int_equal(r->ops->page.protection(
				 r->t, (uintptr_t)r->live, CRN_PAGE_SIZE, PROT_READ | PROT_WRITE),
		0);
	r->live[0]++;
	end_interval(r);
	rig_free(r);
	sigaction(SIGSEGV, NULL, &mine);
	assert_ptr_equal(mine.sa_sigaction, chained);
	mine.sa_handler = SIG_DFL;
	sigaction(SIGSEGV, &mine, NULL);

	r = rig_new(&crn_tracker_uffd, 0, 64 << 20);
	pid = fork();
	if (pid == 0) {
		*(volatile uint8_t *)forbidden = 1;
		_exit(0);
	}
	waitpid(pid, &status, 0);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
	rig_free(r);
	sigaction(SIGSEGV, &old, NULL);
	munmap(forbidden, CRN_PAGE_SIZE);
}

/* A child stores where its parent was protected, and opens a tracker of its own. */
static void forks(const struct crn_tracker_ops *ops)
{
	struct rig *r = rig_new(ops, 0, 64 << 20);
	int status;
	pid_t pid;

	r->live[0]++;
	pid = fork();
	if (pid == 0) {
		struct rig *own;

		for (int p = 0; p < PAGES; p++)
			r->live[p * CRN_PAGE_SIZE]++;
		own = rig_new(ops, 0, 64 << 20);
		own->live[0]++;
		if (ops->faults(own->t) != 1)
			_exit(1);
		rewind_interval(own);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
	rewind_interval(r);
	assert_int_equal(r->ops->faults(r->t), 1);
	rig_free(r);
}

static void forks_mprotect(void **state)
{
	forks(&crn_tracker_mprotect);
}

static void forks_uffd(void **state)
{
	forks(&crn_tracker_uffd);
}

/* An area that vanished behind our back hurts nobody. */
static int getrandom_into(void *at)
{
	return getrandom(at, 1, GRND_NONBLOCK) < 0 ? -errno : 0;
}

static void vanished(void **state)
{
	struct rig *r = rig_new(&crn_tracker_mprotect, 0, 64 << 20);
	int fd;

	r->live[0]++;
	r->live[9 * CRN_PAGE_SIZE]++;
	assert_int_equal(
		r->ops->page.set_hot(r->t, (uintptr_t)r->live + 9 * CRN_PAGE_SIZE, 1, true), 0);
	munmap(r->live, BYTES);
	assert_int_equal(r->ops->interval_end(r->t, &r->sink), 0);
	assert_int_equal(r->taken, 2);
	memset(r->seen, 0, sizeof(r->seen));
	/* Somebody else's mapping in the same place is left alone: it has a file behind it. */
	fd = open("/proc/self/exe", O_RDONLY);
	assert_ptr_equal(
		mmap(r->live, CRN_PAGE_SIZE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0), r->live);
	close(fd);
	r->ops->area_drop(r->t, &r->area);
	assert_int_equal(r->ops->bytes(r->t), 0);
	assert_int_equal(getrandom_into(r->live), -EFAULT);
	r->live = mmap(r->live, BYTES, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	rig_free(r);
}

/* A page that stays open, and then becomes zeros while nothing else is written, has changed. */
static void zeroed_on(const struct crn_tracker_ops *ops)
{
	struct rig *r = rig_new(ops, 0, 64 << 20);
	uint8_t *page = r->live + 9 * CRN_PAGE_SIZE;

	r->env.keep = 8;
	r->sink.exchange = sink_exchange;
	assert_int_equal(r->ops->page.set_hot(r->t, (uintptr_t)page, 1, true), 0);
	page[5] = 7;
	end_interval(r);
	memset(page, 0, CRN_PAGE_SIZE);
	end_interval(r);
	page[5] = 7;
	end_interval(r);
	assert_int_equal(r->taken, 3);
	rig_free(r);
}

static void zeroed(void **state)
{
	zeroed_on(&crn_tracker_mprotect);
	zeroed_on(&crn_tracker_uffd);
}

/* vm.max_map_count is reached: pages stay open, nothing is lost. */
static void crowded(void **state)
{
	struct rig *r = rig_new(&crn_tracker_mprotect, 0, 64 << 20);
	size_t limit = (size_t)host.max_map_count, count = 0;
	uint8_t *filler;

	if (host.max_map_count < 0 || limit > 200000) {
		rig_free(r);
		skip();
	}
	filler = mmap(NULL, limit * 2 * CRN_PAGE_SIZE, PROT_READ,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	while (count < limit &&
		mprotect(filler + count * 2 * CRN_PAGE_SIZE, CRN_PAGE_SIZE, PROT_NONE) == 0)
		count++;
	assert_true(count < limit);
	for (int round = 0; round < 4; round++) {
		for (int p = 3; p < PAGES; p += 5)
			r->live[p * CRN_PAGE_SIZE]++;
		if (round == 1)
			rewind_interval(r);
		else
			end_interval(r);
	}
	munmap(filler, limit * 2 * CRN_PAGE_SIZE);
	assert_int_equal(r->lost, 0);
	rig_free(r);
}

static void *store_first(void *arg)
{
	*(volatile uint8_t *)arg = 1;
	return NULL;
}

/* What a restore has set aside is there for it: another thread's first store waits for its end. */
static void held(void **state)
{
	struct rig *r = rig_new(&crn_tracker_uffd, 0, 64ul << 20);
	uint64_t used = crn_arena_frames_used(r->arena);
	pthread_t id;

	r->ops->hold(r->t, true);
	assert_int_equal(pthread_create(&id, NULL, store_first, r->live), 0);
	usleep(20000);
	assert_int_equal(crn_arena_frames_used(r->arena), used);
	/* What the restore itself does goes on meanwhile. */
	assert_int_equal(
		r->ops->rebase(r->t, (uintptr_t)r->live + CRN_PAGE_SIZE, r->begin), 0);
	memcpy(r->live + CRN_PAGE_SIZE, r->begin, CRN_PAGE_SIZE);
	memcpy(r->begin + CRN_PAGE_SIZE, r->begin, CRN_PAGE_SIZE);
	r->rewind = 1;
	assert_int_equal(r->ops->undo(r->t, &r->sink), 0);
	r->rewind = 0;
	r->ops->hold(r->t, false);
	pthread_join(id, NULL);
	assert_int_equal(crn_arena_frames_used(r->arena), used + 2);
	rig_free(r);
}

/* A handler that comes late: the fault, by hand. Does it take the store for its own? */
static bool fault_at(void *at, int sig, int code)
{
	siginfo_t info = { .si_signo = sig, .si_code = code, .si_addr = at };
	ucontext_t uc = { .uc_flags = 0 };

	uc.uc_mcontext.gregs[REG_ERR] = 2; /* a store */
	return crn_faults_serve(sig, &info, &uc);
}

/*
 * Between a store that is refused and its handler another thread may have opened the page, or ended
 * its area: the store just runs again. But not for ever, where the program itself forbids it.
 */
static void late(const struct crn_tracker_ops *ops, int sig, int code)
{
	struct rig *r = rig_new(ops, 0, 64ul << 20);
	void *live = r->live;
	uint8_t old = r->live[0];

	r->live[0] = (uint8_t)~old;
	assert_true(fault_at(live, sig, code));
	r->ops->area_drop(r->t, &r->area);
	assert_true(fault_at(live, sig, code));
	assert_int_equal(r->live[0], (uint8_t)~old);
	assert_int_equal(mprotect(live, CRN_PAGE_SIZE, PROT_READ), 0);
	assert_false(fault_at(live, sig, code));
	assert_int_equal(mprotect(live, CRN_PAGE_SIZE, PROT_NONE), 0);
	assert_false(fault_at(live, sig, code));
	assert_int_equal(mprotect(live, CRN_PAGE_SIZE, PROT_READ | PROT_WRITE), 0);
	assert_false(fault_at(live, SIGSEGV, SEGV_MAPERR));
	rig_free(r);
}

static void late_mprotect(void **state)
{
	(void)state;
	late(&crn_tracker_mprotect, SIGSEGV, SEGV_ACCERR);
}

static void late_uffd(void **state)
{
	(void)state;
	late(&crn_tracker_uffd, SIGBUS, BUS_ADRERR);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(model_mprotect),
		cmocka_unit_test(model_uffd),
		cmocka_unit_test(model_hot),
		cmocka_unit_test(model_uffd_fallback),
		cmocka_unit_test(quiet_checkpoint),
		cmocka_unit_test(coalesced),
		cmocka_unit_test(no_memory),
		cmocka_unit_test(threads_mprotect),
		cmocka_unit_test(threads_uffd),
		cmocka_unit_test(intervals_under_fire),
		cmocka_unit_test(chains),
		cmocka_unit_test(forks_mprotect),
		cmocka_unit_test(forks_uffd),
		cmocka_unit_test(vanished),
		cmocka_unit_test(zeroed),
		cmocka_unit_test(held),
		cmocka_unit_test(crowded),
		cmocka_unit_test(late_mprotect),
		cmocka_unit_test(late_uffd),
	};

	cmocka_set_test_filter(getenv("FILTER"));
	if (argc > 1)
		seed = strtoull(argv[1], NULL, 0);
	printf("seed %llu\n", (unsigned long long)seed);
	crn_host_probe(&host);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
