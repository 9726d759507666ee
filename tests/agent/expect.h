/* SPDX-License-Identifier: MIT */
/* What the victims share: an expectation that fails says where and ends the program with 1. */
#ifndef CRN_EXPECT_H
#define CRN_EXPECT_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPECT(cond)                                                                            \
	do {                                                                                    \
		if (!(cond)) {                                                                  \
			dprintf(2, "%s:%d: not so: %s (errno %d)\n", __FILE__, __LINE__, #cond, \
				errno);                                                         \
			_exit(1);                                                               \
		}                                                                               \
	} while (0)

#endif
