/* SPDX-License-Identifier: MIT */
#ifndef CAIRN_CXX_NAME_H
#define CAIRN_CXX_NAME_H

/* What C++ calls a symbol; the caller frees it. NULL: none of C++'s, or there is no libstdc++. */
char *cxx_name(const char *symbol);

#endif
