// SPDX-License-Identifier: MIT
#include "own_heap.h"
#include "llvm/IR/IRBuilder.h"

using namespace llvm;

namespace cairn {

namespace {

struct Own {
	const char *name;
	char result;            // 'p' pointer, 's' size, 'i' int, 'v' nothing
	const char *parameters; // of the same letters
	bool gets;              // a block that a library may have allocated
};

} // namespace

static const Own functions[] = {
	{ "malloc", 'p', "s", false },
	{ "free", 'v', "p", true },
	{ "calloc", 'p', "ss", false },
	{ "realloc", 'p', "ps", true },
	{ "reallocarray", 'p', "pss", true },
	{ "posix_memalign", 'i', "pss", false },
	{ "aligned_alloc", 'p', "ss", false },
	{ "memalign", 'p', "ss", false },
	{ "valloc", 'p', "s", false },
	{ "pvalloc", 'p', "s", false },
	{ "malloc_usable_size", 's', "p", true },
};

bool is_own_heap(StringRef name)
{
	return llvm::any_of(functions, [&](const Own &o) { return name == o.name; });
}

static Type *type_of(const Module &m, char letter)
{
	LLVMContext &c = m.getContext();

	switch (letter) {
	case 'p':
		return PointerType::get(c, 0);
	case 's':
		return m.getDataLayout().getIntPtrType(c);
	case 'i':
		return Type::getInt32Ty(c);
	default:
		return Type::getVoidTy(c);
	}
}

static GlobalValue *defined(const Module &m, StringRef name)
{
	GlobalValue *g = m.getNamedValue(name);

	return g && !g->isDeclaration() && !g->hasLocalLinkage() && isa<FunctionType>(g->getValueType())
		? g : nullptr;
}

// By the old name: what is called there is another function.
static void stand_in(Module &m, const Own &o, FunctionType *type)
{
	// The room of the program's own blocks is asked of the wrapper, which knows both kinds.
	StringRef begin = o.result == 's' ? "__cairn_wrap_" : "__cairn_given_";
	FunctionCallee other = m.getOrInsertFunction((begin + Twine(o.name)).str(), type);
	auto *f = Function::Create(type, GlobalValue::ExternalLinkage, o.name, m);
	IRBuilder<> b(BasicBlock::Create(m.getContext(), "", f));
	SmallVector<Value *, 3> arguments;

	for (Argument &a : f->args())
		arguments.push_back(&a);
	CallInst *call = b.CreateCall(other, arguments);
	if (type->getReturnType()->isVoidTy())
		b.CreateRetVoid();
	else
		b.CreateRet(call);
}

void rename_own_heap(Module &m)
{
	if (!defined(m, "malloc") && !defined(m, "free"))
		return;
	for (const Own &o : functions) {
		GlobalValue *g = defined(m, o.name);
		SmallVector<Type *, 3> parameters;

		if (!g)
			continue;
		for (const char *letter = o.parameters; *letter; letter++)
			parameters.push_back(type_of(m, *letter));
		auto *type = FunctionType::get(type_of(m, o.result), parameters, false);
		g->setName(Twine("__cairn_own_") + o.name);
		if (o.gets)
			g->replaceAllUsesWith(m.getOrInsertFunction(
				(Twine("__cairn_wrap_") + o.name).str(), type).getCallee());
		stand_in(m, o, type);
	}
}

bool has_own_new(const Module &m, bool aligned)
{
	for (const GlobalValue &g : m.global_values()) {
		StringRef name = g.getName();

		if (g.isDeclaration() || g.hasLocalLinkage())
			continue;
		if (name.consume_front("_Zn") &&
			(name.starts_with("wm") || name.starts_with("am") || name.starts_with("wj") ||
				name.starts_with("aj")) &&
			name.contains("St11align_val_t") == aligned)
			return true;
	}
	return false;
}

} // namespace cairn
