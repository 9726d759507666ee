// SPDX-License-Identifier: MIT
#include "clones.h"
#include "block_versions.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Module.h"
#include "llvm/Transforms/Utils/Cloning.h"

using namespace llvm;

namespace cairn {

// Labels whose addresses are taken are those of one version; arguments that are copies in memory
// are not handed on for sure.
static bool can_clone(const Function &f)
{
	if (f.isInterposable() || f.hasAvailableExternallyLinkage() || f.isPresplitCoroutine() ||
		f.doesNotReturn())
		return false;
	for (const Argument &a : f.args())
		if (a.hasPassPointeeByValueCopyAttr())
			return false;
	for (const BasicBlock &b : f)
		if (b.hasAddressTaken())
			return false;
	return llvm::none_of(instructions(f), defines_symbol);
}

// Nothing in it needs a hook, or calls what does.
static bool is_plain_already(const Function &f)
{
	for (const Instruction &i : instructions(f)) {
		auto *c = dyn_cast<CallBase>(&i);

		if (i.mayWriteToMemory() && !c)
			return false;
		if (c && !c->isInlineAsm() &&
			!(c->getCalledFunction() && c->getCalledFunction()->isDeclaration() &&
				!c->mayWriteToMemory()))
			return false;
	}
	return true;
}

void Clones::make(ArrayRef<Function *> functions, const Checkpoints &checkpoints)
{
	if (!options.clones())
		return;
	for (Function *f : functions) {
		if (checkpoints.in(*f) || !can_clone(*f) || is_plain_already(*f))
			continue;
		ValueToValueMapTy map;
		Function *copy = CloneFunction(f, map);

		copy->setName(f->getName() + ".plain");
		copy->setLinkage(GlobalValue::InternalLinkage);
		copy->setVisibility(GlobalValue::DefaultVisibility);
		copy->setComdat(nullptr);
		plain[f] = copy;
	}
}

// The body goes to a function of its own.
static Function *move_body(Function &f)
{
	Function *to = Function::Create(f.getFunctionType(), GlobalValue::InternalLinkage,
		f.getAddressSpace(), f.getName() + ".hooked", f.getParent());

	to->copyAttributesFrom(&f);
	to->setLinkage(GlobalValue::InternalLinkage);
	to->setVisibility(GlobalValue::DefaultVisibility);
	to->setSubprogram(f.getSubprogram());
	f.setSubprogram(nullptr);
	to->splice(to->begin(), &f);
	for (unsigned i = 0; i < f.arg_size(); i++) {
		f.getArg(i)->replaceAllUsesWith(to->getArg(i));
		to->getArg(i)->takeName(f.getArg(i));
	}
	return to;
}

static void jump(IRBuilder<> &b, Function &from, Function *to)
{
	SmallVector<Value *, 8> arguments;

	for (Argument &a : from.args())
		arguments.push_back(&a);
	CallInst *c = b.CreateCall(to, arguments);
	c->setTailCallKind(CallInst::TCK_MustTail);
	c->setCallingConv(from.getCallingConv());
	c->setAttributes(from.getAttributes().removeFnAttributes(from.getContext()));
	if (from.getReturnType()->isVoidTy())
		b.CreateRetVoid();
	else
		b.CreateRet(c);
}

static void add_switch(
	Function &f, Function *hooked, Function *without, Hooks &hooks, unsigned patience)
{
	LLVMContext &context = f.getContext();
	IRBuilder<> b(BasicBlock::Create(context, "", &f));
	BasicBlock *yes = BasicBlock::Create(context, "hooked", &f);
	BasicBlock *no = BasicBlock::Create(context, "plain", &f);

	if (patience) {
		BasicBlock *on = BasicBlock::Create(context, "on", &f, yes);

		b.CreateCondBr(hooks.are_off(b), no, on);
		b.SetInsertPoint(on);
		hooks.lose_patience(b, b.getInt64(patience), yes, no);
	} else {
		b.CreateCondBr(hooks.are_off(b), no, yes);
	}
	b.SetInsertPoint(yes);
	jump(b, f, hooked);
	b.SetInsertPoint(no);
	jump(b, f, without);
	// What was said of the body's use of memory does not hold of the switch.
	f.removeFnAttr(Attribute::Memory);
	f.setPersonalityFn(nullptr);
}

// `all`: else calls in blocks without hooks alone, of functions that have both (block_versions.h).
static void call_instead(Function &in, const DenseMap<Function *, Function *> &versions, bool all)
{
	for (Instruction &i : instructions(in)) {
		auto *c = dyn_cast<CallBase>(&i);
		Function *to = c && (all || c->hasFnAttr(in_plain)) ? c->getCalledFunction() : nullptr;

		if (Function *version = to ? versions.lookup(to) : nullptr)
			c->setCalledFunction(version);
	}
}

void Clones::link(Module &m, Hooks &hooks)
{
	DenseMap<Function *, Function *> hooked, without;

	if (plain.empty())
		return;
	for (auto [f, copy] : plain) {
		hooked[f] = move_body(*f);
		without[f] = copy;
	}
	for (Function &f : m)
		call_instead(f, without, false);
	for (auto [f, copy] : plain) {
		// With page mode each call may be where it begins.
		if (!options.hybrid)
			call_instead(*hooked[f], hooked, true);
		call_instead(*copy, without, true);
		add_switch(*f, hooked[f], copy, hooks, options.hybrid ? 1 + checks[f] : 0);
	}
}

} // namespace cairn
