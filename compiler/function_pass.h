// SPDX-License-Identifier: MIT
// One function: which of its writes need a hook, and where.
#ifndef CAIRN_COMPILER_FUNCTION_PASS_H
#define CAIRN_COMPILER_FUNCTION_PASS_H

#include "checkpoints.h"
#include "store_hooks.h"
#include "options.h"
#include "report.h"

namespace cairn {

// `stores` counts the stores of all functions, for Options::lose.
void instrument(llvm::Function &f, const Options &o, const Checkpoints &checkpoints, Hooks &hooks,
	Report &report, unsigned &stores);

} // namespace cairn
#endif
