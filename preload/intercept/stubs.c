/* SPDX-License-Identifier: MIT */
/*
 * Stubs (layout.h) and the patches that lead to them. Patches are written once, at start, while the
 * process has one thread; stubs for sites met later are made by the SIGSYS handler of the thread
 * that met them. A stub, once made, is never changed or freed: a thread may be asleep in it.
 */
#include <elf.h>
#include <link.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/memory.h"
#include "os/thread.h"
#include "intercept/intercept.h"

/* Site address to stub: open addressing, filled under stub_lock, read without. 0 is free. */
#define TABLE_SIZE (2 * CRN_STUB_MAX)
static struct {
	_Atomic uintptr_t site;
	uint32_t index;
} table[TABLE_SIZE];

static void put(uint8_t **at, const void *bytes, size_t n)
{
	crn_copy(*at, bytes, n);
	*at += n;
}

/* An instruction that ends in a 32-bit displacement from its end to `target`. */
static void put_relative(uint8_t **at, const char *opcode, size_t n, const void *target)
{
	int32_t distance = (int32_t)((const uint8_t *)target - (*at + n + 4));

	put(at, opcode, n);
	put(at, &distance, 4);
}

#define put_lea_rcx(at, target) put_relative(at, "\x48\x8d\x0d", 3, target)
#define put_jump(at, target)    put_relative(at, "\xe9", 1, target)

/* Write a stub's bytes; its page is writable. */
static void stub_write(uint8_t *stub, uintptr_t site, uintptr_t back, const void *before,
	size_t before_len, const void *after, size_t after_len)
{
	uint8_t *at = stub;
	uint64_t words[3] = { back, site, 0 };

	crn_fill(stub, 0x90, CRN_STUB_JUMP);
	put(&at, before, before_len);
	at = stub + CRN_STUB_AGAIN;
	put_lea_rcx(&at, stub);
	put_jump(&at, crn_enter);
	put(&at, "\x0f\x05", 2); /* CRN_STUB_CALL */
	put_lea_rcx(&at, stub);
	put_jump(&at, crn_leave);
	put(&at, "\x0f\x05\x48\x89\xc1\xe3\x0c",
		7); /* CRN_STUB_CLONE: syscall; mov %rax, %rcx; jrcxz */
	put_lea_rcx(&at, stub);
	put_jump(&at, crn_leave);
	put_lea_rcx(&at, stub);
	put_jump(&at, crn_clone_child);
	put(&at, "\x0f\x05", 2); /* CRN_STUB_BARE */
	put(&at, after, after_len);
	at = stub + CRN_STUB_JUMP;
	put(&at, "\xff\x25\x02\0\0\0\x90\x90", 8); /* jmp *2(%rip) */
	put(&at, words, sizeof(words));
}

static uint32_t table_slot(uintptr_t site)
{
	uint32_t i = (uint32_t)((site * 0x9e3779b97f4a7c15ull) >> 40) % TABLE_SIZE;

	while (table[i].site && table[i].site != site)
		i = (i + 1) % TABLE_SIZE;
	return i;
}

/* Under stub_lock, the stub's page writable. */
static uint8_t *stub_make(uintptr_t site, uintptr_t back, const void *before, size_t before_len,
	const void *after, size_t after_len)
{
	uint32_t slot = table_slot(site);
	uint8_t *stub = crn_stubs + (size_t)crn_here.stub_count * CRN_STUB_SIZE;

	stub_write(stub, site, back, before, before_len, after, after_len);
	table[slot].index = crn_here.stub_count++;
	__atomic_store_n(&table[slot].site, site, __ATOMIC_RELEASE);
	return stub;
}

/* Other threads may be executing in these pages: they stay executable throughout. */
static int stubs_writable(const uint8_t *from, size_t len, bool writable)
{
	uintptr_t begin = crn_page_down((uintptr_t)from), end = crn_page_up((uintptr_t)from + len);

	return crn_memory_protect(
		(void *)begin, end - begin, PROT_READ | PROT_EXEC | (writable ? PROT_WRITE : 0));
}

uint8_t *crn_stub_found(uintptr_t site)
{
	uint32_t slot = table_slot(site);

	if (__atomic_load_n(&table[slot].site, __ATOMIC_ACQUIRE) != site)
		return NULL;
	return crn_stubs + (size_t)table[slot].index * CRN_STUB_SIZE;
}

uint8_t *crn_stub_for(uintptr_t site)
{
	uint8_t *stub = crn_stub_found(site), *next;
	uint32_t slot;

	if (stub)
		return stub;
	crn_spin_lock(&crn_here.stub_lock);
	slot = table_slot(site);
	next = crn_stubs + (size_t)crn_here.stub_count * CRN_STUB_SIZE;
	if (table[slot].site == site) {
		stub = crn_stubs + (size_t)table[slot].index * CRN_STUB_SIZE;
	} else if (crn_here.stub_count < CRN_STUB_MAX &&
		stubs_writable(next, CRN_STUB_SIZE, true) == 0) {
		stub = stub_make(site, site + 2, NULL, 0, NULL, 0);
		stubs_writable(next, CRN_STUB_SIZE, false);
	}
	crn_spin_unlock(&crn_here.stub_lock);
	return stub;
}

/* The first stub is what crn_restorer jumps into. */
void crn_stubs_init(void)
{
	if (crn_here.stub_count)
		return;
	if (stubs_writable(crn_stubs, CRN_STUB_SIZE, true) < 0)
		return;
	stub_make((uintptr_t)crn_restorer, (uintptr_t)crn_restorer, NULL, 0, NULL, 0);
	stubs_writable(crn_stubs, CRN_STUB_SIZE, false);
}

bool crn_same_bytes(const uint8_t *a, const uint8_t *b, size_t n)
{
	while (n && *a == *b)
		a++, b++, n--;
	return n == 0;
}

/* Does the object at `base` carry this build id? */
bool crn_has_build_id(uintptr_t base, const uint8_t *id, uint32_t size)
{
	const ElfW(Ehdr) *eh = (const void *)base;
	const ElfW(Phdr) *ph = (const void *)(base + eh->e_phoff);

	if (!crn_same_bytes(eh->e_ident, (const uint8_t *)ELFMAG, SELFMAG))
		return false;
	for (int i = 0; i < eh->e_phnum; i++) {
		uintptr_t at = base + ph[i].p_vaddr, end = at + ph[i].p_memsz;

		while (ph[i].p_type == PT_NOTE && at + sizeof(ElfW(Nhdr)) <= end) {
			const ElfW(Nhdr) *n = (const void *)at;
			const uint8_t *name = (const uint8_t *)(n + 1),
				      *desc = name + ((n->n_namesz + 3) & ~3u);

			if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 &&
				crn_same_bytes(name, (const uint8_t *)"GNU", 4))
				return n->n_descsz == size && crn_same_bytes(desc, id, size);
			at = (uintptr_t)desc + ((n->n_descsz + 3) & ~3u);
		}
	}
	return false;
}

/* Turn one site into a jump to a stub of its own. Text and stubs are writable. */
static bool patch_site(uintptr_t base, const struct crn_plan_site *s)
{
	uint8_t *insn = (uint8_t *)base + s->offset, *from, *at, *stub;
	size_t check = CRN_MIN(s->displaced, sizeof(s->check));

	if (insn[0] != 0x0f || insn[1] != 0x05 || crn_here.stub_count >= CRN_STUB_MAX)
		return false;
	from = s->shape == CRN_PATCH_BEFORE ? insn - s->displaced : insn + 2;
	if (!crn_same_bytes(from, s->check, check))
		return false;
	if (s->shape == CRN_PATCH_BEFORE) {
		stub = stub_make((uintptr_t)insn, (uintptr_t)insn + 2, from, s->displaced, NULL, 0);
		at = from;
	} else {
		stub = stub_make((uintptr_t)insn, (uintptr_t)insn + 2 + s->displaced, NULL, 0, from,
			s->displaced);
		at = insn;
	}
	put_jump(&at, stub + CRN_STUB_ENTRY);
	/* Nobody executes what is left of a displaced instruction; let it trap if somebody does. */
	while (at < (s->shape == CRN_PATCH_BEFORE ? insn : insn + 2 + s->displaced))
		*at++ = 0xcc;
	return true;
}

static uint32_t patch_object(
	const struct crn_plan *plan, const struct crn_plan_object *o, uintptr_t base)
{
	const struct crn_plan_object *objects = (const void *)(plan + 1);
	const struct crn_plan_site *sites = (const void *)(objects + plan->object_count);
	uint8_t *text = (uint8_t *)base + o->text_begin;
	size_t len = o->text_end - o->text_begin;
	intptr_t distance = (intptr_t)crn_stubs - (intptr_t)text;
	uint32_t done = 0;

	if (distance > INT32_MAX / 2 || distance < INT32_MIN / 2)
		return 0;
	if (crn_memory_protect(text, len, PROT_READ | PROT_WRITE | PROT_EXEC) < 0)
		return 0;
	if (stubs_writable(crn_stubs, (size_t)(crn_stubs_end - crn_stubs), true) == 0) {
		for (uint32_t i = 0; i < o->sites_count; i++)
			done += patch_site(base, &sites[o->sites_first + i]);
		stubs_writable(crn_stubs, (size_t)(crn_stubs_end - crn_stubs), false);
	}
	crn_memory_protect(text, len, PROT_READ | PROT_EXEC);
	crn_debug("%s: %u of %u planned sites patched", o->name, done, o->sites_count);
	return done;
}

uint32_t crn_patch_objects(const struct crn_plan *plan, const void *link_map)
{
	const struct crn_plan_object *objects = (const void *)(plan + 1);
	uint32_t done = 0;

	for (const struct link_map *m = link_map; m; m = m->l_next) {
		if (!m->l_addr)
			continue;
		for (uint32_t i = 0; i < plan->object_count; i++)
			if (crn_has_build_id(
				    m->l_addr, objects[i].build_id, objects[i].build_id_size))
				done += patch_object(plan, &objects[i], m->l_addr);
	}
	return done;
}
