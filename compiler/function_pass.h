// SPDX-License-Identifier: MIT
// One function: which of its writes need a hook, and where.
#ifndef CAIRN_COMPILER_FUNCTION_PASS_H
#define CAIRN_COMPILER_FUNCTION_PASS_H

#include "fresh.h"
#include "store_hooks.h"
#include "options.h"
#include "report.h"

namespace cairn {

// What is known of the whole module.
struct Program {
	const Options &options;
	Checkpoints checkpoints;
	Fresh fresh;

	Program(llvm::Module &m, const Options &o)
		: options(o), checkpoints(m, o), fresh(m, o, checkpoints) {}
};

// Is it code that may get hooks, and counters?
bool wants_hooks(const llvm::Function &f);

// `stores` counts the stores of all functions, for Options::lose.
void instrument(llvm::Function &f, const Program &p, Hooks &hooks, Report &report,
	unsigned &stores);

} // namespace cairn
#endif
