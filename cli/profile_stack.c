/* SPDX-License-Identifier: MIT */
/*
 * Call stacks of unmodified programs, which keep no frame pointers: libdw unwinds by .eh_frame.
 * That costs a hundred microseconds, so a stack is unwound once: when a thread stops at the same
 * place again, its return addresses are read in one call and compared.
 */
#include <elfutils/libdwfl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <unistd.h>
#include "base/bits.h"
#include "elf_file.h"
#include "profile.h"

#define BUCKETS 1024

/* Function starts of one object, by .eh_frame: there also when the file is stripped. */
struct object {
	struct elf_range *functions;
	long count;
};

struct profile_image {
	Dwfl *dwfl;
	pid_t tid; /* being unwound */
	const struct user_regs_struct *regs;
	uint8_t near[16384]; /* its memory from the stack pointer on */
	uint64_t near_size;
	struct profile_stack *buckets[BUCKETS];
	unsigned reports;
	bool attached;
};

static const Dwfl_Callbacks module_callbacks = {
	.find_elf = dwfl_linux_proc_find_elf,
	.find_debuginfo = dwfl_standard_find_debuginfo,
};

struct profile_image *profile_image_new(void)
{
	struct profile_image *image = profile_alloc(sizeof(*image));

	image->dwfl = dwfl_begin(&module_callbacks);
	return image;
}

/* ---- what libdw asks for --------------------------------------------------------------------- */

static bool get_thread(Dwfl *dwfl, pid_t tid, void *arg, void **thread)
{
	struct profile_image *image = arg;

	(void)dwfl;
	*thread = image;
	return tid == image->tid;
}

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread)
{
	struct profile_image *image = arg;

	(void)dwfl;
	if (*thread)
		return 0;
	*thread = image;
	return image->tid;
}

static bool read_memory(pid_t tid, uint64_t address, void *to, size_t size)
{
	struct iovec local = { to, size }, remote = { (void *)address, size };

	return process_vm_readv(tid, &local, 1, &remote, 1, 0) == (ssize_t)size;
}

static bool memory_read(Dwfl *dwfl, Dwarf_Addr address, Dwarf_Word *result, void *arg)
{
	const struct profile_image *image = arg;
	uint64_t at = address - image->regs->rsp;

	(void)dwfl;
	if (at > sizeof(image->near) || at + sizeof(*result) > image->near_size)
		return read_memory(image->tid, address, result, sizeof(*result));
	memcpy(result, image->near + at, sizeof(*result));
	return true;
}

/* What most of a walk reads, in one call. */
static void read_near(struct profile_image *image)
{
	struct iovec local = { image->near, sizeof(image->near) };
	struct iovec remote = { (void *)image->regs->rsp, sizeof(image->near) };
	ssize_t n = process_vm_readv(image->tid, &local, 1, &remote, 1, 0);

	image->near_size = n > 0 ? (uint64_t)n : 0;
}

static bool set_registers(Dwfl_Thread *thread, void *arg)
{
	const struct user_regs_struct *r = ((struct profile_image *)arg)->regs;
	/* in DWARF's order */
	Dwarf_Word regs[17] = { r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi, r->rbp, r->rsp,
		r->r8, r->r9, r->r10, r->r11, r->r12, r->r13, r->r14, r->r15, r->rip };

	return dwfl_thread_state_registers(thread, 0, 17, regs);
}

static const Dwfl_Thread_Callbacks thread_callbacks = {
	.next_thread = next_thread,
	.get_thread = get_thread,
	.memory_read = memory_read,
	.set_initial_registers = set_registers,
};

/* ---- objects and functions ------------------------------------------------------------------- */

/* Objects are loaded now and then: read the map again when an address belongs to none. */
static void report_modules(struct profile_image *image)
{
	if (image->reports++ == 0)
		dwfl_report_begin(image->dwfl);
	else
		dwfl_report_begin_add(image->dwfl);
	dwfl_linux_proc_report(image->dwfl, image->tid);
	dwfl_report_end(image->dwfl, NULL, NULL);
	if (!image->attached)
		image->attached = dwfl_attach_state(
			image->dwfl, NULL, image->tid, &thread_callbacks, image);
}

static const struct object *object_of(Dwfl_Module *module, const char *path)
{
	struct object *object;
	struct elf_file f;
	void **slot;

	dwfl_module_info(module, &slot, NULL, NULL, NULL, NULL, NULL, NULL);
	if (*slot)
		return *slot;
	*slot = object = profile_alloc(sizeof(*object));
	if (elf_open(&f, path) == 0) {
		object->count = elf_functions(&f, &object->functions);
		if (object->count < 0) /* no table: as in static programs that are no PIE */
			object->count = 0;
		elf_close(&f);
	}
	return object;
}

/* The function around an address of the file; 0 if the unwind tables know none. */
static uint64_t function_start(const struct object *object, uint64_t address, uint64_t *end)
{
	size_t i;

	CRN_FIRST(i, object->count, object->functions[i].begin > address);
	if (!i || address >= object->functions[i - 1].end)
		return 0;
	*end = object->functions[i - 1].end;
	return object->functions[i - 1].begin;
}

/* A caller's return address may be the first byte of the next function. */
static uint64_t inside(const struct profile_frame *f)
{
	return f->activation ? f->pc : f->pc - 1;
}

static const char *nearest_symbol(const struct profile_frame *f, uint64_t *begin)
{
	GElf_Off offset = 0;
	GElf_Sym sym;
	const char *symbol = dwfl_module_addrinfo(
		(Dwfl_Module *)f->module, inside(f), &offset, &sym, NULL, NULL, NULL);

	*begin = inside(f) - offset;
	return symbol;
}

const char *profile_symbol(const struct profile_frame *f)
{
	uint64_t begin, start, end = 0;
	const char *symbol;

	if (!f->module || !f->function)
		return NULL;
	symbol = nearest_symbol(f, &begin);
	start = function_start(
		object_of((Dwfl_Module *)f->module, f->object), inside(f) - f->bias, &end);
	/* In a stripped file the nearest exported symbol may be that of another function. */
	if (start && (begin < f->function || begin >= end + f->bias))
		return NULL;
	return symbol;
}

/* Without the symbol, which is looked for in all of the object's: see profile_symbol. */
static void describe(struct profile_image *image, struct profile_frame *f)
{
	Dwfl_Module *module = dwfl_addrmodule(image->dwfl, inside(f));
	uint64_t start, begin, end;
	GElf_Addr bias;

	if (!module)
		return;
	f->object = dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
	if (!dwfl_module_getelf(module, &bias))
		return;
	f->module = module;
	f->bias = bias;
	start = function_start(object_of(module, f->object), inside(f) - bias, &end);
	if (start)
		f->function = start + bias;
	else if (nearest_symbol(f, &begin))
		f->function = begin;
}

/* ---- stacks ---------------------------------------------------------------------------------- */

struct walk {
	struct profile_image *image;
	unsigned depth;
	struct profile_frame frames[PROFILE_DEPTH_MAX];
};

static int one_frame(Dwfl_Frame *state, void *arg)
{
	struct walk *w = arg;
	struct profile_frame *f = &w->frames[w->depth];
	Dwarf_Word sp;

	memset(f, 0, sizeof(*f));
	if (!dwfl_frame_pc(state, &f->pc, &f->activation))
		return DWARF_CB_ABORT;
	if (w->depth && dwfl_frame_reg(state, 7, &sp) == 0)
		w->frames[w->depth - 1].cfa = sp;
	if (!dwfl_addrmodule(w->image->dwfl, f->pc))
		report_modules(w->image);
	describe(w->image, f);
	return ++w->depth == PROFILE_DEPTH_MAX ? DWARF_CB_ABORT : DWARF_CB_OK;
}

/* Are the return addresses still where they were? */
static bool same(const struct profile_stack *s, pid_t tid)
{
	uint64_t words[PROFILE_DEPTH_MAX];
	struct iovec local = { words, 0 }, remote[PROFILE_DEPTH_MAX];
	unsigned n = 0;

	for (; n + 1 < s->depth && s->frames[n].cfa; n++) {
		remote[n].iov_base = (void *)(s->frames[n].cfa - 8);
		remote[n].iov_len = 8;
	}
	local.iov_len = n * 8;
	if (n == 0 || process_vm_readv(tid, &local, 1, remote, n, 0) != (ssize_t)(n * 8))
		return false;
	for (unsigned i = 0; i < n; i++)
		if (words[i] != s->frames[i + 1].pc)
			return false;
	return true;
}

const struct profile_stack *profile_image_stack(
	struct profile_image *image, pid_t tid, const struct user_regs_struct *regs)
{
	unsigned bucket = (unsigned)((regs->rip * 31 + regs->rsp / 8) % BUCKETS);
	struct profile_stack *s;
	struct walk w;

	for (s = image->buckets[bucket]; s; s = s->next)
		if (s->frames[0].pc == regs->rip && same(s, tid))
			return s;
	w.image = image;
	w.depth = 0;
	image->tid = tid;
	image->regs = regs;
	read_near(image);
	if (!image->reports || !dwfl_addrmodule(image->dwfl, regs->rip))
		report_modules(image);
	if (image->attached)
		dwfl_getthread_frames(image->dwfl, tid, one_frame, &w);
	if (w.depth == 0)
		return NULL;
	s = profile_alloc(sizeof(*s) + w.depth * sizeof(w.frames[0]));
	s->depth = w.depth;
	memcpy(s->frames, w.frames, w.depth * sizeof(w.frames[0]));
	s->next = image->buckets[bucket];
	image->buckets[bucket] = s;
	return s;
}
