/* SPDX-License-Identifier: MIT */
#include "track/births.h"
#include <errno.h>
#include "base/bits.h"
#include "os/perf.h"

static bool may_share(const struct crn_births *b, int pid)
{
	int shares = pid == b->keeper ? 0 : crn_perf_shares_memory(pid);

	return shares && shares != -ESRCH;
}

void crn_births_forget(struct crn_births *b)
{
	size_t kept = 0;

	for (size_t i = 0; i < b->child_count; i++)
		if (may_share(b, b->children[i]))
			b->children[kept++] = b->children[i];
	b->child_count = kept;
}

static void note_child(struct crn_births *b, int pid)
{
	/* Nearly all are forks, which do not, or are gone by now. */
	if (b->child_count == CRN_BIRTHS_CHILDREN)
		crn_births_forget(b);
	if (b->child_count == CRN_BIRTHS_CHILDREN)
		b->broken = true;
	else
		b->children[b->child_count++] = pid;
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
		else if (r.type == CRN_PERF_FORK)
			b->born = true;
		else if (r.type == CRN_PERF_EXIT)
			*ended = true;
		else
			b->broken = true;
		*at += r.size;
	}
	crn_perf_free_until(ring, head);
	return true;
}
