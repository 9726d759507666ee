// SPDX-License-Identifier: MIT
// Fresh memory: memory that was allocated in the interval that stores to it. It held nothing at the
// checkpoint, so these stores need no hook, wherever its address has gone (the heap transient
// stores of LMC, V-A2).
//
// This holds only for allocators that have no hooks themselves, like glibc's: an allocator whose
// state is restored keeps lists inside free memory, which must then be restored, too. And it holds
// only if the program never frees: otherwise an allocated block may have been in use at the
// checkpoint.
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
