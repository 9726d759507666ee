/* SPDX-License-Identifier: MIT */
/*
 * The agent's first moments. ld.so calls crn_agent_start before every other initialiser (-z
 * initfirst), so libc is mapped and relocated but not initialised, and the process has one thread.
 * Without a plan in the environment the agent stays away: nothing is patched, and the program runs
 * bare.
 */
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <asm/hwcap2.h>
#include <asm/prctl.h>
#include "base/copy.h"
#include "base/log.h"
#include "os/descriptor.h"
#include "os/log_writer.h"
#include "os/memory.h"
#include "os/signal.h"
#include "os/thread.h"
#include "session/session.h"
#include "intercept/intercept.h"

struct crn_inherited crn_here;
struct crn_agent *crn_agent;

extern const ElfW(Ehdr) __ehdr_start __attribute__((visibility("hidden")));
void crn_agent_start(int argc, char **argv, char **envp);

static const char *environment(char **envp, const char *name)
{
	size_t n = crn_strlen(name);

	for (; envp && *envp; envp++)
		if (crn_starts_with(*envp, name) && (*envp)[n] == '=')
			return *envp + n + 1;
	return NULL;
}

/* The plan stays mapped: sites are read again by nobody, the functions' entries are. */
static const struct crn_plan *plan_map(const char *text)
{
	const struct crn_plan *plan;
	long fd = 0, at;

	for (; *text >= '0' && *text <= '9' && fd < 1 << 24; text++)
		fd = fd * 10 + *text - '0';
	at = crn_sys6(SYS_mmap, 0, CRN_PAGE_SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
	if (at < 0)
		return NULL;
	plan = (const void *)at;
	if (__builtin_memcmp(plan->magic, CRN_PLAN_MAGIC, 8) != 0 || plan->size < sizeof(*plan)) {
		crn_memory_unmap((void *)at, CRN_PAGE_SIZE);
		return NULL;
	}
	at = crn_sys6(SYS_mmap, 0, plan->size, PROT_READ, MAP_PRIVATE, fd, 0);
	crn_memory_unmap((void *)plan, CRN_PAGE_SIZE);
	if (at < 0)
		return NULL;
	crn_here.plan_fd = (int)fd;
	return (const void *)at;
}

/* Where our own code and image lie. */
static void find_image(void)
{
	const ElfW(Ehdr) *eh = &__ehdr_start;
	uintptr_t base = (uintptr_t)eh;
	const ElfW(Phdr) *ph = (const void *)(base + eh->e_phoff);

	crn_here.image_begin = base;
	for (int i = 0; i < eh->e_phnum; i++) {
		if (ph[i].p_type != PT_LOAD)
			continue;
		crn_here.image_end = crn_page_up(base + ph[i].p_vaddr + ph[i].p_memsz);
		if (ph[i].p_flags & PF_X) {
			crn_here.text_begin = base + ph[i].p_vaddr;
			crn_here.text_end = crn_here.text_begin + ph[i].p_memsz;
		}
	}
}

/* Behind the environment; 0 if the kernel has not told it. */
static uint64_t auxiliary(char **envp, uint64_t type)
{
	const ElfW(auxv_t) * aux;

	while (*envp)
		envp++;
	for (aux = (const void *)(envp + 1); aux->a_type != AT_NULL; aux++)
		if (aux->a_type == type)
			return aux->a_un.a_val;
	return 0;
}

/*
 * ld.so's list of loaded objects, through the main program's DT_DEBUG. NULL if it cannot be found.
 */
static const struct link_map *loaded_objects(char **envp)
{
	const ElfW(Phdr) *ph = (const void *)auxiliary(envp, AT_PHDR);
	const size_t count = auxiliary(envp, AT_PHNUM);
	const ElfW(Dyn) *dyn = NULL;
	uintptr_t bias = 0;

	for (size_t i = 0; ph && i < count; i++)
		if (ph[i].p_type == PT_PHDR)
			bias = (uintptr_t)ph - ph[i].p_vaddr;
	for (size_t i = 0; ph && i < count; i++)
		if (ph[i].p_type == PT_DYNAMIC)
			dyn = (const void *)(bias + ph[i].p_vaddr);
	for (; dyn && dyn->d_tag != DT_NULL; dyn++)
		if (dyn->d_tag == DT_DEBUG && dyn->d_un.d_ptr)
			return ((const struct r_debug *)dyn->d_un.d_ptr)->r_map;
	return NULL;
}

/* Threads, signals, dispatch. After this the program is intercepted wherever dispatch reaches. */
static int arm(void)
{
	struct crn_thread *t;
	uint64_t gs = 0;
	int r;

	crn_sys2(SYS_arch_prctl, ARCH_GET_GS, &gs);
	if (gs) {
		crn_warn("the gs base is in use: nothing is intercepted");
		return -EBUSY;
	}
	r = crn_threads_init();
	if (r < 0)
		return r;
	t = crn_thread_new();
	if (!t)
		return -ENOMEM;
	crn_stubs_init();
	crn_signals_init();
	crn_signal_mask(SIG_UNBLOCK, CRN_SIG_RESERVED);
	crn_here.sud = true;
	r = crn_thread_enter(t);
	if (r < 0) {
		crn_here.sud = false;
		crn_warn("syscall user dispatch is not available (%s): calls outside libc are not "
			 "intercepted",
			cairn_strerror(r));
		r = crn_thread_enter(t);
	}
	return r;
}

void crn_agent_start(int argc, char **argv, char **envp)
{
	const char *text = environment(envp, CRN_PLAN_ENV),
		   *debug = environment(envp, "CAIRN_DEBUG");
	const struct crn_plan *plan = text ? plan_map(text) : NULL;
	const struct link_map *objects;

	if (!plan)
		return;
	crn_here.debug = debug && *debug == '1';
	crn_fd_engine(crn_here.plan_fd, true);
	crn_fd_engine(crn_log_start(), true);
	find_image();
	crn_here.agent.config = plan->config;
	crn_here.agent.pid = crn_getpid();
	crn_here.agent.break_begin = crn_memory_break(0);
	crn_context_init(auxiliary(envp, AT_HWCAP2) & HWCAP2_FSGSBASE);
	if (arm() < 0) {
		crn_warn("the agent cannot start: the program runs bare");
		return;
	}
	crn_agent = &crn_here.agent;
	objects = loaded_objects(envp);
	crn_here.sites_patched = crn_patch_objects(plan, objects);
	crn_functions_init(plan, objects);
	crn_timer_start();
	crn_threads_let_pass();
	if (crn_here.debug)
		crn_warn("%u system call sites patched, the rest by dispatch (%s)",
			crn_here.sites_patched, crn_here.sud ? "on" : "not available");
}
