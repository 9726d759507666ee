/* SPDX-License-Identifier: MIT */
/* Characters that the program has std::ctype convert by hand come back. argv: TRACKER. */
#include <locale>
#include <string>
#include <sys/mman.h>
#include "../lib/harness.h"

constexpr size_t length = 1000;

struct Room {
	char lower[length], upper[length], widened[length], narrowed[length], narrowed_wide[length];
	wchar_t wide_lower[length], wide_upper[length], wide[length];
	std::ctype_base::mask masks[length];
};

static Room room;
static Room *copy; // shared

static void fill()
{
	for (size_t i = 0; i < length; i++) {
		room.lower[i] = room.upper[i] = static_cast<char>(i % 2 ? 'a' : 'Z');
		room.wide_lower[i] = room.wide_upper[i] = room.lower[i];
		room.wide[i] = -1;
		room.masks[i] = 0;
	}
}

static void convert()
{
	const auto &narrow = std::use_facet<std::ctype<char>>(std::locale::classic());
	const auto &wide = std::use_facet<std::ctype<wchar_t>>(std::locale::classic());
	const std::string from(length, 'q');
	const std::wstring wide_from(length, L'q');

	narrow.tolower(room.lower, room.lower + length);
	narrow.toupper(room.upper, room.upper + length);
	narrow.widen(from.data(), from.data() + length, room.widened);
	narrow.narrow(from.data(), from.data() + length, '?', room.narrowed);
	wide.tolower(room.wide_lower, room.wide_lower + length);
	wide.toupper(room.wide_upper, room.wide_upper + length);
	wide.widen(from.data(), from.data() + length, room.wide);
	wide.narrow(wide_from.data(), wide_from.data() + length, '?', room.narrowed_wide);
	wide.is(wide_from.data(), wide_from.data() + length, room.masks);
}

int main(int, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;
	uint64_t id;
	void *shared = mmap(nullptr, sizeof(*copy), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	CHECK(shared != MAP_FAILED);
	copy = static_cast<Room *>(shared);
	fill();
	*copy = room;
	o.tracker = argv[1];
	CHECK_OK(cairn_open(&c, &o));
	if (cairn_checkpoint(c, &id) == CAIRN_TAKEN) {
		convert();
		CHECK(room.upper[1] == 'A' && room.wide_lower[0] == L'z' && room.masks[9] &&
			room.wide[length - 1] == L'q' && room.narrowed_wide[length - 1] == 'q');
		CHECK(cairn_restore(c, id) < 0);
	}
	CHECK(!memcmp(&room, copy, sizeof(room)));
	CHECK_OK(cairn_close(c));
	return 0;
}
