// SPDX-License-Identifier: MIT
//
// Before libstdc++'s own: numbers are read and printed by virtual functions of the library. They
// write to the stream and its buffer, and store what they have read.
#pragma GCC system_header
#ifndef CAIRN_LOCALE_FACETS_TCC
#define CAIRN_LOCALE_FACETS_TCC

#include_next <bits/locale_facets.tcc>

namespace std _GLIBCXX_VISIBILITY(default)
{
_GLIBCXX_BEGIN_NAMESPACE_VERSION

// The buffer that an iterator goes over: its first word.
template <typename C> inline void __cairn_reads(const istreambuf_iterator<C> &__from)
{
	const void *__buffer;

	__builtin_memcpy(&__buffer, &__from, sizeof(__buffer));
	if (__buffer)
		__cairn_written(__buffer, sizeof(basic_streambuf<C>));
}

#define CAIRN_GETS(C, T)                                                                        \
	template <>                                                                            \
	inline istreambuf_iterator<C> num_get<C>::get(istreambuf_iterator<C> __from,           \
		istreambuf_iterator<C> __end, ios_base &__in, ios_base::iostate &__state,      \
		T &__to) const                                                                 \
	{                                                                                      \
		__cairn_reads(__from);                                                         \
		__cairn_written(&__in, sizeof(__in));                                          \
		__cairn_written(&__state, sizeof(__state));                                    \
		__cairn_written(&__to, sizeof(__to));                                          \
		return this->do_get(__from, __end, __in, __state, __to);                       \
	}
#define CAIRN_PUTS(C, T)                                                                        \
	template <>                                                                            \
	inline ostreambuf_iterator<C> num_put<C>::put(                                         \
		ostreambuf_iterator<C> __to, ios_base &__out, C __fill, T __value) const       \
	{                                                                                      \
		__cairn_written(&__out, sizeof(__out));                                        \
		return this->do_put(__to, __out, __fill, __value);                             \
	}

#define CAIRN_BOTH(C, T) CAIRN_GETS(C, T) CAIRN_PUTS(C, T)
#define CAIRN_NUMBERS(C)                                                                        \
	CAIRN_BOTH(C, bool)                                                                    \
	CAIRN_BOTH(C, long)                                                                    \
	CAIRN_BOTH(C, unsigned long)                                                           \
	CAIRN_BOTH(C, long long)                                                               \
	CAIRN_BOTH(C, unsigned long long)                                                      \
	CAIRN_BOTH(C, double)                                                                  \
	CAIRN_BOTH(C, long double)                                                             \
	CAIRN_GETS(C, unsigned short)                                                          \
	CAIRN_GETS(C, unsigned int)                                                            \
	CAIRN_GETS(C, float)                                                                   \
	CAIRN_GETS(C, void *)                                                                  \
	CAIRN_PUTS(C, const void *)

CAIRN_NUMBERS(char)
#ifdef _GLIBCXX_USE_WCHAR_T
CAIRN_NUMBERS(wchar_t)
#endif
#undef CAIRN_NUMBERS
#undef CAIRN_BOTH
#undef CAIRN_PUTS
#undef CAIRN_GETS

_GLIBCXX_END_NAMESPACE_VERSION
} // namespace std
#endif
