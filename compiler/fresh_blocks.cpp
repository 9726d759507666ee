// SPDX-License-Identifier: MIT
//
//	p = malloc(24);			p = malloc(24);
//	hook; p->a = 1;			if (p && (p is not the block given out last, or not new))
//	if (more) {				hook, for 24 bytes;
//		hook; p->b = 2;	->	p->a = 1;
//		hook; p->c = 3;		if (more) {
//	}						p->b = 2;
//						p->c = 3;
//					}
//
// The shadow's hooks cost less than that look if they are few. An undo log has no tags: it would keep
// what a new block held at each store.
#include "fresh_blocks.h"
#include "edges.h"
#include "llvm/Analysis/MemoryBuiltins.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

using namespace llvm;

namespace cairn {

namespace {

// A block that is not new is saved as far as its stores go, at once: more may never be stored to.
constexpr uint64_t extent_max = 512;
// Checks that one look at a block costs as much as, or more.
constexpr unsigned checks_min = 3;

// What a block that a call returns is known to have.
uint64_t known_size(const CallBase &c)
{
	ObjectSizeOpts how;
	uint64_t size = 0;

	how.EvalMode = ObjectSizeOpts::Mode::Min;
	return getObjectSize(&c, size, c.getModule()->getDataLayout(), nullptr, how) ? size : 0;
}

} // namespace

FreshBlocks::FreshBlocks(const Options &o, const Intervals &i) : options(o), intervals(i) {}

bool FreshBlocks::may_be(const Function &f, const Options &o)
{
	const Module &m = *f.getParent();
	const Function *own = m.getFunction("__cairn_own_malloc");

	return o.wrap && o.heap && !(own && !own->isDeclaration()) &&
		m.getDataLayout().getPointerSize() == 8;
}

CallBase *FreshBlocks::allocation(Value *pointer, const Instruction *at) const
{
	auto *c = dyn_cast<CallBase>(getUnderlyingObject(pointer, 12));
	bool right = c && !isa<IntrinsicInst>(c) && !isa<CallBrInst>(c) &&
		c->returnDoesNotAlias() && !c->isMustTailCall();

	return right && !intervals.between(c, at) ? c : nullptr;
}

unsigned FreshBlocks::take(SmallVectorImpl<Cover> &covers, SmallVectorImpl<LongWrite> &long_writes)
{
	struct Together {
		unsigned checks = 0;
		uint64_t extent = 0;
	};
	MapVector<CallBase *, Together> together;
	SmallVector<CallBase *, 64> allocations; // of each cover
	SmallVector<Cover, 64> left;
	bool log = options.tracker == Tracker::UndoLog;
	unsigned before = covers.size() + long_writes.size();

	for (const Cover &c : covers) {
		CallBase *from = allocation(c.base, c.at);

		allocations.push_back(from);
		if (!from || from != c.base || c.low < 0 ||
			uint64_t(c.high) > std::min(extent_max, known_size(*from)))
			continue;
		Together &t = together[from];
		t.checks += Hooks::cost(options, uint64_t(c.high - c.low), c.align);
		t.extent = std::max(t.extent, uint64_t(c.high));
	}
	for (const auto &[from, t] : together)
		if (log || t.checks >= checks_min)
			blocks[from].extent = t.extent;
	for (auto [c, from] : llvm::zip(covers, allocations)) {
		auto block = blocks.find(from);
		bool known = from == c.base && block != blocks.end() && c.low >= 0 &&
			uint64_t(c.high) <= block->second.extent;

		if (!known && log && from)
			blocks[from].covers.push_back(c);
		else if (!known)
			left.push_back(c);
	}
	covers = std::move(left);
	llvm::erase_if(long_writes, [&](const LongWrite &w) {
		CallBase *from = log ? allocation(w.pointer, w.at) : nullptr;

		if (from)
			blocks[from].long_writes.push_back(w);
		return from != nullptr;
	});
	return before - covers.size() - long_writes.size();
}

// if (the last byte of the write is not one of the block's first, that are fresh) ...
static Instruction *unless_fresh(
	Instruction *at, Value *block, Value *fresh, Value *pointer, Value *length)
{
	IRBuilder<> b(at);
	Value *begin = b.CreateSub(b.CreatePtrToInt(pointer, fresh->getType()),
		b.CreatePtrToInt(block, fresh->getType()));
	Value *end = b.CreateAdd(begin, b.CreateZExtOrTrunc(length, fresh->getType()));
	// What ends where the block begins is before it: an allocator's own header.
	Value *last = b.CreateSub(end, ConstantInt::get(fresh->getType(), 1));

	return SplitBlockAndInsertIfThen(b.CreateICmpUGE(last, fresh), at->getIterator(), false);
}

void FreshBlocks::insert(Hooks &hooks) const
{
	for (const auto &[from, block] : blocks) {
		Instruction *behind = behind_call(*from);
		IRBuilder<> b(behind);
		Value *fresh = hooks.fresh_bytes(b, from);

		for (const Cover &c : block.covers) {
			Write w = c.materialise();
			Value *length = ConstantInt::get(fresh->getType(), w.size);

			w.at = unless_fresh(w.at, from, fresh, w.pointer, length);
			hooks.before(w);
		}
		for (LongWrite w : block.long_writes) {
			w.at = unless_fresh(w.at, from, fresh, w.pointer, w.length);
			hooks.before(w);
		}
		if (!block.extent)
			continue;
		b.SetInsertPoint(behind); // it may be in another block by now
		Value *some = b.CreateIsNotNull(from);
		Value *old = b.CreateICmpULT(fresh, ConstantInt::get(fresh->getType(), block.extent));
		Instruction *then = SplitBlockAndInsertIfThen(
			b.CreateAnd(some, old), behind->getIterator(), false);
		unsigned checks = hooks.checks, ranges = hooks.ranges;

		hooks.before(Write{ then, from, block.extent, Align(1) });
		// As a rule the one look at the block is all that runs.
		hooks.checks = checks + 1;
		hooks.ranges = ranges;
	}
}

} // namespace cairn
