// SPDX-License-Identifier: MIT
//
// The pass: puts a store hook before every write of a module that a checkpoint must be able to undo.
//
//	find_writes -> leave out stack and fresh memory -> hoist out of loops -> aggregate ->
//	leave out redundant -> what lies in fresh blocks -> hooks
//
// It runs once for each program: over the whole of it when lld links bitcode (cairn-cc's default),
// or over each translation unit at the end of its optimisation. A module flag says which modules
// have their hooks; what is linked together then keeps it.
#include "clones.h"
#include "facet_ranges.h"
#include "function_pass.h"
#include "libc_calls.h"
#include "llvm_versions.h"
#include "loop_counters.h"
#include "loop_sites.h"
#include "natives.h"
#include "options.h"
#include "own_heap.h"
#include "rt/abi.h"
#include "site_calls.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

using namespace llvm;
using namespace cairn;

namespace {

constexpr const char *done_flag = "cairn.instrumented";
constexpr const char *loops_flag = "cairn.loops";

// A fact about hooks that the run-time asks for: it is true if any code says so.
void say(Module &m, const char *name)
{
	Type *byte = Type::getInt8Ty(m.getContext());
	auto *mark = new GlobalVariable(m, byte, true, GlobalValue::WeakODRLinkage,
		ConstantInt::get(byte, 1), name);

	appendToUsed(m, mark);
}

void require(Module &m, const std::string &name)
{
	auto *shape = new GlobalVariable(m, Type::getInt8Ty(m.getContext()), true,
		GlobalValue::ExternalLinkage, nullptr, name);
	auto *use = new GlobalVariable(m, shape->getType(), true, GlobalValue::PrivateLinkage,
		shape, "cairn.shape");

	appendToUsed(m, use);
}

// Words of the run-time's kind: code made for another does not link.
void require_shape(Module &m, const Options &o)
{
	require(m, "__cairn_abi_version_" + std::to_string(CRN_RT_ABI));
	if (o.tracker == Tracker::UndoLog) {
		require(m, "__cairn_abi_undolog");
		return;
	}
	require(m, "__cairn_abi_shadow_" + std::to_string(o.region()) +
			(o.threads ? "_threads" : ""));
	require(m, o.epoch ? "__cairn_abi_tags_epoch" : "__cairn_abi_tags_one");
}

// Code that the pass cannot look into.
void report_assembly(const Module &m, Report &report)
{
	if (!m.getModuleInlineAsm().empty())
		report.unknown("outside of functions", "assembly that may store");
	for (const Function &f : m) {
		if (f.isDeclaration())
			continue;
		if (f.hasFnAttribute(Attribute::Naked))
			report.unknown(f.getName(), "a naked function");
		else if (f.hasFnAttribute(Attribute::DisableSanitizerInstrumentation))
			report.unknown(f.getName(), "disable_sanitizer_instrumentation");
		else if (is_resolver(f))
			report.unknown(f.getName(), "a resolver of an indirect function");
	}
}

struct StoreHookPass : PassInfoMixin<StoreHookPass> {
	static bool isRequired() { return true; }

	PreservedAnalyses run(Module &m, ModuleAnalysisManager &managers)
	{
		Options o = Options::given();

		if (o.profile || m.getModuleFlag(done_flag))
			return PreservedAnalyses::all();
		m.addModuleFlag(Module::Max, done_flag, 1);
		Report report(o);
		insert_sites(m, o, report);
		if (o.link)
			check_loop_sites(m, o);
		AbiList list(o);
		Natives natives;
		natives.mark(m, list);
		if (o.wrap && o.heap && o.own)
			rename_own_heap(m);
		if (o.wrap)
			wrap_libc_calls(m, o, list, natives, report);
		Program program(m, o, list);
		mark_uncovered_calls(m, list, report);
		report_assembly(m, report);

		free_resolvers(m);
		SmallVector<Function *, 64> functions;
		for (Function &f : m)
			if (wants_hooks(f))
				functions.push_back(&f);
		Clones clones(o);
		clones.make(functions, program.checkpoints);
		Hooks hooks(m, o);
		unsigned stores = 0;
		for (Function *f : functions)
			clones.hooked(f, instrument(*f, program, hooks, report, stores));
		for (auto [f, plain] : clones.versions())
			if (o.hybrid)
				instrument_plain(*plain, hooks);
		clones.link(m, hooks);
		require_shape(m, o);
		say(m, "__cairn_hooks_on");
		if (!o.save)
			say(m, "__cairn_save_off");
		if (o.fresh)
			say(m, "__cairn_fresh_on");
		if (has_own_new(m, false))
			say(m, "__cairn_own_new_on");
		if (has_own_new(m, true))
			say(m, "__cairn_own_new_aligned_on");
		if (o.guard)
			say(m, "__cairn_guard_on");
		if (o.hybrid)
			say(m, "__cairn_hybrid_on");
		report.total(m, hooks, clones.count());
		return PreservedAnalyses::none();
	}
};

// Loops are found as clang has made them: first of all passes, in each unit.
struct LoopPass : PassInfoMixin<LoopPass> {
	static bool isRequired() { return true; }

	PreservedAnalyses run(Module &m, ModuleAnalysisManager &)
	{
		Options o = Options::given();

		if (m.getModuleFlag(loops_flag) || (!o.profile && wanted_loops().empty()))
			return PreservedAnalyses::all();
		m.addModuleFlag(Module::Max, loops_flag, 1);
		Report report(o);
		if (o.profile)
			insert_counters(m);
		else
			insert_loop_sites(m, o, report);
		return PreservedAnalyses::none();
	}
};

// Of C++'s locales, before their inline functions have vanished.
struct FacetPass : PassInfoMixin<FacetPass> {
	static bool isRequired() { return true; }

	PreservedAnalyses run(Module &m, ModuleAnalysisManager &)
	{
		Options o = Options::given();

		if (o.profile || !o.wrap || !keep_facet_ranges(m))
			return PreservedAnalyses::all();
		return PreservedAnalyses::none();
	}
};

struct SitePass : PassInfoMixin<SitePass> {
	static bool isRequired() { return true; }

	PreservedAnalyses run(Module &m, ModuleAnalysisManager &)
	{
		keep_sites(m, Options::given());
		return PreservedAnalyses::none();
	}
};

// A module of the whole program in a backend of its own: what it is linked with is unknown there.
// Clang marks, with "ThinLTO" of value 0, the modules that are linked into one.
struct ThinPass : PassInfoMixin<ThinPass> {
	static bool isRequired() { return true; }

	PreservedAnalyses run(Module &m, ModuleAnalysisManager &)
	{
		if (!m.getModuleFlag("ThinLTO"))
			report_fatal_error("cairn: " + Twine(m.getModuleIdentifier()) +
					" has bitcode for -flto=thin, which gets no hooks",
				false);
		return PreservedAnalyses::all();
	}
};

bool parse_name(StringRef name, ModulePassManager &passes, ArrayRef<PassBuilder::PipelineElement>)
{
	if (name == "cairn")
		passes.addPass(StoreHookPass());
	else if (name == "cairn-loops")
		passes.addPass(LoopPass());
	else if (name == "cairn-facets")
		passes.addPass(FacetPass());
	else
		return false;
	return true;
}

void register_with(PassBuilder &builder)
{
	builder.registerPipelineParsingCallback(parse_name);
	builder.registerPipelineStartEPCallback(
		[](ModulePassManager &passes, OptimizationLevel) {
			passes.addPass(LoopPass());
			passes.addPass(FacetPass());
		});
	builder.registerFullLinkTimeOptimizationEarlyEPCallback(
		[](ModulePassManager &passes, OptimizationLevel) {
			passes.addPass(SitePass());
		});
	builder.registerFullLinkTimeOptimizationLastEPCallback(
		[](ModulePassManager &passes, OptimizationLevel) {
			passes.addPass(StoreHookPass());
		});
	// What is compiled to bitcode for a later link gets its hooks there. Newer LLVM also tells
	// the phase.
	builder.registerOptimizerLastEPCallback(
		[](ModulePassManager &passes, OptimizationLevel, auto...) {
			Options o = Options::given();

			if (!o.lto)
				passes.addPass(StoreHookPass());
			else if (o.link)
				passes.addPass(ThinPass());
		});
}

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo()
{
	return { LLVM_PLUGIN_API_VERSION, "cairn", "1", register_with };
}
