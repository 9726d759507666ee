// SPDX-License-Identifier: MIT
// Loops in which an interval may grow long: no checkpoint can be taken inside, and nobody can tell
// at their begin how often they turn. With page mode (Options::hybrid) such a loop, with all that
// it holds, has two versions, and leaves the one with hooks when the switch is thrown:
//
//	header: phis
//		if ((patience -= hooks) < 0) { long(); if (off) goto plain; }
//		with hooks
//	plain:	without; never back
//
// One without calls whose rounds are known when it begins has its way over before it, with the
// hooks of all rounds. The values that have been made until then go over in phis. What follows the
// loop is shared: what counts as saved there by its hooks is either saved or noticed by the kernel.
#ifndef CAIRN_COMPILER_LONG_LOOPS_H
#define CAIRN_COMPILER_LONG_LOOPS_H

#include "intervals.h"
#include "report.h"
#include "store_hooks.h"
#include "llvm/ADT/DenseSet.h"

namespace cairn {

using Blocks = llvm::DenseSet<const llvm::BasicBlock *>;

// Report the long loops of a function and, with page mode, make their second versions, whose blocks
// are added to `plain`.
void split_long_loops(llvm::Function &f, const Checkpoints &checkpoints, const Options &options,
	Hooks &hooks, Report &report, Blocks &plain);

} // namespace cairn
#endif
