/* SPDX-License-Identifier: MIT */
#include "cxx_name.h"
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

typedef char *demangle_t(const char *symbol, char *to, size_t *len, int *status);

char *cxx_name(const char *symbol)
{
	static demangle_t *demangle;
	static void *library;
	int status;

	if (strncmp(symbol, "_Z", 2) != 0)
		return NULL;
	if (!library && (library = dlopen("libstdc++.so.6", RTLD_LAZY)))
		*(void **)&demangle = dlsym(library, "__cxa_demangle");
	return demangle ? demangle(symbol, NULL, NULL, &status) : NULL;
}
