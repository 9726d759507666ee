// SPDX-License-Identifier: MIT
// What is known of external functions: lists in the format of DataFlowSanitizer's,
//
//	fun:NAME=functional       writes no memory of the program
//	fun:NAME=discard          what it writes may stay as it is
//	fun:NAME=covered          what it writes is kept by other means
//	fun:NAME=arguments        writes to what its arguments refer to, and nothing behind that
//	fun:NAME=custom           the program has a wrapper of it, __cairn_wrap_NAME
//	fun:NAME=uninstrumented   it may write, whatever another line says
//
// and, for functions that are called through pointers, by the name of their object in the program
//
//	facet:NAME=uninstrumented  the id of a facet of C++'s locales that writes for its callers
//
// NAME may contain *. compiler/libc.abilist is the list for libc; -fcairn-abilist adds others.
#ifndef CAIRN_COMPILER_ABI_LIST_H
#define CAIRN_COMPILER_ABI_LIST_H

#include "options.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/SpecialCaseList.h"
#include <memory>

namespace cairn {

class AbiList {
public:
	// A file that cannot be read or parsed ends the compiler with a line that names it.
	explicit AbiList(const Options &options);

	// Nothing that it writes has to come back.
	bool harmless(llvm::StringRef function) const;
	bool arguments(llvm::StringRef function) const { return says(function, "arguments"); }
	bool custom(llvm::StringRef function) const { return says(function, "custom"); }
	bool facet(llvm::StringRef id) const
	{
		return list && list->inSection("cairn", "facet", id, "uninstrumented");
	}

private:
	std::unique_ptr<llvm::SpecialCaseList> list; // null: no list at all

	bool says(llvm::StringRef function, llvm::StringRef category) const
	{
		return list && list->inSection("cairn", "fun", function, category);
	}
};

} // namespace cairn
#endif
