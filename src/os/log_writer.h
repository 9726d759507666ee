/* SPDX-License-Identifier: MIT */
/* Where log lines go (base/log.h makes them). */
#ifndef CRN_OS_LOG_WRITER_H
#define CRN_OS_LOG_WRITER_H

/*
 * Send the engine's log lines to descriptor CAIRN_LOG_FD of the environment if that is open, else
 * to a high duplicate of descriptor 2 as it is now, unless that and descriptor 0 are one socket: a
 * peer. CAIRN_LOG (error, warn, info, debug) sets the level; default warn. The descriptor, or
 * -errno (then nothing is logged). Calling it again changes nothing.
 */
int crn_log_start(void);

#endif
