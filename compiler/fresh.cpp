// SPDX-License-Identifier: MIT
#include "fresh.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/TargetParser/Triple.h"

using namespace llvm;

namespace cairn {

// Not realloc: what it returns may be the old block.
static const char *const allocating[] = {
	"malloc", "calloc", "aligned_alloc", "memalign", "valloc",
	"_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t",
	"_ZnamSt11align_val_t", "_Znwj", "_Znaj", "_ZnwjRKSt9nothrow_t", "_ZnajRKSt9nothrow_t",
	"_ZnwjSt11align_val_t", "_ZnajSt11align_val_t",
};

// What gives a block back. The next allocation may be that block, and hold what the checkpoint has.
static const char *const freeing[] = {
	"free", "cfree", "realloc", "reallocarray", "getline", "getdelim", "__getdelim",
	"_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm", "_ZdlPvSt11align_val_t",
	"_ZdaPvSt11align_val_t", "_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t",
	"_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t",
	"_ZdlPvSt11align_val_tRKSt9nothrow_t", "_ZdaPvSt11align_val_tRKSt9nothrow_t",
};

Fresh::Fresh(Module &m, const Options &o, const Checkpoints &checkpoints)
	: library(Triple(m.getTargetTriple()))
{
	if (!o.fresh || llvm::any_of(freeing, [&](const char *name) { return m.getFunction(name); }))
		return;
	for (const char *name : allocating) {
		const Function *f = m.getFunction(name);

		if (f && f->isDeclaration())
			allocators.insert(f);
	}
	if (o.link && !allocators.empty())
		close(m, checkpoints);
}

bool Fresh::allocates(const Value *v) const
{
	auto *c = dyn_cast<CallBase>(v);

	return c && c->getCalledFunction() && allocators.contains(c->getCalledFunction());
}

// Wrappers, like xmalloc: all that they return is fresh or null, and no checkpoint lies between.
bool Fresh::returns_fresh(const Function &f) const
{
	bool some = false;

	for (const BasicBlock &b : f) {
		auto *ret = dyn_cast<ReturnInst>(b.getTerminator());

		if (!ret)
			continue;
		SmallVector<const Value *, 4> objects;
		getUnderlyingObjects(ret->getReturnValue(), objects);
		for (const Value *v : objects) {
			if (isa<ConstantPointerNull>(v))
				continue;
			if (!allocates(v))
				return false;
			some = true;
		}
	}
	return some;
}

void Fresh::close(Module &m, const Checkpoints &checkpoints)
{
	for (bool changed = true; changed;) {
		changed = false;
		for (const Function &f : m) {
			if (f.isDeclaration() || f.isInterposable() ||
				!f.getReturnType()->isPointerTy() || checkpoints.in(f) ||
				allocators.contains(&f) || !returns_fresh(f))
				continue;
			allocators.insert(&f);
			changed = true;
		}
	}
}

bool Fresh::is(const Value *pointer, const Instruction *at, const Intervals &intervals) const
{
	const Value *object = getUnderlyingObject(pointer, 12);

	return allocates(object) && !intervals.between(cast<Instruction>(object), at);
}

} // namespace cairn
