// SPDX-License-Identifier: MIT
// Places between the blocks of a function, and behind its calls, for calls of the run-time.
#ifndef CAIRN_COMPILER_EDGES_H
#define CAIRN_COMPILER_EDGES_H

#include "llvm/IR/DebugLoc.h"
#include "llvm/IR/InstrTypes.h"

namespace cairn {

// A call in a function with debug information must have a line.
llvm::DebugLoc at_line_0(const llvm::Function &f);

// A new block on the edge; null where there can be none: at the pads of exceptions, and behind
// computed goto.
llvm::BasicBlock *split_edge(llvm::BasicBlock *from, llvm::BasicBlock *to);

// The instruction that follows once the call has returned, which is no jump and no assembly. What
// may throw ends its block, and gets a new one behind it. Null: there can be nothing behind it.
llvm::Instruction *behind_call(llvm::CallBase &c);

} // namespace cairn
#endif
