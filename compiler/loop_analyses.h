// SPDX-License-Identifier: MIT
// What LLVM knows of a function's loops.
#ifndef CAIRN_COMPILER_LOOP_ANALYSES_H
#define CAIRN_COMPILER_LOOP_ANALYSES_H

#include "llvm_versions.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Module.h"
#include "llvm/TargetParser/Triple.h"

namespace cairn {

struct LoopAnalyses {
	explicit LoopAnalyses(llvm::Function &f)
		: library_table(llvm::Triple(f.getParent()->getTargetTriple())),
		  library(library_table), dominators(f), assumptions(f), loops(dominators),
		  evolution(f, library, assumptions, dominators, loops)
	{
	}

	llvm::TargetLibraryInfoImpl library_table;
	llvm::TargetLibraryInfo library;
	llvm::DominatorTree dominators;
	llvm::AssumptionCache assumptions;
	llvm::LoopInfo loops;
	llvm::ScalarEvolution evolution;
};

} // namespace cairn
#endif
