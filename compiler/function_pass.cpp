// SPDX-License-Identifier: MIT
#include "function_pass.h"
#include "block_versions.h"
#include "cover.h"
#include "fresh_blocks.h"
#include "long_loops.h"
#include "loops.h"
#include "writes.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/Analysis/VectorUtils.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/Transforms/Utils/Cloning.h"

using namespace llvm;

namespace cairn {

// A variable of the function's own frame: a checkpoint copies the whole active stack (LMC, V-A2).
static bool on_stack(const Value *pointer)
{
	return isa<AllocaInst>(getUnderlyingObject(pointer, 12));
}

// Surely inside of that variable, so that it can go nowhere else. The guard (Options::guard) needs a
// hook before every other store, whatever makes its saving needless.
static bool inside_variable(const Write &w)
{
	const DataLayout &layout = w.at->getModule()->getDataLayout();
	APInt offset(layout.getIndexTypeSizeInBits(w.pointer->getType()), 0);
	auto *variable = dyn_cast<AllocaInst>(
		w.pointer->stripAndAccumulateConstantOffsets(layout, offset, true));
	auto size = variable ? variable->getAllocationSize(layout) : std::nullopt;

	return size && !size->isScalable() && !offset.isNegative() &&
		offset.getZExtValue() + w.size <= size->getFixedValue();
}

static bool inside_variable(const LongWrite &)
{
	return false;
}

template <typename List> static unsigned leave_out_stack(List &list, bool guard)
{
	unsigned before = list.size();

	llvm::erase_if(list, [guard](const auto &w) {
		return on_stack(w.pointer) && (!guard || inside_variable(w));
	});
	return before - list.size();
}

template <typename List>
static unsigned leave_out_fresh(List &list, const Fresh &fresh, const Intervals &intervals)
{
	unsigned before = list.size();

	llvm::erase_if(list,
		[&](const auto &w) { return fresh.is(w.pointer, w.at, intervals); });
	return before - list.size();
}

// Hooks read tags before anything of the program has run but resolvers of indirect functions: those
// run while the dynamic linker relocates, before the tags are mapped.
bool is_resolver(const Function &f)
{
	for (const GlobalIFunc &i : f.getParent()->ifuncs())
		if (i.getResolverFunction() == &f)
			return true;
	return false;
}

// What they call gets a version for them.
void free_resolvers(Module &m)
{
	DenseMap<Function *, Function *> versions;
	SmallVector<Function *, 8> work;

	for (GlobalIFunc &i : m.ifuncs())
		if (Function *f = i.getResolverFunction())
			work.push_back(f);
	while (!work.empty())
		for (Instruction &i : instructions(*work.pop_back_val())) {
			auto *c = dyn_cast<CallBase>(&i);
			Function *to = c ? c->getCalledFunction() : nullptr;

			if (!to || to->isDeclaration() || !wants_hooks(*to))
				continue;
			Function *&version = versions[to];
			if (!version) {
				ValueToValueMapTy map;

				version = CloneFunction(to, map);
				version->setLinkage(GlobalValue::InternalLinkage);
				version->setVisibility(GlobalValue::DefaultVisibility);
				version->setComdat(nullptr);
				version->addFnAttr(Attribute::DisableSanitizerInstrumentation);
				work.push_back(version);
			}
			c->setCalledFunction(version);
		}
}

bool wants_hooks(const Function &f)
{
	StringRef name = f.getName();

	// By these names the program may have functions of its own.
	bool own = !name.starts_with("__cairn_") || name.starts_with("__cairn_own_") ||
		name.starts_with("__cairn_wrap_");

	return !f.isDeclaration() && own &&
		!f.hasFnAttribute(Attribute::Naked) &&
		!f.hasFnAttribute(Attribute::DisableSanitizerInstrumentation) && !is_resolver(f);
}

// Memory of libraries, which no tracker of pages turns back: their variables, and what their functions
// return, like where errno is.
static bool is_foreign(const Value *pointer)
{
	// Of pointers to lanes: what all of them are off.
	for (auto *g = dyn_cast<GEPOperator>(pointer); g && pointer->getType()->isVectorTy();
		g = dyn_cast<GEPOperator>(pointer))
		pointer = g->getPointerOperand();
	if (const Value *one = getSplatValue(pointer))
		pointer = one;
	const Value *object = getUnderlyingObject(pointer, 12);

	if (auto *i = dyn_cast<IntrinsicInst>(object);
		i && i->getIntrinsicID() == Intrinsic::threadlocal_address)
		object = i->getArgOperand(0);
	if (auto *g = dyn_cast<GlobalVariable>(object))
		return g->isDeclaration();
	auto *c = dyn_cast<CallBase>(object);
	const Function *to = c ? c->getCalledFunction() : nullptr;

	return to && to->isDeclaration() && !to->isIntrinsic() &&
		!to->getName().starts_with("__cairn_") && !c->returnDoesNotAlias();
}

void instrument_plain(Function &f, Hooks &hooks)
{
	Writes found = find_writes(f);

	for (const Write &w : found.writes)
		if (is_foreign(w.pointer))
			hooks.before(w);
	for (const LongWrite &w : found.long_writes)
		if (is_foreign(w.pointer))
			hooks.before(w);
	for (const LaneWrite &w : found.lane_writes)
		if (is_foreign(w.to))
			hooks.before(w);
}

// Of writes in a version without hooks that is for page mode only those stay. The switch to it writes,
// too.
template <typename List>
static void leave_out_plain(List &list, const Blocks &plain, bool page_mode)
{
	llvm::erase_if(list, [&](const auto &w) {
		return (plain.contains(w.at->getParent()) && !(page_mode && is_foreign(w.pointer))) ||
			getUnderlyingObject(w.pointer)->getName() == "__cairn_rt";
	});
}

unsigned instrument(Function &f, const Program &p, Hooks &hooks, Report &report, unsigned &stores)
{
	const Options &o = p.options;
	Blocks plain;

	split_long_loops(f, p.checkpoints, o, hooks, report, plain);
	if (split_versions(f, p.checkpoints, o, hooks, plain))
		report.split();
	Writes found = find_writes(f);
	Intervals intervals(f, p.checkpoints);
	FunctionFigures figures(f);

	for (const Unknown &u : found.unknown)
		if (!plain.contains(u.at->getParent()))
			report.unknown(f, u);
	leave_out_plain(found.writes, plain, o.hybrid);
	leave_out_plain(found.long_writes, plain, o.hybrid);
	llvm::erase_if(found.lane_writes, [&](const LaneWrite &w) {
		return plain.contains(w.at->getParent()) && !(o.hybrid && is_foreign(w.to));
	});
	figures.writes = found.writes.size() + found.long_writes.size() + found.lane_writes.size();
	if (o.stack) {
		figures.stack = leave_out_stack(found.writes, o.guard);
		figures.stack += leave_out_stack(found.long_writes, o.guard);
	}
	// A stray store may start from new memory, too.
	if (o.fresh && !o.guard) {
		figures.fresh = leave_out_fresh(found.writes, p.fresh, intervals);
		figures.fresh += leave_out_fresh(found.long_writes, p.fresh, intervals);
	}
	if (o.lose || o.miss)
		llvm::erase_if(found.writes, [&](const Write &) {
			return ++stores == o.miss || (o.lose && stores % o.lose == 0);
		});

	if (o.loops)
		figures.loops = hoist_out_of_loops(
			found.writes, found.long_writes, f, o, intervals);
	SmallVector<Cover, 64> covers = cover_each(found.writes);
	if (o.aggregate)
		figures.aggregated = aggregate(covers, f, o, p.checkpoints);
	if (o.redundant)
		figures.redundant = leave_out_redundant(covers, f, intervals);

	FreshBlocks blocks(o, intervals);
	if (o.fresh && !o.guard && o.save && FreshBlocks::may_be(f, o))
		figures.fresh += blocks.take(covers, found.long_writes);

	unsigned checks = hooks.checks + hooks.ranges;
	blocks.insert(hooks);
	for (const Cover &c : covers)
		hooks.before(c.materialise());
	for (const LongWrite &w : found.long_writes)
		hooks.before(w);
	for (const LaneWrite &w : found.lane_writes)
		hooks.before(w);
	figures.checks = hooks.checks + hooks.ranges - checks;
	report.function(figures);
	return figures.checks;
}

} // namespace cairn
