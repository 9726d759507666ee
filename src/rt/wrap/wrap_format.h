/* SPDX-License-Identifier: MIT */
/*
 * What printf stores by %n: how much it has written so far. And what reading a format of scanf has
 * in common with that.
 */
#ifndef CRN_RT_WRAP_FORMAT_H
#define CRN_RT_WRAP_FORMAT_H

#include <stdarg.h>
#include <string.h>
#include <wchar.h>

/* Keep it; ap stays where it is. Cheap if there is no n behind a percent sign. */
void crn_keep_counts(const char *format, va_list ap);
void crn_keep_wide_counts(const wchar_t *format, va_list ap);

/* The digits at `at`: 0 if there are none. Returns what is behind them. */
static inline const char *crn_read_number(const char *at, size_t *number)
{
	*number = 0;
	while (*at >= '0' && *at <= '9')
		*number = *number * 10 + (size_t)(*at++ - '0');
	return at;
}

#endif
