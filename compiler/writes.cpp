// SPDX-License-Identifier: MIT
#include "writes.h"
#include "llvm/IR/DataLayout.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/Module.h"
#include <numeric>

using namespace llvm;

namespace cairn {

namespace {

// What saves registers to its first argument: sizes as in glibc, and musl has no larger ones. In 32-bit
// programs they are less, and what lies behind may not even be mapped.
const struct {
	const char *name;
	uint64_t size, narrow;
} contexts[] = {
	{ "setjmp", 200, 156 }, { "_setjmp", 200, 156 },
	{ "sigsetjmp", 200, 156 }, { "__sigsetjmp", 200, 156 },
	{ "getcontext", 968, 364 }, { "swapcontext", 968, 364 }, { "makecontext", 968, 364 },
};

// libatomic's, for atomics that are no machine word: which arguments they write, each as many bytes
// as the first one says.
const struct {
	const char *name;
	unsigned written[2];
} atomics[] = {
	{ "__atomic_load", { 2, 2 } },
	{ "__atomic_store", { 1, 1 } },
	{ "__atomic_exchange", { 1, 3 } },
	{ "__atomic_compare_exchange", { 1, 2 } },
};

class Finder {
public:
	explicit Finder(Function &f) : layout(f.getParent()->getDataLayout()) {}

	void look(Instruction &i)
	{
		if (auto *s = dyn_cast<StoreInst>(&i))
			add(&i, s->getPointerOperand(), s->getValueOperand()->getType(), s->getAlign());
		else if (auto *r = dyn_cast<AtomicRMWInst>(&i))
			add(&i, r->getPointerOperand(), r->getValOperand()->getType(), r->getAlign());
		else if (auto *c = dyn_cast<AtomicCmpXchgInst>(&i))
			add(&i, c->getPointerOperand(), c->getNewValOperand()->getType(), c->getAlign());
		else if (auto *m = dyn_cast<AnyMemIntrinsic>(&i))
			add(m, m->getRawDest(), m->getLength(), m->getDestAlign().valueOrOne());
		else if (auto *n = dyn_cast<IntrinsicInst>(&i))
			add_intrinsic(n);
		else if (auto *c = dyn_cast<CallBase>(&i); c && c->isInlineAsm())
			add_assembly(c);
		else if (auto *c = dyn_cast<CallBase>(&i))
			add_call(c);
	}

	Writes found;

private:
	const DataLayout &layout;

	void add(Instruction *at, Value *pointer, Type *type, Align align)
	{
		TypeSize size = layout.getTypeStoreSize(type);

		// Address spaces other than 0 are segments: thread-local words of the kernel's or
		// libc's making, which no C program names.
		if (pointer->getType()->getPointerAddressSpace())
			found.unknown.push_back({ at, "a store through a segment register" });
		else if (size.isScalable())
			found.unknown.push_back({ at, "a store of scalable size" });
		else if (size.getFixedValue())
			found.writes.push_back({ at, pointer, size.getFixedValue(), align });
	}

	void add(Instruction *at, Value *pointer, Value *length, Align align)
	{
		auto *known = dyn_cast<ConstantInt>(length);

		if (!known)
			found.long_writes.push_back({ at, pointer, length });
		else if (!known->isZero())
			found.writes.push_back({ at, pointer, known->getZExtValue(), align });
	}

	void add_intrinsic(IntrinsicInst *n)
	{
		switch (n->getIntrinsicID()) {
		case Intrinsic::masked_store:
			return lanes(n, LaneWrite::Masked, 1, n->arg_size() - 1);
		case Intrinsic::masked_compressstore:
			return lanes(n, LaneWrite::Compressed, 1, 2);
		case Intrinsic::masked_scatter:
			return lanes(n, LaneWrite::Scattered, 1, n->arg_size() - 1);
		case Intrinsic::vastart:
		case Intrinsic::vacopy:
			found.writes.push_back({ n, n->getArgOperand(0), va_list_size(), Align(4) });
			return;
		case Intrinsic::eh_sjlj_setjmp: // of five words
			found.writes.push_back({ n, n->getArgOperand(0),
				5 * layout.getPointerSize(), Align(4) });
			return;
		case Intrinsic::x86_sse_stmxcsr:
		case Intrinsic::x86_directstore32:
			found.writes.push_back({ n, n->getArgOperand(0), 4, Align(1) });
			return;
		case Intrinsic::x86_directstore64:
		case Intrinsic::x86_mmx_movnt_dq: // of MMX: clang 19 still takes these
			found.writes.push_back({ n, n->getArgOperand(0), 8, Align(1) });
			return;
		case Intrinsic::x86_fxsave:
		case Intrinsic::x86_fxsave64:
			found.writes.push_back({ n, n->getArgOperand(0), 512, Align(16) });
			return;
		case Intrinsic::x86_xsave:
		case Intrinsic::x86_xsave64:
		case Intrinsic::x86_xsaveopt:
		case Intrinsic::x86_xsaveopt64:
			return registers(n, false);
		case Intrinsic::x86_xsavec:
		case Intrinsic::x86_xsavec64:
			return registers(n, true);
		case Intrinsic::x86_movdir64b:
			found.writes.push_back({ n, n->getArgOperand(0), 64, Align(64) });
			return;
		case Intrinsic::x86_avx_maskstore_ps:
		case Intrinsic::x86_avx_maskstore_ps_256:
		case Intrinsic::x86_avx_maskstore_pd:
		case Intrinsic::x86_avx_maskstore_pd_256:
		case Intrinsic::x86_avx2_maskstore_d:
		case Intrinsic::x86_avx2_maskstore_d_256:
		case Intrinsic::x86_avx2_maskstore_q:
		case Intrinsic::x86_avx2_maskstore_q_256:
			return signs(n, 0, 1, 2);
		case Intrinsic::x86_sse2_maskmov_dqu:
		case Intrinsic::x86_mmx_maskmovq:
			return signs(n, 2, 1, 0);
		case Intrinsic::x86_fxrstor:
		case Intrinsic::x86_fxrstor64:
		case Intrinsic::x86_xrstor:
		case Intrinsic::x86_xrstor64:
		case Intrinsic::vaend:
		case Intrinsic::lifetime_start:
		case Intrinsic::lifetime_end:
		case Intrinsic::invariant_start:
		case Intrinsic::invariant_end:
		case Intrinsic::assume:
		case Intrinsic::sideeffect:
		case Intrinsic::prefetch:
		case Intrinsic::experimental_noalias_scope_decl:
		case Intrinsic::stackrestore:
		case Intrinsic::stacksave:
			return;
		default:
			if (add_vector_store(n))
				return;
			if (n->mayWriteToMemory() && writes_through_pointer(n))
				found.unknown.push_back({ n, "an intrinsic that writes memory" });
		}
	}

	// XSAVE and its like, (area, high, low): the run-time asks the processor (src/rt/xsave_area.c).
	void registers(IntrinsicInst *n, bool compact)
	{
		IRBuilder<> b(n);
		Type *half = b.getInt32Ty();
		FunctionCallee length = n->getModule()->getOrInsertFunction("__cairn_xsave_length",
			b.getIntPtrTy(layout), half, half, half);

		found.long_writes.push_back({ n, n->getArgOperand(0),
			b.CreateCall(length, { n->getArgOperand(2), n->getArgOperand(1),
				b.getInt32(compact) }) });
	}

	bool narrow() const { return layout.getPointerSize() == 4; }
	uint64_t va_list_size() const { return narrow() ? 4 : 24; }

	// Those of AVX-512 that clang leaves to the code generator.
	bool add_vector_store(IntrinsicInst *n)
	{
		StringRef name = n->getCalledFunction()->getName();

		if (!name.consume_front("llvm.x86.avx512.mask."))
			return false;
		if (name.starts_with("scatter"))
			return add_scatter(n);
		return name.consume_front("pmov") && name.contains(".mem.") && add_narrowed(n, name);
	}

	// (base, mask, indices, values, scale): as many lanes as the shortest of them has.
	bool add_scatter(IntrinsicInst *n)
	{
		auto *mask = dyn_cast<FixedVectorType>(n->getArgOperand(1)->getType());
		auto *indices = cast<FixedVectorType>(n->getArgOperand(2)->getType());
		auto *values = cast<FixedVectorType>(n->getArgOperand(3)->getType());
		unsigned lanes = std::min(indices->getNumElements(), values->getNumElements());

		if (!mask)
			return false;
		lanes = std::min(lanes, mask->getNumElements());
		IRBuilder<> b(n);
		Type *words = FixedVectorType::get(b.getInt64Ty(), lanes);
		Value *index = b.CreateSExt(first(b, n->getArgOperand(2), lanes), words);
		Value *scale = b.CreateVectorSplat(lanes,
			b.CreateZExt(n->getArgOperand(4), b.getInt64Ty()));
		Value *to = b.CreateGEP(b.getInt8Ty(), n->getArgOperand(0),
			b.CreateMul(index, scale));

		found.lane_writes.push_back({ cast<CallInst>(n), LaneWrite::Scattered, to,
			first(b, n->getArgOperand(1), lanes),
			FixedVectorType::get(values->getElementType(), lanes) });
		return true;
	}

	// (to, values, mask), in lanes whose width the name has: .WB.mem. is from words to bytes.
	bool add_narrowed(IntrinsicInst *n, StringRef name)
	{
		unsigned lanes =
			cast<FixedVectorType>(n->getArgOperand(1)->getType())->getNumElements();
		Value *mask = n->getArgOperand(2);
		unsigned bits;

		switch (name.split(".mem.").first.back()) {
		case 'b':
			bits = 8;
			break;
		case 'w':
			bits = 16;
			break;
		case 'd':
			bits = 32;
			break;
		default:
			return false;
		}
		IRBuilder<> b(n);
		Value *each = b.CreateBitCast(mask, FixedVectorType::get(b.getInt1Ty(),
			mask->getType()->getIntegerBitWidth()));

		found.lane_writes.push_back({ cast<CallInst>(n), LaneWrite::Masked,
			n->getArgOperand(0), first(b, each, lanes),
			FixedVectorType::get(b.getIntNTy(bits), lanes) });
		return true;
	}

	static Value *first(IRBuilder<> &b, Value *vector, unsigned lanes)
	{
		SmallVector<int, 16> which(lanes);

		std::iota(which.begin(), which.end(), 0);
		return b.CreateShuffleVector(vector, which);
	}

	static bool writes_through_pointer(IntrinsicInst *n)
	{
		if (n->doesNotAccessMemory() || n->onlyReadsMemory())
			return false;
		for (Value *v : n->args())
			if (v->getType()->isPointerTy())
				return true;
		return false;
	}

	void lanes(IntrinsicInst *n, LaneWrite::Kind kind, unsigned to, unsigned mask)
	{
		Type *type = n->getArgOperand(0)->getType();

		if (isa<ScalableVectorType>(type))
			found.unknown.push_back({ n, "a store of scalable size" });
		else
			found.lane_writes.push_back({ cast<CallInst>(n), kind, n->getArgOperand(to),
				n->getArgOperand(mask), type });
	}

	// Lanes whose mask has its highest bit.
	void signs(IntrinsicInst *n, unsigned to, unsigned mask, unsigned value)
	{
		IRBuilder<> b(n);
		Value *bits = n->getArgOperand(mask);
		Type *type = n->getArgOperand(value)->getType();

		if (n->getIntrinsicID() == Intrinsic::x86_mmx_maskmovq) {
			type = FixedVectorType::get(b.getInt8Ty(), 8);
			bits = b.CreateBitCast(bits, type);
		}
		Value *on = b.CreateICmpSLT(bits, Constant::getNullValue(bits->getType()));

		found.lane_writes.push_back({ cast<CallInst>(n), LaneWrite::Masked,
			n->getArgOperand(to), on, type });
	}

	void add_call(CallBase *c)
	{
		const Function *f = c->getCalledFunction();

		add_context(c);
		add_atomic(c);
		if (!f || !f->hasFnAttribute(writes_arguments))
			return;
		for (unsigned i = 0; i < c->arg_size(); i++)
			if (uint64_t size = size_behind(*c, i); size && !c->onlyReadsMemory(i))
				found.writes.push_back(
					{ c, c->getArgOperand(i), size, Align(1) });
	}

	// 0: not known. A result that is returned in memory is the caller's, too.
	uint64_t size_behind(const CallBase &c, unsigned argument) const
	{
		if (Type *result = c.getParamStructRetType(argument))
			return layout.getTypeAllocSize(result).getKnownMinValue();
		return c.getParamDereferenceableBytes(argument);
	}

	// A wrapper would be gone when these return for the second time.
	void add_context(CallBase *c)
	{
		for (const auto &context : contexts)
			if (const Function *f = c->getCalledFunction();
				f && f->isDeclaration() && f->getName() == context.name &&
				c->arg_size())
				found.writes.push_back({ c, c->getArgOperand(0),
					narrow() ? context.narrow : context.size, Align(1) });
	}

	void add_atomic(CallBase *c)
	{
		const Function *f = c->getCalledFunction();

		for (const auto &atomic : atomics) {
			auto [one, two] = atomic.written;

			if (!f || !f->isDeclaration() || f->getName() != atomic.name ||
				c->arg_size() <= two)
				continue;
			add(c, c->getArgOperand(one), c->getArgOperand(0), Align(1));
			if (one != two)
				add(c, c->getArgOperand(two), c->getArgOperand(0), Align(1));
		}
	}

	// An output that is a place in memory is a write like any other. What else it stores to can
	// only be reported: it says so by a clobber of all memory, or has a pointer in a register
	// and a memory operand in its text.
	void add_assembly(CallBase *c)
	{
		auto *assembly = cast<InlineAsm>(c->getCalledOperand());
		bool clobbers = false, pointers = false;
		unsigned argument = 0;

		for (const auto &k : assembly->ParseConstraints()) {
			if (k.Type == InlineAsm::isClobber)
				clobbers |= StringRef(k.Codes[0]) == "{memory}";
			if (k.Type == InlineAsm::isClobber || !k.hasArg())
				continue;
			if (k.Type == InlineAsm::isOutput && k.isIndirect)
				if (Type *type = c->getParamElementType(argument))
					add(c, c->getArgOperand(argument), type, Align(1));
			pointers |= !k.isIndirect &&
				c->getArgOperand(argument)->getType()->isPointerTy();
			argument++;
		}
		StringRef text = StringRef(assembly->getAsmString()).trim();
		pointers &= assembly->hasSideEffects() && text.contains('(');
		if ((clobbers || pointers) && !is_barrier(text))
			found.unknown.push_back({ c, "inline assembly that may store" });
	}

	static bool is_barrier(StringRef text)
	{
		return text.empty() || text == "mfence" || text == "lfence" || text == "sfence" ||
			text == "pause" || text == "rep; nop" || text == "nop";
	}
};

} // namespace

Writes find_writes(Function &f)
{
	Finder finder(f);

	for (Instruction &i : instructions(f))
		finder.look(i);
	return std::move(finder.found);
}

} // namespace cairn
