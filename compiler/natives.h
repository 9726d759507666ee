// SPDX-License-Identifier: MIT
// What is linked without bitcode (objects, archives, shared libraries, but for the system's own):
// which functions it defines. One that has a name of libc's is not libc's.
#ifndef CAIRN_COMPILER_NATIVES_H
#define CAIRN_COMPILER_NATIVES_H

#include "abi_list.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/IR/Module.h"
#include <string>

namespace llvm::object {
class Archive;
class ObjectFile;
}

namespace cairn {

// Of external functions: nothing that is known of libc's function of that name holds.
constexpr const char *not_libcs = "cairn-not-libc";

class Natives {
public:
	// The files that cairn-cc names (CAIRN_NATIVE, a line each), as far as they can be read.
	Natives();

	// Marks declarations as not_libcs. A function counts as libc's all the same if LLVM itself
	// takes it for that (by its arguments); malloc and its kin are own_heap.h's business.
	void mark(llvm::Module &m, const AbiList &list) const;

	// Which file defines it; empty: none.
	llvm::StringRef where(llvm::StringRef function) const
	{
		auto found = files.find(function); // lookup() returns a copy

		return found == files.end() ? llvm::StringRef() : found->second;
	}

private:
	llvm::StringMap<std::string> files; // by the names of functions

	void read(const std::string &path);
	void read(const llvm::object::Archive &archive, llvm::StringRef path);
	void read(const llvm::object::ObjectFile &object, llvm::StringRef path);
};

} // namespace cairn
#endif
