/* SPDX-License-Identifier: MIT */
/*
 * The first code of an instrumented program: the page of state and, for the shadow, the address
 * space that hooks read from their first instruction on. No session is open yet, so all is inert.
 */
#include "rt/rt.h"
#include "base/bits.h"
#include "base/log.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/exec.h"
#include "os/memory.h"

struct crn_rt __cairn_rt __attribute__((aligned(4096), visibility("default")));

/* The rest of its page is nobody else's. */
static char rest[4096 - sizeof(struct crn_rt)] __attribute__((used));

/* glibc's; absent elsewhere, where the program must promise it (CAIRN_THREADS_ONE). */
extern char __libc_single_threaded __attribute__((weak));

bool crn_rt_one_thread(void)
{
	return &__libc_single_threaded && __libc_single_threaded;
}

/* The pass defines it in code whose hooks look at tags and save nothing. */
extern const char __cairn_save_off __attribute__((weak));

bool crn_rt_saves(void)
{
	return !&__cairn_save_off;
}

static bool in_window(uintptr_t addr)
{
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
	void *shadow = (void *)(primary ^ CRN_RT_SHADOW_XOR);
	void *tags = crn_rt_tag(primary, shift);
	int err = crn_memory_span(&shadow, len);

	return err < 0 ? err : crn_memory_span(&tags, len >> shift);
}

static _Noreturn void refuse(const char *what, int err)
{
	crn_error("this program was built with -fcairn-tracker=shadow and cannot start here: %s: "
		  "%s; %s", what, cairn_strerror(err),
		"raise `ulimit -v` and leave vm.overcommit_memory at 0 or 1, or build it with "
		"-fcairn-tracker=undolog");
	crn_exit_process(127);
}

/*
 * SAFETY: before any initialiser, libc's included (in a static program), so raw system calls only.
 */
void crn_rt_start(int argc, char **argv, char **envp)
{
	uintptr_t break_at = crn_memory_break(0);
	int err = crn_memory_renew(&__cairn_rt, sizeof(__cairn_rt) + sizeof(rest));

	(void)crn_log_start();
	if (err < 0)
		refuse("the page of its hooks", err);
	if (__cairn_shape.kind != CRN_RT_SHADOW)
		return;
	/*
	 * With more random bits than by default (vm.mmap_rnd_bits), the legacy layout, or a stack
	 * without a limit, addresses may lie anywhere: then once more without.
	 */
	if (!in_window((uintptr_t)&__cairn_rt) || !in_window((uintptr_t)&err) ||
		!in_window(break_at) || !in_window(next_mapping())) {
		err = crn_exec_default_layout(argv, envp);
		refuse("its addresses are outside of what the shadow covers", err);
	}
	err = open_window(CRN_RT_IMAGE_AT, CRN_RT_IMAGE_LEN);
	if (err >= 0)
		err = open_window(CRN_RT_MAPS_AT, CRN_RT_MAPS_LEN);
	if (err < 0)
		refuse("6 TiB of address space for the shadow", err);
	err = crn_rt_guard_start();
	if (err < 0)
		refuse("the addresses that -fcairn-guard keeps free", err);
}
