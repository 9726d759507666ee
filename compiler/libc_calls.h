// SPDX-License-Identifier: MIT
// Calls out of the program, into code that has no hooks: libc's functions that write memory of the
// program are called through the run-time's wrappers (wrapped.def of src/rt); the rest is reported.
#ifndef CAIRN_COMPILER_LIBC_CALLS_H
#define CAIRN_COMPILER_LIBC_CALLS_H

#include "abi_list.h"
#include "natives.h"
#include "options.h"
#include "report.h"
#include "llvm/IR/Module.h"

namespace cairn {

void wrap_libc_calls(llvm::Module &m, const Options &options, const AbiList &list,
	const Natives &natives, Report &report);

// Afterwards: the external functions that get a pointer they might write through. They are reported
// and marked: what is known to lie behind their arguments is kept before each call (writes.h).
void mark_uncovered_calls(llvm::Module &m, const AbiList &list, Report &report);

} // namespace cairn
#endif
