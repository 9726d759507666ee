// SPDX-License-Identifier: MIT
// Covers: runs of bytes off one base that one hook saves for one write or for several.
#ifndef CAIRN_COMPILER_COVER_H
#define CAIRN_COMPILER_COVER_H

#include "intervals.h"
#include "options.h"
#include "writes.h"

namespace cairn {

// [base + low, base + high) is saved by a hook before `at`.
struct Cover {
	llvm::Instruction *at;
	llvm::Value *base;
	int64_t low, high;
	llvm::Align align;    // of base + low
	llvm::Value *pointer; // base + low where the function has it already, or null

	Write materialise() const;
};

llvm::SmallVector<Cover, 64> cover_each(llvm::ArrayRef<Write> writes);

// Writes of one block off one base, with no checkpoint between them, become one cover if that makes
// fewer checks (LMC, V-A3). Returns how many went.
unsigned aggregate(llvm::SmallVectorImpl<Cover> &covers, llvm::Function &f, const Options &o,
	const Checkpoints &checkpoints);

// A cover that another one holds, which is always executed before it in the same interval, goes
// (LMC, V-A1). Returns how many went.
unsigned leave_out_redundant(llvm::SmallVectorImpl<Cover> &covers, llvm::Function &f,
	const Intervals &intervals);

} // namespace cairn
#endif
