// SPDX-License-Identifier: MIT
// Fresh memory: what was allocated in the interval that stores to it. The checkpoint is of a time
// at which it held nothing, so these stores need no hook, wherever its address has gone (the heap
// transient stores of LMC, V-A2).
//
// Only of allocators that have no hooks themselves, like glibc's: one whose own state comes back
// keeps lists inside of free memory, which then has to come back, too. And only if the program
// never frees: else what is allocated may be a block that was in use at the checkpoint.
#ifndef CAIRN_COMPILER_FRESH_H
#define CAIRN_COMPILER_FRESH_H

#include "intervals.h"
#include "options.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Analysis/TargetLibraryInfo.h"

namespace cairn {

class Fresh {
public:
	Fresh(llvm::Module &m, const Options &o, const Checkpoints &checkpoints);

	// Is that memory which was allocated in the interval that `at` runs in?
	bool is(const llvm::Value *pointer, const llvm::Instruction *at,
		const Intervals &intervals) const;

private:
	llvm::TargetLibraryInfoImpl library;
	llvm::DenseSet<const llvm::Function *> allocators;

	bool allocates(const llvm::Value *v) const;
	bool returns_fresh(const llvm::Function &f) const;
	void close(llvm::Module &m, const Checkpoints &checkpoints);
};

} // namespace cairn
#endif
