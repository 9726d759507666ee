// SPDX-License-Identifier: MIT
// Second versions of blocks of a function, without hooks, and the values of both where code that
// either may have run goes on.
#ifndef CAIRN_COMPILER_BLOCK_COPIES_H
#define CAIRN_COMPILER_BLOCK_COPIES_H

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Instructions.h"
#include "llvm/Transforms/Utils/ValueMapper.h"

namespace cairn {

using Blocks = llvm::DenseSet<const llvm::BasicBlock *>;

// Assembly that defines a symbol, which a program can have once.
bool defines_symbol(const llvm::Instruction &i);
// Can it be there twice?
bool can_copy(const llvm::Instruction &i);
// Can all of the block be there twice? Not what unwinding, or an address, leads to.
bool can_copy(const llvm::BasicBlock &b);

class BlockCopies {
public:
	// The copies are added to `plain`. They lead to each other, and to the blocks that have
	// none, where phis get what they make.
	BlockCopies(llvm::Function &f, llvm::ArrayRef<llvm::BasicBlock *> blocks, Blocks &plain);

	llvm::BasicBlock *of(llvm::BasicBlock *b) { return llvm::cast<llvm::BasicBlock>(map[b]); }

	// When all ways from version to version are there: uses see what has really run. With
	// `back` there are ways from the copies to the blocks, too.
	void join(bool back);

private:
	llvm::SmallVector<llvm::BasicBlock *, 32> blocks;
	llvm::SmallPtrSet<llvm::BasicBlock *, 32> inside;
	llvm::ValueToValueMapTy map;

	llvm::Value *value_of(llvm::Value *v);
	void add_exits();
	void add_incoming(llvm::BasicBlock &to);
	void join(llvm::Instruction &i, llvm::Instruction &copy, bool back);
};

} // namespace cairn
#endif
