// SPDX-License-Identifier: MIT
#include "loop_counters.h"
#include "edges.h"
#include "function_pass.h"
#include "loop_identity.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

using namespace llvm;

namespace cairn {

namespace {

// Words of struct crn_loop_counts (src/rt/loop_file.h).
enum { PASSES, ENTRIES, EXITS, COUNTS_WORDS = 13 };
// struct crn_loop_unit (src/rt/loop_counts.c).
enum { UNIT_NEXT, UNIT_COUNTS, UNIT_TEXT, UNIT_POINTS };

#define BLOCKING(name) #name,
const char *const blocking[] = {
#include "rt/blocking_calls.def"
};
#undef BLOCKING

bool forks(StringRef name)
{
	return name == "fork" || name == "_Fork" || name == "forkpty" || name == "daemon";
}

// Nothing is called in it: it takes no time stamps, and no place among a thread's loops. It may run
// for ever, but it waits for nobody.
bool is_quiet(const Loop &loop)
{
	for (const BasicBlock *b : loop.blocks())
		for (const Instruction &i : *b)
			if (isa<CallBase>(i) && !isa<IntrinsicInst>(i))
				return false;
	return true;
}

class Unit {
public:
	explicit Unit(Module &m);
	void add(Function &f);
	void finish();

private:
	struct Point {
		unsigned number;
		bool quiet;
	};
	struct Edge {
		SmallVector<Point, 2> left, entered;
	};

	Module &module;
	IntegerType *word;
	PointerType *pointer;
	StructType *type;
	GlobalVariable *unit;
	FunctionCallee enter, leave, turn, wait_enter, wait_leave, fork_enter, fork_leave, start;
	DenseMap<const Function *, unsigned> kinds; // of functions that may wait
	std::string text;
	unsigned points = 0;

	unsigned add_point(const std::string &line);
	void add_loops(Function &f);
	void add_top(BasicBlock &top, Point point);
	void add_calls(Function &f);
	void count(IRBuilder<> &b, unsigned point, unsigned which);
	Value *counts(IRBuilder<> &b, unsigned point);
	void note(IRBuilder<> &b, const Edge &edge);
};

Unit::Unit(Module &m)
	: module(m), word(Type::getInt64Ty(m.getContext())),
	  pointer(PointerType::getUnqual(m.getContext()))
{
	Type *none = Type::getVoidTy(m.getContext()), *kind = Type::getInt32Ty(m.getContext());

	type = StructType::get(pointer, pointer, pointer, word);
	unit = new GlobalVariable(m, type, false, GlobalValue::InternalLinkage, nullptr,
		"cairn.loops");
	enter = m.getOrInsertFunction("__cairn_loop_enter", none, pointer);
	leave = m.getOrInsertFunction("__cairn_loop_leave", none, pointer);
	turn = m.getOrInsertFunction("__cairn_loop_turn", none);
	wait_enter = m.getOrInsertFunction("__cairn_wait_enter", word, kind);
	wait_leave = m.getOrInsertFunction("__cairn_wait_leave", none, word);
	fork_enter = m.getOrInsertFunction("__cairn_fork_enter", none, pointer);
	fork_leave = m.getOrInsertFunction("__cairn_fork_leave", none);
	start = m.getOrInsertFunction("__cairn_loops_start", none);
	for (FunctionCallee f :
		{ enter, leave, turn, wait_enter, wait_leave, fork_enter, fork_leave, start })
		cast<Function>(f.getCallee())->addFnAttr(Attribute::NoUnwind);
	for (unsigned i = 0; i < std::size(blocking); i++)
		if (Function *f = m.getFunction(blocking[i]); f && f->isDeclarationForLinker())
			kinds[f] = i;
}

unsigned Unit::add_point(const std::string &line)
{
	text += line + "\n";
	return points++;
}

// Where the counters are changes with the process: in the file, once the profile has begun.
Value *Unit::counts(IRBuilder<> &b, unsigned point)
{
	Value *at = b.CreateLoad(pointer, b.CreateStructGEP(type, unit, UNIT_COUNTS));

	return b.CreateConstGEP1_64(word, at, uint64_t{ point } * COUNTS_WORDS);
}

void Unit::count(IRBuilder<> &b, unsigned point, unsigned which)
{
	Value *at = b.CreateConstGEP1_64(word, counts(b, point), which);

	b.CreateStore(b.CreateAdd(b.CreateLoad(word, at), b.getInt64(1)), at);
}

void Unit::note(IRBuilder<> &b, const Edge &edge)
{
	for (Point p : edge.left)
		p.quiet ? count(b, p.number, EXITS)
			: (void)b.CreateCall(leave, counts(b, p.number));
	for (Point p : edge.entered)
		p.quiet ? count(b, p.number, ENTRIES)
			: (void)b.CreateCall(enter, counts(b, p.number));
}

void Unit::add_loops(Function &f)
{
	NamedLoops loops(f);
	MapVector<std::pair<BasicBlock *, BasicBlock *>, Edge> edges;
	SmallVector<std::pair<BasicBlock *, Point>, 8> tops;

	// Outer loops come first: they are entered first, and left last.
	for (const NamedLoop &l : loops.list) {
		Point p = { add_point(l.id.text()), is_quiet(*l.loop) };

		tops.push_back({ l.loop->getHeader(), p });
		for (BasicBlock *from : predecessors(l.loop->getHeader()))
			if (!l.loop->contains(from)) {
				Edge &e = edges[{ from, l.loop->getHeader() }];

				if (e.entered.empty() || e.entered.back().number != p.number)
					e.entered.push_back(p);
			}
		SmallVector<Loop::Edge, 8> exits;
		l.loop->getExitEdges(exits);
		for (auto [from, to] : exits) {
			Edge &e = edges[{ const_cast<BasicBlock *>(from), const_cast<BasicBlock *>(to) }];

			if (e.left.empty() || e.left.front().number != p.number)
				e.left.insert(e.left.begin(), p);
		}
	}
	for (const auto &[edge, what] : edges) {
		BasicBlock *between = what.left.empty() && what.entered.empty()
			? nullptr
			: split_edge(edge.first, edge.second);

		// Without one, the loop is off when the thread next enters or leaves one.
		if (!between)
			continue;
		IRBuilder<> b(between->getTerminator());
		note(b, what);
	}
	for (auto [top, point] : tops)
		add_top(*top, point);
}

// A turn that enters nothing and waits nowhere has no other stamp: its process may still be killed
// in the loop, and then ended when it was seen last. The first turns are seen, later ones often
// enough for a rate.
void Unit::add_top(BasicBlock &top, Point point)
{
	IRBuilder<> b(&*top.getFirstInsertionPt());

	b.SetCurrentDebugLocation(at_line_0(*top.getParent()));
	if (!point.quiet) {
		Value *passes = b.CreateLoad(word, counts(b, point.number));
		Value *sees = b.CreateOr(b.CreateICmpULT(passes, b.getInt64(1024)),
			b.CreateICmpEQ(b.CreateAnd(passes, 63), b.getInt64(0)));

		b.SetInsertPoint(SplitBlockAndInsertIfThen(sees, b.GetInsertPoint(), false));
		b.SetCurrentDebugLocation(at_line_0(*top.getParent()));
		b.CreateCall(turn);
		b.SetInsertPoint(&*b.GetInsertBlock()->getSingleSuccessor()->begin());
		b.SetCurrentDebugLocation(at_line_0(*top.getParent()));
	}
	count(b, point.number, PASSES);
}

void Unit::add_calls(Function &f)
{
	SmallVector<CallBase *, 16> calls;

	for (Instruction &i : instructions(f))
		if (auto *c = dyn_cast<CallBase>(&i);
			c && c->getCalledFunction() && !c->isMustTailCall())
			calls.push_back(c);
	for (CallBase *c : calls) {
		const Function *to = c->getCalledFunction();
		IRBuilder<> b(c);

		b.SetCurrentDebugLocation(at_line_0(f));
		if (auto kind = kinds.find(to); kind != kinds.end()) {
			Value *began = b.CreateCall(wait_enter, b.getInt32(kind->second));

			b.SetInsertPoint(behind_call(*c));
			b.SetCurrentDebugLocation(at_line_0(f));
			b.CreateCall(wait_leave, began);
		} else if (to->isDeclaration() && forks(to->getName())) {
			unsigned line = c->getDebugLoc() ? c->getDebugLoc().getLine() : 0;
			unsigned point = add_point("fork\t" + source_file(f) + "\t" +
				f.getName().str() + "\t" + utostr(line));

			b.CreateCall(fork_enter, counts(b, point));
			b.SetInsertPoint(behind_call(*c));
			b.SetCurrentDebugLocation(at_line_0(f));
			b.CreateCall(fork_leave);
		}
	}
}

void Unit::add(Function &f)
{
	add_loops(f);
	add_calls(f);
	if (f.getName() == "main") {
		IRBuilder<> b(&*f.getEntryBlock().getFirstNonPHIOrDbgOrAlloca());

		b.SetCurrentDebugLocation(at_line_0(f));
		b.CreateCall(start);
	}
}

void Unit::finish()
{
	LLVMContext &context = module.getContext();
	Type *all = ArrayType::get(word, uint64_t{ points } * COUNTS_WORDS);
	// What is counted before the profile begins, and without one.
	auto *idle = new GlobalVariable(module, all, false, GlobalValue::InternalLinkage,
		Constant::getNullValue(all), "cairn.loops.idle");
	Constant *lines = ConstantDataArray::getString(context, text);
	auto *name = new GlobalVariable(module, lines->getType(), true,
		GlobalValue::PrivateLinkage, lines, "cairn.loops.text");
	auto *add = Function::Create(FunctionType::get(Type::getVoidTy(context), false),
		GlobalValue::InternalLinkage, "cairn.loops.add", module);
	IRBuilder<> b(BasicBlock::Create(context, "", add));

	unit->setInitializer(ConstantStruct::get(type, Constant::getNullValue(pointer), idle, name,
		ConstantInt::get(word, points)));
	b.CreateCall(module.getOrInsertFunction("__cairn_loops_add", b.getVoidTy(), pointer), unit);
	b.CreateRetVoid();
	appendToGlobalCtors(module, add, 0);
}

} // namespace

void insert_counters(Module &m)
{
	Unit unit(m);
	SmallVector<Function *, 64> functions;

	for (Function &f : m)
		if (wants_hooks(f) && !f.hasAvailableExternallyLinkage())
			functions.push_back(&f);
	for (Function *f : functions)
		unit.add(*f);
	unit.finish();
}

} // namespace cairn
