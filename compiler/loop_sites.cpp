// SPDX-License-Identifier: MIT
#include "loop_sites.h"
#include "site_calls.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>

using namespace llvm;

namespace cairn {

// Of units: the loops that have their sites. Links put the lists together.
static constexpr const char *found_list = "cairn.loops.found";
// Defined by each unit that has one, for links that see no bitcode (cairn_cc.py).
static constexpr const char *found_symbol = "__cairn_loop_of_the_profile";

std::vector<LoopIdentity> wanted_loops()
{
	const char *text = std::getenv("CAIRN_LOOPS");
	SmallVector<StringRef, 8> lines;
	std::vector<LoopIdentity> wanted;

	StringRef(text ? text : "").split(lines, '\n', -1, false);
	for (StringRef line : lines) {
		std::optional<LoopIdentity> id = LoopIdentity::parse(line);

		if (!id)
			report_fatal_error(Twine("cairn: CAIRN_LOOPS has '") + line +
					"', which is no loop", /*gen_crash_diag=*/false);
		wanted.push_back(*id);
	}
	return wanted;
}

static std::string describe(const LoopIdentity &id)
{
	return id.function + " (" + id.file + (id.line ? ":" + utostr(id.line) : "") + "), loop " +
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

static void keep(Module &m, const LoopIdentity &id)
{
	LLVMContext &context = m.getContext();

	m.getOrInsertNamedMetadata(found_list)
		->addOperand(MDNode::get(context, MDString::get(context, id.text())));
	if (!m.getNamedValue(found_symbol))
		new GlobalVariable(m, Type::getInt8Ty(context), true, GlobalValue::WeakODRLinkage,
			ConstantInt::get(Type::getInt8Ty(context), 1), found_symbol);
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
			// At a link of bitcode that is said there, once for the whole program.
			if (!o.lto)
				errs() << "cairn: warning: no site: not there any more: "
				       << describe(want) << "\n";
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
	const NamedMDNode *list = m.getNamedMetadata(found_list);
	std::vector<LoopIdentity> wanted = wanted_loops();
	std::vector<std::string> missing;

	for (const LoopIdentity &want : wanted) {
		std::string text = want.text();
		bool found = list && llvm::any_of(list->operands(), [&](const MDNode *node) {
			return cast<MDString>(node->getOperand(0))->getString() == text;
		});

		if (!found)
			missing.push_back(describe(want));
	}
	if (wanted.empty() || (missing.size() == wanted.size() && o.may_lack_sites))
		return;
	for (const std::string &name : missing)
		errs() << "cairn: warning: no site: not there any more: " << name << "\n";
	if (missing.size() == wanted.size())
		report_fatal_error("cairn: -fcairn-sites: no loop of the profile is in this program: "
				   "is it of another one, or were its units compiled without it?",
			/*gen_crash_diag=*/false);
}

} // namespace cairn
