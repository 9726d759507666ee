// SPDX-License-Identifier: MIT
// Functions that can reach a checkpoint: all of their blocks in two versions, with hooks and
// without (LMC, V-B: basic block cloning). Where they begin, and behind each call that may have
// opened a session, ended it, or begun an interval, they go on in the version that is right now:
//
//	entry:	variables; if (off) goto plain;
//	hooked:	...				plain:	...
//		f();					f();
//		if (off) goto plain.behind;		if (!off) goto behind;
//	behind:	...				plain.behind:	...
//
// Functions that cannot reach one are cloned as a whole (clones.h).
#ifndef CAIRN_COMPILER_BLOCK_VERSIONS_H
#define CAIRN_COMPILER_BLOCK_VERSIONS_H

#include "block_copies.h"
#include "checkpoints.h"
#include "options.h"
#include "store_hooks.h"

namespace cairn {

// Of calls in a version without hooks.
constexpr const char *in_plain = "cairn-plain";

// The blocks without hooks are added to `plain`. False: the function has one version, as it was.
bool split_versions(llvm::Function &f, const Checkpoints &checkpoints, const Options &options,
	Hooks &hooks, Blocks &plain);

} // namespace cairn
#endif
