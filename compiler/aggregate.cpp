// SPDX-License-Identifier: MIT
//
// One check for several writes: fields of an object that are filled one after another, in a block or
// in blocks that always run together (LMC, V-A4: dominator chains). The hook goes before the first
// of them, so it may read memory that the program reaches only later; hence no group goes over a
// call, which may not return, nor over a loop, which may not end.
#include "cover.h"
#include "store_hooks.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/PostOrderIterator.h"
#include "llvm/Analysis/CycleAnalysis.h"
#include "llvm/Analysis/PostDominators.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Dominators.h"
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

// Instructions that all run if the first of them does, in one interval, with the same mappings.
class Groups {
public:
	Groups(Function &f, const Checkpoints &c) : checkpoints(c), dominators(f), behind(f)
	{
		cycles.compute(f);
		for (BasicBlock *b : ReversePostOrderTraversal<Function *>(&f))
			number(*b);
		for (BasicBlock &b : f) // that nothing leads to
			if (!blocks.contains(&b))
				number(b);
	}

	unsigned of(const Instruction *i) const { return groups.lookup(i); }

	// Of one group.
	bool before(const Instruction *a, const Instruction *b) const
	{
		if (a->getParent() == b->getParent())
			return a->comesBefore(b);
		return blocks.lookup(a->getParent()).order < blocks.lookup(b->getParent()).order;
	}

private:
	static constexpr unsigned between_max = 16; // blocks, from one of a chain to the next

	struct Block {
		unsigned order, first, last; // groups: where it begins, and ends
	};

	const Checkpoints &checkpoints;
	DominatorTree dominators;
	PostDominatorTree behind;
	CycleInfo cycles;
	DenseMap<const Instruction *, unsigned> groups;
	DenseMap<const BasicBlock *, Block> blocks;
	unsigned count = 0;

	void number(BasicBlock &b)
	{
		const BasicBlock *p = joined(b);
		unsigned first = p ? blocks.lookup(p).last : ++count, group = first;

		for (Instruction &i : b) {
			groups[&i] = group;
			if (ends_group(i) || checkpoints.at(i))
				group = ++count;
		}
		blocks[&b] = { unsigned(blocks.size()), first, group };
	}

	// The block after whose end b always runs, as often and with nothing between that ends a
	// group.
	const BasicBlock *joined(BasicBlock &b) const
	{
		const DomTreeNode *node = dominators.getNode(&b);
		BasicBlock *p = node && node->getIDom() ? node->getIDom()->getBlock() : nullptr;

		if (!p || !blocks.contains(p) || cycles.getCycle(p) != cycles.getCycle(&b) ||
			!behind.dominates(&b, p))
			return nullptr;
		SmallPtrSet<const BasicBlock *, between_max> seen;
		SmallVector<const BasicBlock *, between_max> left(successors(p));
		while (!left.empty()) {
			const BasicBlock *x = left.pop_back_val();

			if (x == &b || !seen.insert(x).second)
				continue;
			auto at = blocks.find(x);
			if (x == p || seen.size() > between_max || at == blocks.end() ||
				at->second.first != at->second.last ||
				cycles.getCycle(x) != cycles.getCycle(p))
				return nullptr;
			llvm::append_range(left, successors(x));
		}
		return p;
	}
};

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
	Aggregator(const Options &o, const DataLayout &l, const Groups &g)
		: options(o), layout(l), groups(g)
	{
	}

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
	const Groups &groups;

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
			if (groups.before(c.at, first->at))
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
	Groups groups(f, checkpoints);
	MapVector<std::pair<unsigned, Value *>, SmallVector<Cover, 8>> members;

	for (const Cover &c : covers)
		members[{ groups.of(c.at), c.base }].push_back(c);

	Aggregator a(o, f.getParent()->getDataLayout(), groups);
	for (auto &entry : members)
		a.take(entry.second);
	covers = std::move(a.result);
	return a.gone;
}

} // namespace cairn
