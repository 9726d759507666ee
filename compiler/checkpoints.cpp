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

static bool is_used(const Module &m, StringRef name)
{
	const Function *f = m.getFunction(name);

	return f && f->isDeclaration() && !f->use_empty();
}

// Has it functions of the program for libc to call later on?
void Checkpoints::note_callbacks(const Module &m)
{
	static const char *const of_streams[] = { "fopencookie", "register_printf_function",
		"register_printf_specifier", "register_printf_type", "register_printf_modifier" };

	streams = llvm::any_of(of_streams, [&](const char *name) { return is_used(m, name); });
	forks = is_used(m, "pthread_atfork") || is_used(m, "__register_atfork");
	news = is_used(m, "_ZSt15set_new_handlerPFvvE");
}

// May it call what note_callbacks has found?
bool Checkpoints::calls_given(const Function &f) const
{
	StringRef name = f.getName();

	name.consume_front("__cairn_wrap_");
	return (forks && name == "fork") ||
		(news && (name.starts_with("_Znw") || name.starts_with("_Zna"))) ||
		(streams && !f.onlyAccessesInaccessibleMemOrArgMem());
}

// External functions that never call back into the program, and so take no checkpoints. `leaf`
// (NoCallback) says so of libc's alone: another's may call what is in other units.
bool Checkpoints::quiet(const Function &f) const
{
	StringRef name = f.getName();

	if (f.doesNotAccessMemory() || f.onlyReadsMemory())
		return true;
	if (calls_given(f))
		return false;
	if (f.hasFnAttribute(Attribute::NoCallback) && list.knows(f))
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

// May the program get a pointer from it?
bool Checkpoints::gives_pointers(const Function &f) const
{
	Type *result = f.getReturnType();

	return f.isVarArg() || result->isPointerTy() || result->isAggregateType() ||
		llvm::any_of(f.args(), [](const Argument &a) {
			return a.getType()->isPointerTy() && !a.onlyReadsMemory();
		});
}

static bool has_pointers(const Type *t)
{
	return t->isPointerTy() || llvm::any_of(t->subtypes(), has_pointers);
}

// A variable of a library whose pointers may lead to its code, like the table of a class.
static bool may_have_code(const GlobalVariable &g)
{
	static const char *const of_libc[] = { "stdin", "stdout", "stderr", "environ", "__environ",
		"optarg", "tzname", "__tzname", "program_invocation_name",
		"program_invocation_short_name", "__progname", "__cairn_rt" };
	StringRef name = g.getName();

	return g.isDeclaration() && !g.use_empty() && has_pointers(g.getValueType()) &&
		!llvm::is_contained(of_libc, name) && !name.starts_with("_ZTI") &&
		!name.starts_with("_ZTVN10__cxxabiv1");
}

// Not where code that unwinds is named, nor what stands for a function that there is not.
static bool is_pointed_to(const Function &f)
{
	return f.hasAddressTaken() && f.getName() != "__cxa_pure_virtual" &&
		f.getName() != "__cxa_deleted_virtual" &&
		llvm::any_of(f.users(), [](const User *u) { return !isa<Function>(u); });
}

Checkpoints::Checkpoints(Module &m, const Options &o, const AbiList &l)
	: options(o), list(l), library(Triple(m.getTargetTriple()))
{
	note_callbacks(m);
	foreign = is_used(m, "dlsym") || is_used(m, "dlvsym") ||
		llvm::any_of(m.globals(), may_have_code);
	for (Function &f : m) {
		if (!f.isDeclaration() || f.isIntrinsic() || f.use_empty())
			continue;
		foreign |= switches(f) && gives_pointers(f);
		if (is_pointed_to(f) && !quiet(f))
			callers.push_back(&f);
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
	auto fits = [&](const Function *f) { return can_be(c, *f); };

	// What it can be to may call any of the others.
	return pointers || !options.calls || llvm::any_of(targets, fits) ||
		(!targets.empty() && (foreign || llvm::any_of(callers, fits)));
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
