// SPDX-License-Identifier: MIT
// Which instructions may take a checkpoint, or be the place to which a restore returns: after them
// nothing counts as saved any more. In a whole program these are calls that can reach
// cairn_checkpoint (or another function that begins an interval), directly, through a pointer, or
// through unknown code, which may also turn to another stack that takes one. In a part of a
// program: every call except of libc functions that call nobody.
#ifndef CAIRN_COMPILER_CHECKPOINTS_H
#define CAIRN_COMPILER_CHECKPOINTS_H

#include "abi_list.h"
#include "options.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"

namespace cairn {

class Checkpoints {
public:
	Checkpoints(llvm::Module &m, const Options &o, const AbiList &l);

	bool at(const llvm::Instruction &i) const;
	bool in(const llvm::Function &f) const { return functions.contains(&f); }
	unsigned count() const { return functions.size(); }

private:
	const Options &options;
	const AbiList &list;
	llvm::TargetLibraryInfoImpl library;
	llvm::DenseSet<const llvm::Function *> functions; // that can reach one
	llvm::SmallVector<const llvm::Function *, 8> targets; // of these: that pointers can be to
	// External functions that pointers can be to and that call functions of the program.
	llvm::SmallVector<const llvm::Function *, 8> callers;
	bool pointers = false; // pointers may be to code that takes checkpoints and is not known
	bool foreign = false;  // or to libraries' code that calls functions of the program
	bool streams = false, forks = false, news = false; // libc calls the program in these

	void note_callbacks(const llvm::Module &m);
	bool gives_pointers(const llvm::Function &f) const;
	bool is_libcs(const llvm::Function &f) const;
	bool calls_given(const llvm::Function &f) const;
	bool quiet(const llvm::Function &f) const;
	bool begins(const llvm::Function &f) const;
	bool switches(const llvm::Function &f) const;
	bool call(const llvm::CallBase &c) const;
	bool by_pointer(const llvm::CallBase &c) const;
	void insert(const llvm::Function &f);
	void close(llvm::Module &m);
};

} // namespace cairn
#endif
