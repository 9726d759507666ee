// SPDX-License-Identifier: MIT
#include "long_loops.h"
#include "writes.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Module.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/SSAUpdater.h"

using namespace llvm;

namespace cairn {

namespace {

// A header that may leave for the other version: it ends behind its phis, with the switch, and `rest`
// has what followed.
struct Header {
	BasicBlock *block;
	unsigned hooks; // of one round
	BasicBlock *rest = nullptr;
};

struct Nest {
	SmallVector<BasicBlock *, 32> blocks;
	SmallVector<Header, 4> headers;
};

class Finder {
public:
	Finder(Function &f, const Checkpoints &c, Report &r)
		: report(r), intervals(f, c),
		  library_table(Triple(f.getParent()->getTargetTriple())), library(library_table),
		  dominators(f), assumptions(f), loops(dominators),
		  evolution(f, library, assumptions, dominators, loops)
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
	Report &report;
	Intervals intervals;
	TargetLibraryInfoImpl library_table;
	TargetLibraryInfo library;
	DominatorTree dominators;
	AssumptionCache assumptions;
	LoopInfo loops;
	ScalarEvolution evolution;
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
		for (BasicBlock *b : l.blocks()) {
			if (intervals.in(b) || b->hasAddressTaken() || b->isEHPad() ||
				!isa<BranchInst, SwitchInst>(b->getTerminator()))
				return false;
			for (const Instruction &i : *b) {
				auto *c = dyn_cast<CallBase>(&i);

				if (i.getType()->isTokenTy() || (c && c->cannotDuplicate()))
					return false;
			}
		}
		return true;
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

		add_headers(l, nest);
		if (nest.headers.empty())
			return;
		llvm::append_range(nest.blocks, l.blocks());
		nests.push_back(nest);
	}

	void add_headers(const Loop &l, Nest &nest)
	{
		if (!count(l, true) || is_counted(l))
			return;
		tell(l, true);
		nest.headers.push_back({ l.getHeader(), std::max(1u, count(l, false)) });
		for (const Loop *inner : l)
			add_headers(*inner, nest);
	}

	void tell(const Loop &l, bool split)
	{
		if (!has_intervals(l) && !evolution.hasLoopInvariantBackedgeTakenCount(&l))
			report.long_loop(*l.getHeader(), l.getStartLoc(), split);
	}
};

class Splitter {
public:
	Splitter(Function &f, Hooks &h, Blocks &p) : function(f), hooks(h), plain(p) {}

	void split(Nest &nest)
	{
		for (Header &h : nest.headers) {
			h.rest = h.block->splitBasicBlock(h.block->getFirstNonPHIIt(), "cairn.loop");
			nest.blocks.push_back(h.rest);
		}
		SmallPtrSet<BasicBlock *, 32> inside(nest.blocks.begin(), nest.blocks.end());

		copy(nest);
		add_exits(nest, inside);
		for (Header &h : nest.headers)
			add_switch(h);
		join(nest, inside);
	}

private:
	Function &function;
	Hooks &hooks;
	Blocks &plain;
	ValueToValueMapTy map;

	BasicBlock *other(BasicBlock *b) { return cast<BasicBlock>(map[b]); }

	Value *other_value(Value *v)
	{
		auto it = map.find(v);

		return it == map.end() ? v : &*it->second;
	}

	void copy(Nest &nest)
	{
		SmallVector<BasicBlock *, 32> copies;

		for (BasicBlock *b : nest.blocks) {
			BasicBlock *c = CloneBasicBlock(b, map, ".plain", &function);

			map[b] = c;
			copies.push_back(c);
			plain.insert(c);
		}
		for (BasicBlock *c : copies)
			for (Instruction &i : *c)
				i.dropDbgRecords();
		remapInstructionsInBlocks(copies, map);
		for (BasicBlock *c : copies) {
			c->getTerminator()->setMetadata(LLVMContext::MD_loop, nullptr);
			leave_out_entries(*c);
		}
	}

	// A copied header is not reached from before the loop.
	static void leave_out_entries(BasicBlock &b)
	{
		SmallPtrSet<BasicBlock *, 8> from(pred_begin(&b), pred_end(&b));

		for (PHINode &phi : make_early_inc_range(b.phis()))
			for (unsigned i = phi.getNumIncomingValues(); i-- > 0;)
				if (!from.contains(phi.getIncomingBlock(i)))
					phi.removeIncomingValue(i, /*DeletePHIIfEmpty=*/false);
	}

	// Blocks behind the loop are reached from both versions.
	void add_exits(Nest &nest, const SmallPtrSetImpl<BasicBlock *> &inside)
	{
		SmallPtrSet<BasicBlock *, 8> seen;

		for (BasicBlock *b : nest.blocks)
			for (BasicBlock *to : successors(b))
				if (!inside.contains(to) && seen.insert(to).second)
					add_incoming(*to, inside);
	}

	void add_incoming(BasicBlock &to, const SmallPtrSetImpl<BasicBlock *> &inside)
	{
		for (PHINode &phi : to.phis()) {
			unsigned count = phi.getNumIncomingValues();

			for (unsigned i = 0; i < count; i++) {
				BasicBlock *from = phi.getIncomingBlock(i);

				if (inside.contains(from))
					phi.addIncoming(other_value(phi.getIncomingValue(i)),
						other(from));
			}
		}
	}

	void add_switch(Header &h)
	{
		h.block->getTerminator()->eraseFromParent();
		IRBuilder<> b(h.block);

		hooks.lose_patience(b, h.hooks, h.rest, other(h.rest));
	}

	// What both versions make, for those who use it behind either.
	void join(Nest &nest, const SmallPtrSetImpl<BasicBlock *> &inside)
	{
		for (BasicBlock *b : nest.blocks)
			for (Instruction &i : *b)
				if (auto c = map.find(&i); c != map.end())
					join(i, *cast<Instruction>(&*c->second), inside);
	}

	void join(Instruction &i, Instruction &c, const SmallPtrSetImpl<BasicBlock *> &inside)
	{
		SmallVector<Use *, 16> uses;

		for (Use &u : i.uses())
			if (!inside.contains(block_of(u)))
				uses.push_back(&u);
		for (Use &u : c.uses())
			if (block_of(u) != c.getParent() || isa<PHINode>(u.getUser()))
				uses.push_back(&u);
		if (uses.empty())
			return;
		SSAUpdater updater;

		updater.Initialize(i.getType(), i.getName());
		updater.AddAvailableValue(i.getParent(), &i);
		updater.AddAvailableValue(c.getParent(), &c);
		for (Use *u : uses)
			updater.RewriteUse(*u);
	}

	// Where it must be there: for a phi, at the end of the block before.
	static BasicBlock *block_of(const Use &u)
	{
		auto *user = cast<Instruction>(u.getUser());
		auto *phi = dyn_cast<PHINode>(user);

		return phi ? phi->getIncomingBlock(u) : user->getParent();
	}
};

} // namespace

void split_long_loops(Function &f, const Checkpoints &checkpoints, const Options &options,
	Hooks &hooks, Report &report, Blocks &plain)
{
	if (!options.hybrid && !options.report)
		return;
	SmallVector<Nest, 4> nests = Finder(f, checkpoints, report).find();

	if (!options.hybrid)
		return;
	for (Nest &nest : nests)
		Splitter(f, hooks, plain).split(nest);
}

} // namespace cairn
