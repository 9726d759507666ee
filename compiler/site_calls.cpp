// SPDX-License-Identifier: MIT
#include "site_calls.h"
#include "edges.h"
#include "rt/abi.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace cairn {

namespace {

using Places = SmallVector<Instruction *, 8>;

// Static functions of one name get numbers when they are linked: NAME.5.
bool is_called(const Function &f, StringRef name)
{
	return f.getName() == name ||
		(f.hasLocalLinkage() && f.getName().split('.').first == name);
}

// A site is put in before each.
void add_body(Function &f, bool at_return, Places &places)
{
	if (f.hasFnAttribute(Attribute::Naked))
		return;
	if (!at_return) {
		places.push_back(&*f.getEntryBlock().getFirstNonPHIOrDbgOrAlloca());
		return;
	}
	for (BasicBlock &b : f)
		// nothing may come between a call that must be a jump and the return
		if (isa<ReturnInst>(b.getTerminator()) && !b.getTerminatingMustTailCall())
			places.push_back(b.getTerminator());
}

void add_calls(Function &f, bool at_return, Places &places)
{
	for (User *u : f.users()) {
		auto *c = dyn_cast<CallBase>(u);

		if (!c || c->getCalledOperand() != &f)
			continue;
		if (Instruction *at = at_return ? behind_call(*c) : c)
			places.push_back(at);
	}
}

Places find_places(Module &m, const Site &site, bool whole)
{
	Places places;
	bool defined = false;

	for (Function &f : m) {
		if (f.isDeclaration() || !is_called(f, site.function))
			continue;
		add_body(f, site.at_return, places);
		defined = true;
	}
	if (Function *f = m.getFunction(site.function); f && !defined && whole)
		add_calls(*f, site.at_return, places);
	return places;
}

} // namespace

GlobalVariable *site_count(Module &m)
{
	Type *word = Type::getInt32Ty(m.getContext());

	return new GlobalVariable(m, word, false, GlobalValue::PrivateLinkage,
		ConstantInt::get(word, 0), "cairn.passed");
}

void call_site(Instruction &before, GlobalVariable *count, unsigned every, const Options &o,
	bool is_long)
{
	LLVMContext &context = before.getContext();
	IRBuilder<> b(&before);
	FunctionCallee take = before.getModule()->getOrInsertFunction("__cairn_site",
		b.getVoidTy(), PointerType::getUnqual(context), b.getInt32Ty(), b.getInt32Ty());

	if (!before.getDebugLoc())
		b.SetCurrentDebugLocation(at_line_0(*before.getFunction()));
	unsigned flags = (o.site_one ? CRN_SITE_ONE_THREAD : 0) | (is_long ? CRN_SITE_LONG : 0);

	b.CreateCall(take, { count, b.getInt32(every), b.getInt32(flags) });
}

void keep_sites(Module &m, const Options &o)
{
	for (const Site &site : o.sites)
		for (Function &f : m)
			if (is_called(f, site.function) && !f.hasFnAttribute(Attribute::AlwaysInline))
				f.addFnAttr(Attribute::NoInline);
}

void insert_sites(Module &m, const Options &o, Report &report)
{
	bool none = !o.sites.empty();

	for (const Site &site : o.sites) {
		Places places = find_places(m, site, o.link);

		none &= places.empty();
		report.site(site.function, places.size());
		if (places.empty())
			continue;
		GlobalVariable *count = site_count(m);
		for (Instruction *at : places)
			call_site(*at, count, site.every, o, site.is_long);
	}
	// A library that is linked may have them.
	if (none && o.link && o.native_quiet && o.warn_lack)
		errs() << "cairn: warning: -fcairn-site=" << o.sites.front().function
		       << ": no such function is in this program, or called by it, so it takes no "
			  "checkpoints there\n";
}

} // namespace cairn
