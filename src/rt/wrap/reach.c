/* SPDX-License-Identifier: MIT */
#include "rt/wrap/reach.h"
#include "base/bits.h"
#include "os/memory.h"
#include "rt/heap.h"
#include "rt/wrap/wrap.h"

#define STACK_NEAR (256ul << 10) /* bytes above here: frames that called this one */

extern char __data_start[] __attribute__((weak, visibility("hidden"))); /* musl has none */
extern char __bss_start[] __attribute__((weak, visibility("hidden")));
extern char _end[] __attribute__((weak, visibility("hidden")));

static bool doubted;

static bool within(uintptr_t at, size_t n, uintptr_t begin, uintptr_t end)
{
	return at >= begin && at <= end && n <= end - at;
}

__attribute__((noinline)) bool crn_reach_own(const volatile void *at, size_t n)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0), a = (uintptr_t)at;
	uintptr_t image = (uintptr_t)(__data_start ? __data_start : __bss_start);

	return within(a, n, here, here + STACK_NEAR) || crn_heap_spans((const void *)at, n) ||
		within(a, n, image, (uintptr_t)_end);
}

static bool surely(const volatile void *at, size_t n)
{
	return !doubted && crn_reach_own(at, n);
}

void crn_reach_doubt(const void *at, size_t n)
{
	if (!doubted && surely(at, n))
		doubted = true;
}

/* Bytes from `at` on that can be read, up to `n`; whole pages of them, of CRN_PROBE_MAX at most. */
static size_t readable(uintptr_t at, size_t n)
{
	uintptr_t pages[CRN_PROBE_MAX], end = at + n;
	size_t count = 0;

	for (uintptr_t a = at; a < end && count < CRN_PROBE_MAX;
		a = crn_page_down(a) + CRN_PAGE_SIZE)
		pages[count++] = a;
	count = crn_memory_readable(pages, count);
	return count ? CRN_MIN(end, crn_page_down(pages[count - 1]) + CRN_PAGE_SIZE) - at : 0;
}

bool crn_reach_there(const volatile void *at, size_t n)
{
	uintptr_t a = (uintptr_t)at;
	size_t good;

	if (!n || surely(at, n))
		return true;
	if (a + n < a)
		return false;
	for (; n; a += good, n -= good) {
		good = readable(a, n);
		if (!good)
			return false;
	}
	return true;
}

static bool open_to_stores(const struct iovec *pieces, size_t count)
{
	int err = count ? crn_memory_writable(pieces, count) : 0;

	return err >= 0 || err == -ENOSYS || err == -EPERM; /* who may not ask believes */
}

bool crn_reach_all_open(const struct iovec *parts, size_t count)
{
	struct iovec unsure[CRN_PROBE_MAX];
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		uintptr_t at = (uintptr_t)parts[i].iov_base;

		if (at + parts[i].iov_len < at)
			return false;
		if (!parts[i].iov_len || surely(parts[i].iov_base, parts[i].iov_len))
			continue;
		unsure[n++] = parts[i];
		if (n < CRN_PROBE_MAX)
			continue;
		if (!open_to_stores(unsure, n))
			return false;
		n = 0;
	}
	return open_to_stores(unsure, n);
}

bool crn_reach_open(void *at, size_t n)
{
	return crn_reach_all_open(&(struct iovec){ at, n }, 1);
}

void crn_reach_keep(const volatile void *at, size_t n)
{
	uintptr_t a = (uintptr_t)at, own = (uintptr_t)&__cairn_rt;
	size_t good;

	if (!at || !n || !__cairn_rt.active)
		return;
	if (surely(at, n)) {
		keep(at, n);
		return;
	}
	n = CRN_MIN(n, CRN_CALL_MAX);
	if (a < own) /* more than anything of the program's */
		n = CRN_MIN(n, own - a);
	for (; n && a + n > a; a += good, n -= good) {
		good = readable(a, n);
		if (!good)
			return;
		keep((void *)a, good);
	}
}
