// SPDX-License-Identifier: MIT
#include "cover.h"
#include "llvm/IR/DataLayout.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace cairn {

Write Cover::materialise() const
{
	IRBuilder<> b(at);
	Value *to = pointer;

	if (!to)
		to = low ? b.CreateConstGEP1_64(b.getInt8Ty(), base, low) : base;
	return { at, to, uint64_t(high - low), align };
}

SmallVector<Cover, 64> cover_each(ArrayRef<Write> writes)
{
	SmallVector<Cover, 64> covers;

	for (const Write &w : writes) {
		const DataLayout &layout = w.at->getModule()->getDataLayout();
		APInt offset(layout.getIndexTypeSizeInBits(w.pointer->getType()), 0);
		Value *base = w.pointer->stripAndAccumulateConstantOffsets(layout, offset, true);
		int64_t low = offset.getSExtValue();

		covers.push_back({ w.at, base, low, low + int64_t(w.size), w.align, w.pointer });
	}
	return covers;
}

} // namespace cairn
