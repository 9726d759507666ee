// SPDX-License-Identifier: MIT
#include "checkpoints.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/TargetParser/Triple.h"

using namespace llvm;

namespace cairn {

// Of cairn.h: what begins an interval, and so makes tags clean. A restore comes back out of a
// checkpoint.
static bool begins_interval(StringRef name)
{
	return name == "cairn_checkpoint" || name == "cairn_rewind" || name == "cairn_open" ||
		name == "cairn_close";
}

// External functions that are known never to call back into the program.
static bool never_calls_back(const Function &f)
{
	return f.hasFnAttribute(Attribute::NoCallback) || f.doesNotAccessMemory() ||
		f.onlyReadsMemory();
}

// Code that was linked without bitcode may take checkpoints of its own; libc does not.
Checkpoints::Checkpoints(Module &m, bool w) : whole(w)
{
	TargetLibraryInfoImpl library((Triple(m.getTargetTriple())));

	for (Function &f : m) {
		LibFunc known;

		if (!f.isDeclaration() || f.isIntrinsic())
			continue;
		if (!begins_interval(f.getName()) &&
			(never_calls_back(f) || library.getLibFunc(f.getName(), known)))
			continue;
		functions.insert(&f);
		// Pointers to functions may come from there, too.
		indirect |= !f.getName().starts_with("cairn_");
	}
	if (whole)
		close(m);
}

// Everything that can reach one of them. An external function may call whatever of the program has
// its address taken; so may an indirect call. Those that cannot be told count as reaching, as soon
// as any function whose address is taken (or that is visible from outside) reaches.
void Checkpoints::close(Module &m)
{
	bool changed = true;

	while (changed) {
		changed = false;
		for (const Function *f : functions)
			if (!indirect && (f->hasAddressTaken() || !f->hasLocalLinkage()) &&
				!f->isDeclaration() && f->getName() != "main")
				changed = indirect = true;
		for (Function &f : m) {
			if (f.isDeclaration() || functions.contains(&f))
				continue;
			for (const Instruction &i : instructions(f)) {
				auto *c = dyn_cast<CallBase>(&i);

				if (c && call(*c)) {
					functions.insert(&f);
					changed = true;
					break;
				}
			}
		}
	}
}

bool Checkpoints::call(const CallBase &c) const
{
	const auto *to = dyn_cast<Function>(c.getCalledOperand()->stripPointerCastsAndAliases());

	if (isa<IntrinsicInst>(c) || c.isInlineAsm())
		return false;
	if (to && functions.contains(to))
		return true;
	if (!whole)
		return !to || !never_calls_back(*to);
	if (to && (!to->isDeclaration() || never_calls_back(*to)))
		return false;
	return indirect;
}

bool Checkpoints::at(const Instruction &i) const
{
	auto *c = dyn_cast<CallBase>(&i);

	// Where setjmp returns again, anything may have happened since it was called.
	return c && (call(*c) || c->hasFnAttr(Attribute::ReturnsTwice));
}

} // namespace cairn
