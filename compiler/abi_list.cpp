// SPDX-License-Identifier: MIT
#include "abi_list.h"
#include "natives.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/VirtualFileSystem.h"

using namespace llvm;

namespace cairn {

static std::unique_ptr<SpecialCaseList> read(const std::vector<std::string> &files)
{
	std::string error;

	if (files.empty())
		return nullptr;
	auto list = SpecialCaseList::create(files, *vfs::getRealFileSystem(), error);
	if (!list)
		report_fatal_error(Twine("cairn: -fcairn-abilist: ") + error,
			/*gen_crash_diag=*/false);
	return list;
}

AbiList::AbiList(const Options &o) : libc(read(o.libc_lists)), own(read(o.abi_lists)) {}

bool AbiList::says(const Function &f, StringRef category) const
{
	return says(own, f.getName(), category) ||
		(!f.hasFnAttribute(not_libcs) && says(libc, f.getName(), category));
}

bool AbiList::harmless(const Function &f) const
{
	if (uninstrumented(f.getName()))
		return false;
	return says(f, "functional") || says(f, "discard") || says(f, "covered") ||
		says(f, "custom");
}

} // namespace cairn
