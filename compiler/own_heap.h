// SPDX-License-Identifier: MIT
// A program that has a malloc of its own. The pass gives its functions other names
// (__cairn_own_malloc), by which the run-time calls them, too. Libraries find the run-time's
// functions under the old names (src/rt/lent_blocks.h). So do the program's calls that free a
// block, because the block may be a library's.
#ifndef CAIRN_COMPILER_OWN_HEAP_H
#define CAIRN_COMPILER_OWN_HEAP_H

#include "llvm/IR/Module.h"

namespace cairn {

void rename_own_heap(llvm::Module &m);

// Is it one of malloc's kin, which libraries call, too?
bool is_own_heap(llvm::StringRef name);

// Does the module have an operator new of its own? Of those that take an alignment?
bool has_own_new(const llvm::Module &m, bool aligned);

} // namespace cairn
#endif
