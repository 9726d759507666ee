// SPDX-License-Identifier: MIT
// What LLVM knows of a function's loops, and that as code: as each version of LLVM has it.
#ifndef CAIRN_COMPILER_LOOP_ANALYSES_H
#define CAIRN_COMPILER_LOOP_ANALYSES_H

#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Module.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"

namespace cairn {

struct LoopAnalyses {
	explicit LoopAnalyses(llvm::Function &f)
		: layout(f.getParent()->getDataLayout()),
		  library_table(llvm::Triple(f.getParent()->getTargetTriple())),
		  library(library_table), dominators(f), assumptions(f), loops(dominators),
		  evolution(f, library, assumptions, dominators, loops)
	{
	}

	const llvm::DataLayout &layout;
	llvm::TargetLibraryInfoImpl library_table;
	llvm::TargetLibraryInfo library;
	llvm::DominatorTree dominators;
	llvm::AssumptionCache assumptions;
	llvm::LoopInfo loops;
	llvm::ScalarEvolution evolution;
};

struct Expander : llvm::SCEVExpander {
#if LLVM_VERSION_MAJOR >= 22
	Expander(llvm::ScalarEvolution &s, const llvm::DataLayout &) : SCEVExpander(s, "cairn") {}
#else
	Expander(llvm::ScalarEvolution &s, const llvm::DataLayout &l) : SCEVExpander(s, l, "cairn")
	{
	}
#endif
};

} // namespace cairn
#endif
