// SPDX-License-Identifier: MIT
// What scalar evolution knows, as code: as each version of LLVM has it.
#ifndef CAIRN_COMPILER_EXPANDER_H
#define CAIRN_COMPILER_EXPANDER_H

#include "llvm/Config/llvm-config.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"

namespace cairn {

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
