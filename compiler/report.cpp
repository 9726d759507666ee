// SPDX-License-Identifier: MIT
#include "report.h"
#include "mangled.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace cairn {

// " at line 3"; of code that was inlined, also where it is from: it may be of another file.
static void print_place(const DebugLoc &at)
{
	if (!at)
		return;
	errs() << " at line " << at.getLine();
	if (at->getInlinedAt())
		errs() << " of " << at->getScope()->getSubprogram()->getName() << " ("
		       << at->getFilename() << ")";
}

void Report::unknown(const Function &f, const Unknown &u)
{
	unknowns++;
	if (!on)
		return;
	errs() << "cairn: " << shown(f.getName()) << ": not covered: " << u.what;
	print_place(u.at->getDebugLoc());
	errs() << "\n";
}

void Report::unknown(StringRef where, const char *what)
{
	unknowns++;
	if (on)
		errs() << "cairn: " << where << ": not covered: " << what << "\n";
}

void Report::uncovered(StringRef external)
{
	uncovereds++;
	if (on)
		errs() << "cairn: external function may write memory and is not covered: "
		       << shown(external) << "\n";
}

void Report::facet(StringRef id)
{
	uncovereds++;
	if (on)
		errs() << "cairn: facet of locales may write memory and is not covered: " << id
		       << "\n";
}

void Report::wrapped(StringRef external)
{
	wraps++;
	if (on)
		errs() << "cairn: external function is covered: " << shown(external) << "\n";
}

void Report::own(StringRef function, StringRef file, bool alike)
{
	if (on)
		errs() << "cairn: " << shown(function) << " is of " << file
		       << (alike ? ", and taken for libc's\n" : ", and not taken for libc's\n");
}

void Report::site(StringRef function, unsigned places)
{
	if (on)
		errs() << "cairn: site " << function << ": " << places << " places\n";
}

void Report::long_loop(const BasicBlock &header, const DebugLoc &at, bool split)
{
	long_loops++;
	if (!on)
		return;
	errs() << "cairn: " << shown(header.getParent()->getName())
	       << ": an interval may be long: a loop";
	print_place(at);
	errs() << " without a known bound" << (split && hybrid ? ", in two versions" : "") << "\n";
}

void Report::function(const FunctionFigures &f)
{
	functions++;
	writes += f.writes;
	stack += f.stack;
	fresh += f.fresh;
	loops += f.loops;
	aggregated += f.aggregated;
	redundant += f.redundant;
	if (on)
		errs() << "cairn: " << shown(f.function->getName()) << ": " << f.writes << " writes, "
		       << f.stack << " stack, " << f.fresh << " fresh, " << f.loops
		       << " loops, " << f.aggregated << " aggregated, " << f.redundant
		       << " redundant, " << f.checks << " checks\n";
}

void Report::total(const Module &m, const Hooks &hooks, unsigned clones)
{
	if (warn && (uncovereds || unknowns))
		errs() << "cairn: warning: " << uncovereds << " external functions and " << unknowns
		       << " other places may write memory that does not come back "
		       << "(-fcairn-report names them, -fcairn-abilist says which do not)\n";
	if (on)
		errs() << "cairn: total: " << functions << " functions, " << writes << " writes, "
		       << stack << " stack, " << fresh << " fresh, " << loops << " loops, "
		       << aggregated << " aggregated, " << redundant
		       << " redundant, " << hooks.checks << " checks, " << hooks.ranges
		       << " range calls (" << hooks.segments << " for long ones alone), " << wraps << " external functions covered, " << uncovereds
		       << " not covered, " << unknowns << " other places not covered, " << clones + splits
		       << " functions in two versions, " << long_loops << " long loops\n";
}

} // namespace cairn
