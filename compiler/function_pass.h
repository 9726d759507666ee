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

	Program(llvm::Module &m, const Options &o, const AbiList &list)
		: options(o), checkpoints(m, o, list), fresh(m, o, checkpoints) {}
};

// Is it code that may get hooks, and counters?
bool wants_hooks(const llvm::Function &f);

// Does an indirect function ask it which one it is? It has no hooks.
bool is_resolver(const llvm::Function &f);

// Functions that resolvers of indirect functions call, for those without hooks.
void free_resolvers(llvm::Module &m);

// `stores` counts the stores of all functions, for Options::lose. How many checks it got.
unsigned instrument(llvm::Function &f, const Program &p, Hooks &hooks, Report &report,
	unsigned &stores);

// The version without hooks, which runs in page mode: but for stores to libraries' memory.
void instrument_plain(llvm::Function &f, Hooks &hooks);

} // namespace cairn
#endif
