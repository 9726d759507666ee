/* SPDX-License-Identifier: MIT */
#include "os/guarded.h"
#include "base/bits.h"

/* Of guarded_asm.h: distances from where they stand. */
struct guarded {
	int32_t begin, end, failed;
};
extern const struct guarded __start_crn_guarded[], __stop_crn_guarded[]
	__attribute__((visibility("hidden")));
extern const char crn_guarded_store_begin[], crn_guarded_store_end[]
	__attribute__((visibility("hidden")));

/* In guarded.S. */
_Static_assert(CRN_QUARTERS < CRN_HALVES && CRN_HALVES == 1 && CRN_HALVES < CRN_LINES_WHOLE &&
		CRN_LINES_WHOLE < CRN_LINES_HASHED,
	"the order of crn_registers");

/* A restore may put them back: they were the same at every checkpoint. */
uint8_t crn_guarded_registers;
uint8_t crn_guarded_keys[2 * CRN_PAGE_SIZE] __attribute__((aligned(64)));

#define BMI1	     (1u << 3) /* in leaf 7 */
#define AVX2	     (1u << 5)
#define AVX2_STATE   0x6u /* all of these registers, in XCR0 */
#define AVX512	     (BMI1 | 1u << 16 | 1u << 17 | 1u << 30) /* F, DQ and BW */
#define AVX512_STATE 0xe6u
#define VL	     (1u << 31)
#define VPCLMULQDQ   (1u << 10) /* in ECX */

/*
 * Where the registers of whole lines exist but cannot be used (no DQ or BW), halves cannot either:
 * to write one clears what lies above it.
 */
enum crn_registers crn_registers_for(unsigned features, unsigned more, unsigned state)
{
	if ((features & AVX512) == AVX512 && (state & AVX512_STATE) == AVX512_STATE)
		return features & VL && more & VPCLMULQDQ ? CRN_LINES_HASHED : CRN_LINES_WHOLE;
	if (features & AVX2 && (state & AVX512_STATE) == AVX2_STATE)
		return CRN_HALVES;
	return CRN_QUARTERS;
}

static uintptr_t place(const int32_t *distance)
{
	return (uintptr_t)distance + (uintptr_t)(intptr_t)*distance;
}

/* SAFETY: in a signal handler; addresses are compared. */
uintptr_t crn_guarded_resume(uintptr_t pc)
{
	for (const struct guarded *g = __start_crn_guarded; g < __stop_crn_guarded; g++) {
		if (pc >= place(&g->begin) && pc < place(&g->end))
			return place(&g->failed);
	}
	return 0;
}

bool crn_guarded_asks(uintptr_t pc)
{
	return pc >= (uintptr_t)crn_guarded_store_begin && pc < (uintptr_t)crn_guarded_store_end;
}

bool crn_guarded_same(const void *old, const void *live)
{
	static const uint8_t zeros[CRN_PAGE_SIZE] __attribute__((aligned(64)));

	old = old ? old : zeros;
	return crn_guarded_line(old, live, 0, old, live) == CRN_LINES;
}
