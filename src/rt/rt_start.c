/* SPDX-License-Identifier: MIT */
/*
 * The first code of an instrumented program: the page of state and, for the shadow, the address
 * space that hooks read from their first instruction on. No session is open yet, so all is inert.
 */
#include "rt/rt.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/exec.h"
#include "os/log_writer.h"
#include "os/memory.h"
#include "rt/program_maps.h"
#include "rt/born.h"
#include "rt/waits.h"

#define WORD_(n) __cairn_abi_version_##n
#define WORD(n)  WORD_(n)

const char WORD(CRN_RT_ABI) __attribute__((visibility("default"))) = 1;

struct crn_rt __cairn_rt __attribute__((aligned(4096), visibility("default")));

_Static_assert(sizeof(long) == 4 || (offsetof(struct crn_rt, plain) == 48 &&
	offsetof(struct crn_rt, dirty_cur) == 56 && offsetof(struct crn_rt, dirty_end) == 64),
	"shadow_slow.S has these");

/* The rest of its page is nobody else's. */
static char rest[4096 - sizeof(struct crn_rt)] __attribute__((used));

/*
 * Not every libc has these, so programs bring their own. Wrappers name them, but are linked when
 * bitcode has become code, without what no native object had named.
 */
#define NAMES "strlcpy, strlcat, lgamma_r, remquo, remquof, sincos, sincosf"
__asm__(".weak " NAMES "\n\t"
	".pushsection .cairn.names\n\t" /* not loaded */
	".dc.a " NAMES "\n\t"
	".popsection");

/* glibc's; absent elsewhere, where the program must promise it (CAIRN_THREADS_ONE). */
extern char __libc_single_threaded __attribute__((weak));
extern char crn_musl_one_thread __attribute__((weak)); /* with -fcairn-complete */

bool crn_rt_one_thread(void)
{
	if (&__libc_single_threaded)
		return __libc_single_threaded;
	return &crn_musl_one_thread && crn_musl_one_thread;
}

/* SAFETY: anywhere in the program; the session's lock tells whether it may be now. */
void crn_rt_long(void)
{
	struct crn_rt *rt = &__cairn_rt;

	if (rt->hooked && rt->grows_long)
		rt->grows_long(rt->env);
}

/* In programs that make stacks (wrap_context.c). */
extern bool crn_context_stack(uintptr_t at, struct crn_range *out) __attribute__((weak));

bool crn_rt_stack(uintptr_t at, struct crn_range *out)
{
	return crn_context_stack && crn_context_stack(at, out);
}

/* In programs that use threads. */
#pragma weak crn_waits
#pragma weak crn_births
#pragma weak crn_births_count

const struct crn_wait *crn_rt_waits(size_t *count)
{
	*count = crn_waits ? CRN_WAITS : 0;
	return crn_waits;
}

const struct crn_birth *crn_rt_births(size_t *count, const uint32_t **born)
{
	*count = crn_births ? CRN_BIRTHS : 0;
	*born = &crn_births_count;
	return crn_births;
}

/* The pass defines it in all code that it has looked at. */
extern const char __cairn_hooks_on __attribute__((weak));

bool crn_rt_has_hooks(void)
{
	return &__cairn_hooks_on;
}

/* The pass defines it in code whose hooks look at tags and save nothing. */
extern const char __cairn_save_off __attribute__((weak));

bool crn_rt_saves(void)
{
	return !&__cairn_save_off;
}

/* The header of the program's file, as the linker names it; a script may leave it out. */
extern const struct {
	uint8_t ident[16];
	uint16_t type;
} __ehdr_start __attribute__((weak, visibility("hidden")));

#define FIXED_PLACE 2 /* ET_EXEC */

bool crn_rt_covers(uintptr_t addr)
{
	if (__cairn_shape.kind == CRN_RT_UNDOLOG)
		return crn_rt_harmless(addr);
	return addr - CRN_RT_IMAGE_AT < CRN_RT_IMAGE_LEN || addr - CRN_RT_MAPS_AT < CRN_RT_MAPS_LEN;
}

/* Where the kernel puts what is mapped without an address. */
static uintptr_t next_mapping(void)
{
	void *page = NULL;

	if (crn_memory_map(&page, CRN_PAGE_SIZE) >= 0)
		crn_memory_unmap(page, CRN_PAGE_SIZE);
	return (uintptr_t)page;
}

static int open_window(uintptr_t primary, size_t len)
{
	uint32_t shift = __cairn_shape.shift;
	void *shadow = (void *)(primary - CRN_RT_SHADOW_BELOW);
	void *tags = crn_rt_tag(primary, shift);
	int err = crn_memory_span(&shadow, len);

	return err < 0 ? err : crn_memory_span(&tags, len >> shift);
}

#define MORE_SPACE                                                                   \
	"raise `ulimit -v` and `ulimit -d`, leave vm.overcommit_memory at 0 or 1, or " \
	"build it with -fcairn-tracker=undolog"

static _Noreturn void refuse(const char *what, int err, const char *mend)
{
	crn_error("this program was built with -fcairn-tracker=%s and cannot start here: %s%s%s; "
		  "%s", __cairn_shape.kind == CRN_RT_SHADOW ? "shadow" : "undolog", what,
		err ? ": " : "", err ? cairn_strerror(err) : "", mend);
	crn_exit_process(127);
}

/* It may only begin anew with others, and then ends. */
static void check_addresses(char **argv, char **envp)
{
	uintptr_t break_at = crn_memory_break(0);
	int err = 0;

	if (!CRN_RT_LINKED_THERE && &__ehdr_start && __ehdr_start.type == FIXED_PLACE)
		refuse("it was linked with -no-pie", 0, "link it as a PIE, with cairn-cc");
	/*
	 * With more random bits than by default (vm.mmap_rnd_bits), the legacy layout, or a stack
	 * without a limit, addresses may lie anywhere: then once more without.
	 */
	if (crn_rt_covers((uintptr_t)&__cairn_rt) && crn_rt_covers((uintptr_t)&err) &&
		crn_rt_covers(break_at) && crn_rt_covers(next_mapping()))
		return;
	err = crn_exec_default_layout(argv, envp);
	refuse("its addresses are outside of what its hooks cover", err,
		"allow it personality(2), or run it with the default layout of addresses");
}

static uint64_t number_of(char **envp, const char *name)
{
	uint64_t number = 0;

	while (*envp && !crn_starts_with(*envp, name))
		envp++;
	for (const char *s = *envp ? *envp + crn_strlen(name) : ""; *s >= '0' && *s <= '9'; s++)
		number = number * 10 + (uint64_t)(*s - '0');
	return number;
}

bool crn_rt_started;

/*
 * SAFETY: before any initialiser, libc's included (in a static program), so raw system calls only.
 */
void crn_rt_start(int argc, char **argv, char **envp)
{
	int err = crn_memory_renew(&__cairn_rt, sizeof(__cairn_rt) + sizeof(rest));

	(void)crn_log_start();
	if (err < 0)
		refuse("the page of its hooks", err, "see the limits of the process");
	check_addresses(argv, envp);
	crn_program_maps_start();
	__cairn_rt.break_even = number_of(envp, "CAIRN_BREAK_EVEN=");
	if (__cairn_shape.kind == CRN_RT_SHADOW) {
		err = open_window(CRN_RT_IMAGE_AT, CRN_RT_IMAGE_LEN);
		if (err >= 0)
			err = open_window(CRN_RT_MAPS_AT, CRN_RT_MAPS_LEN);
	}
	if (err < 0)
		refuse(CRN_RT_SHADOW_SIZE(__cairn_shape.shift), err, MORE_SPACE);
	err = crn_rt_guard_start();
	if (err < 0)
		refuse("the addresses that are to be kept free", err, MORE_SPACE);
	crn_rt_started = true;
}
