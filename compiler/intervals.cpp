// SPDX-License-Identifier: MIT
#include "intervals.h"
#include "llvm/IR/CFG.h"

using namespace llvm;

namespace cairn {

Intervals::Intervals(Function &f, const Checkpoints &c) : checkpoints(c)
{
	for (BasicBlock &b : f)
		if (any(b.begin(), b.end()))
			blocks.insert(&b);
}

bool Intervals::any(BasicBlock::const_iterator i, BasicBlock::const_iterator end) const
{
	for (; i != end; ++i)
		if (checkpoints.at(*i))
			return true;
	return false;
}

bool Intervals::between(const Instruction *a, const Instruction *b) const
{
	const BasicBlock *from = a->getParent(), *to = b->getParent();

	if (blocks.empty())
		return false;
	if (from == to)
		return any(a->getIterator(), b->getIterator());
	if (any(a->getIterator(), from->end()) || any(to->begin(), b->getIterator()))
		return true;
	// Every way passes `from` last and then only blocks that reach `to`.
	SmallPtrSet<const BasicBlock *, 32> seen;
	SmallVector<const BasicBlock *, 32> work(pred_begin(to), pred_end(to));
	while (!work.empty()) {
		const BasicBlock *block = work.pop_back_val();

		if (block == from || !seen.insert(block).second)
			continue;
		if (blocks.contains(block))
			return true;
		work.append(pred_begin(block), pred_end(block));
	}
	return false;
}

} // namespace cairn
