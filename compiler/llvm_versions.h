// SPDX-License-Identifier: MIT
// Where LLVM 19 and 22 differ: all of it is here, so that no other file asks for the version. If
// both have a form of a call, as with iterators as places, the other files use that one.
#ifndef CAIRN_COMPILER_LLVM_VERSIONS_H
#define CAIRN_COMPILER_LLVM_VERSIONS_H

#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"
// The header of plugins has moved.
#if LLVM_VERSION_MAJOR >= 22
#include "llvm/Plugins/PassPlugin.h"
#else
#include "llvm/Passes/PassPlugin.h"
#endif

namespace cairn {

// Newer ones take the layout from the analysis.
struct Expander : llvm::SCEVExpander {
#if LLVM_VERSION_MAJOR >= 22
	explicit Expander(llvm::ScalarEvolution &s) : SCEVExpander(s, "cairn") {}
#else
	explicit Expander(llvm::ScalarEvolution &s)
		: SCEVExpander(s, s.getDataLayout(), "cairn")
	{
	}
#endif
};

} // namespace cairn
#endif
