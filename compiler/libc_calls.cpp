// SPDX-License-Identifier: MIT
#include "libc_calls.h"
#include "own_heap.h"
#include "writes.h"
#include "llvm/IR/IRBuilder.h"

using namespace llvm;

namespace cairn {

namespace {

struct Wrapped {
	const char *name, *family;

	// It may call functions of the program, and those take a checkpoint.
	bool calls_back() const
	{
		StringRef kind = family;

		// A buffer's, that reads for a stream; the destructor of what was thrown.
		return kind == "callback" || kind == "streams" ||
			StringRef(name) == "__cxa_end_catch";
	}
	// Of the run-time's heap; of libc's.
	bool is_heap() const { return StringRef(family) == "heap"; }
	bool is_thrown() const { return StringRef(family) == "thrown"; }
};

} // namespace

#define WRAPPED(family, type, name, ...) { #name, #family },
#define CUSTOM(family, name) { #name, #family },
static const Wrapped wrapped[] = {
#include "rt/wrap/wrapped.def"
};
#undef WRAPPED
#undef CUSTOM

static void wrap(Function &f, bool calls_back, Report &report)
{
	std::string name = ("__cairn_wrap_" + f.getName()).str();
	Function *ours = f.getParent()->getFunction(name);

	report.wrapped(f.getName());
	if (ours && !ours->isDeclaration()) {
		f.replaceUsesWithIf(ours, [&](Use &u) {
			auto *i = dyn_cast<Instruction>(u.getUser());
			return !i || i->getFunction() != ours;
		});
		return;
	}
	// Its address, too: the program may call it through that.
	ours = Function::Create(f.getFunctionType(), GlobalValue::ExternalLinkage, name,
		*f.getParent());
	ours->copyAttributesFrom(&f);
	// It reads what is about to be overwritten, and keeps it.
	ours->removeFnAttr(Attribute::Memory);
	if (calls_back) {
		ours->removeFnAttr(Attribute::NoCallback);
		ours->addFnAttr("cairn-calls-back");
	}
	f.replaceAllUsesWith(ours);
}

// A function of the program's own that has the name of one of libc's: units that do not see it
// would call the wrapper of that.
static void stand_in_for(Module &m, StringRef name)
{
	auto *f = dyn_cast_or_null<Function>(m.getNamedValue(name));
	std::string wrapper = ("__cairn_wrap_" + name).str();

	if (!f || f->isDeclarationForLinker() || f->hasLocalLinkage() || f->hasComdat())
		return;
	if (GlobalValue *used = m.getNamedValue(wrapper)) {
		if (!used->isDeclaration())
			return;
		used->replaceAllUsesWith(f);
		used->eraseFromParent();
	}
	GlobalAlias::create(f->getValueType(), 0, f->getLinkage(), wrapper, f, &m)
		->setVisibility(f->getVisibility());
}

// What the stack holds to which it turns is kept before (wrap_context.c). It has no wrapper, which would
// be gone when it returns for the second time.
static void keep_stacks(Module &m)
{
	Function *f = m.getFunction("swapcontext");
	SmallVector<CallBase *, 8> calls;

	if (!f || !f->isDeclaration())
		return;
	for (User *u : f->users())
		if (auto *c = dyn_cast<CallBase>(u); c && c->getCalledOperand() == f && c->arg_size() > 1)
			calls.push_back(c);
	for (CallBase *c : calls) {
		IRBuilder<> b(c);

		b.CreateCall(m.getOrInsertFunction("__cairn_to_context", b.getVoidTy(), b.getPtrTy()),
			{ c->getArgOperand(1) });
	}
}

void wrap_libc_calls(Module &m, const Options &o, const AbiList &list, const Natives &natives,
	Report &report)
{
	std::vector<Function *> custom;

	for (const Wrapped &w : wrapped) {
		Function *f = m.getFunction(w.name);

		if (w.is_heap() ? !o.heap : w.is_thrown() && o.heap)
			continue;
		if (o.own && !is_own_heap(w.name))
			stand_in_for(m, w.name);
		if (!f || !f->isDeclaration() || f->use_empty() || list.custom(w.name))
			continue;
		StringRef file = is_own_heap(w.name) ? "" : natives.where(w.name);
		if (!file.empty())
			report.own(w.name, file, !f->hasFnAttribute(not_libcs));
		if (!f->hasFnAttribute(not_libcs))
			wrap(*f, w.calls_back(), report);
	}
	keep_stacks(m);
	for (Function &f : m)
		if (f.isDeclaration() && !f.use_empty() && list.custom(f.getName()))
			custom.push_back(&f);
	for (Function *f : custom)
		wrap(*f, true, report);
}

static bool known(StringRef name)
{
	return name.starts_with("cairn_") || name.starts_with("__cairn_") ||
		name.starts_with("llvm.");
}

// Does a call hand over a pointer that the function might write through?
static bool may_write_through(const CallBase &c)
{
	if (c.onlyReadsMemory() || c.doesNotAccessMemory() || c.onlyAccessesInaccessibleMemory())
		return false;
	for (unsigned i = 0; i < c.arg_size(); i++)
		if (c.getArgOperand(i)->getType()->isPointerTy() && !c.onlyReadsMemory(i) &&
			!isa<ConstantPointerNull>(c.getArgOperand(i)))
			return true;
	return false;
}

// Can it be called through a pointer, with one that it might write through? Not asked of C++'s:
// each class that inherits, and each throw, points to functions of libstdc++.
static bool may_be_pointed_to(const Function &f)
{
	if (f.getName().starts_with("_Z") || f.onlyReadsMemory() || f.onlyAccessesInaccessibleMemory() ||
		!f.hasAddressTaken(nullptr, false, true, true))
		return false;
	for (const Argument &a : f.args())
		if (a.getType()->isPointerTy() && !a.onlyReadsMemory())
			return true;
	return false;
}

void mark_uncovered_calls(Module &m, const AbiList &list, Report &report)
{
	for (Function &f : m) {
		if (!f.isDeclaration() || known(f.getName()) || list.harmless(f))
			continue;
		bool unseen = may_be_pointed_to(f);

		for (const User *u : f.users()) {
			auto *c = dyn_cast<CallBase>(u);

			if (!c || c->getCalledOperand() != &f || !may_write_through(*c))
				continue;
			f.addFnAttr(writes_arguments);
			unseen = true;
			break;
		}
		if (unseen && !list.arguments(f))
			report.uncovered(f.getName());
	}
	for (const GlobalVariable &g : m.globals())
		if (!g.use_empty() && list.facet(g.getName()))
			report.facet(g.getName());
}

} // namespace cairn
