/* SPDX-License-Identifier: MIT */
/* Numbers: conversions that say where they ended, mathematics with two results, random numbers. */
#include <fenv.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>
#define WRAPPED_number CRN_WRAPPER
#include "rt/wrap/wrap.h"

long __isoc23_strtol(const char *s, char **end, int base);
long long __isoc23_strtoll(const char *s, char **end, int base);
unsigned long __isoc23_strtoul(const char *s, char **end, int base);
unsigned long long __isoc23_strtoull(const char *s, char **end, int base);

#include "rt/wrap/wrapped.def"
