// SPDX-License-Identifier: MIT
// What -fcairn-report prints to standard error: one line for each function, for each place without
// a hook, and for each external function that may write unseen; then the sum.
#ifndef CAIRN_COMPILER_REPORT_H
#define CAIRN_COMPILER_REPORT_H

#include "store_hooks.h"
#include "writes.h"
#include "llvm/IR/Function.h"

namespace cairn {

struct FunctionFigures {
	explicit FunctionFigures(const llvm::Function &f) : function(&f) {}

	const llvm::Function *function;
	unsigned writes = 0;     // found
	unsigned stack = 0;      // left out: to the stack
	unsigned fresh = 0;      // left out: to memory that is new in the interval
	unsigned loops = 0;      // covered by a range before their loop
	unsigned aggregated = 0; // covered by another's check
	unsigned redundant = 0;  // saved already
	unsigned checks = 0;     // inserted
};

class Report {
public:
	explicit Report(const Options &o)
		: on(o.report), warn(o.warn_uncovered), hybrid(o.hybrid) {}

	void unknown(const llvm::Function &f, const Unknown &u);
	void unknown(llvm::StringRef where, const char *what);
	void uncovered(llvm::StringRef external);
	void facet(llvm::StringRef id);
	void wrapped(llvm::StringRef external);
	// Native code has a function of one of libc's names, which is used like libc's, or is not.
	void own(llvm::StringRef function, llvm::StringRef file, bool alike);
	void site(llvm::StringRef function, unsigned places);
	// Without a bound that is known before it begins, and without a site inside.
	void long_loop(const llvm::BasicBlock &header, const llvm::DebugLoc &at, bool split);
	// It has two versions in one.
	void split() { splits++; }
	void function(const FunctionFigures &figures);
	void total(const llvm::Module &m, const Hooks &hooks, unsigned clones);

private:
	bool on, warn, hybrid;
	unsigned functions = 0, writes = 0, stack = 0, fresh = 0, loops = 0, aggregated = 0;
	unsigned redundant = 0, long_loops = 0, splits = 0;
	unsigned unknowns = 0, uncovereds = 0, wraps = 0;
};

} // namespace cairn
#endif
