// SPDX-License-Identifier: MIT
#include "store_hooks.h"
#include "rt/abi.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/MDBuilder.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

using namespace llvm;

namespace cairn {

// Longer writes are one call for the undo log, and for the shadow of bytes: words of eight bytes each
// would cost more code.
static constexpr uint64_t inline_max = 32;
static constexpr uint64_t log_entry = 16;

// How hooks are called, of the declaration or of a call: no register but r11 is lost. LLVM has no such
// convention for 32-bit code; arguments are at least in registers.
template <typename Callable> void Hooks::adapt(Callable *c)
{
	if (!narrow()) {
		c->setCallingConv(CallingConv::PreserveAll);
		return;
	}
	for (unsigned i = 0; i < c->arg_size(); i++)
		c->addParamAttr(i, Attribute::InReg);
}

Hooks::Hooks(Module &m, const Options &o) : options(o), module(m), context(m.getContext())
{
	Type *nothing = Type::getVoidTy(context), *pointer = PointerType::getUnqual(context);

	word = m.getDataLayout().getIntPtrType(context);

	slow = m.getOrInsertFunction("__cairn_slow", nothing, pointer);
	range = m.getOrInsertFunction("__cairn_range", nothing, pointer, word);
	stray = m.getOrInsertFunction("__cairn_stray", nothing, pointer);
	longer = m.getOrInsertFunction("__cairn_long", nothing);
	for (FunctionCallee f : { slow, range, stray, longer }) {
		auto *declared = cast<Function>(f.getCallee());

		declared->addFnAttr(Attribute::NoUnwind);
		adapt(declared);
	}
	state = m.getGlobalVariable("__cairn_rt");
	if (!state)
		state = new GlobalVariable(m, ArrayType::get(word, CRN_RT_WORDS), false,
			GlobalValue::ExternalLinkage, nullptr, "__cairn_rt");
	state->setDSOLocal(o.link);
	unlikely = MDBuilder(context).createBranchWeights(1, 100000);
}

void Hooks::call(IRBuilder<> &b, FunctionCallee hook, ArrayRef<Value *> args)
{
	adapt(b.CreateCall(hook, args));
}

// Does a write of that size and alignment stay inside of one region, whatever its address?
static bool cannot_cross(const Options &o, uint64_t size, Align align)
{
	return size <= 1 || (o.aligned && PowerOf2Ceil(size) <= align.value());
}

// Tags of bytes are looked at as words, of 8, 4, 2 and 1.
static unsigned word_count(uint64_t size)
{
	return size / 8 + llvm::popcount(size % 8);
}

unsigned Hooks::cost(const Options &o, uint64_t size, Align align)
{
	if (o.tracker == Tracker::UndoLog)
		return size > inline_max ? 2 : divideCeil(size, 8);
	if (o.bytes())
		return size > inline_max ? 2 : word_count(size);
	return cannot_cross(o, size, align) ? 1 : 2;
}

// If nothing is ever saved the look alone is left: it must not be optimised away.
Value *Hooks::load_tags(IRBuilder<> &b, Value *at, uint64_t size)
{
	LoadInst *tags = b.CreateAlignedLoad(b.getIntNTy(size * 8),
		b.CreateIntToPtr(at, b.getPtrTy()), Align(1), "cairn.tag");

	tags->setVolatile(!options.save);
	return tags;
}

// 1, or the interval's epoch, in so many bytes.
Value *Hooks::saved_tags(IRBuilder<> &b, uint64_t size)
{
	Type *type = b.getIntNTy(size * 8);
	Value *each = ConstantInt::get(type, APInt::getSplat(size * 8, APInt(8, 1)));

	if (!options.epoch)
		return each;
	Value *epoch = b.CreateAlignedLoad(b.getInt8Ty(),
		b.CreateConstGEP1_64(word, state, CRN_RT_WORD_EPOCH), word_align(),
		"cairn.epoch");
	return size == 1 ? epoch : b.CreateMul(b.CreateZExt(epoch, type), each);
}

// shadow: if (tag[p >> shift] != saved) slow(p)
void Hooks::check_tag(Instruction *at, Value *pointer)
{
	IRBuilder<> b(at);
	Value *address = b.CreatePtrToInt(pointer, word);
	Value *tag = load_tags(b, b.CreateLShr(address, options.shift), 1);

	checks++;
	if (!options.save)
		return;
	Value *clean = b.CreateICmpNE(tag, saved_tags(b, 1));
	IRBuilder<> cold(SplitBlockAndInsertIfThen(clean, at->getIterator(), false, unlikely));
	call(cold, slow, { pointer });
}

// shadow of bytes: if (tags[p - below ..] != saved in each) range(p, size)
void Hooks::check_bytes(Instruction *at, Value *pointer, uint64_t size)
{
	IRBuilder<> b(at);
	Value *address = b.CreatePtrToInt(pointer, b.getInt64Ty());
	Value *tags_at = b.CreateSub(address, b.getInt64(CRN_RT_TAGS_BELOW));
	Value *clean = nullptr;

	checks++;
	for (uint64_t done = 0, part; done < size; done += part) {
		part = std::min<uint64_t>(8, llvm::bit_floor(size - done));
		Value *tags = load_tags(b, b.CreateAdd(tags_at, b.getInt64(done)), part);
		Value *other = b.CreateICmpNE(tags, saved_tags(b, part));

		clean = clean ? b.CreateOr(clean, other) : other;
	}
	if (!options.save)
		return;
	IRBuilder<> cold(SplitBlockAndInsertIfThen(clean, at->getIterator(), false, unlikely));
	call(cold, range, { pointer, b.getInt64(size) });
}

// undo log, with the guard: if (p < primary memory || [p, p + size) touches the state) stray(p)
void Hooks::check_stray(Instruction *at, Value *pointer, uint64_t size)
{
	IRBuilder<> b(at);
	Value *address = b.CreatePtrToInt(pointer, word);
	// 64 bit: below the primary memory. 32 bit: neither in the first quarter nor in the last.
	Value *low = narrow()
		? b.CreateIsNeg(b.CreateXor(address, b.CreateShl(address, 1)))
		: b.CreateICmpULT(b.CreateLShr(address, 40), b.getInt64(CRN_RT_IMAGE_AT_64 >> 40));
	Value *end = b.CreateAdd(address, ConstantInt::get(word, size - 1));
	Value *distance = b.CreateSub(end, b.CreatePtrToInt(state, word));
	Value *touches = b.CreateICmpULT(distance, ConstantInt::get(word, 4096 + size - 1));

	IRBuilder<> cold(SplitBlockAndInsertIfThen(b.CreateOr(low, touches), at->getIterator(),
		false, unlikely));
	call(cold, stray, { pointer });
}

// undo log: read the old content, take room for it, write it there; the word that makes an entry valid
// comes last (src/rt/rt.h). Should a signal handler come between reading and taking, its entries are
// older in the log, and what was read is older still: undone in that order, it is right.
void Hooks::append(Instruction *at, Value *pointer, uint64_t size)
{
	IRBuilder<> b(at);
	Value *address = b.CreatePtrToInt(pointer, word);
	SmallVector<std::pair<Value *, uint64_t>, 8> entries; // old content, its size

	checks++;
	for (uint64_t done = 0; done < size;) {
		uint64_t part = std::min<uint64_t>(8, llvm::bit_floor(size - done));
		Value *from = done ? b.CreateConstGEP1_64(b.getInt8Ty(), pointer, done) : pointer;
		Type *type = b.getIntNTy(part * 8);
		Value *old = b.CreateZExt(b.CreateAlignedLoad(type, from, Align(1)), b.getInt64Ty());

		entries.push_back({ old, part });
		done += part;
	}
	Value *need = ConstantInt::get(word, entries.size() * log_entry);
	auto *type = FunctionType::get(word, { b.getPtrTy(), word }, false);
	// Not locked: only this thread's own signal handlers are to be told apart.
	auto *take = InlineAsm::get(type, narrow() ? "xaddl $0, ($1)" : "xaddq $0, ($1)",
		"=r,r,0,~{memory},~{dirflag},~{fpsr},~{flags}", true);
	Value *cursor = b.CreateCall(take, { state, need });
	Value *end = b.CreateAlignedLoad(word, b.CreateConstGEP1_64(word, state, CRN_RT_WORD_END),
		word_align());
	Value *full = b.CreateICmpUGT(b.CreateAdd(cursor, need), end);
	Instruction *cold, *room;

	SplitBlockAndInsertIfThenElse(full, at->getIterator(), &cold, &room, unlikely);
	b.SetInsertPoint(cold);
	call(b, slow, { pointer });
	b.SetInsertPoint(room);
	uint64_t entry = 0, done = 0;
	for (auto [old, part] : entries) {
		Value *to = b.CreateIntToPtr(b.CreateAdd(cursor, ConstantInt::get(word, entry)),
			b.getPtrTy());

		b.CreateAlignedStore(old, to, Align(16));
		fill(b, b.CreateConstGEP1_64(b.getInt64Ty(), to, 1),
			b.CreateAdd(address, ConstantInt::get(word, done)), part);
		entry += log_entry;
		done += part;
	}
}

// Address and size, of which 32-bit code has to store one after the other: the size makes it valid.
void Hooks::fill(IRBuilder<> &b, Value *to, Value *address, uint64_t size)
{
	if (!narrow()) {
		b.CreateAlignedStore(b.CreateOr(address, b.getInt64(size << 56)), to, Align(8))
			->setAtomic(AtomicOrdering::Release);
		return;
	}
	b.CreateAlignedStore(address, to, Align(8))->setAtomic(AtomicOrdering::Release);
	b.CreateAlignedStore(b.getInt32(size << 24), b.CreateConstGEP1_64(word, to, 1), Align(4))
		->setAtomic(AtomicOrdering::Release);
}

Value *Hooks::are_off(IRBuilder<> &b)
{
	Value *hooked = b.CreateAlignedLoad(word,
		b.CreateConstGEP1_64(word, state, CRN_RT_WORD_HOOKED), word_align(), "cairn.hooked");

	return b.CreateIsNull(hooked);
}

// if ((patience -= hooks) < 0) { long(); if (off) goto plain; }
// goto hooked
void Hooks::lose_patience(IRBuilder<> &b, Value *hooks, BasicBlock *hooked, BasicBlock *plain)
{
	Value *at = b.CreateConstGEP1_64(word, state, CRN_RT_WORD_PATIENCE);
	Value *left = b.CreateSub(b.CreateAlignedLoad(word, at, word_align(), "cairn.patience"),
		b.CreateZExtOrTrunc(hooks, word));
	BasicBlock *out = BasicBlock::Create(context, "cairn.out", hooked->getParent(), hooked);

	b.CreateAlignedStore(left, at, word_align());
	b.CreateCondBr(b.CreateICmpSLT(left, ConstantInt::get(word, 0)), out, hooked, unlikely);
	b.SetInsertPoint(out);
	call(b, longer, {});
	b.CreateCondBr(are_off(b), plain, hooked);
}

// fresh = state->fresh; it names this block ? its size : 0
Value *Hooks::fresh_bytes(IRBuilder<> &b, Value *block)
{
	Value *fresh = b.CreateAlignedLoad(word,
		b.CreateConstGEP1_64(word, state, CRN_RT_WORD_FRESH), word_align(), "cairn.fresh");
	Value *other = b.CreateShl(b.CreateXor(fresh, b.CreatePtrToInt(block, word)),
		64 - CRN_RT_FRESH_SHIFT);
	Value *bytes = b.CreateShl(b.CreateLShr(fresh, CRN_RT_FRESH_SHIFT), CRN_RT_FRESH_UNIT);

	return b.CreateSelect(b.CreateIsNull(other), bytes, ConstantInt::get(word, 0));
}

void Hooks::call_range(Instruction *at, Value *pointer, Value *length)
{
	IRBuilder<> b(at);

	ranges++;
	if (options.save)
		call(b, range, { pointer, b.CreateZExtOrTrunc(length, word) });
}

void Hooks::before(const Write &w)
{
	Value *length = ConstantInt::get(word, w.size);

	if (options.tracker == Tracker::UndoLog) {
		if (w.size > inline_max || !options.save) {
			call_range(w.at, w.pointer, length);
			return;
		}
		if (options.guard)
			check_stray(w.at, w.pointer, w.size);
		append(w.at, w.pointer, w.size);
		return;
	}
	if (w.size > (options.bytes() ? inline_max : options.region())) {
		call_range(w.at, w.pointer, length);
		return;
	}
	if (options.bytes()) {
		check_bytes(w.at, w.pointer, w.size);
		return;
	}
	check_tag(w.at, w.pointer);
	if (!cannot_cross(options, w.size, w.align)) {
		IRBuilder<> b(w.at);

		check_tag(w.at, b.CreateConstGEP1_64(b.getInt8Ty(), w.pointer, w.size - 1));
	}
}

// shadow: a run that is no longer than a region lies in at most two: those of its ends.
void Hooks::before(const LongWrite &w)
{
	if (options.tracker == Tracker::UndoLog || options.bytes() || !options.segments ||
		!options.save) {
		call_range(w.at, w.pointer, w.length);
		return;
	}
	IRBuilder<> b(w.at);
	Value *length = b.CreateZExtOrTrunc(w.length, word);
	Value *last = b.CreateSub(length, ConstantInt::get(word, 1));
	Value *many = b.CreateICmpUGE(last, ConstantInt::get(word, options.region())); // or none
	Instruction *call_at, *check_at;

	segments++;
	SplitBlockAndInsertIfThenElse(many, w.at->getIterator(), &call_at, &check_at);
	call_range(call_at, w.pointer, length);
	check_tag(check_at, w.pointer);
	b.SetInsertPoint(check_at);
	check_tag(check_at, b.CreateGEP(b.getInt8Ty(), w.pointer, last));
}

// Lane by lane: memory of a lane that is masked out may not even be mapped.
void Hooks::before(const LaneWrite &w)
{
	auto *vector = cast<FixedVectorType>(w.type);
	const DataLayout &layout = module.getDataLayout();
	uint64_t size = layout.getTypeStoreSize(vector->getElementType()).getFixedValue();
	unsigned lanes = vector->getNumElements();

	if (w.kind == LaneWrite::Compressed) {
		IRBuilder<> b(w.at);
		Value *bits = b.CreateBitCast(w.mask, b.getIntNTy(lanes));
		Value *set = b.CreateUnaryIntrinsic(Intrinsic::ctpop, bits);

		set = b.CreateZExtOrTrunc(set, word);
		call_range(w.at, w.to, b.CreateMul(set, ConstantInt::get(word, size)));
		return;
	}
	for (unsigned lane = 0; lane < lanes; lane++) {
		IRBuilder<> b(w.at);
		Value *on = b.CreateExtractElement(w.mask, lane);
		Value *to = w.kind == LaneWrite::Scattered
			? b.CreateExtractElement(w.to, lane)
			: b.CreateConstGEP1_64(b.getInt8Ty(), w.to, lane * size);
		Instruction *then =
			SplitBlockAndInsertIfThen(on, w.at->getIterator(), false);

		before(Write{ then, to, size, Align(1) });
	}
}

} // namespace cairn
