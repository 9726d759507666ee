/* SPDX-License-Identifier: MIT */
/*
 * Before libstdc++'s own: its header tells compilers to leave the members of strings and streams to
 * libstdc++.so, whose code has no hooks. Here programs make them themselves. cairn-cc puts this
 * folder before the system's; C programs, and other C++ libraries, find nothing in it.
 */
#pragma GCC system_header
#ifndef CAIRN_CXX_CONFIG_H
#define CAIRN_CXX_CONFIG_H

#include_next <bits/c++config.h>

#undef _GLIBCXX_EXTERN_TEMPLATE
#define _GLIBCXX_EXTERN_TEMPLATE 0

/* The run-time's: bytes that a virtual function of libstdc++ is about to write (wrap_streams.c). */
extern "C" void __cairn_keep(const void *, __SIZE_TYPE__) __attribute__((weak));
static inline void __cairn_written(const void *__at, __SIZE_TYPE__ __size)
{
	if (__cairn_keep)
		__cairn_keep(__at, __size);
}
#endif
