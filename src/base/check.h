/* SPDX-License-Identifier: MIT */
/*
 * Assertions, three levels: CRN_ASSERT stays in release builds, CRN_DASSERT is for debug builds,
 * CRN_XASSERT walks whole structures and is for CRN_CHECKS=3 builds. A failure logs the condition
 * with file and line and stops the process by a trap (ud2), which is legal in any context.
 */
#ifndef CRN_CHECK_H
#define CRN_CHECK_H

_Noreturn void crn_check_failed(const char *cond, const char *file, int line);

#ifndef CRN_CHECKS
#define CRN_CHECKS 1
#endif

#define CRN_CHECK_(cond) ((cond) ? (void)0 : crn_check_failed(#cond, __FILE__, __LINE__))

#define CRN_ASSERT(cond) CRN_CHECK_(cond)
#if CRN_CHECKS >= 2
#define CRN_DASSERT(cond) CRN_CHECK_(cond)
#else
#define CRN_DASSERT(cond) ((void)sizeof(cond))
#endif
#if CRN_CHECKS >= 3
#define CRN_XASSERT(cond) CRN_CHECK_(cond)
#else
#define CRN_XASSERT(cond) ((void)sizeof(cond))
#endif

#endif
