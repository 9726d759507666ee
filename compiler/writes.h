// SPDX-License-Identifier: MIT
// The places of a function that write memory, and what is known of each.
#ifndef CAIRN_COMPILER_WRITES_H
#define CAIRN_COMPILER_WRITES_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Instructions.h"
#include "llvm/Support/Alignment.h"
#include <cstdint>

namespace cairn {

// A write of a size that is known now, to one place. The hook goes before `at`.
struct Write {
	llvm::Instruction *at;
	llvm::Value *pointer;
	uint64_t size;
	llvm::Align align;
};

// One whose length is a value.
struct LongWrite {
	llvm::Instruction *at;
	llvm::Value *pointer;
	llvm::Value *length;
};

// One to lanes of a vector, under a mask: contiguous from a pointer, packed, or each lane its own.
struct LaneWrite {
	llvm::CallInst *at;
	enum Kind { Masked, Compressed, Scattered } kind;
	llvm::Value *to, *mask;
	llvm::Type *type;
};

// What the pass has no hook for; said in the report.
struct Unknown {
	llvm::Instruction *at;
	const char *what;
};

// Of external functions: what they write is not known but for what their arguments refer to.
constexpr const char *writes_arguments = "cairn-writes-arguments";

struct Writes {
	llvm::SmallVector<Write, 64> writes;
	llvm::SmallVector<LongWrite, 8> long_writes;
	llvm::SmallVector<LaneWrite, 4> lane_writes;
	llvm::SmallVector<Unknown, 4> unknown;

	bool empty() const
	{
		return writes.empty() && long_writes.empty() && lane_writes.empty();
	}
};

Writes find_writes(llvm::Function &f);

} // namespace cairn
#endif
