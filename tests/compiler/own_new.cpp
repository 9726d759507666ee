// SPDX-License-Identifier: MIT
// A program with an operator new of its own, which puts a word in front of each block: what was
// allocated by any of them is given back by its own delete (own_operators.cpp). argv: TRACKER.
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>
#include "../lib/harness.h"

extern long live;


struct Item {
	std::string name;
	std::vector<int> values;
};

static std::vector<std::unique_ptr<Item>> items;

static void change(unsigned round)
{
	for (unsigned i = 0; i < 50; i++) {
		auto item = std::make_unique<Item>();

		item->name = std::string(10 + (i * round) % 70, 'a');
		item->values.assign(i + 1, static_cast<int>(round));
		if (items.size() < 40)
			items.push_back(std::move(item));
		else
			items[(i * 7 + round) % 40] = std::move(item);
	}
	delete[] new char[100 + round];
	delete new (std::nothrow) Item;
}

static size_t sum()
{
	size_t sum = 0;

	for (const auto &item : items)
		for (int v : item->values)
			sum = sum * 31 + static_cast<size_t>(v) + item->name.size();
	return sum;
}

int main(int, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t id;
	cairn_t *c;

	o.tracker = argv[1];
	change(1);
	CHECK(live > 0);
	CHECK_OK(cairn_open(&c, &o));
	for (unsigned round = 0; round < 30; round++) {
		change(round);
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		size_t want = sum();
		long count = live;
		change(round + 1);
		change(round + 2);
		CHECK_OK(cairn_rewind(c, id));
		CHECK(sum() == want && live == count);
	}
	items.clear();
	items.shrink_to_fit();
	CHECK(live == 0);
	CHECK_OK(cairn_close(c));
	return 0;
}
