/* SPDX-License-Identifier: MIT */
/* What a command prints arrives, or the command fails and says so: for atexit(3). */
#ifndef CRN_OUTPUT_H
#define CRN_OUTPUT_H

void output_end(void);

#endif
