/* SPDX-License-Identifier: MIT */
#include <signal.h>
#include <sys/resource.h>
#include <Zydis/Zydis.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/bits.h"
#include "os/descriptor.h"
#include "elf_file.h"
#include "plan.h"
#include "intercept/layout.h"

#define JUMP_SIZE 5
#define GAP_MAX   64 /* between functions: padding, or a call that has no unwind table */

/* One instruction of a function. */
struct insn {
	uint64_t at;
	uint8_t size;
	bool syscall;
	bool movable; /* means the same at another address */
	bool stack;   /* moves %rsp or names it as an operand */
	/*
	 * offset of a 32-bit displacement from %rip, the only thing that ties it to its place; 0:
	 * none
	 */
	uint8_t relative;
	bool indirect_jump;
	bool last; /* what follows it is padding, or another function */
};

struct scan {
	const struct elf_file *f;
	ZydisDecoder decoder;
	const uint8_t *text; /* bytes of the executable segment */
	uint64_t base, size; /* its address and size */
	uint8_t *landed;     /* one byte each: a direct branch may land here */
	uint8_t *doubt;      /* one byte each: that kept a site from being patched */
	struct elf_range *functions;
	long function_count;
	struct insn *insns;
	size_t insn_room;
};

static bool is_branch(const ZydisDecodedInstruction *d)
{
	switch (d->meta.category) {
	case ZYDIS_CATEGORY_CALL:
	case ZYDIS_CATEGORY_RET:
	case ZYDIS_CATEGORY_COND_BR:
	case ZYDIS_CATEGORY_UNCOND_BR:
	case ZYDIS_CATEGORY_SYSCALL:
	case ZYDIS_CATEGORY_SYSRET:
	case ZYDIS_CATEGORY_INTERRUPT:
	case ZYDIS_CATEGORY_SYSTEM:
		return true;
	default:
		return false;
	}
}

/* Does it name %rsp, other than as the base of an address? Pushes and pops do so without saying. */
static bool uses_stack(const ZydisDecodedInstruction *d, const ZydisDecodedOperand *ops)
{
	for (int i = 0; i < d->operand_count; i++)
		if (ops[i].type == ZYDIS_OPERAND_TYPE_REGISTER &&
			ZydisRegisterGetLargestEnclosing(
				ZYDIS_MACHINE_MODE_LONG_64, ops[i].reg.value) == ZYDIS_REGISTER_RSP)
			return true;
	return d->meta.category == ZYDIS_CATEGORY_PUSH || d->meta.category == ZYDIS_CATEGORY_POP ||
		d->meta.category == ZYDIS_CATEGORY_RET;
}

static void classify(
	struct insn *out, const ZydisDecodedInstruction *d, const ZydisDecodedOperand *ops)
{
	out->size = d->length;
	out->syscall = d->mnemonic == ZYDIS_MNEMONIC_SYSCALL;
	out->indirect_jump =
		d->mnemonic == ZYDIS_MNEMONIC_JMP && ops[0].type != ZYDIS_OPERAND_TYPE_IMMEDIATE;
	out->last = d->meta.category == ZYDIS_CATEGORY_RET || d->mnemonic == ZYDIS_MNEMONIC_UD2;
	out->stack = uses_stack(d, ops);
	out->movable = d->meta.category == ZYDIS_CATEGORY_RET ||
		(!is_branch(d) && !(d->attributes & ZYDIS_ATTRIB_IS_RELATIVE));
	out->relative = 0;
	if (out->movable || d->raw.disp.size != 32 || is_branch(d))
		return;
	for (int i = 0; i < d->operand_count; i++)
		if (ops[i].type == ZYDIS_OPERAND_TYPE_MEMORY &&
			ops[i].mem.base == ZYDIS_REGISTER_RIP)
			out->relative = d->raw.disp.offset;
}

/* Decode [begin, end) whole. The number of instructions, or 0 if it is not all code. */
static size_t decode(struct scan *s, uint64_t begin, uint64_t end)
{
	ZydisDecodedInstruction d;
	ZydisDecodedOperand ops[ZYDIS_MAX_OPERAND_COUNT];
	size_t n = 0;

	for (uint64_t at = begin; at < end; at += d.length) {
		if (n == s->insn_room) {
			size_t room = s->insn_room ? s->insn_room * 2 : 1024;
			void *p = realloc(s->insns, room * sizeof(*s->insns));

			if (!p)
				return 0;
			s->insns = p;
			s->insn_room = room;
		}
		if (ZYAN_FAILED(ZydisDecoderDecodeFull(
			    &s->decoder, s->text + (at - s->base), end - at, &d, ops)))
			return 0;
		s->insns[n].at = at;
		classify(&s->insns[n++], &d, ops);
	}
	return n;
}

/* Where the branch that may begin at p lands, relative to p; 0 if none begins there. */
static int64_t branch_distance(const uint8_t *p, size_t left)
{
	int32_t d;

	if (left >= 2 && ((p[0] & 0xf0) == 0x70 || p[0] == 0xeb || (p[0] & 0xfc) == 0xe0))
		return 2 + (int8_t)p[1];
	if (left >= 5 && (p[0] & 0xfe) == 0xe8) {
		memcpy(&d, p + 1, 4);
		return 5 + (int64_t)d;
	}
	if (left >= 6 && p[0] == 0x0f && (p[1] & 0xf0) == 0x80) {
		memcpy(&d, p + 2, 4);
		return 6 + (int64_t)d;
	}
	return 0;
}

static void find_landings(struct scan *s)
{
	for (uint64_t i = 0; i < s->size; i++) {
		int64_t d = branch_distance(s->text + i, s->size - i);
		uint64_t to = i + (uint64_t)d;

		if (d && to < s->size)
			s->landed[to] = 1;
	}
}

static bool lands_in(const struct scan *s, uint64_t from, uint64_t to)
{
	bool lands = false;

	for (; from < to; from++)
		if (s->landed[from - s->base])
			s->doubt[from - s->base] = lands = true;
	return lands;
}

/*
 * Is there an instruction at `at`? Code that no function covers, or that does not decode, says yes.
 */
static bool is_instruction(struct scan *s, uint64_t at)
{
	size_t f, n;

	CRN_FIRST(f, s->function_count, s->functions[f].end > at);
	if (f == (size_t)s->function_count || s->functions[f].begin > at ||
		s->functions[f].end > s->base + s->size)
		return true;
	n = decode(s, s->functions[f].begin, s->functions[f].end);
	for (size_t i = 0; i < n; i++)
		if (s->insns[i].at == at)
			return true;
	return n == 0;
}

/* Where a landing kept a site from being patched, look whether the branch is real. */
static void settle_doubts(struct scan *s)
{
	for (uint64_t i = 0; i < s->size; i++)
		if (s->doubt[i])
			s->landed[i] = 0;
	for (uint64_t i = 0; i < s->size; i++) {
		int64_t d = branch_distance(s->text + i, s->size - i);
		uint64_t to = i + (uint64_t)d;

		if (d && to < s->size && s->doubt[to] && !s->landed[to])
			s->landed[to] = is_instruction(s, s->base + i);
	}
}

static int add_site(
	struct plan_builder *b, const struct scan *s, uint64_t at, uint8_t shape, size_t displaced)
{
	uint64_t from = shape == CRN_PATCH_BEFORE ? at - displaced : at + 2;
	struct crn_plan_site *site;

	if (b->site_count == b->site_room) {
		uint32_t room = b->site_room ? b->site_room * 2 : 1024;
		void *p = realloc(b->sites, room * sizeof(*b->sites));

		if (!p)
			return -ENOMEM;
		b->sites = p;
		b->site_room = room;
	}
	site = &b->sites[b->site_count++];
	*site = (struct crn_plan_site){
		.offset = (uint32_t)at, .shape = shape, .displaced = (uint8_t)displaced
	};
	memcpy(site->check, s->text + (from - s->base),
		displaced < sizeof(site->check) ? displaced : sizeof(site->check));
	return 0;
}

/* The instruction before the syscall makes room for the jump. */
static bool fits_before(const struct scan *s, const struct insn *i, size_t index)
{
	const struct insn *p = i - 1;

	return index > 0 && p->movable && !p->stack && p->size >= JUMP_SIZE &&
		p->size <= CRN_STUB_BEFORE_MAX && !lands_in(s, p->at + 1, i->at);
}

/* The syscall and what follows it do: bytes behind it to displace, or 0. */
static size_t fits_after(
	const struct scan *s, const struct insn *i, const struct insn *end, bool jumps)
{
	size_t bytes = 0;

	if (jumps)
		return 0;
	for (const struct insn *n = i + 1; bytes < JUMP_SIZE - 2; n++) {
		if (n == end || !n->movable || n->stack)
			return 0;
		bytes += n->size;
	}
	if (bytes > CRN_STUB_AFTER_MAX || lands_in(s, i->at + 1, i->at + 2 + bytes))
		return 0;
	return bytes;
}

static int plan_function(
	struct plan_builder *b, struct scan *s, const struct elf_range *r, uint64_t next)
{
	/*
	 * clone's call stands between two tables, so that unwinders stop there: read on to the next
	 * one.
	 */
	size_t n = next > r->end && next - r->end < GAP_MAX ? decode(s, r->begin, next) : 0, bytes;
	bool jumps = false;
	int e = 0;

	if (!n)
		n = decode(s, r->begin, r->end);
	for (size_t i = 0; i < n; i++)
		jumps |= s->insns[i].indirect_jump;
	for (size_t i = 0; i < n && e == 0; i++) {
		const struct insn *insn = &s->insns[i];

		if (!insn->syscall)
			continue;
		if (fits_before(s, insn, i))
			e = add_site(b, s, insn->at, CRN_PATCH_BEFORE, insn[-1].size);
		else if ((bytes = fits_after(s, insn, s->insns + n, jumps)) > 0)
			e = add_site(b, s, insn->at, CRN_PATCH_AFTER, bytes);
	}
	return e;
}

static bool has_syscall(const uint8_t *p, size_t n)
{
	const uint8_t *end = p + n;

	while (n >= 2 && (p = memchr(p, 0x0f, (size_t)(end - p - 1)))) {
		if (p[1] == 0x05)
			return true;
		if (end - ++p < 2)
			break;
	}
	return false;
}

static int plan_functions(struct plan_builder *b, struct scan *s)
{
	int e = 0;

	for (long i = 0; i < s->function_count && e == 0; i++) {
		const struct elf_range *r = &s->functions[i];
		uint64_t next = i + 1 < s->function_count ? r[1].begin : r->end;

		if (r->begin < s->base || r->end <= r->begin || r->end > s->base + s->size)
			continue;
		if (next < r->end || next > s->base + s->size)
			next = r->end;
		if (has_syscall(s->text + (r->begin - s->base), next - r->begin))
			e = plan_function(b, s, r, next);
	}
	return e;
}

/* Once to see which landings matter, and again when the imagined ones among them are gone. */
static int plan_text(struct plan_builder *b, struct scan *s)
{
	uint32_t first = b->site_count;
	int e;

	s->function_count = elf_functions(s->f, &s->functions);
	if (s->function_count < 0)
		return (int)s->function_count;
	find_landings(s);
	e = plan_functions(b, s);
	if (e < 0)
		return e;
	b->site_count = first;
	settle_doubts(s);
	return plan_functions(b, s);
}

static int scan_open(struct scan *s, struct elf_file *f, const char *path)
{
	const Elf64_Phdr *t;
	int e = elf_open(f, path);

	if (e < 0)
		return e;
	*s = (struct scan){ .f = f };
	t = elf_text(f);
	if (t) {
		s->base = t->p_vaddr;
		s->size = t->p_filesz;
		s->text = elf_at(f, t->p_vaddr, t->p_filesz);
		s->landed = calloc(1, t->p_filesz + 1);
		s->doubt = calloc(1, t->p_filesz + 1);
	}
	if (!s->text || !s->landed || !s->doubt ||
		ZYAN_FAILED(ZydisDecoderInit(
			&s->decoder, ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64))) {
		free(s->landed);
		free(s->doubt);
		elf_close(f);
		return -ENOEXEC;
	}
	return 0;
}

static void scan_close(struct scan *s, struct elf_file *f)
{
	free(s->landed);
	free(s->doubt);
	free(s->functions);
	free(s->insns);
	elf_close(f);
}

/* Add the sites of one object. 0, or -errno when it cannot be planned. */
static int add_object(struct plan_builder *b, const char *path)
{
	struct crn_plan_object *o = &b->objects[b->object_count];
	const uint8_t *id;
	struct elf_file f;
	struct scan s;
	size_t id_size;
	int e;

	if (b->object_count == sizeof(b->objects) / sizeof(b->objects[0]))
		return -E2BIG;
	e = scan_open(&s, &f, path);
	if (e < 0)
		return e;
	id_size = elf_build_id(&f, &id);
	e = -ENOEXEC;
	if (id_size && id_size <= CRN_BUILD_ID_MAX && f.segments[0].p_type != PT_NULL &&
		s.base + s.size < UINT32_MAX) {
		*o = (struct crn_plan_object){ .build_id_size = (uint32_t)id_size,
			.sites_first = b->site_count };
		memcpy(o->build_id, id, id_size);
		o->text_begin = (uint32_t)(s.base & ~4095ull);
		o->text_end = (uint32_t)((s.base + s.size + 4095) & ~4095ull);
		strncpy(o->name, elf_base_name(path), sizeof(o->name) - 1);
		e = plan_text(b, &s);
		if (e < 0)
			b->site_count = o->sites_first;
		o->sites_count = b->site_count - o->sites_first;
		b->object_count += e == 0;
	}
	scan_close(&s, &f);
	return e;
}

static int add_loaded(struct dl_phdr_info *info, size_t size, void *ctx)
{
	const char *name = elf_base_name(info->dlpi_name);

	(void)size;
	if (!strncmp(name, "libc.so", 7) || !strncmp(name, "ld-linux", 8) ||
		!strncmp(name, "libpthread", 10) || !strncmp(name, "ld-musl", 7))
		(void)add_object(ctx, info->dlpi_name);
	return 0;
}

void plan_add_system(struct plan_builder *b)
{
	dl_iterate_phdr(add_loaded, b);
}

/* One more instruction of the entry goes to the trampoline. False: it cannot be moved. */
static bool displace(struct crn_plan_function *fn, const struct insn *i)
{
	if (i->relative) {
		if (fn->relative_count == CRN_RELATIVES_MAX)
			return false;
		fn->relatives[fn->relative_count++] = (uint8_t)(fn->displaced + i->relative);
	} else if (!i->movable) {
		return false;
	}
	fn->displaced = (uint8_t)(fn->displaced + i->size);
	return true;
}

/*
 * Whole instructions of 5 bytes or more at the entry if they can be moved, no branch lands inside
 * the jump and no other function begins there, which may be called from anywhere; else the first
 * one alone, by int3. False: not even that one can be moved.
 */
static bool entry_shape(struct scan *s, struct crn_plan_function *fn)
{
	uint64_t end = fn->offset + 3 * 15, limit = s->base + s->size;
	struct crn_plan_function first;
	size_t n = 0;

	/* Decode what there is; padding behind a short function may not be code. */
	for (uint64_t e = end < limit ? end : limit; e > fn->offset && !n; e--)
		n = decode(s, fn->offset, e);
	if (!n || !displace(fn, &s->insns[0]))
		return false;
	first = *fn;
	for (size_t i = 1; i < n && fn->displaced < JUMP_SIZE; i++)
		if (s->insns[i - 1].last || !displace(fn, &s->insns[i]))
			break;
	if (fn->displaced < JUMP_SIZE || fn->displaced > sizeof(fn->check) ||
		elf_symbol_within(s->f, fn->offset + 1, fn->offset + fn->displaced) ||
		lands_in(s, fn->offset + 1, fn->offset + fn->displaced)) {
		*fn = first;
		fn->trap = 1;
	}
	return true;
}

int plan_add_function(struct plan_builder *b, const char *program, uint32_t site, uint64_t offset)
{
	struct crn_plan_function *fn = &b->functions[b->function_count];
	const uint8_t *id;
	struct elf_file f;
	struct scan s;
	size_t size, left;
	int e;

	if (b->function_count == sizeof(b->functions) / sizeof(b->functions[0]))
		return -E2BIG;
	e = scan_open(&s, &f, program);
	if (e < 0)
		return e;
	e = -ENOEXEC;
	*fn = (struct crn_plan_function){ .site = site, .offset = offset };
	if (offset >= s.base && offset - s.base < s.size) {
		left = s.size - (offset - s.base);
		fn->check_size = (uint8_t)(left < sizeof(fn->check) ? left : sizeof(fn->check));
		memcpy(fn->check, s.text + (offset - s.base), fn->check_size);
		size = elf_build_id(&f, &id);
		if (size && size <= CRN_BUILD_ID_MAX) {
			memcpy(fn->build_id, id, size);
			fn->build_id_size = (uint32_t)size;
		}
		find_landings(&s);
		e = entry_shape(&s, fn) ? 0 : -ENOTSUP;
	}
	b->function_count += e == 0;
	scan_close(&s, &f);
	return e;
}

static int write_part(int fd, const void *data, size_t size)
{
	return size ? crn_fd_write(fd, data, size) : 0;
}

static int write_parts(const struct plan_builder *b, const struct crn_config *config)
{
	struct crn_plan head = { .object_count = b->object_count,
		.site_count = b->site_count,
		.function_count = b->function_count,
		.config = *config };
	int fd = memfd_create("cairn-plan", MFD_ALLOW_SEALING), high, e;

	if (fd < 0)
		return -errno;
	memcpy(head.magic, CRN_PLAN_MAGIC, sizeof(head.magic));
	head.size = (uint32_t)(sizeof(head) + b->object_count * sizeof(b->objects[0]) +
		b->site_count * sizeof(b->sites[0]) + b->function_count * sizeof(b->functions[0]));
	e = write_part(fd, &head, sizeof(head));
	if (e >= 0)
		e = write_part(fd, b->objects, b->object_count * sizeof(b->objects[0]));
	if (e >= 0)
		e = write_part(fd, b->sites, b->site_count * sizeof(b->sites[0]));
	if (e >= 0)
		e = write_part(fd, b->functions, b->function_count * sizeof(b->functions[0]));
	if (e < 0) {
		close(fd);
		return e;
	}
	high = crn_fd_raise(fd);
	/* Programs started below inherit it; nobody may change it under them. */
	if (high >= 0 &&
		(fcntl(high, F_SETFD, 0) < 0 ||
			fcntl(high, F_ADD_SEALS,
				F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0))
		return -errno;
	return high;
}

/* RLIMIT_FSIZE is meant for the program's files: not for the plan, and not our death by SIGXFSZ. */
int plan_write(const struct plan_builder *b, const struct crn_config *config)
{
	struct sigaction ignore = { .sa_handler = SIG_IGN }, old;
	struct rlimit limit, wide;
	int fd;

	sigaction(SIGXFSZ, &ignore, &old);
	getrlimit(RLIMIT_FSIZE, &limit);
	wide = (struct rlimit){ RLIM_INFINITY, RLIM_INFINITY };
	if (setrlimit(RLIMIT_FSIZE, &wide) < 0) {
		wide = (struct rlimit){ limit.rlim_max, limit.rlim_max };
		setrlimit(RLIMIT_FSIZE, &wide);
	}
	fd = write_parts(b, config);
	setrlimit(RLIMIT_FSIZE, &limit);
	sigaction(SIGXFSZ, &old, NULL);
	return fd;
}

void plan_free(struct plan_builder *b)
{
	free(b->sites);
	b->sites = NULL;
}
