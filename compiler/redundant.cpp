// SPDX-License-Identifier: MIT
//
// Redundant writes: what a dominating hook has saved in the same interval is saved. Works on bytes,
// so it holds for the undo log as it does for the shadow.
#include "cover.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/Dominators.h"

using namespace llvm;

namespace cairn {

namespace {

// Pairs are compared: beyond this many off one base it would cost more time than it is worth.
constexpr size_t compared_max = 400;

class Intervals {
public:
	Intervals(Function &f, const Checkpoints &c) : checkpoints(c)
	{
		for (BasicBlock &b : f)
			if (any(b.begin(), b.end()))
				blocks.insert(&b);
	}

	// May an interval begin on some way from a to b, where a dominates b?
	bool between(Instruction *a, Instruction *b) const
	{
		BasicBlock *from = a->getParent(), *to = b->getParent();

		if (blocks.empty())
			return false;
		if (from == to)
			return any(a->getIterator(), b->getIterator());
		if (any(a->getIterator(), from->end()) || any(to->begin(), b->getIterator()))
			return true;
		// Every way passes `from` last and then only blocks that reach `to`.
		SmallPtrSet<BasicBlock *, 32> seen;
		SmallVector<BasicBlock *, 32> work(pred_begin(to), pred_end(to));
		while (!work.empty()) {
			BasicBlock *block = work.pop_back_val();

			if (block == from || !seen.insert(block).second)
				continue;
			if (blocks.contains(block))
				return true;
			work.append(pred_begin(block), pred_end(block));
		}
		return false;
	}

private:
	const Checkpoints &checkpoints;
	SmallPtrSet<const BasicBlock *, 16> blocks;

	bool any(BasicBlock::iterator i, BasicBlock::iterator end) const
	{
		for (; i != end; ++i)
			if (checkpoints.at(*i))
				return true;
		return false;
	}
};

} // namespace

unsigned leave_out_redundant(SmallVectorImpl<Cover> &covers, Function &f,
	const Checkpoints &checkpoints)
{
	DominatorTree dominators(f);
	Intervals intervals(f, checkpoints);
	MapVector<Value *, SmallVector<size_t, 8>> by_base;
	SmallVector<bool, 64> gone(covers.size(), false);

	for (size_t i = 0; i < covers.size(); i++)
		by_base[covers[i].base].push_back(i);
	auto holds = [&](const Cover &a, const Cover &b) {
		return a.low <= b.low && a.high >= b.high && a.at != b.at &&
			dominators.dominates(a.at, b.at) && !intervals.between(a.at, b.at);
	};
	for (auto &entry : by_base) {
		if (entry.second.size() > compared_max)
			continue;
		for (size_t i : entry.second)
			for (size_t j : entry.second)
				if (i != j && !gone[i] && !gone[j] && holds(covers[i], covers[j]))
					gone[j] = true;
	}
	SmallVector<Cover, 64> left;
	for (size_t i = 0; i < covers.size(); i++)
		if (!gone[i])
			left.push_back(covers[i]);
	unsigned count = covers.size() - left.size();
	covers = std::move(left);
	return count;
}

} // namespace cairn
