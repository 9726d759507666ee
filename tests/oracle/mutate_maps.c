/* SPDX-License-Identifier: MIT */
/*
 * Mappings that come, go, move, grow and change protection; deep stacks; children with sessions of
 * their own.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "oracle.h"

static struct region *region_any(uint32_t kinds)
{
	for (int i = 0; i < 64; i++) {
		struct region *r = &W->regions[rnd_below(REGIONS_MAX)];

		if (r->live && r->kind & kinds)
			return r;
	}
	return NULL;
}

static uint32_t region_count(uint32_t kinds)
{
	uint32_t n = 0;

	for (size_t i = 0; i < REGIONS_MAX; i++)
		n += W->regions[i].live && W->regions[i].kind & kinds;
	return n;
}

static size_t some_pages(size_t max)
{
	return (1 + rnd_below(max)) * PAGE;
}

void op_mmap(void)
{
	struct region *r;

	if (region_count(REGION_ANON) >= 10)
		return;
	r = region_make(REGION_ANON, some_pages(12));
	if (!r)
		return;
	region_register(r);
	fill_random(r->addr, 100);
}

/* Whole regions, heads and tails. Explicit areas are removed first, as cairn.h asks. */
void op_munmap(void)
{
	struct region *r = region_any(REGION_ANON);
	size_t cut;

	if (!r || region_count(REGION_ANON) < 3)
		return;
	region_unregister(r);
	note_gone(r->addr, r->len);
	cut = some_pages(r->len / PAGE);
	if (cut == r->len || !rnd_below(3)) {
		if (munmap(r->addr, r->len))
			test_fail("munmap: errno %d", errno);
		r->live = false;
		return;
	}
	if (rnd() & 1) {
		munmap(r->addr, cut);
		r->addr += cut;
	} else {
		munmap(r->addr + r->len - cut, cut);
	}
	r->len -= cut;
	region_register(r);
}

/* Older kernels have unmapped what is to go before they refuse. */
static void drop_tail(struct region *r, size_t len)
{
	unsigned char there;

	if (len >= r->len || mincore(r->addr + len, PAGE, &there) == 0)
		return;
	note_gone(r->addr + len, r->len - len);
	r->len = len;
	regions_refresh();
}

void op_mremap(void)
{
	struct region *r = region_any(REGION_ANON);
	size_t len;
	void *to;

	if (!r || r->len > 64 * PAGE)
		return;
	len = some_pages(24);
	region_unregister(r);
	if (rnd() & 1) {
		to = mmap(NULL, len, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		to = mremap(r->addr, r->len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	} else {
		to = mremap(r->addr, r->len, len, MREMAP_MAYMOVE);
	}
	/* Two mappings in a row after a restore: the kernel takes only one. */
	if (to == MAP_FAILED && errno == EFAULT) {
		drop_tail(r, len);
		region_register(r);
		return;
	}
	if (to == MAP_FAILED)
		test_fail("mremap: errno %d", errno);
	note_gone(r->addr, r->len);
	note_gone(to, len);
	r->addr = to;
	r->len = len;
	r->writable = true;
	region_register(r);
	regions_refresh();
}

void op_brk(void)
{
	struct region *r = region_any(REGION_BRK);

	if (r && rnd() & 1 && sbrk(0) == r->addr + r->len) {
		region_unregister(r);
		note_gone(r->addr, r->len);
		if (sbrk(-(intptr_t)r->len) == (void *)-1)
			test_fail("sbrk: errno %d", errno);
		r->live = false;
		regions_refresh();
		return;
	}
	if (region_count(REGION_BRK) >= 5)
		return;
	r = region_make(REGION_BRK, some_pages(8));
	regions_refresh();
	if (r && r->live) {
		fill_random(r->addr, 64);
		region_register(r);
	}
}

/* Checkpoints in deep frames: a restore comes back to a frame that has long returned. */
static __attribute__((noinline)) uint64_t descend(uint64_t depth, uint64_t salt)
{
	volatile uint8_t local[1500];
	uint64_t sum = 0;

	for (size_t i = 0; i < sizeof(local); i += 97)
		local[i] = (uint8_t)(salt + i);
	if (depth)
		sum = descend(depth - 1, salt + 1);
	else if (rnd() & 1)
		do_checkpoint();
	else
		op_store();
	for (size_t i = 0; i < sizeof(local); i += 97)
		if (local[i] != (uint8_t)(salt + i))
			test_fail("a local of depth %llu was not brought back",
				(unsigned long long)depth);
	return sum + local[0];
}

void op_stack(void)
{
	uint64_t depth = rnd_below(4) ? rnd_below(12) : rnd_below(250), salt = rnd_below(200);
	uint64_t sum = descend(depth, salt), want = 0;

	for (uint64_t i = 0; i <= depth; i++)
		want += (uint8_t)(salt + i);
	CHECK_U64(sum, want);
}

/* A forked child is a plain process: it runs on, and may open a session of its own. */
void op_fork(void)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		oracle_child();
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		test_fail("fork: errno %d", errno);
	if (status)
		test_fail("the forked child failed: status %#x", (unsigned)status);
}

/* The tracker that works by protections must not have them changed under it: cairn.h says so. */
void op_protect(void)
{
	struct region *r = region_any(REGION_ANON | REGION_FILE);

	if (!r)
		return;
	if (W->rules->by_protection)
		region_unregister(r);
	r->writable = !r->writable;
	if (mprotect(r->addr, r->len, r->writable ? PROT_READ | PROT_WRITE : PROT_READ))
		test_fail("mprotect: errno %d", errno);
	if (W->rules->by_protection && r->writable)
		region_register(r);
}

void op_area(void)
{
	struct region *r = region_any(REGION_ANON | REGION_STATIC | REGION_SHARED);

	if (!r || !r->writable || (W->all && r->kind != REGION_SHARED))
		return;
	if (!r->serial) {
		region_register(r);
		return;
	}
	CHECK_RC(cairn_area_add(W->c, r->addr, PAGE), CAIRN_EOVERLAP);
	CHECK_RC(cairn_area_add(W->c, r->addr + r->len - 1, 1), CAIRN_EOVERLAP);
	if (r->len > PAGE)
		CHECK_RC(cairn_area_remove(W->c, r->addr, PAGE), CAIRN_ENOTAREA);
	region_unregister(r);
}

void op_tag(void)
{
	struct snapshot *s = W->kept[rnd_below(W->kept_count)];
	uint64_t state = s->tag_seed, seed;
	uint8_t *got = W->buf, *want = W->buf + 8192;
	uint32_t len;
	int rc;

	if (s->tag_len) {
		for (size_t i = 0; i < s->tag_len; i++)
			want[i] = (uint8_t)rnd_from(&state);
		memset(got, 0x11, 8192);
		rc = cairn_checkpoint_tag_get(W->c, s->id, got, 4096);
		if (rc == CAIRN_EFAILED && W->rules->may_lose)
			return;
		CHECK_RC(rc, (int)s->tag_len);
		if (memcmp(got, want, s->tag_len) || got[s->tag_len] != 0x11)
			test_fail(
				"the tag of checkpoint %llu is another", (unsigned long long)s->id);
	}
	CHECK_RC(cairn_checkpoint_tag(W->c, s->id, got, 4097), -E2BIG);
	seed = state = rnd();
	len = 1 + (uint32_t)rnd_below(rnd_below(4) ? 64 : 4096);
	for (size_t i = 0; i < len; i++)
		want[i] = (uint8_t)rnd_from(&state);
	rc = cairn_checkpoint_tag(W->c, s->id, want, len);
	if (rc == CAIRN_EFAILED && W->rules->may_lose)
		return;
	CHECK_OK(rc);
	s->tag_seed = seed;
	s->tag_len = len;
}
