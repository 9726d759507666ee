/* SPDX-License-Identifier: MIT */
/*
 * Names and meanings of results. A table of our own for the kernel's codes too: libc's strerror
 * allocates, translates and takes locks, and none of that is legal where errors come up here.
 */
#include "base/bits.h"
#include "base/status.h"

struct error_text {
	int code;
	const char *text;
};

static const struct error_text error_texts[] = {
	{ 0, "success" },
	{ CAIRN_EEVICTED, "EEVICTED: the checkpoint has left the journal (raise `keep`)" },
	{ CAIRN_ENOCKPT, "ENOCKPT: no checkpoint ever had that id" },
	{ CAIRN_EFAILED, "EFAILED: that checkpoint is marked failed: it could not be kept" },
	{ CAIRN_ELAYOUT, "ELAYOUT: a mapping of that checkpoint is gone and cannot come back" },
	{ CAIRN_ETRACKER, "ETRACKER: no tracker of that name" },
	{ CAIRN_ENOTRACK, "ENOTRACK: this host cannot run that tracker (see `cairn doctor`)" },
	{ CAIRN_ESHARED, "ESHARED: this tracker cannot roll back a shared mapping" },
	{ CAIRN_EAREAONLY, "EAREAONLY: this tracker takes explicit areas only (surface \"none\")" },
	{ CAIRN_ESTRATEGY, "ESTRATEGY: no such strategy or parameter, not with this tracker, or "
			   "its profile is not of this run" },
	{ CAIRN_ENOTAREA, "ENOTAREA: the range is not wholly inside a registered area" },
	{ CAIRN_EOVERLAP, "EOVERLAP: the range, or shared memory in it, is in an area already" },
	{ CAIRN_EUNMAPPED, "EUNMAPPED: the range is not mapped, or not readable and writable" },
	{ CAIRN_ESURFACE, "ESURFACE: the surface cannot be parsed, or names nothing" },
	{ CAIRN_ETHREADS, "ETHREADS: another thread has run since that checkpoint" },
	{ CAIRN_EOPTION, "EOPTION: an option has a value out of its range" },
	{ CAIRN_EBUSY, "EBUSY: the process has an engine already, with other options" },
	{ CAIRN_EPAUSED, "EPAUSED: the session is paused (see cairn_resume)" },
	{ CAIRN_EMEMORY, "EMEMORY: the memory limit is reached (raise memory_max, --memory-max)" },
	{ CAIRN_EUNSUPPORTED, "EUNSUPPORTED: not possible in this mode" },
	{ -EPERM, "EPERM: not permitted" },
	{ -ENOENT, "ENOENT: no such file or entry" },
	{ -ESRCH, "ESRCH: no such process" },
	{ -EINTR, "EINTR: interrupted by a signal" },
	{ -EIO, "EIO: input or output error" },
	{ -E2BIG, "E2BIG: too long" },
	{ -EBADF, "EBADF: bad descriptor" },
	{ -EAGAIN, "EAGAIN: a limit of the kernel is reached for now" },
	{ -ENOMEM, "ENOMEM: the kernel has no memory or mapping left" },
	{ -EACCES, "EACCES: permission denied" },
	{ -EFAULT, "EFAULT: bad address" },
	{ -EBUSY, "EBUSY: in use by somebody else" },
	{ -ENOTDIR, "ENOTDIR: a part of the path is no folder" },
	{ -EISDIR, "EISDIR: it is a folder" },
	{ -EEXIST, "EEXIST: it exists already" },
	{ -EINVAL, "EINVAL: invalid argument" },
	{ -ENFILE, "ENFILE: the system has no descriptors left" },
	{ -EMFILE, "EMFILE: the process has no descriptors left" },
	{ -ENOSPC, "ENOSPC: no space left" },
	{ -ENOSYS, "ENOSYS: the kernel does not have that call, or a filter hides it" },
	{ -EDEADLK, "EDEADLK: a call of the same thread is under way" },
	{ -EOPNOTSUPP, "EOPNOTSUPP: not supported" },
	{ -EUSERS, "EUSERS: too many threads" },
};

CRN_API const char *cairn_strerror(int code)
{
	if (code > 0)
		code = 0;
	for (size_t i = 0; i < CRN_ARRAY_SIZE(error_texts); i++)
		if (error_texts[i].code == code)
			return error_texts[i].text;
	return "unknown error";
}

CRN_API const char *cairn_version(void)
{
	return CAIRN_VERSION;
}
