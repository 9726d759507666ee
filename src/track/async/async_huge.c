/* SPDX-License-Identifier: MIT */
/*
 * Huge pages of hugetlbfs. A huge page that is dropped (MADV_DONTNEED, a hole in the file, a file
 * that is cut and grows again) leaves nothing that a scan shows. The next load makes a new one of
 * zeros, which the kernel also counts as unwritten. So all huge pages are compared with the mirror
 * each time.
 */
#include "track/async/async.h"
#include "base/status.h"
#include "os/guarded.h"

/* By a copy: what the program has closed is fetched, and its file may be cut short meanwhile. */
static bool differs(struct crn_async *t, uintptr_t page)
{
	void **slot = crn_mirror_slot(&t->mirror, page), *copy = t->mirror.scratch;

	if (t->env->load(t->env, copy, page, CRN_PAGE_SIZE) < 0)
		return *slot; /* what could not be read then either has no content */
	return !*slot || !crn_guarded_same(*slot, copy);
}

int crn_async_compare_huge(struct crn_async *t)
{
	for (size_t i = 0; i < t->span_count; i++) {
		const struct crn_span *s = &t->spans[i];

		if (!s->watched || !s->huge)
			continue;
		for (uintptr_t p = s->begin; p < s->end; p += CRN_PAGE_SIZE) {
			if (!differs(t, p))
				continue;
			CRN_TRY(crn_range_list_put(&t->dirty, p, p + CRN_PAGE_SIZE));
			t->mixed = t->owed = true;
		}
	}
	return 0;
}

bool crn_async_any_huge(const struct crn_async *t, uintptr_t begin, uintptr_t end)
{
	for (size_t i = 0; t->has_huge && i < t->span_count; i++)
		if (t->spans[i].huge && t->spans[i].begin < end && t->spans[i].end > begin)
			return true;
	return false;
}
