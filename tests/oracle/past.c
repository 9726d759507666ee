/* SPDX-License-Identifier: MIT */
/* cairn_peek, cairn_peekv and cairn_changes against the copies. */
#include <errno.h>
#include <string.h>
#include "oracle.h"

/* A page of the snapshot that cairn.h promises to show, or NULL after a few tries. */
static const struct copied_page *page_any(const struct snapshot *s)
{
	for (int i = 0; i < 16 && s->page_count; i++) {
		const struct copied_page *p = &s->pages[rnd_below(s->page_count)];

		if (p->serial && p->serial != SERIAL_STACK)
			return p;
	}
	return NULL;
}

static uint32_t serial_now(uintptr_t addr)
{
	for (size_t i = 0; i < REGIONS_MAX; i++) {
		const struct region *r = &W->regions[i];

		if (r->live && addr - (uintptr_t)r->addr < r->len)
			return r->serial;
	}
	return 0;
}

/* May the engine refuse to show this page of the past? Yes if its mapping or area is gone. */
static bool shown(const struct copied_page *p, uint64_t id)
{
	size_t n;

	if (!W->all)
		return serial_now(p->addr) == p->serial;
	if (gone_since(p->addr, id))
		return false;
	n = surface_spans();
	for (size_t i = 0; i < n; i++)
		if (p->addr >= W->spans[i].begin && p->addr < W->spans[i].end)
			return true;
	return false;
}

/* A tracker that copies at the store had no memory for it: the past is lost, and that is said. */
static bool past_lost(int rc)
{
	/*
	 * In a PID namespace with the outer /proc a frozen child's closed pages cannot be told from
	 * holes.
	 */
	if (rc == -EACCES && W->rules->keeps && W->foreign_proc)
		return true;
	if (rc == CAIRN_EFAILED && W->rules->may_lose)
		return true;
	return rc == CAIRN_EFAILED && W->row->flags & ROW_MEMORY_MAX && W->rules->touch_first;
}

static size_t peek_call(const struct snapshot *s, uintptr_t addr, size_t len, int *rc)
{
	struct iovec local[2] = { { W->buf, len / 2 }, { W->buf + len / 2, len - len / 2 } };
	struct iovec remote[2] = { { (void *)addr, len / 2 },
		{ (void *)(addr + len / 2), len - len / 2 } };

	memset(W->buf, 0xa5, len + 1);
	if (rnd() & 1)
		*rc = cairn_peek(W->c, s->id, (void *)addr, W->buf, len);
	else
		*rc = cairn_peekv(W->c, s->id, local, remote, 2);
	if (W->buf[len] != 0xa5)
		oracle_mismatch("peek wrote past the buffer", s->id, addr + len, 0xa5, W->buf[len]);
	return len;
}

/* How many pages of one range of the surface begin here, up to `max`? */
static size_t pages_from(const struct snapshot *s, const struct copied_page *p, size_t max)
{
	size_t n = 0;

	while (n < max && p + n < s->pages + s->page_count && p[n].addr == p->addr + n * PAGE &&
		p[n].serial && p[n].serial != SERIAL_STACK)
		n++;
	return n;
}

void do_peek(void)
{
	const struct snapshot *s = W->kept[rnd_below(W->kept_count)];
	const struct copied_page *p = page_any(s);
	size_t offset, len, pages, at = 0;
	bool all_shown = true;
	int rc;

	if (!p || s->torn)
		return;
	offset = rnd_below(PAGE);
	len = 1 + rnd_below(pages_from(s, p, 3) * PAGE - offset);
	pages = (offset + len + PAGE - 1) / PAGE;
	for (size_t i = 0; i < pages; i++)
		all_shown &= shown(&p[i], s->id);
	oracle_say("peek", s->id);
	peek_call(s, p->addr + offset, len, &rc);
	if (rc < 0) {
		if (past_lost(rc))
			return;
		if (all_shown || (rc != CAIRN_ENOTAREA && rc != CAIRN_ELAYOUT))
			test_fail("cairn_peek(%llu, %#lx, %zu): %d (%s)", (unsigned long long)s->id,
				(unsigned long)(p->addr + offset), len, rc, cairn_strerror(rc));
		return;
	}
	for (size_t i = 0; i < pages; i++) {
		for (size_t j = i ? 0 : offset; j < PAGE && at < len; j++, at++) {
			if (snapshot_noise(p[i].addr + j))
				continue;
			if (W->buf[at] != p[i].bytes[j])
				oracle_mismatch(
					"peek", s->id, p[i].addr + j, p[i].bytes[j], W->buf[at]);
		}
	}
	W->peeks++;
}

struct change_check {
	const struct snapshot *from, *to;
	uintptr_t last_end;
	uint64_t count;
};

static uint64_t word_at(const uint8_t *bytes, size_t word)
{
	uint64_t v;

	memcpy(&v, bytes + word * 8, 8);
	return v;
}

static int change_seen(void *ctx, void *addr, size_t len, const void *before, const void *after)
{
	struct change_check *c = ctx;
	uintptr_t a = (uintptr_t)addr;
	const struct copied_page *from = snapshot_page(c->from, a), *to = snapshot_page(c->to, a);
	size_t first = a % PAGE / 8, count = len / 8;
	uint64_t *seen;

	if (!len || a % 8 || len % 8 || a % PAGE + len > PAGE || a < c->last_end)
		test_fail("cairn_changes: bad extent %#lx + %zu after %#lx", (unsigned long)a, len,
			(unsigned long)c->last_end);
	if (a == c->last_end && a % PAGE)
		test_fail("cairn_changes: extent at %#lx is not maximal", (unsigned long)a);
	c->last_end = a + len;
	c->count++;
	if (!from || !to)
		return 0; /* an area of one side only */
	seen = &W->words_seen[(size_t)(from - c->from->pages) * 8];
	for (size_t i = 0; i < count; i++) {
		size_t w = first + i;
		uint64_t was = word_at(from->bytes, w), is = word_at(to->bytes, w);

		seen[w / 64] |= 1ull << (w % 64);
		if (snapshot_noise(a + i * 8))
			continue;
		if (was == is)
			oracle_mismatch(
				"changes reported an equal word", c->from->id, a + i * 8, 0, 0);
		if (word_at(before, i) != was)
			oracle_mismatch("changes: before", c->from->id, a + i * 8,
				(int)(was & 0xff), ((const uint8_t *)before)[i * 8]);
		if (word_at(after, i) != is)
			oracle_mismatch("changes: after", c->to->id, a + i * 8, (int)(is & 0xff),
				((const uint8_t *)after)[i * 8]);
	}
	return 0;
}

static void changes_complete(const struct change_check *c)
{
	for (size_t i = 0; i < c->from->page_count; i++) {
		const struct copied_page *from = &c->from->pages[i];
		const struct copied_page *to = snapshot_page(c->to, from->addr);

		if (!to || !from->serial || from->serial == SERIAL_STACK ||
			to->serial != from->serial || !shown(from, c->from->id) ||
			from->bytes == to->bytes)
			continue;
		for (size_t w = 0; w < PAGE / 8; w++) {
			if (word_at(from->bytes, w) == word_at(to->bytes, w) ||
				snapshot_noise(from->addr + w * 8))
				continue;
			if (!(W->words_seen[i * 8 + w / 64] & 1ull << (w % 64)))
				oracle_mismatch("changes missed a word", c->from->id,
					from->addr + w * 8, from->bytes[w * 8], to->bytes[w * 8]);
		}
	}
}

static int change_stop(void *ctx, void *addr, size_t len, const void *before, const void *after)
{
	++*(int *)ctx;
	return 42;
}

__attribute__((noinline, noclone)) void do_changes(void)
{
	uintptr_t frame = (uintptr_t)__builtin_frame_address(0) + 2 * sizeof(void *);
	uint32_t from = (uint32_t)rnd_below(W->kept_count);
	uint32_t to = from + 1 + (uint32_t)rnd_below(W->kept_count - from);
	struct change_check c = { .from = W->kept[from] };
	size_t mark = W->pool_used;
	uint64_t to_id = CAIRN_NOW;
	int rc, stops = 0;

	if (to < W->kept_count) {
		c.to = W->kept[to];
		to_id = c.to->id;
	} else {
		c.to = snapshot_take(frame, W->open);
	}
	if (c.from->torn || c.to->torn || c.from->page_count > sizeof(W->words_seen) / 64)
		goto out;
	oracle_say("changes from", c.from->id);
	memset(W->words_seen, 0, c.from->page_count * 64);
	rc = cairn_changes(W->c, c.from->id, to_id, change_seen, &c);
	if (rc == CAIRN_EUNSUPPORTED && W->rules->keeps)
		goto out; /* one process per checkpoint: the tracker says that it cannot */
	if (rc < 0 && rc == CAIRN_ELAYOUT && !(snapshot_mapped(c.from) && snapshot_mapped(c.to)))
		goto out;
	if (past_lost(rc))
		goto out;
	CHECK_OK(rc);
	changes_complete(&c);
	if (c.count) {
		CHECK_RC(cairn_changes(W->c, c.from->id, to_id, change_stop, &stops), 42);
		CHECK_U64((uint64_t)stops, 1);
	}
	W->changes++;
out:
	W->pool_used = mark;
}
