// SPDX-License-Identifier: MIT
// The code that goes before a write, for either tracker. Layout and names are those of src/rt/rt.h.
#ifndef CAIRN_COMPILER_HOOKS_H
#define CAIRN_COMPILER_HOOKS_H

#include "options.h"
#include "writes.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

namespace cairn {

class Hooks {
public:
	Hooks(llvm::Module &m, const Options &options);

	void before(const Write &w);
	void before(const LongWrite &w);
	void before(const LaneWrite &w);

	// How many checks `before` would make for that write: what aggregation weighs.
	static unsigned cost(const Options &options, uint64_t size, llvm::Align align);

	// Of a block that was allocated just before: how many of its bytes need no hooks in this
	// interval, because no kept checkpoint needs what they held.
	llvm::Value *fresh_bytes(llvm::IRBuilder<> &b, llvm::Value *block);

	// Does the program need no hooks now?
	llvm::Value *are_off(llvm::IRBuilder<> &b);
	// So many hooks more will run: it may be time for page mode. The end of a block.
	void lose_patience(llvm::IRBuilder<> &b, llvm::Value *hooks, llvm::BasicBlock *hooked,
		llvm::BasicBlock *plain);

	unsigned checks = 0, ranges = 0; // made so far
	unsigned segments = 0;           // of the ranges: with checks for short ones

private:
	const Options &options;
	llvm::Module &module;
	llvm::LLVMContext &context;
	llvm::FunctionCallee slow, range, stray, longer;
	llvm::GlobalVariable *state;
	llvm::MDNode *unlikely;
	llvm::Type *word; // of an address

	bool narrow() const { return word->getIntegerBitWidth() == 32; }
	llvm::Align word_align() const { return llvm::Align(narrow() ? 4 : 8); }
	template <typename Callable> void adapt(Callable *c);
	void fill(llvm::IRBuilder<> &b, llvm::Value *to, llvm::Value *address, uint64_t size);

	void call(llvm::IRBuilder<> &b, llvm::FunctionCallee hook,
		llvm::ArrayRef<llvm::Value *> args);
	llvm::Value *load_tags(llvm::IRBuilder<> &b, llvm::Value *at, uint64_t size);
	llvm::Value *saved_tags(llvm::IRBuilder<> &b, uint64_t size);
	void check_tag(llvm::Instruction *at, llvm::Value *pointer);
	void check_bytes(llvm::Instruction *at, llvm::Value *pointer, uint64_t size);
	void check_stray(llvm::Instruction *at, llvm::Value *pointer, uint64_t size);
	void append(llvm::Instruction *at, llvm::Value *pointer, uint64_t size);
	void call_range(llvm::Instruction *at, llvm::Value *pointer, llvm::Value *length);
};

} // namespace cairn
#endif
