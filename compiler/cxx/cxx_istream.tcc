// SPDX-License-Identifier: MIT
//
// Before libstdc++'s own: what it has for streams of char and wchar_t apart from its templates, in
// code without hooks. The same once more, as the standard describes it ([string.io]).
#pragma GCC system_header
#ifndef CAIRN_ISTREAM_TCC
#define CAIRN_ISTREAM_TCC

#include_next <bits/istream.tcc>
#include <bits/basic_string.h>

namespace std _GLIBCXX_VISIBILITY(default)
{
_GLIBCXX_BEGIN_NAMESPACE_VERSION

// What `take` does to the stream; what it throws is the stream's state.
template <typename C, typename Take>
inline void __cairn_input(basic_istream<C> &__in, bool __spaces, Take __take)
{
	ios_base::iostate __state = ios_base::goodbit;
	typename basic_istream<C>::sentry __ready(__in, __spaces);

	if (__ready) {
		__try {
			__state = __take();
		}
		__catch(__cxxabiv1::__forced_unwind &) {
			__in._M_setstate(ios_base::badbit);
			__throw_exception_again;
		}
		__catch(...) {
			__in._M_setstate(ios_base::badbit);
		}
	}
	if (__state)
		__in.setstate(__state);
}

// Where the letters of a word go: a string, or an array, whose end is told by a zero.
template <typename C> struct __cairn_string {
	enum { __room = 0 };
	basic_string<C> &__to;

	void __clear() { __to.erase(); }
	void __add(C __c) { __to.push_back(__c); }
	void __end() {}
	size_t __max() const { return __to.max_size(); }
};

template <typename C> struct __cairn_array {
	enum { __room = 1 };
	C *__to;
	size_t __most;

	void __clear() {}
	void __add(C __c) { *__to++ = __c; }
	void __end() { *__to = C(); }
	size_t __max() const { return __most; }
};

template <typename C, typename To> struct __cairn_word {
	basic_istream<C> &__in;
	To &__to;
	bool &__found;

	ios_base::iostate operator()() const
	{
		typedef char_traits<C> T;
		const ctype<C> &__kind = use_facet<ctype<C> >(__in.getloc());
		const streamsize __width = __in.width();
		size_t __most = __to.__max();
		ios_base::iostate __state = ios_base::goodbit;
		typename T::int_type __c;

		if (__width > 0 && size_t(__width) - To::__room < __most)
			__most = size_t(__width) - To::__room;
		__to.__clear();
		for (__c = __in.rdbuf()->sgetc(); __most--; __c = __in.rdbuf()->snextc()) {
			if (T::eq_int_type(__c, T::eof())) {
				__state = ios_base::eofbit;
				break;
			}
			if (__kind.is(ctype_base::space, T::to_char_type(__c)))
				break;
			__to.__add(T::to_char_type(__c));
			__found = true;
		}
		__to.__end();
		__in.width(0);
		return __found ? __state : __state | ios_base::failbit;
	}
};

template <typename C, typename To>
inline basic_istream<C> &__cairn_get_word(basic_istream<C> &__in, To __to)
{
	bool __found = false;
	__cairn_word<C, To> __take = { __in, __to, __found };

	__cairn_input(__in, false, __take);
	if (!__found && !__in.fail())
		__in.setstate(ios_base::failbit);
	return __in;
}

template <typename C>
inline basic_istream<C> &__cairn_get_line(basic_istream<C> &__in, basic_string<C> &__to, C __end)
{
	typedef char_traits<C> T;
	struct _Take {
		basic_istream<C> &__in;
		basic_string<C> &__to;
		C __end;

		ios_base::iostate operator()() const
		{
			typename T::int_type __c;

			__to.erase();
			for (__c = __in.rdbuf()->sgetc(); __to.size() < __to.max_size();
				__c = __in.rdbuf()->snextc()) {
				if (T::eq_int_type(__c, T::eof()))
					return __to.empty() ? ios_base::eofbit | ios_base::failbit
							    : ios_base::eofbit;
				if (T::eq(T::to_char_type(__c), __end)) {
					__in.rdbuf()->sbumpc();
					return ios_base::goodbit;
				}
				__to.push_back(T::to_char_type(__c));
			}
			return ios_base::failbit;
		}
	};
	_Take __take = { __in, __to, __end };

	__cairn_input(__in, true, __take);
	return __in;
}

#define CAIRN_STREAMS_OF(C, STRING)                                                             \
	template <>                                                                            \
	inline basic_istream<C> &operator>>(basic_istream<C> &__in, STRING &__to)              \
	{                                                                                      \
		__cairn_string<C> __sink = { __to };                                           \
                                                                                               \
		return __cairn_get_word(__in, __sink);                                         \
	}                                                                                      \
	template <>                                                                            \
	inline basic_istream<C> &getline(basic_istream<C> &__in, STRING &__to, C __end)        \
	{                                                                                      \
		return __cairn_get_line(__in, __to, __end);                                    \
	}

CAIRN_STREAMS_OF(char, string)
#ifdef _GLIBCXX_USE_WCHAR_T
CAIRN_STREAMS_OF(wchar_t, wstring)
#endif
#undef CAIRN_STREAMS_OF

// The char of >> into an array; C++98 has it as the operator itself.
#if _GLIBCXX_RELEASE >= 11
inline void __istream_extract(istream &__in, char *__to, streamsize __size)
{
	__cairn_array<char> __sink = { __to, size_t(__size) - 1 };

	__cairn_get_word(__in, __sink);
}
#endif

_GLIBCXX_END_NAMESPACE_VERSION
} // namespace std
#endif
