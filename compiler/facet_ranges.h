// SPDX-License-Identifier: MIT
#ifndef CAIRN_COMPILER_FACET_RANGES_H
#define CAIRN_COMPILER_FACET_RANGES_H

#include "llvm/IR/Module.h"

namespace cairn {

// std::ctype converts a range of characters in libstdc++, by a call through a pointer, from inline
// functions of its headers: these keep what it is about to write. Before anything is inlined; true
// if there were any.
bool keep_facet_ranges(llvm::Module &m);

} // namespace cairn
#endif
