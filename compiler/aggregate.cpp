// SPDX-License-Identifier: MIT
//
// One check for several writes: fields of an object that a block fills one after another. The hook
// goes before the first of them, so it may read memory that the program reaches only later; hence
// no group goes over a call, which may not return.
#include "cover.h"
#include "store_hooks.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/MathExtras.h"

using namespace llvm;

namespace cairn {

namespace {

// Do later instructions of the block always run, in the same interval, with the same mappings?
bool ends_group(const Instruction &i)
{
	auto *c = dyn_cast<CallBase>(&i);

	if (!c || isa<MemIntrinsic>(c) || isa<DbgInfoIntrinsic>(c))
		return false;
	return !isGuaranteedToTransferExecutionToSuccessor(&i) || !isa<IntrinsicInst>(c);
}

// What is known of the alignment of base + low, from all members that lie at known distances.
Align best_alignment(ArrayRef<Cover> group, int64_t low, const DataLayout &layout)
{
	Align best = commonAlignment(group[0].base->getPointerAlignment(layout), uint64_t(low));

	for (const Cover &c : group) {
		uint64_t distance = uint64_t(c.low - low);
		Align known = distance ? commonAlignment(c.align, distance) : c.align;

		best = std::max(best, known);
	}
	return best;
}

class Aggregator {
public:
	Aggregator(const Options &o, const DataLayout &l) : options(o), layout(l) {}

	SmallVector<Cover, 64> result;
	unsigned gone = 0;

	// All covers off one base in one group of instructions.
	void take(SmallVectorImpl<Cover> &members)
	{
		llvm::stable_sort(members,
			[](const Cover &a, const Cover &b) { return a.low < b.low; });
		for (size_t first = 0; first < members.size();) {
			int64_t low = members[first].low, high = members[first].high;
			size_t end = first + 1;

			while (end < members.size() &&
				std::max(high, members[end].high) - low <= span_max()) {
				high = std::max(high, members[end].high);
				end++;
			}
			join(ArrayRef(members).slice(first, end - first), low, high);
			first = end;
		}
	}

private:
	const Options &options;
	const DataLayout &layout;

	int64_t span_max() const
	{
		return options.tracker == Tracker::UndoLog || options.bytes()
			? 32
			: int64_t(options.region());
	}

	void join(ArrayRef<Cover> group, int64_t low, int64_t high)
	{
		Align align = best_alignment(group, low, layout);
		unsigned separate = 0;

		for (const Cover &c : group)
			separate += Hooks::cost(options, c.high - c.low, c.align);
		if (group.size() == 1 || Hooks::cost(options, high - low, align) >= separate) {
			result.append(group.begin(), group.end());
			return;
		}
		const Cover *first = &group[0];
		for (const Cover &c : group)
			if (c.at->comesBefore(first->at))
				first = &c;
		Value *pointer = first->low == low ? first->pointer : nullptr;
		result.push_back({ first->at, first->base, low, high, align, pointer });
		gone += group.size() - 1;
	}
};

} // namespace

unsigned aggregate(SmallVectorImpl<Cover> &covers, Function &f, const Options &o,
	const Checkpoints &checkpoints)
{
	DenseMap<const Instruction *, unsigned> group_of;
	unsigned group = 0;

	for (BasicBlock &b : f) {
		group++;
		for (Instruction &i : b) {
			group_of[&i] = group;
			group += ends_group(i) || checkpoints.at(i);
		}
	}
	MapVector<std::pair<unsigned, Value *>, SmallVector<Cover, 8>> groups;
	for (const Cover &c : covers)
		groups[{ group_of[c.at], c.base }].push_back(c);

	Aggregator a(o, f.getParent()->getDataLayout());
	for (auto &entry : groups)
		a.take(entry.second);
	covers = std::move(a.result);
	return a.gone;
}

} // namespace cairn
