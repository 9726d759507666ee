// SPDX-License-Identifier: MIT
#include "long_loops.h"
#include "loop_analyses.h"
#include "writes.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

namespace cairn {

namespace {

// More rounds of a loop, or of one inside, count as so many: products must not overflow.
constexpr uint64_t rounds_max = 1ull << 36, inner_rounds_max = 1ull << 20;

// A place from where code may leave for the other version: its block ends with the switch, and `rest`
// begins with the instruction. It is the first behind the phis of a header, or the last before a
// loop that is counted as a whole.
struct Gate {
	Instruction *at;
	Value *hooks; // until the next gate
	BasicBlock *block = nullptr, *rest = nullptr;
};

struct Nest {
	SmallVector<BasicBlock *, 32> blocks;
	SmallVector<Gate, 4> gates;
};

class Finder : LoopAnalyses {
public:
	Finder(Function &f, const Checkpoints &c, const Options &o, Report &r)
		: LoopAnalyses(f), options(o), report(r), intervals(f, c),
		  word(Type::getInt64Ty(f.getContext()))
	{
		Writes found = find_writes(f);

		for (const Write &w : found.writes)
			note(w.at, w.pointer);
		for (const LongWrite &w : found.long_writes)
			note(w.at, w.pointer);
		for (const LaneWrite &w : found.lane_writes)
			writes[w.at->getParent()]++;
	}

	SmallVector<Nest, 4> find()
	{
		SmallVector<Nest, 4> nests;

		for (const Loop *l : loops)
			look(*l, nests);
		return nests;
	}

private:
	const Options &options;
	Report &report;
	Intervals intervals;
	Type *word;
	DenseMap<const BasicBlock *, unsigned> writes; // that may get hooks
	DenseSet<const BasicBlock *> wild; // with a store to places that no step is known for

	void note(const Instruction *at, Value *pointer)
	{
		const BasicBlock *b = at->getParent();
		const Loop *l = loops.getLoopFor(b);

		if (isa<AllocaInst>(getUnderlyingObject(pointer, 12)))
			return;
		writes[b]++;
		if (!l || !isa<SCEVAddRecExpr>(evolution.getSCEV(pointer)))
			wild.insert(b);
	}

	// Blocks that can be copied, and no interval begins in any.
	bool can_split(const Loop &l) const
	{
		return llvm::all_of(l.blocks(), [&](const BasicBlock *b) {
			return !intervals.in(b) && can_copy(*b) &&
				isa<BranchInst, SwitchInst>(b->getTerminator());
		});
	}

	bool has_intervals(const Loop &l) const
	{
		return llvm::any_of(l.blocks(), [&](BasicBlock *b) { return intervals.in(b); });
	}

	unsigned count(const Loop &l, bool inner) const
	{
		unsigned n = 0;

		for (const BasicBlock *b : l.blocks())
			if (inner || loops.getLoopFor(b) == &l)
				n += writes.lookup(b);
		return n;
	}

	// Is the number of its rounds known when it begins, and all of its stores can be looked at there?
	bool is_counted(const Loop &l)
	{
		return l.isInnermost() && evolution.hasLoopInvariantBackedgeTakenCount(&l) &&
			llvm::none_of(l.blocks(),
				[&](BasicBlock *b) { return wild.contains(b); });
	}

	void look(const Loop &l, SmallVectorImpl<Nest> &nests)
	{
		if (has_intervals(l) || !can_split(l)) {
			tell(l, false);
			for (const Loop *inner : l)
				look(*inner, nests);
			return;
		}
		Nest nest;

		add_gates(l, nest);
		if (nest.gates.empty())
			return;
		llvm::append_range(nest.blocks, l.blocks());
		nests.push_back(nest);
	}

	void add_gates(const Loop &l, Nest &nest)
	{
		if (!count(l, true) || is_counted(l))
			return;
		tell(l, true);
		if (Value *all = options.hybrid ? hooks_of_all(l) : nullptr) {
			nest.gates.push_back({ l.getLoopPreheader()->getTerminator(), all });
			return;
		}
		nest.gates.push_back({ &*l.getHeader()->getFirstNonPHIIt(),
			ConstantInt::get(word, std::max(1u, count(l, false))) });
		for (const Loop *inner : l)
			add_gates(*inner, nest);
	}

	// Where the loop begins, if that is known there, and nothing in it can be the end of patience.
	Value *hooks_of_all(const Loop &l)
	{
		BasicBlock *before = l.getLoopPreheader();
		const SCEV *hooks = before && !may_call(l) ? hooks_of_all(l, l) : nullptr;
		Expander expander(evolution);

		if (!hooks || !expander.isSafeToExpandAt(hooks, before->getTerminator()))
			return nullptr;
		return expander.expandCodeFor(hooks, word, before->getTerminator());
	}

	const SCEV *hooks_of_all(const Loop &l, const Loop &outermost)
	{
		const SCEV *back = evolution.getBackedgeTakenCount(&l);

		if ((&l != &outermost && !l.isInnermost()) || isa<SCEVCouldNotCompute>(back) || evolution.getTypeSizeInBits(back->getType()) > 64 ||
			(&l != &outermost && !evolution.isLoopInvariant(back, &outermost)))
			return nullptr;
		const SCEV *most = evolution.getConstant(
			word, &l == &outermost ? rounds_max : inner_rounds_max);
		const SCEV *hooks = evolution.getConstant(word, std::max(1u, count(l, false)));

		for (const Loop *inner : l) {
			if (!count(*inner, true) || is_counted(*inner))
				continue;
			const SCEV *more = hooks_of_all(*inner, outermost);

			if (!more)
				return nullptr;
			hooks = evolution.getAddExpr(hooks, more);
		}
		back = evolution.getUMinExpr(evolution.getTruncateOrZeroExtend(back, word), most);
		return evolution.getMulExpr(evolution.getAddExpr(back, evolution.getOne(word)), hooks);
	}

	static bool may_call(const Loop &l)
	{
		for (const BasicBlock *b : l.blocks())
			for (const Instruction &i : *b)
				if (isa<CallBase>(i) && !isa<IntrinsicInst>(i))
					return true;
		return false;
	}

	void tell(const Loop &l, bool split)
	{
		if (!has_intervals(l) && !evolution.hasLoopInvariantBackedgeTakenCount(&l))
			report.long_loop(*l.getHeader(), l.getStartLoc(), split);
	}
};

void split(Function &f, Nest &nest, Hooks &hooks, Blocks &plain)
{
	for (Gate &g : nest.gates) {
		g.block = g.at->getParent();
		g.rest = g.block->splitBasicBlock(g.at->getIterator(), "cairn.loop");
		nest.blocks.push_back(g.rest);
	}
	BlockCopies copies(f, nest.blocks, plain);

	for (Gate &g : nest.gates) {
		g.block->getTerminator()->eraseFromParent();
		IRBuilder<> b(g.block);

		hooks.lose_patience(b, g.hooks, g.rest, copies.of(g.rest));
	}
	copies.join(false);
}

} // namespace

void split_long_loops(Function &f, const Checkpoints &checkpoints, const Options &options,
	Hooks &hooks, Report &report, Blocks &plain)
{
	if (!options.hybrid && !options.report)
		return;
	SmallVector<Nest, 4> nests = Finder(f, checkpoints, options, report).find();

	if (!options.hybrid)
		return;
	for (Nest &nest : nests)
		split(f, nest, hooks, plain);
}

} // namespace cairn
