/* SPDX-License-Identifier: MIT */
#include "track/feeds/births.h"
#include <errno.h>
#include "base/bits.h"
#include "os/keeper.h"
#include "os/perf.h"
#include "os/sharers.h"
#include "os/thread.h"

static bool may_share(int pid)
{
	int shares = crn_shares_memory(pid);

	return shares && shares != -ESRCH;
}

/* They have our memory only where nobody can tell. */
static bool is_keeper(const struct crn_births *b, int pid)
{
	return pid == b->keeper->pid || (uint32_t)pid == b->keeper->readers.twin;
}

/* Children that do not have our memory, or are gone. These may have created others first. */
static void forget(struct crn_births *b)
{
	size_t kept = 0;

	for (size_t i = 0; i < b->child_count; i++) {
		if (is_keeper(b, b->children[i]))
			continue;
		if (may_share(b->children[i]))
			b->children[kept++] = b->children[i];
		else
			b->strangers = true;
	}
	b->child_count = kept;
}

static void note_child(struct crn_births *b, int pid)
{
	/* Nearly all are forks, which do not, or are gone by now. */
	if (b->child_count == CRN_BIRTHS_CHILDREN)
		forget(b);
	if (b->child_count == CRN_BIRTHS_CHILDREN)
		b->broken = true;
	else
		b->children[b->child_count++] = pid;
}

static void note_stranger(void *ctx, int tid)
{
	struct crn_births *b = ctx;

	for (size_t i = 0; i < b->child_count; i++)
		if (b->children[i] == tid)
			return;
	if (!is_keeper(b, tid))
		note_child(b, tid);
}

void crn_births_settle(struct crn_births *b)
{
	forget(b);
	if (!b->born && (b->strangers || b->child_count) && crn_memory_alone()) {
		b->child_count = 0;
		b->strangers = false;
	}
	/* A thread without a ring may create others at any time. */
	if (b->strangers && !b->born && crn_sharers_each(note_stranger, b) >= 0)
		b->strangers = false;
}

bool crn_births_read(
	struct crn_births *b, void *ring, size_t pages, uint64_t *at, bool *ended)
{
	uint64_t head = crn_perf_head(ring);

	if (*at == head)
		return false;
	/* The kernel has found, or will find at once, no room for a record. */
	b->broken |= head - crn_perf_freed(ring) + CRN_PERF_RECORD_MAX > pages * CRN_PAGE_SIZE;
	while (*at < head) {
		struct crn_perf_record r = crn_perf_header(ring, pages, *at);
		int pid = (int)(uint32_t)crn_perf_word(ring, pages, *at, 0);

		if (r.type == CRN_PERF_FORK && pid != b->pid)
			note_child(b, pid);
		else if (r.type == CRN_PERF_FORK) /* it may have created others by now */
			b->born = b->strangers = true;
		else if (r.type == CRN_PERF_EXIT)
			*ended = true;
		else
			b->broken = true;
		*at += r.size;
	}
	crn_perf_free_until(ring, head);
	return true;
}
