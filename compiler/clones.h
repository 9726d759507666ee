// SPDX-License-Identifier: MIT
// Two versions of a function, with hooks and without, and a switch between them (LMC, V-B: basic
// block cloning), so that a program pays for its hooks only while a session is open.
//
//	f:         if (__cairn_rt.active) goto f.hooked; else goto f.plain;
//	f.hooked:  calls g.hooked		f.plain:  calls g.plain
//
// The switch is only at a function's entry. That is enough, because these are functions that cannot
// open a session or begin an interval: no version without hooks is running when stores begin to
// matter. All other functions have both versions of each block in one body (block_versions.h).
//
// With page mode (Options::hybrid, page_mode.h of src/track) an interval may switch to the versions
// without hooks, but not back: hooked code calls f again, and f counts what its hooks cost.
#ifndef CAIRN_COMPILER_CLONES_H
#define CAIRN_COMPILER_CLONES_H

#include "checkpoints.h"
#include "options.h"
#include "store_hooks.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

namespace cairn {

class Clones {
public:
	explicit Clones(const Options &o) : options(o) {}

	// Before hooks are put in: the versions without. In a whole program only.
	void make(llvm::ArrayRef<llvm::Function *> functions, const Checkpoints &checkpoints);
	// So many checks have been put into the version with hooks.
	void hooked(llvm::Function *f, unsigned count) { checks[f] = count; }
	// Afterwards: the switches, and calls from version to version.
	void link(llvm::Module &m, Hooks &hooks);

	const llvm::MapVector<llvm::Function *, llvm::Function *> &versions() const
	{
		return plain;
	}
	unsigned count() const { return plain.size(); }

private:
	const Options &options;
	llvm::MapVector<llvm::Function *, llvm::Function *> plain;
	llvm::DenseMap<llvm::Function *, unsigned> checks;
};

} // namespace cairn
#endif
