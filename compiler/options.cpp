// SPDX-License-Identifier: MIT
#include "options.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include <cstdlib>

using namespace llvm;

namespace cairn {

[[noreturn]] static void wrong(StringRef item)
{
	report_fatal_error(Twine("cairn: CAIRN_PASS has '") + item + "', which is no option",
		/*gen_crash_diag=*/false);
}

static bool read_switch(StringRef item, StringRef value)
{
	if (value != "on" && value != "off")
		wrong(item);
	return value == "on";
}

static unsigned read_number(StringRef item, StringRef value)
{
	unsigned number;

	if (value.getAsInteger(10, number))
		wrong(item);
	return number;
}

// FUNCTION[:entry|:return][:long][/N]
static Site read_site(StringRef item, StringRef value)
{
	auto [place, every] = value.split('/');
	Site site;
	site.is_long = place.consume_back(":long");
	auto [function, when] = place.split(':');

	if (function.empty() || !(when.empty() || when == "entry" || when == "return"))
		wrong(item);
	site.function = function.str();
	site.at_return = when == "return";
	if (!every.empty())
		site.every = read_number(item, every);
	return site;
}

std::string handed_over(const char *variable)
{
	const char *value = std::getenv(variable);
	StringRef text(value ? value : "");

	if (!text.starts_with("@/proc/self/fd/"))
		return text.str();
	auto file = MemoryBuffer::getFile(text.drop_front(), /*IsText=*/false,
		/*RequiresNullTerminator=*/false);
	if (!file)
		report_fatal_error(Twine("cairn: ") + variable + " is " + text + ": " +
				file.getError().message(), /*gen_crash_diag=*/false);
	return (*file)->getBuffer().str();
}

Options Options::parse(StringRef text)
{
	Options o;
	SmallVector<StringRef, 16> items;
	struct { const char *key; bool *to; } const switches[] = {
		{ "save", &o.save }, { "link", &o.link }, 
		{ "lto", &o.lto }, { "profile", &o.profile },
		{ "may-lack-sites", &o.may_lack_sites }, { "warn-lack", &o.warn_lack },
		{ "sites-long", &o.sites_long },
		{ "guard", &o.guard }, { "threads", &o.threads },
		{ "stack", &o.stack }, { "fresh", &o.fresh }, { "loops", &o.loops },
		{ "segments", &o.segments }, { "aggregate", &o.aggregate }, { "aligned", &o.aligned },
		{ "redundant", &o.redundant }, { "calls", &o.calls }, { "clone", &o.clone },
		{ "hybrid", &o.hybrid },
		{ "wrap", &o.wrap }, { "heap", &o.heap }, { "own", &o.own },
		{ "native-quiet", &o.native_quiet }, { "report", &o.report },
		{ "warn-uncovered", &o.warn_uncovered }, { "site-one", &o.site_one },
	};

	text.split(items, ',', -1, false);
	for (StringRef item : items) {
		auto [key, value] = item.split('=');
		bool known = false;

		for (const auto &s : switches) {
			if (key == s.key) {
				*s.to = read_switch(item, value);
				known = true;
			}
		}
		if (known)
			continue;
		if (key == "tracker" && (value == "shadow" || value == "undolog")) {
			o.tracker = value == "shadow" ? Tracker::Shadow : Tracker::UndoLog;
		} else if (key == "tags" && (value == "one" || value == "epoch")) {
			o.epoch = value == "epoch";
		} else if (key == "region") {
			unsigned region = read_number(item, value);

			if (!isPowerOf2_32(region) || (region < 16 && region != 1) || region > 4096)
				wrong(item);
			o.shift = Log2_32(region);
		} else if (key == "site") {
			o.sites.push_back(read_site(item, value));
		} else if (key == "abilist" && !value.empty()) {
			o.abi_lists.push_back(value.str());
		} else if (key == "libc-abilist" && !value.empty()) {
			o.libc_lists.push_back(value.str());
		} else if (key == "lose") {
			o.lose = read_number(item, value);
		} else if (key == "miss") {
			o.miss = read_number(item, value);
		} else {
			wrong(item);
		}
	}
	return o;
}

} // namespace cairn
