// SPDX-License-Identifier: MIT
// Stores of a loop to places a constant distance apart become one range that is saved before it.
#ifndef CAIRN_COMPILER_LOOPS_H
#define CAIRN_COMPILER_LOOPS_H

#include "intervals.h"
#include "options.h"
#include "writes.h"

namespace cairn {

// Takes such writes out of the list, puts the code that computes their ranges before the loops, and
// adds the ranges. Returns how many writes went.
unsigned hoist_out_of_loops(llvm::SmallVectorImpl<Write> &writes,
	llvm::SmallVectorImpl<LongWrite> &ranges, llvm::Function &f, const Options &o,
	const Intervals &intervals);

} // namespace cairn
#endif
