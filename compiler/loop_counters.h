// SPDX-License-Identifier: MIT
// -fcairn-profile: a program that counts its loops (SMC section 6).
#ifndef CAIRN_COMPILER_LOOP_COUNTERS_H
#define CAIRN_COMPILER_LOOP_COUNTERS_H

#include "llvm/IR/Module.h"

namespace cairn {

// Counters at every natural loop of the module, as clang has made it; calls around what may wait
// or forks; the start of the profile in main. src/rt/loop_counts.c has the other side.
void insert_counters(llvm::Module &m);

} // namespace cairn
#endif
