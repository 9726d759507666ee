/* SPDX-License-Identifier: MIT */
/*
 * The pieces of memory that the random program writes, and the helper threads that write them too.
 */
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <string.h>
#include <sched.h>
#include <sys/mman.h>
#include "oracle.h"
#include "os/sys.h"

/* Written pages of .bss and .data, as a program has them. */
static uint8_t static_bytes[8 * PAGE] __attribute__((aligned(4096))) = { 1 };
static uint8_t static_zeros[8 * PAGE] __attribute__((aligned(4096)));

static void *map(size_t len, int flags, int fd, off_t pos)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, fd, pos);

	if (p == MAP_FAILED)
		test_fail("mmap: errno %d", errno);
	return p;
}

void note_gone(const void *addr, size_t len)
{
	struct span span = { (uintptr_t)addr, (uintptr_t)addr + len };

	if (W->kept_count) /* else no session is open yet */
		W->gone[W->gone_count++ % GONE_MAX] =
			(struct gone){ span, W->kept[W->kept_count - 1]->id };
}

bool gone_since(uintptr_t addr, uint64_t id)
{
	uint32_t n = W->gone_count < GONE_MAX ? W->gone_count : GONE_MAX;

	for (uint32_t i = 0; i < n; i++)
		if (W->gone[i].id >= id &&
			addr - W->gone[i].span.begin < W->gone[i].span.end - W->gone[i].span.begin)
			return true;
	return W->gone_count > GONE_MAX;
}

static struct region *region_slot(void)
{
	for (size_t i = 0; i < REGIONS_MAX; i++)
		if (!W->regions[i].live)
			return &W->regions[i];
	return NULL;
}

/* A mapping may come to lie where a region was that a restore took away: the new one wins. */
static void region_replaces(const uint8_t *addr, size_t len)
{
	for (size_t i = 0; i < REGIONS_MAX; i++) {
		struct region *r = &W->regions[i];

		if (r->live && r->addr < addr + len && addr < r->addr + r->len)
			r->live = false;
	}
}

/* The break is libc's to move; a region takes whole pages of what it gave. */
static void *brk_grow(size_t len)
{
	uintptr_t at = (uintptr_t)sbrk(0), pad = -at & (PAGE - 1);
	void *p = sbrk((intptr_t)(len + pad));

	return p == (void *)-1 ? NULL : (void *)((uintptr_t)p + pad);
}

struct region *region_make(uint32_t kind, size_t len)
{
	struct region *r = region_slot();
	uint8_t *addr = NULL;

	if (!r)
		return NULL;
	switch (kind) {
	case REGION_ANON:
	case REGION_BIG:
		addr = map(len, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		break;
	case REGION_FILE:
		addr = map(len, MAP_PRIVATE, W->file, 0);
		break;
	case REGION_SHARED:
		addr = map(len, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		break;
	case REGION_STATIC:
		addr = rnd() & 1 ? static_bytes : static_zeros;
		len = sizeof(static_bytes);
		break;
	case REGION_HEAP:
		addr = aligned_alloc(PAGE, len);
		break;
	case REGION_BRK:
		addr = brk_grow(len);
		break;
	}
	if (!addr)
		return NULL;
	region_replaces(addr, len);
	note_gone(addr, len);
	r = region_slot();
	*r = (struct region){
		.addr = addr, .len = len, .kind = kind, .live = true, .writable = true
	};
	return r;
}

void region_register(struct region *r)
{
	if (W->all && r->kind != REGION_SHARED)
		return;
	if (r->kind == REGION_SHARED && W->rules->keeps) {
		CHECK_RC(cairn_area_add(W->c, r->addr, r->len), CAIRN_ESHARED);
		return;
	}
	CHECK_OK(cairn_area_add(W->c, r->addr, r->len));
	r->serial = ++W->serial_last;
}

void region_unregister(struct region *r)
{
	if (!r->serial)
		return;
	CHECK_OK(cairn_area_remove(W->c, r->addr, r->len));
	r->serial = 0;
}

bool target(uint32_t kinds, size_t len_max, uint8_t **addr, size_t *len)
{
	for (int i = 0; i < 32; i++) {
		const struct region *r = &W->regions[rnd_below(REGIONS_MAX)];

		if (!r->live || !r->writable || !(r->kind & kinds & ~REGION_BIG))
			continue;
		*len = 1 + rnd_below(len_max < r->len ? len_max : r->len);
		/* the last bytes of an area are where an off-by-one hides */
		*addr = rnd_below(8) ? r->addr + rnd_below(r->len - *len + 1)
				     : r->addr + r->len - *len;
		return true;
	}
	return false;
}

bool byte_writable(uintptr_t addr)
{
	for (size_t i = 0; i < REGIONS_MAX; i++) {
		const struct region *r = &W->regions[i];

		if (r->live && r->writable && addr - (uintptr_t)r->addr < r->len)
			return true;
	}
	return false;
}

static bool registered(const uint8_t *addr, size_t len)
{
	for (size_t i = 0; i < REGIONS_MAX; i++) {
		const struct region *r = &W->regions[i];

		if (r->live && r->serial && addr >= r->addr && addr + len <= r->addr + r->len)
			return true;
	}
	return false;
}

void behind_with_faults(void *addr, size_t len)
{
	if (!W->rules->sees_faults)
		behind(addr, len);
}

void behind(void *addr, size_t len)
{
	if (!registered(addr, len))
		return;
	/* elsewhere it is allowed and must do no harm */
	if (W->rules->touch_first || !rnd_below(8))
		CHECK_OK(cairn_area_touch(W->c, addr, len));
}

void fill_random(uint8_t *buf, size_t len)
{
	uint64_t v = rnd();

	for (size_t i = 0; i < len; i++) {
		if (i % 8 == 0)
			v = rnd();
		buf[i] = (uint8_t)(v >> (i % 8 * 8));
	}
}

/* ---- Helper threads: stacks and TLS are shared memory, so they run on over restores ---------- */

static void futex_wait(uint32_t *word, uint32_t value)
{
	crn_sys4(SYS_futex, word, FUTEX_WAIT, value, 0);
}

static void futex_wake(uint32_t *word)
{
	crn_sys3(SYS_futex, word, FUTEX_WAKE, 64);
}

/*
 * Each helper has a share of the region of its own: who wins a race for one byte is not our
 * business.
 */
static void helper_store(struct helper *h, size_t index)
{
	struct region *r = &W->regions[h->region];
	size_t share = r->len / HELPERS;
	uint8_t *base = r->addr + index * share;

	for (int i = 0; i < 24; i++)
		base[rnd_from(&h->rng) % share] = (uint8_t)rnd_from(&h->rng);
}

static void *helper_main(void *arg)
{
	size_t index = (size_t)(uintptr_t)arg;
	struct helper *h = &W->helpers[index];
	uint32_t cmd;

	for (;;) {
		while ((cmd = __atomic_load_n(&h->cmd, __ATOMIC_ACQUIRE)) == HELPER_IDLE)
			futex_wait(&h->cmd, HELPER_IDLE);
		if (cmd == HELPER_RUN) {
			helper_store(h, index);
			continue;
		}
		if (cmd == HELPER_STORE)
			helper_store(h, index);
		__atomic_store_n(&h->cmd, HELPER_IDLE, __ATOMIC_RELEASE);
		__atomic_store_n(&h->done, 1, __ATOMIC_RELEASE);
		futex_wake(&h->done);
	}
	return NULL;
}

void helpers_start(void)
{
	pthread_attr_t attr;
	pthread_t thread;

	for (size_t i = 0; i < HELPERS; i++) {
		size_t size = 256 * 1024;
		void *stack = map(size, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

		pthread_attr_init(&attr);
		pthread_attr_setstack(&attr, stack, size);
		if (pthread_create(&thread, &attr, helper_main, (void *)(uintptr_t)i))
			test_fail("pthread_create");
		pthread_attr_destroy(&attr);
	}
	W->helpers_started = HELPERS;
}

static void helper_command(struct helper *h, uint32_t cmd, uint32_t region)
{
	h->region = region;
	h->rng = rnd();
	h->done = 0;
	__atomic_store_n(&h->cmd, cmd, __ATOMIC_RELEASE);
	futex_wake(&h->cmd);
}

static void helper_wait(struct helper *h)
{
	while (!__atomic_load_n(&h->done, __ATOMIC_ACQUIRE))
		futex_wait(&h->done, 0);
}

static uint32_t helper_region(void)
{
	for (int i = 0; i < 64; i++) {
		uint32_t n = (uint32_t)rnd_below(REGIONS_MAX);

		if (W->regions[n].live && W->regions[n].writable)
			return n;
	}
	return REGIONS_MAX;
}

void op_threads(void)
{
	uint32_t region = helper_region();

	if (region == REGIONS_MAX || !W->helpers_started)
		return;
	for (size_t i = 0; i < HELPERS; i++)
		helper_command(&W->helpers[i], HELPER_STORE, region);
	for (size_t i = 0; i < HELPERS; i++)
		helper_wait(&W->helpers[i]);
}

static void helpers_quiesce(void)
{
	for (size_t i = 0; i < HELPERS; i++)
		helper_command(&W->helpers[i], HELPER_STOP, W->helpers[i].region);
	for (size_t i = 0; i < HELPERS; i++)
		helper_wait(&W->helpers[i]);
}

/*
 * Checkpoints while the helpers store. Such a checkpoint is torn and nothing can be compared with
 * it, but the next one, taken in peace, must be exact: a write lost in the race shows after a
 * restore to it.
 */
void op_race(void)
{
	uint32_t region = helper_region();

	if (region == REGIONS_MAX || !W->helpers_started)
		return;
	for (size_t i = 0; i < HELPERS; i++)
		helper_command(&W->helpers[i], HELPER_RUN, region);
	W->torn = true;
	for (uint64_t i = 1 + rnd_below(3); i > 0; i--) {
		sched_yield();
		do_checkpoint();
	}
	W->torn = false;
	helpers_quiesce();
	do_checkpoint();
}
