// SPDX-License-Identifier: MIT
// -fcairn-sites: a checkpoint at the top of each loop that a profile recommends (SMC section 6).
#ifndef CAIRN_COMPILER_LOOP_SITES_H
#define CAIRN_COMPILER_LOOP_SITES_H

#include "loop_identity.h"
#include "options.h"
#include "report.h"
#include "llvm/IR/Module.h"
#include <vector>

namespace cairn {

// The loops that are wanted, as cairn-cc hands them over: the environment's CAIRN_LOOPS, a line for
// each (LoopIdentity::text).
std::vector<LoopIdentity> wanted_loops();

// Calls of the run-time's __cairn_site at the top of those that this module has, as clang has made
// it. Which they were is kept in the module for check_loop_sites.
void insert_loop_sites(llvm::Module &m, const Options &o, Report &report);

// Once all units of the program are in the module: names those that were found nowhere, neither
// here nor in its shared libraries (the environment's CAIRN_LOOPS_ELSEWHERE). None found at all
// ends the compiler, if it is the program that was profiled.
void check_loop_sites(const llvm::Module &m, const Options &o);

} // namespace cairn
#endif
