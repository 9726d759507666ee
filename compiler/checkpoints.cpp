// SPDX-License-Identifier: MIT
#include "checkpoints.h"
#include "natives.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/TargetParser/Triple.h"

using namespace llvm;

namespace cairn {

// Of cairn.h, and of sites: what begins an interval, and so makes tags clean. A restore comes back
// out of a checkpoint.
static bool begins_interval(StringRef name)
{
	return name == "cairn_checkpoint" || name == "cairn_checkpoint_tag" ||
		name == "cairn_rewind" || name == "cairn_open" || name == "cairn_close" ||
		name == "cairn_resume" || name == "__cairn_site";
}

// libc's functions that call functions of the program, among those that TargetLibraryInfo knows.
static bool calls_back(StringRef name)
{
	return name == "qsort" || name == "qsort_r" || name == "bsearch";
}

// Does the code name the stack pointer, or go elsewhere?
static bool leaves(StringRef assembly)
{
	static const char *const words[] = { "rsp", "esp", "call", "callq", "calll", "jmp", "jmpq",
		"jmpl", "ret", "retq", "retl" };

	for (size_t from = 0, to; from < assembly.size(); from = to + 1) {
		to = from;
		while (to < assembly.size() && isAlnum(assembly[to]))
			to++;
		if (llvm::is_contained(words, assembly.slice(from, to)))
			return true;
	}
	return assembly.contains("cairn_");
}

#define QUIET(name) #name,
static const char *const quiet_libc[] = {
#include "quiet_libc.def"
};
#undef QUIET

bool Checkpoints::is_libcs(const Function &f) const
{
	LibFunc known;

	return !f.hasFnAttribute(not_libcs) && library.getLibFunc(f.getName(), known);
}

// External functions that never call back into the program, and so take no checkpoints.
bool Checkpoints::quiet(const Function &f) const
{
	StringRef name = f.getName();

	if (f.hasFnAttribute(Attribute::NoCallback) || f.doesNotAccessMemory() ||
		f.onlyReadsMemory())
		return true;
	if (name.starts_with("__cairn_wrap_"))
		return options.calls && !f.hasFnAttribute("cairn-calls-back");
	if (name.starts_with("cairn_") || name.starts_with("__cairn_"))
		return !begins_interval(name);
	if (!options.calls || calls_back(name))
		return false;
	return is_libcs(f) ||
		(!f.hasFnAttribute(not_libcs) && llvm::is_contained(quiet_libc, name));
}

// May an external function go on on another stack (swapcontext, a library of coroutines), whose code
// takes a checkpoint before this one goes on? libc's and libstdc++'s do not.
bool Checkpoints::switches(const Function &f) const
{
	StringRef name = f.getName();

	if (name == "swapcontext")
		return true;
	return !quiet(f) && !is_libcs(f) && !list.knows(f) &&
		!name.starts_with("cairn_") && !name.starts_with("__cairn_") &&
		!name.starts_with("__cxa_") && !name.starts_with("_ZNSt") &&
		!name.starts_with("_ZNKSt") && !name.starts_with("_ZSt") &&
		!f.doesNotReturn();
}

// Does an external function take checkpoints of its own? What is in native objects may, unless the
// linker's inputs are known not to name any of those functions.
bool Checkpoints::begins(const Function &f) const
{
	if (begins_interval(f.getName()))
		return true;
	// Of libc's functions that the run-time wraps none does; some call back.
	if (f.getName().starts_with("__cairn_wrap_"))
		return false;
	return !options.native_quiet && !quiet(f) && !is_libcs(f);
}

Checkpoints::Checkpoints(Module &m, const Options &o, const AbiList &l)
	: options(o), list(l), library(Triple(m.getTargetTriple()))
{
	for (Function &f : m) {
		if (!f.isDeclaration() || f.isIntrinsic())
			continue;
		if (begins(f)) {
			insert(f);
			// Pointers to functions may come from there, too.
			pointers |= !begins_interval(f.getName());
		} else if (switches(f)) {
			insert(f);
		}
	}
	pointers |= StringRef(m.getModuleInlineAsm()).contains("cairn_");
	if (options.link)
		close(m);
}

void Checkpoints::insert(const Function &f)
{
	functions.insert(&f);
	// What is visible from outside can be called from there, and looked up by name.
	if (f.hasAddressTaken() ||
		(!f.hasLocalLinkage() && !f.isDeclaration() && f.getName() != "main"))
		targets.push_back(&f);
}

// Everything that can reach one of them.
void Checkpoints::close(Module &m)
{
	bool changed = true;

	while (changed) {
		changed = false;
		for (Function &f : m) {
			if (f.isDeclaration() || functions.contains(&f))
				continue;
			for (const Instruction &i : instructions(f)) {
				auto *c = dyn_cast<CallBase>(&i);

				if (c && call(*c)) {
					insert(f);
					changed = true;
					break;
				}
			}
		}
	}
}

// Can a call through a pointer be to one of them? Programs call functions through pointers of
// another type, with more arguments than these take, never with fewer, and never with one in a
// general register where a floating point one is wanted.
static bool can_be(const CallBase &c, const Function &f)
{
	const FunctionType *type = f.getFunctionType();

	if (c.getFunctionType()->isVarArg() || type->isVarArg())
		return true;
	if (c.arg_size() < type->getNumParams())
		return false;
	for (unsigned i = 0; i < type->getNumParams(); i++) {
		const Type *given = c.getArgOperand(i)->getType(), *taken = type->getParamType(i);

		if (given->isFPOrFPVectorTy() != taken->isFPOrFPVectorTy())
			return false;
	}
	return true;
}

bool Checkpoints::by_pointer(const CallBase &c) const
{
	return pointers || !options.calls ||
		llvm::any_of(targets, [&](const Function *f) { return can_be(c, *f); });
}

bool Checkpoints::call(const CallBase &c) const
{
	const auto *to = dyn_cast<Function>(c.getCalledOperand()->stripPointerCastsAndAliases());

	if (isa<IntrinsicInst>(c))
		return false;
	if (auto *assembly = dyn_cast<InlineAsm>(c.getCalledOperand()))
		return assembly->hasSideEffects() && leaves(assembly->getAsmString());
	if (to && functions.contains(to))
		return true;
	if (to && to->isDeclaration() && quiet(*to))
		return false;
	if (!options.link)
		return true;
	if (!to)
		return by_pointer(c);
	// An external function may call whatever of the program can be named or pointed to.
	return to->isDeclaration() && (pointers || !options.calls || !targets.empty());
}

// May another thread's checkpoint come before what follows? One must not race with stores, so that it
// takes an order between threads to let it in. Old programs wait for volatile variables.
static bool synchronises(const Instruction &i)
{
	if (auto *c = dyn_cast<CallBase>(&i))
		return !isa<IntrinsicInst>(c) && !c->hasFnAttr(Attribute::NoSync);
	if (auto *l = dyn_cast<LoadInst>(&i))
		return l->isVolatile() || isStrongerThanMonotonic(l->getOrdering());
	if (auto *s = dyn_cast<StoreInst>(&i))
		return s->isVolatile() || isStrongerThanMonotonic(s->getOrdering());
	return isa<FenceInst>(i) || isa<AtomicRMWInst>(i) || isa<AtomicCmpXchgInst>(i);
}

bool Checkpoints::at(const Instruction &i) const
{
	auto *c = dyn_cast<CallBase>(&i);

	if (options.threads && synchronises(i))
		return true;
	// Where setjmp returns again, anything may have happened since it was called.
	return c && (call(*c) || c->hasFnAttr(Attribute::ReturnsTwice) ||
		c->getIntrinsicID() == Intrinsic::eh_sjlj_setjmp);
}

} // namespace cairn
