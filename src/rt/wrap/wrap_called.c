/* SPDX-License-Identifier: MIT */
#include <locale.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "rt/wrap/wrap.h"

const void *const crn_called[] = { freelocale, pread64, preadv64, readlinkat, readv, recvmsg };
