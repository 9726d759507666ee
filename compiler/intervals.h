// SPDX-License-Identifier: MIT
// One function's instructions between which an interval may begin.
#ifndef CAIRN_COMPILER_INTERVALS_H
#define CAIRN_COMPILER_INTERVALS_H

#include "checkpoints.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/Function.h"

namespace cairn {

class Intervals {
public:
	Intervals(llvm::Function &f, const Checkpoints &c);

	// May an interval begin on some way from a to b, where a dominates b?
	bool between(const llvm::Instruction *a, const llvm::Instruction *b) const;
	// Somewhere in that block?
	bool in(const llvm::BasicBlock *b) const { return blocks.contains(b); }

private:
	const Checkpoints &checkpoints;
	llvm::SmallPtrSet<const llvm::BasicBlock *, 16> blocks;

	bool any(llvm::BasicBlock::const_iterator i, llvm::BasicBlock::const_iterator end) const;
};

} // namespace cairn
#endif
