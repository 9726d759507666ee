// SPDX-License-Identifier: MIT
// Names for readers: the symbol, by which options name it, and what C++ calls it.
#ifndef CAIRN_COMPILER_MANGLED_H
#define CAIRN_COMPILER_MANGLED_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Demangle/Demangle.h"
#include <string>

namespace cairn {

inline std::string shown(llvm::StringRef symbol)
{
	std::string name = llvm::demangle(symbol);

	return name == symbol ? name : symbol.str() + " (" + name + ")";
}

} // namespace cairn
#endif
