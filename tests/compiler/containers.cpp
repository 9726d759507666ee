// SPDX-License-Identifier: MIT
//
// Trees, lists and tables of libstdc++, whose links are written by code without hooks, in a program
// that cairn-cc has built: after each restore they hold what they held, forwards and backwards, and
// can be changed. argv: TRACKER COUNT.
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <list>
#include <map>
#include <set>
#include <sys/mman.h>
#include <unordered_map>
extern "C" {
#include "../lib/harness.h"
}

constexpr unsigned keep = 4, keys = 300;

using Map = std::map<unsigned, unsigned>;

// Content, as a row of numbers.
struct Picture {
	uint64_t id;
	size_t count;
	unsigned words[6 * keys];
};

// Not turned back.
static struct Outside {
	uint64_t random;
	unsigned long step, restores, compared;
	Picture pictures[keep], now;
} *outside;

// The program's.
static Map *tree;
static std::multiset<unsigned> *bag;
static std::list<unsigned> *queue, *other;
static std::unordered_map<unsigned, unsigned> *table;

static unsigned draw(unsigned below)
{
	uint64_t x = outside->random;

	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	outside->random = x;
	return static_cast<unsigned>(x % below);
}

static void change_trees()
{
	unsigned key = draw(keys);

	if (draw(2))
		(*tree)[key] = draw(1000);
	else
		tree->erase(key);
	if (bag->size() < keys && draw(2))
		bag->insert(draw(40));
	else if (!bag->empty())
		bag->erase(bag->begin());
	if (!draw(200))
		tree->clear();
}

static void change_lists()
{
	if (queue->size() < keys / 2)
		queue->insert(std::next(queue->begin(), draw(unsigned(queue->size()) + 1)), draw(99));
	if (queue->size() > 20 && draw(2))
		queue->erase(std::next(queue->begin(), draw(20)));
	switch (draw(12)) {
	case 0:
		queue->reverse();
		break;
	case 1:
		queue->sort();
		break;
	case 2:
		queue->swap(*other);
		break;
	case 3:
		if (other->size() + queue->size() < keys)
			queue->splice(queue->begin(), *other);
		break;
	default:
		break;
	}
	unsigned key = draw(keys);
	if (draw(2))
		(*table)[key] = draw(1000);
	else
		table->erase(key);
}

static void put(Picture &p, unsigned word)
{
	CHECK(p.count < sizeof(p.words) / sizeof(*p.words));
	p.words[p.count++] = word;
}

static void draw_picture(Picture &p)
{
	p.count = 0;
	for (auto [key, value] : *tree) {
		put(p, key);
		put(p, value);
	}
	size_t back = 0;
	for (auto i = tree->rbegin(); i != tree->rend(); ++i)
		back++;
	CHECK(back == tree->size());
	for (unsigned b : *bag)
		put(p, b);
	for (const auto *l : { queue, other }) {
		for (unsigned q : *l)
			put(p, q);
		back = 0;
		for (auto i = l->rbegin(); i != l->rend(); ++i)
			back++;
		CHECK(back == l->size());
	}
	unsigned sum = 0;
	for (auto [key, value] : *table)
		sum += key * 1000 + value;
	put(p, sum);
	put(p, static_cast<unsigned>(table->size()));
}

static void compare(const Picture &want)
{
	draw_picture(outside->now);
	CHECK(outside->now.count == want.count);
	for (size_t i = 0; i < want.count; i++)
		CHECK(outside->now.words[i] == want.words[i]);
	outside->compared++;
}

static Picture &picture_of(uint64_t id, uint64_t oldest)
{
	for (Picture &p : outside->pictures)
		if (id ? p.id == id : p.id < oldest)
			return p;
	Picture *first = outside->pictures;
	for (Picture &p : outside->pictures)
		if (p.id < first->id)
			first = &p;
	return *first;
}

static void step(cairn_t *c)
{
	uint64_t oldest, newest, id = 0;

	for (unsigned n = draw(30); n--;) {
		change_trees();
		change_lists();
	}
	CHECK_OK(cairn_range(c, &oldest, &newest));
	Picture &back = outside->pictures[draw(keep)];
	if (draw(2) && back.id >= oldest && back.id <= newest && back.id) {
		outside->restores++;
		CHECK_OK(cairn_restore(c, back.id)); // does not return
	}
	Picture &mine = picture_of(0, oldest);
	draw_picture(mine);
	mine.id = 0;
	if (cairn_checkpoint(c, &id) != CAIRN_RESTORED) {
		mine.id = id;
		return;
	}
	for (Picture &p : outside->pictures)
		if (p.id > id)
			p.id = 0;
	compare(picture_of(id, 0));
}

int main(int, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;

	outside = static_cast<Outside *>(mmap(nullptr, sizeof(*outside), PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS, -1, 0));
	CHECK(outside != MAP_FAILED);
	outside->random = 88172645463325252u;
	tree = new Map;
	bag = new std::multiset<unsigned>;
	queue = new std::list<unsigned>;
	other = new std::list<unsigned>;
	table = new std::unordered_map<unsigned, unsigned>;
	o.tracker = argv[1];
	o.keep = keep;
	CHECK_OK(cairn_open(&c, &o));
	CHECK_OK(cairn_area_exclude(c, outside, sizeof(*outside)));
	for (; outside->step < std::strtoul(argv[2], nullptr, 10); outside->step++)
		step(c);
	CHECK(outside->compared == outside->restores && outside->restores > outside->step / 6);
	CHECK_OK(cairn_close(c));
	return 0;
}
