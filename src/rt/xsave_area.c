/* SPDX-License-Identifier: MIT */
/*
 * How much of its area XSAVE may write: the processor alone knows where each kind of registers
 * goes. The pass calls this before each of the program's XSAVEs.
 */
#include <cpuid.h>
#include <stddef.h>
#include <stdint.h>

#define LEAF      0xdu
#define FIRST_END 576u /* of x87's and SSE's, and the header */

/* Of components `high`:`low`, at fixed places or (XSAVEC) one behind the other. */
__attribute__((visibility("default"))) size_t __cairn_xsave_length(
	uint32_t low, uint32_t high, uint32_t compact);

size_t __cairn_xsave_length(uint32_t low, uint32_t high, uint32_t compact)
{
	uint32_t on[2], size, at, flags, unused;
	size_t end = FIRST_END;

	__asm__ volatile("xgetbv" : "=a"(on[0]), "=d"(on[1]) : "c"(0));
	on[0] &= low;
	on[1] &= high;
	for (uint32_t i = 2; i < 63; i++) {
		if (!(on[i / 32] >> i % 32 & 1))
			continue;
		__cpuid_count(LEAF, i, size, at, flags, unused);
		if (compact)
			at = (uint32_t)(flags & 2 ? (end + 63) & ~(size_t)63 : end);
		if (at + size > end)
			end = at + size;
	}
	return end;
}
