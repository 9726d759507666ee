/* SPDX-License-Identifier: MIT */
/*
 * Sites at the entry of a function of the program, or of an object that it has at its start. The
 * plan says which instructions are replaced by a jump to a trampoline near the object (a 32-bit
 * displacement does not reach the agent). Where a jump has no room, int3 and SIGTRAP lead to the
 * same trampoline. The hook sees the registers as they are at the entry.
 */
#include <link.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/memory.h"
#include "os/sys.h"
#include "intercept/intercept.h"

#define SITES_MAX                CRN_ARRAY_SIZE(((struct crn_config *)0)->sites)
#define MAP_FIXED_NOREPLACE_FLAG 0x100000
#define NEAR_STEP                (64ul << 10)
#define NEAR_TRIES               4096

static struct {
	uintptr_t entry;
	uint8_t *trampoline;
} traps[SITES_MAX];
static uint32_t trap_count;

static void hit(struct crn_thread *t, struct crn_regs *regs, uint32_t spec)
{
	struct crn_call call = {
		.nr = -1, .result = (long)regs->rax, .thread = t, .site = regs->rip, .spec = spec
	};

	if (!t->in_vfork)
		crn_site_hit(&call, crn_here.agent.config.sites[spec - 1].kind);
}

void crn_hook_function(struct crn_regs *regs, const uint8_t *trampoline)
{
	struct crn_thread *t = crn_thread_self();

	regs->r11 = t->r11;
	regs->rip = (uintptr_t)trampoline + CRN_TRAMPOLINE_RETURN;
	hit(t, regs, *(const uint32_t *)(trampoline + CRN_TRAMPOLINE_SITE) + 1);
}

void crn_hook_interrupted(struct crn_regs *regs)
{
	struct crn_thread *t = crn_thread_self();

	struct crn_call late = {
		.nr = -1, .result = (long)regs->rax, .thread = t, .site = regs->rip
	};

	if (!t->interrupted_spec) {
		crn_site_late(&late);
		return;
	}
	crn_timer_hit(t, t->interrupted_spec - 1);
	hit(t, regs, t->interrupted_spec);
	crn_timer_rest(t, t->interrupted_spec - 1);
}

void crn_interrupt(struct crn_thread *t, ucontext_t *uc, uint32_t spec)
{
	struct crn_regs *top = (struct crn_regs *)(t->stack_top - sizeof(*top));
	greg_t *g = uc->uc_mcontext.gregs;

	crn_uc_to_regs(top, uc);
	t->regs = top;
	t->interrupted_spec = spec;
	t->in_agent = 1;
	g[REG_RSP] = (greg_t)(uintptr_t)top;
	g[REG_RIP] = (greg_t)(uintptr_t)crn_enter_interrupted;
	g[REG_EFL] &= ~(greg_t)0x40500; /* AC, DF, TF */
}

/*
 * True if it was one of our int3s: uc then continues in the hook, and after it in the trampoline.
 */
bool crn_function_trap(struct crn_thread *t, const siginfo_t *info, ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;

	for (uint32_t i = 0; i < trap_count && info->si_code > 0; i++) {
		if ((uintptr_t)g[REG_RIP] != traps[i].entry + 1)
			continue;
		g[REG_RIP] = (greg_t)(uintptr_t)(traps[i].trampoline + CRN_TRAMPOLINE_RETURN);
		if (!t->in_vfork)
			crn_interrupt(t, uc,
				*(uint32_t *)(traps[i].trampoline + CRN_TRAMPOLINE_SITE) + 1);
		return true;
	}
	return false;
}

static uint8_t *page_at(uintptr_t at)
{
	long p = crn_sys6(SYS_mmap, (long)at, CRN_PAGE_SIZE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE_FLAG, -1, 0);

	if (p == (long)at)
		return (uint8_t *)at;
	if (p > 0)
		crn_memory_unmap((void *)p, CRN_PAGE_SIZE);
	return NULL;
}

/*
 * A page that rel32 reaches from all of the object. Below a shared object the agent's own slots may
 * lie without a gap, so there is a look above as well; but above the program its heap grows.
 */
static uint8_t *near_page(uintptr_t entry, bool of_program)
{
	uintptr_t base = entry & ~(NEAR_STEP - 1);
	uint8_t *page = NULL;

	for (uintptr_t i = 1; !page && i < NEAR_TRIES && base > (i + 1) * NEAR_STEP; i++)
		page = page_at(base - i * NEAR_STEP);
	for (uintptr_t i = 1; !page && !of_program && i < NEAR_TRIES; i++)
		page = page_at(base + i * NEAR_STEP);
	return page;
}

static void trampoline_write(uint8_t *tr, const struct crn_plan_function *f, const uint8_t *entry)
{
	static const uint8_t head[] = {
		0x65, 0xc7, 0x04, 0x25, CRN_T_IN_AGENT, 0, 0, 0, 1, 0, 0,
		0,                                              /* movl $1, %gs:in_agent */
		0x65, 0x4c, 0x89, 0x1c, 0x25, 0, 0, 0, 0,       /* mov %r11, %gs:r11 */
		0x4c, 0x8d, 0x1d, 0xe4, 0xff, 0xff, 0xff,       /* lea -28(%rip), %r11 */
		0xff, 0x25, CRN_TRAMPOLINE_ENTER - 34, 0, 0, 0, /* jmp *enter(%rip) */
	};
	uint32_t r11 = offsetof(struct crn_thread, r11), back;
	uint8_t *moved = tr + CRN_TRAMPOLINE_RETURN;
	uint64_t words[3] = { (uintptr_t)crn_enter_function, (uintptr_t)entry + f->displaced,
		f->site };

	crn_fill(tr, 0xcc, CRN_TRAMPOLINE_SIZE);
	crn_copy(tr, head, sizeof(head));
	crn_copy(tr + 17, &r11, 4);
	crn_copy(moved, entry, f->displaced);
	for (int i = 0; i < f->relative_count; i++) {
		int32_t d;

		crn_copy(&d, moved + f->relatives[i], 4);
		d += (int32_t)(entry - moved);
		crn_copy(moved + f->relatives[i], &d, 4);
	}
	moved += f->displaced;
	back = (uint32_t)(tr + CRN_TRAMPOLINE_BACK - (moved + 6));
	crn_copy(moved, "\xff\x25", 2);
	crn_copy(moved + 2, &back, 4);
	crn_copy(tr + CRN_TRAMPOLINE_ENTER, words, sizeof(words));
}

static bool entry_write(uint8_t *entry, const struct crn_plan_function *f, const uint8_t *tr)
{
	uintptr_t page = crn_page_down((uintptr_t)entry),
		  end = crn_page_up((uintptr_t)entry + f->displaced);
	int32_t distance = (int32_t)(tr - (entry + 5));

	if (crn_memory_protect((void *)page, end - page, PROT_READ | PROT_WRITE | PROT_EXEC) < 0)
		return false;
	if (f->trap) {
		*entry = 0xcc;
	} else {
		*entry = 0xe9;
		crn_copy(entry + 1, &distance, 4);
		crn_fill(entry + 5, 0xcc, f->displaced - 5u);
	}
	crn_memory_protect((void *)page, end - page, PROT_READ | PROT_EXEC);
	return true;
}

static bool has_bytes(uintptr_t at, const struct crn_plan_function *f, size_t size)
{
	uint8_t bytes[sizeof(f->check)];

	return crn_memory_peek(bytes, (const void *)at, size) == (long)size &&
		crn_same_bytes(bytes, f->check, size);
}

/*
 * The plan is inherited by every program below; only the one that it was made for has these
 * functions. What is asked of one that has a build id is whether its entry is as it was: calls near
 * it may be patched already.
 */
static bool is_that_program(uintptr_t base, const struct crn_plan_function *f)
{
	bool named = f->build_id_size && base;

	if (named && !crn_has_build_id(base, f->build_id, f->build_id_size))
		return false;
	return has_bytes(base + f->offset, f, named ? f->displaced : f->check_size);
}

/* Where the function's object is loaded. False: this program does not have it. */
static bool object_base(
	const struct link_map *objects, const struct crn_plan_function *f, uintptr_t *base)
{
	*base = objects ? objects->l_addr : 0;
	if (!f->object[0])
		return true;
	for (const struct link_map *m = objects; m; m = m->l_next) {
		const char *name = m->l_name;

		for (const char *at = name; at && *at; at++)
			if (*at == '/')
				name = at + 1;
		*base = m->l_addr;
		if (name && crn_streq(name, f->object) &&
			(!f->build_id_size ||
				crn_has_build_id(*base, f->build_id, f->build_id_size)))
			return true;
	}
	return false;
}

/* The page of trampolines near an object, which functions of the same object share. */
static uint8_t *trampolines(uintptr_t base, uintptr_t entry, bool of_program)
{
	static struct {
		uintptr_t base;
		uint8_t *page;
	} pages[SITES_MAX];
	uint32_t i = 0;

	while (i < SITES_MAX - 1 && pages[i].page && pages[i].base != base)
		i++;
	if (!pages[i].page || pages[i].base != base) {
		pages[i].base = base;
		pages[i].page = near_page(entry, of_program);
	} else {
		crn_memory_protect(pages[i].page, CRN_PAGE_SIZE, PROT_READ | PROT_WRITE);
	}
	return pages[i].page;
}

static void function_init(
	const struct crn_plan_function *f, uint32_t i, uintptr_t base, const char *text)
{
	uint8_t *entry = (uint8_t *)(base + f->offset), *page, *tr;

	page = trampolines(base, (uintptr_t)entry, !f->object[0]);
	if (!page) {
		crn_warn("%s: no room near the function: no site", text);
		return;
	}
	tr = page + i * CRN_TRAMPOLINE_SIZE;
	trampoline_write(tr, f, entry);
	crn_memory_protect(page, CRN_PAGE_SIZE, PROT_READ | PROT_EXEC);
	if (f->trap) {
		traps[trap_count].entry = (uintptr_t)entry;
		traps[trap_count++].trampoline = tr;
	}
	if (!entry_write(entry, f, tr))
		crn_warn("%s: the program's text cannot be written", text);
}

/* All are looked at before any is written to: short ones lie in each other's bytes. */
void crn_functions_init(const struct crn_plan *plan, const void *link_map)
{
	const struct crn_plan_object *objects = (const void *)(plan + 1);
	const struct crn_plan_site *sites = (const void *)(objects + plan->object_count);
	const struct crn_plan_function *f = (const void *)(sites + plan->site_count);
	uint32_t count = CRN_MIN(plan->function_count, (uint32_t)SITES_MAX);
	uintptr_t base[SITES_MAX];
	bool there[SITES_MAX];

	for (uint32_t i = 0; i < count; i++) {
		bool loaded = object_base(link_map, &f[i], &base[i]);

		there[i] = loaded && is_that_program(base[i], &f[i]);
		if (loaded && !there[i] && f[i].object[0])
			crn_warn("%s: a system call at its entry is intercepted already: no site",
				plan->config.sites[f[i].site].text);
	}
	for (uint32_t i = 0; i < count; i++)
		if (there[i])
			function_init(&f[i], i, base[i], plan->config.sites[f[i].site].text);
}
