// SPDX-License-Identifier: MIT
#include "loop_identity.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/PostOrderIterator.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/DebugInfoMetadata.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Path.h"

using namespace llvm;

namespace cairn {

namespace {

// FNV-1a: the same in every version of LLVM.
class Hash {
public:
	void add(uint64_t word)
	{
		for (unsigned i = 0; i < 8; i++, word >>= 8)
			add_byte(static_cast<uint8_t>(word));
	}
	void add(StringRef text)
	{
		for (char c : text)
			add_byte(static_cast<uint8_t>(c));
		add_byte(0);
	}
	uint64_t value() const { return state; }

private:
	uint64_t state = 0xcbf29ce484222325;

	void add_byte(uint8_t byte) { state = (state ^ byte) * 0x100000001b3; }
};

// Types, constants and variables may change without making it another loop; what it calls and how
// it branches may not.
uint64_t shape_of(const Loop &loop, ArrayRef<BasicBlock *> order)
{
	DenseMap<const BasicBlock *, unsigned> number;
	Hash hash;

	for (BasicBlock *b : order)
		if (loop.contains(b))
			number.try_emplace(b, number.size());
	for (BasicBlock *b : order) {
		if (!loop.contains(b))
			continue;
		for (const Instruction &i : *b) {
			auto *c = dyn_cast<CallBase>(&i);

			if (c && !isa<IntrinsicInst>(c) && !c->isInlineAsm())
				hash.add(c->getCalledFunction() ? c->getCalledFunction()->getName()
								: StringRef("*"));
		}
		for (const BasicBlock *to : successors(b))
			hash.add(loop.contains(to) ? number.lookup(to) : ~0ull);
	}
	return hash.value();
}

bool same_path(StringRef a, StringRef b)
{
	a.consume_front("./");
	b.consume_front("./");
	if (a.size() < b.size())
		std::swap(a, b);
	// One may be seen from another folder.
	return a == b || (a.consume_back(b) && a.ends_with("/"));
}

} // namespace

std::string source_file(const Function &f)
{
	if (const DISubprogram *sub = f.getSubprogram(); sub && !sub->getFilename().empty())
		return sub->getFilename().str();
	return f.getParent()->getSourceFileName();
}

NamedLoops::NamedLoops(Function &f) : tree(f), info(tree)
{
	ReversePostOrderTraversal<Function *> walk(&f);
	SmallVector<BasicBlock *, 32> order(walk.begin(), walk.end());
	LoopIdentity id;

	id.file = source_file(f);
	id.function = f.getName().str();
	id.local = f.hasLocalLinkage();
	for (Loop *loop : info.getLoopsInPreorder()) {
		if (DebugLoc at = loop->getStartLoc()) {
			id.line = at.getLine();
			id.column = at.getCol();
		} else {
			id.line = id.column = 0;
		}
		id.depth = loop->getLoopDepth();
		id.shape = shape_of(*loop, order);
		list.push_back({ loop, id });
		id.index++;
	}
	for (NamedLoop &l : list)
		l.id.count = list.size();
}

std::string LoopIdentity::text() const
{
	return "loop\t" + file + "\t" + function + "\t" + (local ? "static" : "global") + "\t" +
		utostr(line) + "\t" + utostr(column) + "\t" + utostr(index) + "\t" + utostr(count) +
		"\t" + utostr(depth) + "\t" + utohexstr(shape, /*LowerCase=*/true);
}

std::optional<LoopIdentity> LoopIdentity::parse(StringRef line)
{
	SmallVector<StringRef, 10> words;
	LoopIdentity id;

	line.split(words, '\t');
	if (words.size() != 10 || words[0] != "loop" || words[4].getAsInteger(10, id.line) ||
		words[5].getAsInteger(10, id.column) || words[6].getAsInteger(10, id.index) ||
		words[7].getAsInteger(10, id.count) || words[8].getAsInteger(10, id.depth) ||
		words[9].getAsInteger(16, id.shape))
		return std::nullopt;
	id.file = words[1].str();
	id.function = words[2].str();
	id.local = words[3] == "static";
	return id;
}

bool LoopIdentity::same_function(const LoopIdentity &other) const
{
	return function == other.function && local == other.local &&
		(!local || same_path(file, other.file)) &&
		(function != "main" || same_file_name(other));
}

bool LoopIdentity::same_file_name(const LoopIdentity &other) const
{
	return sys::path::filename(file) == sys::path::filename(other.file);
}

} // namespace cairn
