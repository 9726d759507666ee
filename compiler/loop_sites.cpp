// SPDX-License-Identifier: MIT
#include "loop_sites.h"
#include "mangled.h"
#include "options.h"
#include "site_calls.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

using namespace llvm;

namespace cairn {

// Of units: the loops that have their sites, and those that their function has no more. Links put
// the lists together.
static constexpr const char *found_list = "cairn.loops.found";
static constexpr const char *lost_list = "cairn.loops.lost";
// Defined by each unit that has one, for links that see no bitcode (cairn_cc.py).
static constexpr const char *found_symbol = "__cairn_loop_of_the_profile";

static std::vector<LoopIdentity> loops_of(const char *variable)
{
	const std::string text = handed_over(variable);
	SmallVector<StringRef, 8> lines;
	std::vector<LoopIdentity> wanted;

	StringRef(text).split(lines, '\n', -1, false);
	for (StringRef line : lines) {
		std::optional<LoopIdentity> id = LoopIdentity::parse(line);

		if (!id)
			report_fatal_error(Twine("cairn: ") + variable + " has '" + line +
					"', which is no loop", /*gen_crash_diag=*/false);
		wanted.push_back(*id);
	}
	return wanted;
}

std::vector<LoopIdentity> wanted_loops()
{
	return loops_of("CAIRN_LOOPS");
}

static std::string describe(const LoopIdentity &id)
{
	return shown(id.function) + " (" + id.file + (id.line ? ":" + utostr(id.line) : "") + "), loop " +
		utostr(id.index + 1) + " of " + utostr(id.count);
}

// The same place among as many loops, and of the same shape; else the same line, whatever has
// changed inside; else the only one of that shape, wherever it has moved to. Null: it is gone.
static const NamedLoop *find_loop(ArrayRef<NamedLoop> loops, const LoopIdentity &wanted)
{
	const NamedLoop *moved = nullptr;
	unsigned alike = 0;

	if (loops.size() == wanted.count && loops[wanted.index].id.shape == wanted.shape)
		return &loops[wanted.index];
	for (const NamedLoop &l : loops) {
		if (wanted.line && l.id.line == wanted.line && l.id.column == wanted.column &&
			l.id.depth == wanted.depth)
			return &l;
		if (l.id.shape == wanted.shape) {
			moved = &l;
			alike++;
		}
	}
	return alike == 1 ? moved : nullptr;
}

static void warn_of(const LoopIdentity &id, bool has_function)
{
	errs() << "cairn: warning: no site: not there any more: " << describe(id)
	       << (has_function ? "; its function has changed since the profile, or has other "
				  "options (-O0)\n"
				: "; no unit compiled with -fcairn-sites has its function\n");
}

static void list_in(Module &m, const char *list, const LoopIdentity &id)
{
	LLVMContext &context = m.getContext();

	m.getOrInsertNamedMetadata(list)->addOperand(
		MDNode::get(context, MDString::get(context, id.text())));
}

static bool is_listed(const Module &m, const char *name, const LoopIdentity &id)
{
	const NamedMDNode *list = m.getNamedMetadata(name);
	std::string text = id.text();

	return list && llvm::any_of(list->operands(), [&](const MDNode *node) {
		return cast<MDString>(node->getOperand(0))->getString() == text;
	});
}

static void keep(Module &m, const LoopIdentity &id)
{
	LLVMContext &context = m.getContext();
	Constant *text = ConstantDataArray::getString(context, id.text());

	list_in(m, found_list, id);
	// For those who link a shared library (cairn_cc.py).
	appendToUsed(m, new GlobalVariable(m, text->getType(), true, GlobalValue::PrivateLinkage,
				text, "cairn.loop.text"));
	if (!m.getNamedValue(found_symbol))
		new GlobalVariable(m, Type::getInt8Ty(context), true, GlobalValue::WeakODRLinkage,
			ConstantInt::get(Type::getInt8Ty(context), 1), found_symbol);
}

// A unit of the program that was profiled, not the main function of another one.
static void lose(Module &m, const LoopIdentity &want, const LoopIdentity &here, const Options &o)
{
	if (!here.same_file_name(want))
		return;
	// At a link of bitcode it is said once for the whole program.
	if (o.lto)
		list_in(m, lost_list, want);
	else
		warn_of(want, true);
}

void insert_loop_sites(Module &m, const Options &o, Report &report)
{
	std::vector<LoopIdentity> wanted = wanted_loops();

	for (const LoopIdentity &want : wanted) {
		Function *f = m.getFunction(want.function);
		const NamedLoop *found = nullptr;

		if (!f || f->isDeclaration())
			continue;
		NamedLoops loops(*f);
		LoopIdentity here;
		here.function = want.function;
		here.file = source_file(*f);
		here.local = f->hasLocalLinkage();
		if (!here.same_function(want))
			continue;
		found = find_loop(loops.list, want);
		if (!found) {
			lose(m, want, here, o);
			continue;
		}
		call_site(*found->loop->getHeader()->getFirstInsertionPt(), site_count(m), 1, o,
			o.sites_long);
		keep(m, want);
		report.site(describe(want), 1);
	}
}

void check_loop_sites(const Module &m, const Options &o)
{
	std::vector<LoopIdentity> wanted = wanted_loops(), missing;
	std::vector<LoopIdentity> elsewhere = loops_of("CAIRN_LOOPS_ELSEWHERE");
	bool told = false;

	for (const LoopIdentity &want : wanted)
		if (!is_listed(m, found_list, want) &&
			llvm::none_of(elsewhere, [&](const LoopIdentity &there) {
				return there.text() == want.text();
			}))
			missing.push_back(want);
	bool none = !wanted.empty() && missing.size() == wanted.size();

	for (const LoopIdentity &id : missing) {
		bool lost = is_listed(m, lost_list, id);

		if (none && o.may_lack_sites && !lost)
			continue;
		warn_of(id, lost);
		told = true;
	}
	if (none && !o.may_lack_sites)
		report_fatal_error("cairn: -fcairn-sites: no loop of the profile is in this program: "
				   "is it of another one, or were its units compiled without it?",
			/*gen_crash_diag=*/false);
	if (none && o.warn_lack && !told)
		errs() << "cairn: warning: no loop of the profile is in this program, so it gets "
			  "no sites\n";
}

} // namespace cairn
