/* SPDX-License-Identifier: MIT */
/* What printf stores by %n: how much it has written so far. */
#ifndef CRN_RT_WRAP_FORMAT_H
#define CRN_RT_WRAP_FORMAT_H

#include <stdarg.h>
#include <string.h>
#include <wchar.h>

/* Keep it; ap stays where it is. Cheap if there is no n behind a percent sign. */
void crn_keep_counts(const char *format, va_list ap);
void crn_keep_wide_counts(const wchar_t *format, va_list ap);

#endif
