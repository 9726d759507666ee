// SPDX-License-Identifier: MIT
#include "abi_list.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/VirtualFileSystem.h"

using namespace llvm;

namespace cairn {

AbiList::AbiList(const Options &o)
{
	std::string error;

	if (o.abi_lists.empty())
		return;
	list = SpecialCaseList::create(o.abi_lists, *vfs::getRealFileSystem(), error);
	if (!list)
		report_fatal_error(Twine("cairn: -fcairn-abilist: ") + error,
			/*gen_crash_diag=*/false);
}

bool AbiList::harmless(StringRef function) const
{
	if (says(function, "uninstrumented"))
		return false;
	return says(function, "functional") || says(function, "discard") ||
		says(function, "covered") || says(function, "custom");
}

} // namespace cairn
