// SPDX-License-Identifier: MIT
#include "facet_ranges.h"
#include "llvm/IR/IRBuilder.h"

using namespace llvm;

namespace cairn {

namespace {

constexpr const char *keeps_flag = "cairn-keeps-range";

// Arguments, counted from 0, which is the facet; sizes of characters in bytes.
struct Range {
	const char *name;
	unsigned begin, end, from_size, to, to_size;
};

// char, then wchar_t: tolower, toupper, widen, narrow, is (whose answers are masks).
constexpr Range ranges[] = {
	{ "_ZNKSt5ctypeIcE7tolowerEPcPKc", 1, 2, 1, 1, 1 },
	{ "_ZNKSt5ctypeIcE7toupperEPcPKc", 1, 2, 1, 1, 1 },
	{ "_ZNKSt5ctypeIcE5widenEPKcS2_Pc", 1, 2, 1, 3, 1 },
	{ "_ZNKSt5ctypeIcE6narrowEPKcS2_cPc", 1, 2, 1, 4, 1 },
	{ "_ZNKSt21__ctype_abstract_baseIwE7tolowerEPwPKw", 1, 2, 4, 1, 4 },
	{ "_ZNKSt21__ctype_abstract_baseIwE7toupperEPwPKw", 1, 2, 4, 1, 4 },
	{ "_ZNKSt21__ctype_abstract_baseIwE5widenEPKcS2_Pw", 1, 2, 1, 3, 4 },
	{ "_ZNKSt21__ctype_abstract_baseIwE6narrowEPKwS2_cPc", 1, 2, 4, 4, 1 },
	{ "_ZNKSt21__ctype_abstract_baseIwE2isEPKwS2_Pt", 1, 2, 4, 3, 2 },
};

} // namespace

bool keep_facet_ranges(Module &m)
{
	Type *word = m.getDataLayout().getIntPtrType(m.getContext());
	Type *pointer = PointerType::getUnqual(m.getContext());
	bool found = false;

	for (const Range &r : ranges) {
		Function *f = m.getFunction(r.name);

		if (!f || f->isDeclaration() || f->hasFnAttribute(keeps_flag))
			continue;
		f->addFnAttr(keeps_flag);
		BasicBlock &entry = f->getEntryBlock();
		IRBuilder<> b(&entry, entry.getFirstNonPHIOrDbgOrAlloca());
		Value *bytes = b.CreateSub(b.CreatePtrToInt(f->getArg(r.end), word),
			b.CreatePtrToInt(f->getArg(r.begin), word));
		Value *size = b.CreateMul(b.CreateUDiv(bytes, ConstantInt::get(word, r.from_size)),
			ConstantInt::get(word, r.to_size));
		b.CreateCall(m.getOrInsertFunction("__cairn_keep", b.getVoidTy(), pointer, word),
			{ f->getArg(r.to), size });
		found = true;
	}
	return found;
}

} // namespace cairn
