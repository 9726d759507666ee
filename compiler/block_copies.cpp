// SPDX-License-Identifier: MIT
#include "block_copies.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Module.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/SSAUpdater.h"

using namespace llvm;

namespace cairn {

// Labels that are numbers, or have one of the compiler's (%=), can be there many times.
static bool has_label(StringRef assembly)
{
	for (size_t from = 0, to; (to = assembly.find_first_of("\n;:", from)) != StringRef::npos;
		from = to + 1) {
		StringRef name = assembly.slice(from, to).trim();

		if (assembly[to] == ':' && !name.empty() && !isDigit(name[0]) &&
			llvm::all_of(name, [](char c) { return isAlnum(c) || c == '_' || c == '.'; }))
			return true;
	}
	return false;
}

bool defines_symbol(const Instruction &i)
{
	auto *c = dyn_cast<CallBase>(&i);
	auto *assembly = c ? dyn_cast<InlineAsm>(c->getCalledOperand()) : nullptr;

	return assembly && has_label(assembly->getAsmString());
}

bool can_copy(const Instruction &i)
{
	auto *c = dyn_cast<CallBase>(&i);

	return !i.getType()->isTokenTy() && !(c && c->cannotDuplicate()) && !defines_symbol(i);
}

bool can_copy(const BasicBlock &b)
{
	return !b.hasAddressTaken() && !b.isEHPad() &&
		llvm::all_of(b, [](const Instruction &i) { return can_copy(i); });
}

// A copied header is not reached from before the loop.
static void leave_out_entries(BasicBlock &b)
{
	SmallPtrSet<BasicBlock *, 8> from(pred_begin(&b), pred_end(&b));

	for (PHINode &phi : make_early_inc_range(b.phis()))
		for (unsigned i = phi.getNumIncomingValues(); i-- > 0;)
			if (!from.contains(phi.getIncomingBlock(i)))
				phi.removeIncomingValue(i, /*DeletePHIIfEmpty=*/false);
}

BlockCopies::BlockCopies(Function &f, ArrayRef<BasicBlock *> from, Blocks &plain)
	: blocks(from), inside(from.begin(), from.end())
{
	SmallVector<BasicBlock *, 32> copies;

	for (BasicBlock *b : blocks) {
		BasicBlock *c = CloneBasicBlock(b, map, ".plain", &f);

		map[b] = c;
		copies.push_back(c);
		plain.insert(c);
	}
	for (BasicBlock *c : copies)
		for (Instruction &i : *c)
			i.dropDbgRecords();
	remapInstructionsInBlocks(copies, map);
	for (BasicBlock *c : copies) {
		c->getTerminator()->setMetadata(LLVMContext::MD_loop, nullptr);
		leave_out_entries(*c);
	}
	add_exits();
}

Value *BlockCopies::value_of(Value *v)
{
	auto it = map.find(v);

	return it == map.end() ? v : &*it->second;
}

void BlockCopies::add_exits()
{
	SmallPtrSet<BasicBlock *, 8> seen;

	for (BasicBlock *b : blocks)
		for (BasicBlock *to : successors(b))
			if (!inside.contains(to) && seen.insert(to).second)
				add_incoming(*to);
}

void BlockCopies::add_incoming(BasicBlock &to)
{
	for (PHINode &phi : to.phis()) {
		unsigned count = phi.getNumIncomingValues();

		for (unsigned i = 0; i < count; i++) {
			BasicBlock *from = phi.getIncomingBlock(i);

			if (inside.contains(from))
				phi.addIncoming(value_of(phi.getIncomingValue(i)), of(from));
		}
	}
}

void BlockCopies::join(bool back)
{
	for (BasicBlock *b : blocks)
		for (Instruction &i : *b)
			if (auto c = map.find(&i); c != map.end())
				join(i, *cast<Instruction>(&*c->second), back);
}

// Where it must be there: for a phi, at the end of the block before.
static BasicBlock *block_of(const Use &u)
{
	auto *user = cast<Instruction>(u.getUser());
	auto *phi = dyn_cast<PHINode>(user);

	return phi ? phi->getIncomingBlock(u) : user->getParent();
}

static bool is_elsewhere(const Use &u, const Instruction &i)
{
	return block_of(u) != i.getParent() || isa<PHINode>(u.getUser());
}

void BlockCopies::join(Instruction &i, Instruction &copy, bool back)
{
	SmallVector<Use *, 16> uses;

	for (Use &u : i.uses())
		if (back ? is_elsewhere(u, i) : !inside.contains(block_of(u)))
			uses.push_back(&u);
	for (Use &u : copy.uses())
		if (is_elsewhere(u, copy))
			uses.push_back(&u);
	if (uses.empty())
		return;
	SSAUpdater updater;

	updater.Initialize(i.getType(), i.getName());
	updater.AddAvailableValue(i.getParent(), &i);
	updater.AddAvailableValue(copy.getParent(), &copy);
	for (Use *u : uses)
		updater.RewriteUse(*u);
}

} // namespace cairn
