// SPDX-License-Identifier: MIT
#include "block_versions.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

namespace cairn {

namespace {

// Instructions times switches: the compiler takes minutes for what has more.
constexpr uint64_t work_max = 3000000;

// A block that ends where either version may go on, and where the one with hooks does.
struct Gate {
	BasicBlock *block, *rest;
	bool twice; // it has a copy, too
};

bool can_split(Function &f, const Checkpoints &checkpoints)
{
	uint64_t switches = 1;

	if (f.isPresplitCoroutine())
		return false;
	for (BasicBlock &b : f) {
		if ((b.isEHPad() && !b.isLandingPad()) || isa<CallBrInst>(b.getTerminator()))
			return false;
		switches += b.hasAddressTaken();
		for (Instruction &i : b) {
			auto *intrinsic = dyn_cast<IntrinsicInst>(&i);

			switches += checkpoints.at(i);
			if (!can_copy(i) || (intrinsic &&
				intrinsic->getIntrinsicID() == Intrinsic::localescape))
				return false;
		}
	}
	return switches * f.getInstructionCount() <= work_max;
}

// Variables stay in front: both versions use them.
Instruction *behind_variables(BasicBlock &entry)
{
	BasicBlock::iterator at = entry.getFirstNonPHIOrDbgOrAlloca();

	for (Instruction &i : make_early_inc_range(make_range(at, entry.end())))
		if (auto *variable = dyn_cast<AllocaInst>(&i); variable && isa<Constant>(variable->getArraySize()))
			variable->moveBefore(entry, at);
	return &*at;
}

Gate cut(Instruction *at, bool twice)
{
	BasicBlock *block = at->getParent();

	return { block, block->splitBasicBlock(at->getIterator(), "cairn.on"), twice };
}

// Where the call goes on, or is caught, if anything is done there.
void put_behind(Instruction &i, SmallPtrSetImpl<Instruction *> &after)
{
	SmallVector<Instruction *, 2> places;

	if (auto *invoke = dyn_cast<InvokeInst>(&i))
		for (BasicBlock *b : { invoke->getNormalDest(), invoke->getUnwindDest() })
			places.push_back(&*b->getFirstInsertionPt());
	else if (auto *call = dyn_cast<CallInst>(&i); call && !call->isMustTailCall())
		places.push_back(call->getNextNode());
	for (Instruction *at : places)
		if (!isa<ReturnInst, ResumeInst, UnreachableInst>(at))
			after.insert(at);
}

SmallVector<Gate, 16> cut_all(Function &f, const Checkpoints &checkpoints)
{
	// First: a variable that follows a call is no longer behind it then.
	Instruction *begin = behind_variables(f.getEntryBlock());
	SmallPtrSet<Instruction *, 16> after;
	SmallVector<Instruction *, 16> behind;
	SmallVector<BasicBlock *, 16> targets;
	SmallVector<Gate, 16> gates;

	for (Instruction &i : instructions(f))
		if (checkpoints.at(i))
			put_behind(i, after);
	for (Instruction &i : instructions(f))
		if (after.contains(&i))
			behind.push_back(&i);
	// Of computed jumps, which go to one place.
	for (BasicBlock &b : f)
		if (b.hasAddressTaken())
			targets.push_back(&b);
	// From front to back: what is behind a cut is another block then.
	gates.push_back(cut(begin, false));
	for (BasicBlock *b : targets)
		gates.push_back(cut(&*b->getFirstNonPHIIt(), false));
	for (Instruction *at : behind)
		gates.push_back(cut(at, true));
	return gates;
}

} // namespace

bool split_versions(Function &f, const Checkpoints &checkpoints, const Options &options,
	Hooks &hooks, Blocks &plain)
{
	// With page mode an interval switches where loops are (long_loops.h).
	if (!options.clones() || options.hybrid || !checkpoints.in(f) || !can_split(f, checkpoints))
		return false;
	SmallVector<Gate, 16> gates = cut_all(f, checkpoints);
	SmallPtrSet<BasicBlock *, 16> once;
	SmallVector<BasicBlock *, 64> blocks;

	for (const Gate &g : gates)
		if (!g.twice)
			once.insert(g.block);
	for (BasicBlock &b : f)
		if (!once.contains(&b))
			blocks.push_back(&b);
	BlockCopies copies(f, blocks, plain);

	for (const Gate &g : gates)
		for (BasicBlock *b : { g.block, g.twice ? copies.of(g.block) : nullptr }) {
			if (!b)
				continue;
			b->getTerminator()->eraseFromParent();
			IRBuilder<> at(b);

			at.CreateCondBr(hooks.are_off(at), copies.of(g.rest), g.rest);
		}
	copies.join(true);
	for (BasicBlock *b : blocks)
		for (Instruction &i : *copies.of(b))
			if (auto *c = dyn_cast<CallBase>(&i))
				c->addFnAttr(Attribute::get(f.getContext(), in_plain));
	return true;
}

} // namespace cairn
