/* SPDX-License-Identifier: MIT */
/*
 * Copies of every tracked byte, and their comparison with live memory. What is tracked is read from
 * /proc/self/maps by the rules that cairn.h states, not asked from the engine. Raw system calls
 * only: this runs between a return of cairn_checkpoint and the copy, where a changed errno would
 * already be a difference.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include "oracle.h"
#include "base/bits.h"
#include "os/sys.h"

extern const ptrdiff_t __rseq_offset __attribute__((weak));
extern const unsigned int __rseq_size __attribute__((weak));

static size_t read_proc(const char *path)
{
	long fd = crn_sys3(SYS_open, path, O_RDONLY | O_CLOEXEC, 0), n;
	size_t len = 0;

	if (fd < 0)
		test_fail("%s: %ld", path, fd);
	while ((n = crn_sys3(SYS_read, fd, W->text + len, sizeof(W->text) - 1 - len)) > 0)
		len += (size_t)n;
	crn_sys1(SYS_close, fd);
	if (n < 0 || len == sizeof(W->text) - 1)
		test_fail("%s: read failed or too long", path);
	W->text[len] = 0;
	return len;
}

static uintptr_t parse_hex(const char **s)
{
	uintptr_t v = 0;

	for (;; (*s)++) {
		char c = **s;

		if (c >= '0' && c <= '9')
			v = v << 4 | (uintptr_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			v = v << 4 | (uintptr_t)(c - 'a' + 10);
		else
			return v;
	}
}

struct mapping {
	struct span span;
	char prot[5];
	const char *line;
};

/* Next line of W->text that begins a mapping (smaps has other lines between). */
static bool next_mapping(const char **at, struct mapping *m)
{
	while (**at) {
		const char *line = *at, *s = line, *eol = strchr(line, '\n');

		*at = eol ? eol + 1 : line + strlen(line);
		if (*s >= 'A' && *s <= 'Z')
			continue;
		m->span.begin = parse_hex(&s);
		if (*s++ != '-')
			continue;
		m->span.end = parse_hex(&s);
		memcpy(m->prot, s + 1, 4);
		m->prot[4] = 0;
		m->line = line;
		return true;
	}
	return false;
}

static void engine_add(struct span s)
{
	uint32_t n = W->engine_count;

	if (n && W->engine[n - 1].end == s.begin) {
		W->engine[n - 1].end = s.end;
		return;
	}
	if (n == CRN_ARRAY_SIZE(W->engine))
		test_fail("the engine's memory is in more than %u pieces", n);
	W->engine[W->engine_count++] = s;
}

static bool engine_owns(struct span s)
{
	for (uint32_t i = 0; i < W->engine_count; i++)
		if (s.begin >= W->engine[i].begin && s.end <= W->engine[i].end)
			return true;
	return false;
}

/* Does /proc number processes as we do? Not in a PID namespace that kept the outer one. */
static bool foreign_proc(void)
{
	char self[32] = "";

	return readlink("/proc/self", self, sizeof(self) - 1) < 0 || atoi(self) != getpid();
}

/*
 * The engine's range is the one that is wiped on fork: nobody else in these programs asks for that.
 * A piece in its midst that is not wiped is what it keeps for a child.
 */
void oracle_learn_engine(void)
{
	struct span between = { 0, 0 };
	const char *at = W->text;
	struct mapping m;
	uintptr_t robust = 0, tid = 0, fs;
	size_t robust_len;

	read_proc("/proc/self/smaps");
	W->engine_count = W->noise_count = 0;
	while (next_mapping(&at, &m)) {
		const char *flags = strstr(m.line, "VmFlags:"),
			   *eol = flags ? strchr(flags, '\n') : NULL;
		const char *wf = flags ? strstr(flags, " wf") : NULL;

		if (wf && eol && wf < eol) {
			if (between.end == m.span.begin && W->engine_count)
				engine_add(between);
			engine_add(m.span);
		} else if (W->engine_count &&
			W->engine[W->engine_count - 1].end == m.span.begin) {
			between = m.span;
		}
		if (strstr(m.line, "[stack]") && strstr(m.line, "[stack]") < strchr(m.line, '\n'))
			W->stack = m.span;
	}
	if (!W->engine_count)
		test_fail("no engine memory found (MADV_WIPEONFORK)");
	W->foreign_proc = foreign_proc();
	__asm__("mov %%fs:0, %0" : "=r"(fs));
	if (&__rseq_size && __rseq_size)
		W->noise[W->noise_count++] = (struct span){ fs + (uintptr_t)__rseq_offset,
			fs + (uintptr_t)__rseq_offset + 32 };
	if (!crn_sys3(SYS_get_robust_list, 0, &robust, &robust_len) && robust)
		W->noise[W->noise_count++] = (struct span){ robust, robust + robust_len };
	if (!crn_sys2(SYS_prctl, PR_GET_TID_ADDRESS, &tid) && tid)
		W->noise[W->noise_count++] = (struct span){ tid, tid + 4 };
}

static size_t span_insert(size_t n, struct span s)
{
	size_t i = n;

	if (n == SPANS_MAX)
		test_fail("too many mappings");
	for (; i > 0 && W->spans[i - 1].begin > s.begin; i--)
		W->spans[i] = W->spans[i - 1];
	W->spans[i] = s;
	return n + 1;
}

size_t surface_spans(void)
{
	const char *at = W->text;
	struct mapping m;
	size_t n = 0;

	for (size_t i = 0; i < REGIONS_MAX; i++) {
		const struct region *r = &W->regions[i];

		if (r->live && (!W->all || r->kind == REGION_SHARED))
			n = span_insert(n,
				(struct span){ (uintptr_t)r->addr, (uintptr_t)r->addr + r->len });
	}
	if (!W->all)
		return span_insert(n, W->stack);
	read_proc("/proc/self/maps");
	while (next_mapping(&at, &m)) {
		if (m.prot[0] != 'r' || m.prot[1] != 'w' || m.prot[3] != 'p')
			continue;
		if (engine_owns(m.span))
			continue;
		n = span_insert(n, m.span);
		if (m.span.end == W->stack.end)
			W->stack = m.span; /* it grows */
	}
	return n;
}

static bool in_span(const struct span *s, uintptr_t addr)
{
	return addr - s->begin < s->end - s->begin;
}

static uint32_t serial_at(uintptr_t addr)
{
	if (W->all)
		return 1;
	if (in_span(&W->stack, addr))
		return SERIAL_STACK;
	for (size_t i = 0; i < REGIONS_MAX; i++) {
		const struct region *r = &W->regions[i];

		if (r->live && addr - (uintptr_t)r->addr < r->len)
			return r->serial;
	}
	return 0;
}

static bool page_read_slowly(uintptr_t addr, uint8_t *buf)
{
	struct iovec to = { buf, PAGE }, from = { (void *)addr, PAGE };
	long pid = crn_sys0(SYS_getpid);

	return crn_sys6(SYS_process_vm_readv, pid, (long)&to, 1, (long)&from, 1, 0) == (long)PAGE;
}

/*
 * For pages in mappings that may not be readable just now. By way of a file, because
 * process_vm_readv takes the lock of the address space, which makes a feed of writes doubt: then
 * nothing but the scan would be tested.
 */
static bool page_read(uintptr_t addr, uint8_t *buf)
{
	if (crn_sys4(SYS_pwrite64, W->copies, addr, PAGE, 0) == (long)PAGE)
		return crn_sys4(SYS_pread64, W->copies, buf, PAGE, 0) == (long)PAGE;
	return page_read_slowly(addr, buf);
}

/* Of a stack only what lies above the frame is alive. */
static uintptr_t first_live(const struct span *s, uintptr_t frame)
{
	return in_span(s, frame) ? frame & ~(PAGE - 1) : s->begin;
}

struct snapshot *snapshot_take(uintptr_t frame, const struct snapshot *like)
{
	struct snapshot *s = world_alloc(sizeof(*s), 64);
	size_t span_count = surface_spans(), total = 0, shared_at = 0;

	for (size_t i = 0; i < span_count; i++)
		total += (W->spans[i].end - W->spans[i].begin) / PAGE;
	memset(s, 0, sizeof(*s));
	memcpy(s->constants, W->constant_states, sizeof(s->constants));
	s->frame = frame;
	s->pages = world_alloc(total * sizeof(s->pages[0]), 64);
	for (size_t i = 0; i < span_count; i++) {
		for (uintptr_t a = first_live(&W->spans[i], frame); a < W->spans[i].end;
			a += PAGE) {
			struct copied_page *p = &s->pages[s->page_count++];
			uint8_t *copy;

			p->addr = a;
			p->serial = serial_at(a);
			while (like && shared_at < like->page_count &&
				like->pages[shared_at].addr < a)
				shared_at++;
			copy = world_alloc(PAGE, PAGE);
			if (!page_read(a, copy))
				memset(copy, 0xee, PAGE);
			p->bytes = copy;
			if (like && shared_at < like->page_count &&
				like->pages[shared_at].addr == a &&
				!memcmp(copy, like->pages[shared_at].bytes, PAGE)) {
				p->bytes = like->pages[shared_at].bytes;
				W->pool_used -= PAGE;
			}
		}
	}
	return s;
}

const struct copied_page *snapshot_page(const struct snapshot *s, uintptr_t addr)
{
	size_t lo = 0, hi = s->page_count;

	addr &= ~(PAGE - 1);
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (s->pages[mid].addr < addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < s->page_count && s->pages[lo].addr == addr ? &s->pages[lo] : NULL;
}

static bool never_restored(uintptr_t addr)
{
	for (uint32_t i = 0; i < W->noise_count; i++)
		if (in_span(&W->noise[i], addr))
			return true;
	return false;
}

bool snapshot_noise(uintptr_t addr)
{
	return never_restored(addr) || in_span(&W->stack, addr);
}

static bool excluded(uintptr_t addr)
{
	for (uint32_t i = 0; i < W->excluded_count; i++)
		if (in_span(&W->excluded[i], addr))
			return true;
	return false;
}

/* The one static of the library is the pointer to its memory, and closing clears it. */
static bool engine_pointer(uintptr_t addr, const uint8_t *was)
{
	uintptr_t p;

	memcpy(&p, was + (addr % PAGE & ~7ul), sizeof(p));
	return W->closed && engine_owns((struct span){ p, p });
}

/*
 * One live page against `want`, its excluded bytes against `kept` (NULL: they are not checked).
 * `dead_below`: stack bytes under it may be anything.
 */
static void page_compare(const char *what, uint64_t id, uintptr_t addr, const uint8_t *want,
	const uint8_t *kept, uintptr_t dead_below)
{
	uint8_t live[PAGE];

	if (!page_read(addr, live))
		oracle_mismatch("page is gone or cannot be read", id, addr, want[0], -1);
	if (!memcmp(live, want, PAGE) && !W->excluded_count)
		return;
	for (size_t i = 0; i < PAGE; i++) {
		uintptr_t a = addr + i;

		if (excluded(a)) {
			if (kept && live[i] != kept[i])
				oracle_mismatch(
					"excluded byte was rolled back", id, a, kept[i], live[i]);
			continue;
		}
		if (live[i] == want[i] || never_restored(a) || engine_pointer(a, want))
			continue;
		if (in_span(&W->stack, a) && a < dead_below)
			continue;
		oracle_mismatch(what, id, a, want[i], live[i]);
	}
}

static bool page_restored(
	const struct snapshot *want, const struct copied_page *p, enum compare_how how)
{
	const struct copied_page *w;

	if (how == COMPARE_REFUSED)
		return false;
	if (how == COMPARE_REWOUND && in_span(&W->stack, p->addr))
		return false;
	w = snapshot_page(want, p->addr);
	return w && w->serial && w->serial == serial_at(p->addr);
}

void snapshot_compare(const struct snapshot *want, const struct snapshot *before, uintptr_t frame,
	enum compare_how how)
{
	static const char *const names[] = { "after a restore", "after a rewind",
		"after a refused call" };
	const char *what = names[how];

	surface_spans(); /* refresh the stack's extent */
	if (how == COMPARE_RESTORED && frame != want->frame)
		oracle_mismatch("restored into another frame", want->id, frame, 0, 0);
	if (how != COMPARE_REFUSED && want->torn)
		return;
	for (size_t i = 0; how != COMPARE_REFUSED && i < want->page_count; i++) {
		const struct copied_page *p = &want->pages[i], *b = snapshot_page(before, p->addr);

		if (page_restored(want, p, how))
			page_compare(what, want->id, p->addr, p->bytes, b ? b->bytes : NULL, frame);
	}
	for (size_t i = 0; i < before->page_count; i++) {
		const struct copied_page *p = &before->pages[i];

		if (page_restored(want, p, how))
			continue;
		/*
		 * A mapping that is younger than the checkpoint is the engine's to keep or to
		 * unmap.
		 */
		if (how == COMPARE_RESTORED && W->all)
			continue;
		if (how == COMPARE_REWOUND && W->all && !in_span(&W->stack, p->addr))
			continue;
		page_compare(how == COMPARE_REFUSED ? what : "outside the checkpoint's areas",
			want->id, p->addr, p->bytes, p->bytes, frame);
	}
}

bool snapshot_mapped(const struct snapshot *s)
{
	const char *at = W->text;
	struct mapping m = { 0 };
	bool more;

	read_proc("/proc/self/maps");
	more = next_mapping(&at, &m);
	for (size_t i = 0; i < s->page_count; i++) {
		if (s->pages[i].addr < (s->frame & ~(PAGE - 1)) &&
			in_span(&W->stack, s->pages[i].addr))
			continue;
		while (more && m.span.end <= s->pages[i].addr)
			more = next_mapping(&at, &m);
		if (gone_since(s->pages[i].addr, s->id) || !more ||
			m.span.begin > s->pages[i].addr || m.prot[0] != 'r' || m.prot[1] != 'w')
			return false;
	}
	return true;
}

static void region_refresh(struct region *r)
{
	uintptr_t at = (uintptr_t)r->addr, end = at + r->len;
	const char *text = W->text;
	struct mapping m;

	if (!r->live)
		return;
	r->writable = true;
	while (at < end && next_mapping(&text, &m)) {
		if (m.span.end <= at)
			continue;
		if (m.span.begin > at || m.prot[0] != 'r')
			break;
		r->writable &= m.prot[1] == 'w';
		at = m.span.end;
	}
	if (at < end) {
		r->live = r->writable = false;
		note_gone(r->addr, r->len);
	}
}

void regions_refresh(void)
{
	if (!W->all && W->rules->by_protection)
		return; /* the tracker's own protection shows there; the model knows better */
	read_proc("/proc/self/maps");
	for (size_t i = 0; i < REGIONS_MAX; i++)
		region_refresh(&W->regions[i]);
}
