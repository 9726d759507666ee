/* SPDX-License-Identifier: MIT */
#include "track/feeds/bpf_attach.h"
#include <errno.h>
#include "base/check.h"
#include "base/log.h"
#include "base/status.h"
#include "os/bpf.h"
#include "os/descriptor.h"
#include "os/keeper.h"
#include "track/feeds/bpf_hub.h"

static int find_offsets(struct crn_bpf_target *k)
{
	static const char *const members[] = { "mm", "pagefault_disabled", "flags", "futex_state",
		"io_uring", "clear_child_tid" };
	uint32_t offsets[6];
	int err = crn_btf_offsets("task_struct", members, offsets, 6);

	if (err == -ENOENT) {
		/* Nothing is excused then: `mm` in their place is never 0. */
		err = crn_btf_offsets("task_struct", members, offsets, 2);
		offsets[2] = offsets[3] = offsets[4] = offsets[5] = offsets[0];
	}
	CRN_TRY(err);
	k->task_mm = offsets[0];
	k->pagefault_disabled = offsets[1];
	k->flags = offsets[2];
	k->futex_state = offsets[3];
	k->io_uring = offsets[4];
	k->clear_tid = offsets[5];
	return 0;
}

static const struct program {
	unsigned link;
	const char *tracepoint;
} programs[CRN_LINKS] = {
	{ CRN_LINK_ACQUIRED, "mmap_lock_acquire_returned" },
	{ CRN_LINK_KERNEL, "page_fault_kernel" },
	{ CRN_LINK_USER, "page_fault_user" },
};

static int install(const struct crn_bpf_target *k, int links[CRN_LINKS])
{
	for (size_t i = 0; i < CRN_LINKS; i++) {
		struct crn_bpf_insn insns[CRN_BPF_PROGRAM_MAX];
		size_t count = crn_bpf_program_put(k, programs[i].link, insns);

		CRN_TRY(links[programs[i].link] =
				crn_bpf_install(programs[i].tracepoint, insns, count));
	}
	return 0;
}

/* Who we are, as the programs see it. */
static int identify(struct crn_bpf_target *k, struct crn_bpf_shared *shared, int *ident)
{
	struct crn_bpf_insn insns[CRN_BPF_PROGRAM_MAX];
	size_t count = crn_bpf_program_put(k, CRN_BPF_IDENT, insns);

	CRN_TRY(*ident = crn_fd_raise(crn_bpf_load(insns, count)));
	CRN_TRY(crn_bpf_run(*ident));
	k->mm = shared->ident_mm;
	return k->mm ? 0 : -ENOENT;
}

static int find_shared(struct crn_bpf_target *k)
{
	/* The first part of mm_struct, which has no name: what counts is where that begins. */
	static const char *const members[] = { "mm_users", "mm_mt", "pgd" };
	uint32_t offsets[3];

	CRN_TRY(find_offsets(k));
	CRN_TRY(crn_btf_offsets("", members, offsets, 3));
	k->mm_users = offsets[0];
	k->shared = true;
	return 0;
}

int crn_bpf_kind(uint32_t *kind)
{
	struct crn_bpf_target k = { .map = 0 };
	/* FNV-1a, of the programs, the size of what they write to, and how the record is used. */
	uint32_t hash = (2166136261u ^ (uint32_t)sizeof(struct crn_bpf_shared)) * 16777619u;

	CRN_TRY(find_shared(&k));
	hash = (hash ^ CRN_HUB_VERSION) * 16777619u;
	for (size_t i = 0; i < CRN_LINKS; i++) {
		struct crn_bpf_insn insns[CRN_BPF_PROGRAM_MAX];
		size_t size = crn_bpf_program_put(&k, (unsigned)i, insns) * sizeof(*insns);

		for (size_t at = 0; at < size; at++)
			hash = (hash ^ ((const uint8_t *)insns)[at]) * 16777619u;
	}
	*kind = hash;
	return 0;
}

int crn_bpf_share(int table, int links[CRN_LINKS])
{
	struct crn_bpf_target k = { .table = table };

	CRN_TRY(find_shared(&k));
	return install(&k, links);
}

int crn_bpf_attach(struct crn_bpf_shared *shared, int map, uint32_t slots, bool shares, int *ident,
	int links[CRN_LINKS])
{
	struct crn_bpf_target k = { .map = map, .slots = slots };
	int err = -EPERM;

	CRN_TRY(find_offsets(&k));
	CRN_TRY(identify(&k, shared, ident));
	if (!slots) {
		err = crn_bpf_hub_join(k.mm, map, links);
		/* Full: so many cost everybody too much if each has its own. */
		if (err >= 0 || err == -ENOSPC || shares)
			return err;
		crn_debug("feed bpf has programs of its own: %s", cairn_strerror(err));
	}
	return install(&k, links);
}

int crn_bpf_know_links(
	struct crn_bpf_known *known, const int links[CRN_LINKS], const struct crn_keeper *k)
{
	/* Under the agent nobody can close them, and there is no keeper; else none is known yet. */
	known->births_left = crn_fd_watch ? k->births_left : UINT32_MAX;
	for (size_t i = 0; i < CRN_LINKS; i++)
		CRN_TRY(crn_bpf_link_number(links[i], &known->numbers[i]));
	return 0;
}

bool crn_bpf_are_links(
	struct crn_bpf_known *known, const int links[CRN_LINKS], struct crn_keeper *k)
{
	if (crn_keeper_lives(k) && known->births_left == k->births_left)
		return true;
	if (crn_keeper_mend(k) < 0)
		return false;
	for (size_t i = 0; i < CRN_LINKS; i++) {
		uint32_t number;

		if (crn_bpf_link_number(links[i], &number) < 0 || number != known->numbers[i])
			return false;
	}
	known->births_left = k->births_left;
	return true;
}
