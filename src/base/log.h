/* SPDX-License-Identifier: MIT */
/*
 * One-line messages to the engine's own descriptor (never fd 2, which the program may have closed
 * or redirected) and the printf subset that formats them. No malloc, no stdio, no locks: a message
 * is formatted on the caller's stack and leaves in one write, so lines of threads never mix.
 *
 * Conversions: %s %c %d %u %x %p %zu %lu %ld %lx %llu %lld, width, zero padding, %%. "%" CRN_64 "u"
 * is of a uint64_t, whatever the machine.
 */
#ifndef CRN_LOG_H
#define CRN_LOG_H

#include <stddef.h>

enum crn_log_level { CRN_LOG_ERROR, CRN_LOG_WARN, CRN_LOG_INFO, CRN_LOG_DEBUG };

#define CRN_LOG_LINE_MAX 512

#ifdef __i386__
#define CRN_64 "ll"
#else
#define CRN_64 "l"
#endif

/* The writer is installed by os/ (base itself never talks to the kernel). */
typedef void (*crn_log_writer)(const char *line, size_t len);
void crn_log_init(crn_log_writer writer, enum crn_log_level max);

void crn_log(enum crn_log_level level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define crn_error(...) crn_log(CRN_LOG_ERROR, __VA_ARGS__)
#define crn_warn(...)  crn_log(CRN_LOG_WARN, __VA_ARGS__)
#define crn_info(...)  crn_log(CRN_LOG_INFO, __VA_ARGS__)
#define crn_debug(...) crn_log(CRN_LOG_DEBUG, __VA_ARGS__)

/* snprintf's contract, without libc: always terminates, returns the untruncated length. */
size_t crn_format(char *buf, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
