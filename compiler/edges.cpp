// SPDX-License-Identifier: MIT
#include "edges.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/IRBuilder.h"

using namespace llvm;

namespace cairn {

DebugLoc at_line_0(const Function &f)
{
	DISubprogram *scope = f.getSubprogram();

	return scope ? DebugLoc(DILocation::get(f.getContext(), 0, 0, scope)) : DebugLoc();
}

BasicBlock *split_edge(BasicBlock *from, BasicBlock *to)
{
	Instruction *end = from->getTerminator();

	if (to->isEHPad() || isa<IndirectBrInst>(end) || isa<CallBrInst>(end))
		return nullptr;
	BasicBlock *between = BasicBlock::Create(from->getContext(), "", from->getParent(), to);
	IRBuilder<>(between).CreateBr(to)->setDebugLoc(at_line_0(*from->getParent()));
	end->replaceSuccessorWith(to, between);
	for (PHINode &phi : to->phis()) {
		int first = phi.getBasicBlockIndex(from);

		phi.setIncomingBlock(static_cast<unsigned>(first), between);
		// a switch may have come by several cases
		for (int more; (more = phi.getBasicBlockIndex(from)) >= 0;)
			phi.removeIncomingValue(static_cast<unsigned>(more), false);
	}
	return between;
}

Instruction *behind_call(CallBase &c)
{
	if (auto *invoke = dyn_cast<InvokeInst>(&c)) {
		BasicBlock *between = split_edge(invoke->getParent(), invoke->getNormalDest());

		return between ? between->getTerminator() : nullptr;
	}
	auto *call = dyn_cast<CallInst>(&c);

	return call && !call->isMustTailCall() ? call->getNextNode() : nullptr;
}

} // namespace cairn
