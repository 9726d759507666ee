// SPDX-License-Identifier: MIT
// Loops in which an interval may grow long: no checkpoint can be taken inside, and the number of
// their rounds is not known when they begin. With page mode (Options::hybrid) such a loop, with all
// that it contains, has two versions, and leaves the one with hooks when the interval switches:
//
//	header: phis
//		if ((patience -= hooks) < 0) { long(); if (off) goto plain; }
//		with hooks
//	plain:	without; never back
//
// A loop without calls whose rounds are known when it begins can switch before its first round, and
// counts the hooks of all rounds there. Values computed so far are carried over in phis. The code
// after the loop is shared: what its hooks count as saved is either saved or noticed by the kernel.
#ifndef CAIRN_COMPILER_LONG_LOOPS_H
#define CAIRN_COMPILER_LONG_LOOPS_H

#include "block_copies.h"
#include "intervals.h"
#include "report.h"
#include "store_hooks.h"

namespace cairn {

// Report the long loops of a function and, with page mode, make their second versions, whose blocks
// are added to `plain`.
void split_long_loops(llvm::Function &f, const Checkpoints &checkpoints, const Options &options,
	Hooks &hooks, Report &report, Blocks &plain);

} // namespace cairn
#endif
