/* SPDX-License-Identifier: MIT */
/* Signals, limits, children, users, options of the command line. */
#include <crypt.h>
#include <getopt.h>
#include <grp.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>
#define WRAPPED_process CRN_WRAPPER
#define WRAPPERS_KEEP crn_reach_keep
#include "rt/wrap.h"
#include "rt/reach.h"

int __gethostname_chk(char *to, size_t n, size_t size);
int __posix_getopt(int argc, char *const argv[], const char *letters);

/* They are the program's: the linker copies them there. */
#define CURRENT_OPTION current_option(argc, argv);

static void current_option(int argc, char *const argv[])
{
	OBJECT(&optarg)
	OBJECT(&optind)
	OBJECT(&optopt)
	ARRAY(argv, (size_t)argc) /* they are permuted */
}

#include "rt/wrapped.def"
