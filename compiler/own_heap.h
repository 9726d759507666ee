// SPDX-License-Identifier: MIT
// A program that has a malloc of its own. Its functions get other names (__cairn_own_malloc), for
// the run-time calls them, too; libraries find those of the run-time in their place
// (src/rt/lent_blocks.h), and so does what the program gives back, which may be a library's.
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
