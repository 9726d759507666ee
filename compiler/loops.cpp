// SPDX-License-Identifier: MIT
//
//	for (i = 0; i < n; i++)			range(a, 8 * n)
//		a[i] = 0;		->	for (i = 0; i < n; i++)
//							a[i] = 0;
//
// Only what will surely be stored to is looked at beforehand: other memory may not even be mapped.
// So the loop runs an exact number of times, the store in each of them, nothing in it can end it
// otherwise or map memory, and what lies between two stores is less than a page.
#include "loops.h"
#include "loop_analyses.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

namespace cairn {

namespace {

// A loop that is known to be shorter than this keeps its checks: they are cheaper than a range.
constexpr uint64_t rounds_min = 4;

// Writes of one loop with the same step, at constant distances.
struct Run {
	const SCEVAddRecExpr *first; // the lowest
	int64_t step;
	uint64_t size; // from the lowest byte of a round to its highest
	bool last;     // made in the round that leaves the loop, too
};

class Hoister : LoopAnalyses {
public:
	Hoister(Function &f, const Options &o, const Intervals &i)
		: LoopAnalyses(f), options(o), intervals(i)
	{
	}

	unsigned hoist(SmallVectorImpl<Write> &writes, SmallVectorImpl<LongWrite> &ranges)
	{
		MapVector<Loop *, SmallVector<Write, 8>> of_loop;
		SmallPtrSet<const Instruction *, 16> gone;

		for (const Write &w : writes)
			if (Loop *l = loops.getLoopFor(w.at->getParent()))
				of_loop[l].push_back(w);
		for (auto &entry : of_loop)
			if (simple(*entry.first))
				hoist(*entry.first, entry.second, ranges, gone);
		llvm::erase_if(writes, [&](const Write &w) { return gone.contains(w.at); });
		return gone.size();
	}

private:
	const Options &options;
	const Intervals &intervals;

	// Does nothing happen in it but what it computes, and is the number of its rounds known?
	bool simple(const Loop &l)
	{
		if (!l.isInnermost() || !l.getLoopPreheader() || !l.getLoopLatch())
			return false;
		for (const BasicBlock *b : l.blocks())
			for (const Instruction &i : *b) {
				auto *c = dyn_cast<CallBase>(&i);

				if (!isGuaranteedToTransferExecutionToSuccessor(&i) ||
					(c && !isa<IntrinsicInst>(c) && !c->onlyReadsMemory()))
					return false;
			}
		for (const BasicBlock *b : l.blocks())
			if (intervals.in(b))
				return false;
		const SCEV *back = evolution.getBackedgeTakenCount(&l);

		if (isa<SCEVCouldNotCompute>(back) || back->getType()->getIntegerBitWidth() > 64)
			return false;
		auto *known = dyn_cast<SCEVConstant>(back);
		return !known || known->getAPInt().uge(rounds_min);
	}

	// In each round, and either in the one that leaves the loop, too, or not: else false.
	bool certain(const Loop &l, const Write &w, bool *last) const
	{
		SmallVector<BasicBlock *, 4> exiting;
		const BasicBlock *b = w.at->getParent();
		unsigned before = 0, after = 0;

		if (!dominators.dominates(b, l.getLoopLatch()))
			return false;
		l.getExitingBlocks(exiting);
		for (const BasicBlock *e : exiting)
			(dominators.dominates(b, e) ? before : after)++;
		*last = before > 0;
		return !before || !after;
	}

	// How far may two rounds' stores be apart?
	int64_t step_max(uint64_t size) const
	{
		return options.tracker == Tracker::UndoLog ? int64_t(2 * size) :
			std::max<int64_t>(options.region(), size);
	}

	bool describe(const Loop &l, const Write &w, Run *run)
	{
		const SCEV *at = evolution.getSCEV(w.pointer);
		auto *affine = dyn_cast<SCEVAddRecExpr>(at);

		if (!affine || affine->getLoop() != &l || !affine->isAffine())
			return false;
		auto *step = dyn_cast<SCEVConstant>(affine->getStepRecurrence(evolution));
		if (!step || step->getAPInt().getSignificantBits() > 32)
			return false;
		*run = { affine, step->getAPInt().getSExtValue(), w.size, false };
		return run->step && std::abs(run->step) <= step_max(w.size) &&
			certain(l, w, &run->last);
	}

	// Fields of the same element: one run of them.
	bool merge(Run &into, const Run &r)
	{
		auto *distance = dyn_cast<SCEVConstant>(
			evolution.getMinusSCEV(r.first->getStart(), into.first->getStart()));

		if (!distance || into.step != r.step || into.last != r.last ||
			distance->getAPInt().getSignificantBits() > 32)
			return false;
		int64_t from = distance->getAPInt().getSExtValue();
		int64_t low = std::min<int64_t>(from, 0);
		int64_t high = std::max<int64_t>(from + int64_t(r.size), into.size);
		if (high - low > std::max<int64_t>(std::abs(into.step), into.size))
			return false;
		if (from < 0)
			into.first = r.first;
		into.size = uint64_t(high - low);
		return true;
	}

	// [start, start + step * (rounds - 1) + size), or downwards, before the loop.
	LongWrite range(const Loop &l, const Run &r, const SCEV *start, const SCEV *back)
	{
		Instruction *at = l.getLoopPreheader()->getTerminator();
		Expander expander(evolution);
		IRBuilder<> b(at);
		Type *word = b.getInt64Ty();
		Value *low = expander.expandCodeFor(start, b.getPtrTy(), at);
		Value *rounds = expander.expandCodeFor(back, word, at);
		Value *more = r.last ? rounds : b.CreateSub(rounds, b.getInt64(1));
		Value *span = b.CreateMul(more, b.getInt64(std::abs(r.step)));
		Value *length = b.CreateAdd(span, b.getInt64(r.size), "cairn.length");

		if (!r.last)
			length = b.CreateSelect(b.CreateIsNull(rounds), b.getInt64(0), length);
		if (r.step < 0)
			low = b.CreateGEP(b.getInt8Ty(), low, b.CreateNeg(span), "cairn.low");
		return { at, low, length };
	}

	void hoist(const Loop &l, ArrayRef<Write> writes, SmallVectorImpl<LongWrite> &ranges,
		SmallPtrSetImpl<const Instruction *> &gone)
	{
		SmallVector<Run, 4> runs;
		const Instruction *at = l.getLoopPreheader()->getTerminator();
		const SCEV *back = evolution.getTruncateOrZeroExtend(
			evolution.getBackedgeTakenCount(&l), Type::getInt64Ty(at->getContext()));
		Expander expander(evolution);

		for (const Write &w : writes) {
			Run run;

			if (!describe(l, w, &run) ||
				!expander.isSafeToExpandAt(run.first->getStart(), at) ||
				!expander.isSafeToExpandAt(back, at))
				continue;
			gone.insert(w.at);
			if (llvm::none_of(runs, [&](Run &r) { return merge(r, run); }))
				runs.push_back(run);
		}
		for (const Run &r : runs)
			ranges.push_back(range(l, r, r.first->getStart(), back));
	}
};

} // namespace

unsigned hoist_out_of_loops(SmallVectorImpl<Write> &writes, SmallVectorImpl<LongWrite> &ranges,
	Function &f, const Options &o, const Intervals &intervals)
{
	return Hoister(f, o, intervals).hoist(writes, ranges);
}

} // namespace cairn
