// SPDX-License-Identifier: MIT
// Blocks of the run-time's heap that the interval which stores to them has allocated (the heap
// transient stores of LMC, V-A2). Whether a kept checkpoint needs what a block held is known when
// it is given out: the run-time says so (crn_rt.fresh), with the block's size. The function that
// got it looks at that once; stores inside of it then need no hooks until a checkpoint.
#ifndef CAIRN_COMPILER_FRESH_BLOCKS_H
#define CAIRN_COMPILER_FRESH_BLOCKS_H

#include "cover.h"
#include "store_hooks.h"
#include "llvm/ADT/MapVector.h"

namespace cairn {

class FreshBlocks {
public:
	FreshBlocks(const Options &o, const Intervals &intervals);

	// Has the program that heap, and does that heap say it?
	static bool may_be(const llvm::Function &f, const Options &o);
	// Takes from the lists what is better saved in that way. Returns how many writes.
	unsigned take(llvm::SmallVectorImpl<Cover> &covers,
		llvm::SmallVectorImpl<LongWrite> &long_writes);
	// Puts hooks before what was taken: they run only where a block is not new.
	void insert(Hooks &hooks) const;

private:
	struct Block {
		uint64_t extent = 0; // bytes from its begin on that are saved when it is allocated
		llvm::SmallVector<Cover, 4> covers; // of the others: when they are stored to
		llvm::SmallVector<LongWrite, 2> long_writes;
	};

	const Options &options;
	const Intervals &intervals;
	llvm::MapVector<llvm::CallBase *, Block> blocks;

	llvm::CallBase *allocation(llvm::Value *pointer, const llvm::Instruction *at) const;
};

} // namespace cairn
#endif
