// SPDX-License-Identifier: MIT
//
// What libstdc++ would write by code without hooks, in a program that cairn-cc has built: the links of
// trees, lists and tables, strings, streams and their state. After each restore they hold what they
// held, forwards and backwards, and can be changed. argv: TRACKER COUNT.
//
// With -DTURNS: no session of its own, but a turn() for a site, and a line that says what all hold in
// the end (test_checked_site.py). argv: COUNT.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iomanip>
#include <iterator>
#include <list>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <unordered_map>
#include <vector>
extern "C" {
#include "../lib/harness.h"
}

constexpr unsigned keep = 4, keys = 300;
#ifdef TURNS
constexpr int sharing = MAP_PRIVATE; // it goes back with everything else
#else
constexpr int sharing = MAP_SHARED;
#endif

using Map = std::map<unsigned, unsigned>;

// Content, as a row of numbers.
struct Picture {
	uint64_t id;
	size_t count;
	unsigned words[12 * keys];
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
static std::vector<std::string> *rows;
static std::deque<std::string> *line;
static std::ostringstream *printed;
static std::wostringstream *wide;
static std::istringstream *scanned;
static std::wistringstream *scanned_wide;
static long number;
static double fraction;
static std::string *word;
static char letters[24];
static wchar_t wide_letters[9];

static unsigned draw(unsigned below)
{
	return static_cast<unsigned>(test_draw(&outside->random, below));
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
	unsigned at = draw(unsigned(queue->size()) + 1), value = draw(99);

	if (queue->size() < keys / 2)
		queue->insert(std::next(queue->begin(), at), value);
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
	if (!draw(20))
		table->rehash(draw(keys));
}

static void change_string(std::string &s)
{
	size_t at = draw(unsigned(s.size()) + 1), count = draw(9);

	switch (draw(10)) {
	case 0:
		s.append(draw(40), 'a');
		break;
	case 1:
		s.insert(at, "some more");
		break;
	case 2:
		s.erase(at, count);
		break;
	case 3:
		s.replace(at, count, std::to_string(draw(1000000)));
		break;
	case 4:
		s.resize(draw(60), 'z');
		break;
	case 5:
		s.assign(count * 5, char('A' + draw(26)));
		break;
	case 6:
		s.reserve(draw(200));
		break;
	case 7:
		s.shrink_to_fit();
		break;
	case 8:
		s.swap(*word);
		break;
	default:
		s += char('a' + draw(26));
		break;
	}
}

static void change_rows()
{
	if (rows->size() < 30)
		rows->emplace_back(draw(50), 'r');
	if (line->size() < 30)
		line->emplace_front(std::to_string(draw(1000)));
	change_string((*rows)[draw(unsigned(rows->size()))]);
	change_string((*line)[draw(unsigned(line->size()))]);
	if (!draw(6))
		rows->erase(rows->begin() + draw(unsigned(rows->size())));
	if (!draw(6) && !line->empty())
		line->pop_back();
}

// A width stays until something is printed, in another interval perhaps.
static void print_some()
{
	if (printed->tellp() > 600)
		printed->str("");
	if (wide->tellp() > 200)
		wide->str(L"");
	switch (draw(8)) {
	case 0:
		*printed << std::setw(int(draw(30))) << std::setfill(char('0' + draw(10)));
		break;
	case 1:
		*printed << draw(1000) << ' ' << -long(draw(99999));
		break;
	case 2:
		*printed << std::hex << draw(65536) << std::dec << draw(2) * 0.375;
		break;
	case 3:
		*printed << (*rows)[0] << std::boolalpha << !draw(2) << '\n';
		break;
	case 4:
		*wide << std::setw(int(draw(20))) << draw(77) << L" wide";
		break;
	case 5:
		printed->put('p').write("bytes", 5);
		break;
	case 6:
		printed->seekp(0);
		break;
	default:
		printed->setstate(draw(9) ? std::ios::goodbit : std::ios::failbit);
		printed->clear();
		break;
	}
}

static void scan_some()
{
	std::string again;

	if (!scanned->good() || scanned->peek() == EOF) {
		scanned->clear();
		scanned->str("12 3.5 seven\nanother line, longer than a string holds in place\n4 5\n");
	}
	switch (draw(11)) {
	case 0:
		*scanned >> number;
		break;
	case 1:
		*scanned >> fraction;
		break;
	case 2:
		*scanned >> *word;
		break;
	case 3:
		std::getline(*scanned, *word);
		break;
	case 4:
		scanned->getline(letters, sizeof(letters));
		break;
	case 5:
		scanned->read(letters, draw(9));
		break;
	case 6:
		scanned->ignore(draw(5), ' ');
		break;
	case 7:
		scanned->unget();
		break;
	case 8:
		*scanned >> std::setw(8) >> letters;
		break;
	case 9:
		scanned->ignore(draw(5));
		break;
	default:
		scanned->get(letters[draw(sizeof(letters))]);
		break;
	}
}

static void scan_wide()
{
	if (!scanned_wide->good() || scanned_wide->peek() == WEOF) {
		scanned_wide->clear();
		scanned_wide->str(L"a wide line\nand one that is too long\n");
	}
	switch (draw(3)) {
	case 0:
		scanned_wide->getline(wide_letters, 9);
		break;
	case 1:
		scanned_wide->ignore(draw(5));
		break;
	default:
		scanned_wide->ignore(draw(9), L' ');
		break;
	}
}

static void change_texts()
{
	change_rows();
	print_some();
	scan_some();
	scan_wide();
}

static void change_all()
{
	change_trees();
	change_lists();
	change_texts();
}

static void put(Picture &p, unsigned word)
{
	CHECK(p.count < sizeof(p.words) / sizeof(*p.words));
	p.words[p.count++] = word;
}

template <typename Text> static void put_text(Picture &p, const Text &s)
{
	unsigned sum = unsigned(s.size());

	for (auto c : s)
		sum = sum * 31 + unsigned(c);
	put(p, sum);
}

template <typename C> static void put_state(Picture &p, const std::basic_ios<C> &s)
{
	put(p, unsigned(s.rdstate()));
	put(p, unsigned(s.width()));
	put(p, unsigned(s.flags()));
	put(p, unsigned(s.fill()));
}

static void draw_texts(Picture &p)
{
	for (const std::string &s : *rows)
		put_text(p, s);
	for (const std::string &s : *line)
		put_text(p, s);
	put_text(p, *word);
	put_text(p, printed->str());
	put_text(p, wide->str());
	put_text(p, scanned->str());
	put_state(p, *printed);
	put_state(p, *scanned);
	put_text(p, scanned_wide->str());
	put_state(p, *scanned_wide);
	put(p, unsigned(scanned_wide->gcount()));
	put(p, unsigned(scanned_wide->rdbuf()->in_avail()));
	put(p, unsigned(wide->width()));
	put(p, unsigned(scanned->gcount()));
	put(p, unsigned(scanned->rdbuf()->in_avail()));
	put(p, unsigned(number));
	put(p, unsigned(fraction * 8));
	for (char c : letters)
		put(p, unsigned(c));
	for (wchar_t c : wide_letters)
		put(p, unsigned(c));
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
#ifndef TURNS
	// Its own words: when it will grow is not to be seen otherwise.
	unsigned own[sizeof(*table) / sizeof(unsigned)];
	std::memcpy(own, static_cast<void *>(table), sizeof(own));
	for (unsigned o : own)
		put(p, o);
#endif
	draw_texts(p);
}

static void make_all()
{
	outside = static_cast<Outside *>(mmap(nullptr, sizeof(*outside), PROT_READ | PROT_WRITE,
		sharing | MAP_ANONYMOUS, -1, 0));
	CHECK(outside != MAP_FAILED);
	outside->random = 88172645463325252u;
	tree = new Map;
	bag = new std::multiset<unsigned>;
	queue = new std::list<unsigned>;
	other = new std::list<unsigned>;
	table = new std::unordered_map<unsigned, unsigned>;
	rows = new std::vector<std::string>(3);
	line = new std::deque<std::string>;
	printed = new std::ostringstream;
	wide = new std::wostringstream;
	scanned = new std::istringstream;
	scanned_wide = new std::wistringstream;
	word = new std::string;
}

#ifdef TURNS
extern "C" __attribute__((noinline)) void turn(unsigned long i)
{
	outside->step = i;
	for (unsigned n = 1 + draw(4); n--;)
		change_all();
}

int main(int, char **argv)
{
	make_all();
	for (unsigned long i = 0; i < std::strtoul(argv[1], nullptr, 10); i++)
		turn(i);
	draw_picture(outside->now);
	unsigned sum = 0;
	for (size_t i = 0; i < outside->now.count; i++)
		sum = sum * 31 + outside->now.words[i];
	std::printf("%zu words, %u\n", outside->now.count, sum);
	return 0;
}
#else

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

	for (unsigned n = draw(30); n--;)
		change_all();
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

	make_all();
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
#endif
