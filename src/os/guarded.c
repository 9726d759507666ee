/* SPDX-License-Identifier: MIT */
#include "os/guarded.h"
#include "base/bits.h"

#define DECLARE(name) extern const char name##_begin[], name##_end[], name##_failed[]
#define ENTRY(name)   { name##_begin, name##_end, name##_failed }

DECLARE(crn_guarded_copy);
DECLARE(crn_guarded_copy_pages);
DECLARE(crn_guarded_copy_pages_halves);
DECLARE(crn_guarded_store);
DECLARE(crn_guarded_lines);
DECLARE(crn_guarded_copy_lines);
DECLARE(crn_guarded_line_differs);
DECLARE(crn_guarded_line);
DECLARE(crn_guarded_lines_halves);
DECLARE(crn_guarded_line_halves);
DECLARE(crn_guarded_lines_wide);
DECLARE(crn_guarded_copy_lines_wide);
DECLARE(crn_guarded_line_wide);
DECLARE(crn_guarded_hash);

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

/* SAFETY: in a signal handler; addresses are compared. */
uintptr_t crn_guarded_resume(uintptr_t pc)
{
	static const struct {
		const char *begin, *end, *failed;
	} guarded[] = {
		ENTRY(crn_guarded_copy), ENTRY(crn_guarded_copy_pages),
		ENTRY(crn_guarded_copy_pages_halves), ENTRY(crn_guarded_store),
		ENTRY(crn_guarded_lines), ENTRY(crn_guarded_copy_lines),
		ENTRY(crn_guarded_line_differs), ENTRY(crn_guarded_line),
		ENTRY(crn_guarded_lines_halves), ENTRY(crn_guarded_line_halves),
		ENTRY(crn_guarded_lines_wide), ENTRY(crn_guarded_line_wide),
		ENTRY(crn_guarded_copy_lines_wide), ENTRY(crn_guarded_hash),
	};

	for (size_t i = 0; i < CRN_ARRAY_SIZE(guarded); i++) {
		if (pc >= (uintptr_t)guarded[i].begin && pc < (uintptr_t)guarded[i].end)
			return (uintptr_t)guarded[i].failed;
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
