// SPDX-License-Identifier: MIT
//
// Before libstdc++'s own: a buffer may be one of the library's, like that of std::cin.
#pragma GCC system_header
#ifndef CAIRN_STREAMBUF_TCC
#define CAIRN_STREAMBUF_TCC

#include_next <bits/streambuf.tcc>

namespace std _GLIBCXX_VISIBILITY(default)
{
_GLIBCXX_BEGIN_NAMESPACE_VERSION

#define CAIRN_BUFFERS_OF(C)                                                                      \
	template <> inline streamsize basic_streambuf<C>::sgetn(C *__to, streamsize __count)    \
	{                                                                                       \
		if (__count > 0)                                                                \
			__cairn_written(__to, size_t(__count) * sizeof(C));                     \
		return this->xsgetn(__to, __count);                                             \
	}

CAIRN_BUFFERS_OF(char)
#ifdef _GLIBCXX_USE_WCHAR_T
CAIRN_BUFFERS_OF(wchar_t)
#endif
#undef CAIRN_BUFFERS_OF

_GLIBCXX_END_NAMESPACE_VERSION
} // namespace std
#endif
