// SPDX-License-Identifier: MIT
// Sites: functions at which the program takes checkpoints without a change of its source.
#ifndef CAIRN_COMPILER_SITE_CALLS_H
#define CAIRN_COMPILER_SITE_CALLS_H

#include "options.h"
#include "report.h"
#include "llvm/IR/Instruction.h"
#include "llvm/IR/Module.h"

namespace cairn {

// Before the optimisations of the link: they would inline functions that are sites.
void keep_sites(llvm::Module &m, const Options &o);

// Calls of the run-time's __cairn_site at each site of o.sites. A function that the module defines
// takes its checkpoint itself; around calls of one that it does not define the callers do, if the
// module is the whole program.
void insert_sites(llvm::Module &m, const Options &o, Report &report);

// A site before that instruction. `count`: how often it was passed since its last checkpoint; sites
// that take one every so many-th time together share it.
void call_site(llvm::Instruction &before, llvm::GlobalVariable *count, unsigned every,
	const Options &o, bool is_long);
llvm::GlobalVariable *site_count(llvm::Module &m);

} // namespace cairn
#endif
