// SPDX-License-Identifier: MIT
// The natural loops of a function, each under a name that two builds of one source agree on.
//
// Loops are named as clang has made them, before any optimisation: whatever is inlined, unrolled
// or rotated later differs between a build that counts them and one that takes checkpoints.
#ifndef CAIRN_COMPILER_LOOP_IDENTITY_H
#define CAIRN_COMPILER_LOOP_IDENTITY_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Function.h"
#include <optional>
#include <string>

namespace cairn {

struct LoopIdentity {
	std::string file, function;
	bool local = false; // other files may have a function of that name
	unsigned line = 0, column = 0; // 0: built without -g
	unsigned index = 0, count = 0; // in the function, outer loops first; of so many
	unsigned depth = 1;
	uint64_t shape = 0; // of its blocks, edges and calls by name

	// One line of words between tabs, as profiles have it (src/rt/loop_file.h).
	std::string text() const;
	static std::optional<LoopIdentity> parse(llvm::StringRef line);
	// Other files may have a static function of that name, and other programs a main.
	bool same_function(const LoopIdentity &other) const;
	// Of a file of that name, whatever its folder.
	bool same_file_name(const LoopIdentity &other) const;
};

struct NamedLoop {
	llvm::Loop *loop;
	LoopIdentity id;
};

class NamedLoops {
public:
	explicit NamedLoops(llvm::Function &f);

	llvm::SmallVector<NamedLoop, 8> list; // outer loops first

private:
	llvm::DominatorTree tree;
	llvm::LoopInfo info;
};

// The file that a function is from: as debug information has it, else its unit's.
std::string source_file(const llvm::Function &f);

} // namespace cairn
#endif
