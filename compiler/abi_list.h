// SPDX-License-Identifier: MIT
// What is known of external functions: lists in the format of DataFlowSanitizer's,
//
//	fun:NAME=functional       writes no memory of the program
//	fun:NAME=discard          what it writes may stay as it is
//	fun:NAME=covered          what it writes is kept by other means
//	fun:NAME=arguments        writes to what its arguments refer to, and nothing behind that
//	fun:NAME=custom           the program has a wrapper of it, __cairn_wrap_NAME
//	fun:NAME=uninstrumented   it may write, whatever another line says; not libc's
//
// and, for functions that are called through pointers, by the name of their object in the program
//
//	facet:NAME=uninstrumented  the id of a facet of C++'s locales that writes for its callers
//
// NAME may contain *. compiler/libc.abilist is the list for libc; -fcairn-abilist adds others. Of a
// function that has a name of libc's and is not libc's (natives.h) only these are asked.
#ifndef CAIRN_COMPILER_ABI_LIST_H
#define CAIRN_COMPILER_ABI_LIST_H

#include "options.h"
#include "llvm/IR/Function.h"
#include "llvm/Support/SpecialCaseList.h"
#include <memory>

namespace cairn {

class AbiList {
public:
	// A file that cannot be read or parsed ends the compiler with a line that names it.
	explicit AbiList(const Options &options);

	// Nothing that it writes has to come back.
	bool harmless(const llvm::Function &f) const;
	// Some list says something of it.
	bool knows(const llvm::Function &f) const { return harmless(f) || arguments(f); }
	bool arguments(const llvm::Function &f) const { return says(f, "arguments"); }
	bool custom(llvm::StringRef name) const { return says(own, name, "custom"); }
	bool uninstrumented(llvm::StringRef name) const
	{
		return says(own, name, "uninstrumented");
	}
	bool facet(llvm::StringRef id) const
	{
		return has(own, "facet", id, "uninstrumented") ||
			has(libc, "facet", id, "uninstrumented");
	}

private:
	using List = std::unique_ptr<llvm::SpecialCaseList>; // null: no list at all

	List libc, own;

	static bool has(const List &list, llvm::StringRef kind, llvm::StringRef name,
		llvm::StringRef category)
	{
		return list && list->inSection("cairn", kind, name, category);
	}
	static bool says(const List &list, llvm::StringRef name, llvm::StringRef category)
	{
		return has(list, "fun", name, category);
	}
	bool says(const llvm::Function &f, llvm::StringRef category) const;
};

} // namespace cairn
#endif
