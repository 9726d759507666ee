// SPDX-License-Identifier: MIT
// Which instructions may take a checkpoint, or be where a restore comes back: after them nothing
// counts as saved any more. In a whole program: those whose calls can reach cairn_checkpoint (or
// what opens, closes or rewinds), directly or through code that is not known: what libc's functions
// are not. In a part of one: every call that is not known.
#ifndef CAIRN_COMPILER_CHECKPOINTS_H
#define CAIRN_COMPILER_CHECKPOINTS_H

#include "llvm/ADT/DenseSet.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"

namespace cairn {

class Checkpoints {
public:
	Checkpoints(llvm::Module &m, bool whole);

	bool at(const llvm::Instruction &i) const;
	bool in(const llvm::Function &f) const { return functions.contains(&f); }

private:
	bool whole, indirect = false;
	llvm::DenseSet<const llvm::Function *> functions;

	bool call(const llvm::CallBase &c) const;
	void close(llvm::Module &m);
};

} // namespace cairn
#endif
