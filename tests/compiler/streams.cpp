// SPDX-License-Identifier: MIT
//
// What streams of libstdc++ answer, at the ends of input and of room, in each state: what cairn-c++
// compiles with the program in place of the library's own must answer the same. Prints a line each.
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>

static const char *const texts[] = { "", " ", "x", "  two words ", "line\n", "a\nbb\n\nccc",
	"12 -7 0x1f", "3.5e1 nan",
	"a long word that no string holds in place: pneumonoultramicroscopicsilicovolcanoconiosis" };
static const int count = sizeof(texts) / sizeof(*texts);

template <typename C> static void tell(std::basic_istream<C> &in)
{
	std::cout << ' ' << in.rdstate() << ' ' << in.gcount() << ' ' << in.width() << " at "
		  << long(in.rdbuf()->pubseekoff(0, std::ios::cur, std::ios::in));
}

template <typename C> static void words(const std::basic_string<C> &text, int width)
{
	std::basic_istringstream<C> in(text);
	std::basic_string<C> to(3, C('z'));

	for (int i = 0; i < 4; i++) {
		in >> std::setw(width) >> to;
		std::cout << to.size();
		tell(in);
		std::cout << (i < 3 ? ", " : "\n");
	}
}

template <typename C> static void lines(const std::basic_string<C> &text, C end)
{
	std::basic_istringstream<C> in(text);
	std::basic_string<C> to(3, C('z'));

	for (int i = 0; i < 5; i++) {
		std::getline(in, to, end);
		std::cout << to.size();
		tell(in);
		std::cout << (i < 4 ? ", " : "\n");
	}
}

static void arrays(const std::string &text, int width)
{
	std::istringstream in(text);
	char to[100] = "zz", small[4] = "zz";

	in >> std::setw(width) >> to;
	std::cout << to;
	tell(in);
	in >> std::setw(3) >> small;
	std::cout << ", " << small;
	tell(in);
	in.clear();
	in.getline(to, 5);
	std::cout << ", " << to;
	tell(in);
	in.ignore(3, '\n');
	tell(in);
	std::cout << '\n';
}

template <typename C> static void numbers(const std::basic_string<C> &text)
{
	std::basic_istringstream<C> in(text);
	std::basic_ostringstream<C> out;
	int i = -1;
	unsigned short s = 9;
	double d = -1;
	bool b = false;

	in >> i;
	tell(in);
	in >> std::hex >> s >> d >> std::boolalpha >> b;
	tell(in);
	out << std::setw(9) << i << std::setw(5) << std::hex << s << d << ' ' << std::boolalpha << b
	    << &out;
	std::cout << ' ' << i << ' ' << s << ' ' << d << ' ' << out.width() << '\n';
}

static void throws(const std::string &text, std::ios::iostate on)
{
	std::istringstream in(text);
	std::string to;

	in.exceptions(on);
	try {
		while (in)
			in >> to;
		std::cout << "ends";
	} catch (const std::ios::failure &) {
		std::cout << "throws";
	}
	try {
		std::getline(in, to);
		std::cout << " ends";
	} catch (const std::ios::failure &) {
		std::cout << " throws";
	}
	std::cout << ' ' << in.rdstate() << ' ' << to << '\n';
}

static void files()
{
	std::ofstream out("streams.txt");
	std::string to;
	char block[8] = "";
	int n = 0;

	out << "12 words\nof a file";
	out.close();
	std::ifstream in("streams.txt");
	in >> n >> to;
	in.read(block, 5);
	std::cout << n << to << std::string(block, size_t(in.gcount()));
	std::istreambuf_iterator<char> at(in), end;
	std::cout << std::string(at, end) << '\n';
}

int main()
{
	for (int i = 0; i < count; i++) {
		std::string text = texts[i];
		std::wstring wide(text.begin(), text.end());

		for (int width = 0; width < 5; width += 2) {
			words(text, width);
			words(wide, width);
			arrays(text, width);
		}
		lines(text, '\n');
		lines(wide, L'b');
		numbers(text);
		numbers(wide);
		throws(text, std::ios::failbit);
		throws(text, std::ios::eofbit);
	}
	files();
	return 0;
}
