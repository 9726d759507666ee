// SPDX-License-Identifier: MIT
//
// Redundant writes: what a dominating hook has saved in the same interval is saved. Works on bytes,
// so it holds for the undo log as it does for the shadow.
#include "cover.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/IR/Dominators.h"

using namespace llvm;

namespace cairn {

namespace {

// Pairs are compared: beyond this many off one base it would cost more time than it is worth.
constexpr size_t compared_max = 400;

} // namespace

unsigned leave_out_redundant(SmallVectorImpl<Cover> &covers, Function &f,
	const Intervals &intervals)
{
	DominatorTree dominators(f);
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
