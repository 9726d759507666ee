// SPDX-License-Identifier: MIT
#include "natives.h"
#include "own_heap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Object/Archive.h"
#include "llvm/Object/ELFObjectFile.h"
#include "llvm/TargetParser/Triple.h"

using namespace llvm;

namespace cairn {

Natives::Natives()
{
	const std::string paths = handed_over("CAIRN_NATIVE");
	SmallVector<StringRef, 8> lines;

	StringRef(paths).split(lines, '\n', -1, false);
	for (StringRef line : lines)
		read(line.str());
}

void Natives::read(const std::string &path)
{
	auto buffer = MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);

	if (!buffer)
		return;
	auto archive = object::Archive::create((*buffer)->getMemBufferRef());
	if (archive) {
		read(**archive, path);
		return;
	}
	consumeError(archive.takeError());
	auto object = object::ObjectFile::createELFObjectFile((*buffer)->getMemBufferRef());
	if (object)
		read(**object, path);
	else
		consumeError(object.takeError());
}

void Natives::read(const object::Archive &archive, StringRef path)
{
	Error error = Error::success();

	for (const object::Archive::Child &member : archive.children(error)) {
		auto buffer = member.getMemoryBufferRef();

		if (!buffer) {
			consumeError(buffer.takeError());
			continue;
		}
		auto object = object::ObjectFile::createELFObjectFile(*buffer);
		if (object)
			read(**object, path);
		else
			consumeError(object.takeError());
	}
	consumeError(std::move(error));
}

// Code that has its hooks says itself what stands in for a wrapper (libc_calls.cpp).
void Natives::read(const object::ObjectFile &object, StringRef path)
{
	auto &elf = cast<object::ELFObjectFileBase>(object);
	StringSet<> defined;
	auto add = [&](const object::ELFSymbolRef &symbol) {
		auto name = symbol.getName();
		auto flags = symbol.getFlags();

		if (name && flags && *flags & object::SymbolRef::SF_Global &&
			!(*flags & object::SymbolRef::SF_Undefined))
			defined.insert(*name);
		if (!name)
			consumeError(name.takeError());
		if (!flags)
			consumeError(flags.takeError());
	};

	if (elf.getEType() == ELF::ET_DYN)
		for (const object::ELFSymbolRef &symbol : elf.getDynamicSymbolIterators())
			add(symbol);
	else
		for (const object::ELFSymbolRef &symbol : elf.symbols())
			add(symbol);
	for (const auto &name : defined)
		if (!defined.contains(("__cairn_wrap_" + name.getKey()).str()))
			files.try_emplace(name.getKey(), path.str());
}

void Natives::mark(Module &m, const AbiList &list) const
{
	TargetLibraryInfoImpl library{ Triple(m.getTargetTriple()) };
	LibFunc known;

	for (Function &f : m) {
		StringRef name = f.getName();

		if (!f.isDeclaration() || f.isIntrinsic() || is_own_heap(name))
			continue;
		if (list.uninstrumented(name) ||
			(files.contains(name) && !name.starts_with("_Z") &&
				!library.getLibFunc(f, known)))
			f.addFnAttr(not_libcs);
	}
}

} // namespace cairn
