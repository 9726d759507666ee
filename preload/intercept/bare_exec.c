/* SPDX-License-Identifier: MIT */
/*
 * Programs that the program executes and that will run without the agent, such as those that `cairn
 * run` would refuse. One line says so, because nothing else does. guard.c calls this at each exec,
 * also in a vfork child: everything here is on the stack, and no descriptor belongs to the engine.
 */
#include <elf.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "os/sys.h"
#include "intercept/intercept.h"

#define ST_NOSUID 2
#define AGENT     "libcairn-agent.so"
#define TEXT_MAX  1024

struct exec {
	long folder, path, flags; /* as in execveat */
	uintptr_t envp;
};

/* A string of the program's, cut to `size`: its length then, or -EFAULT. */
static long user_text(char *out, size_t size, uintptr_t from)
{
	size_t n = 0, piece;

	while (n < size - 1) {
		piece = CRN_MIN(size - 1 - n, CRN_PAGE_SIZE - (from + n) % CRN_PAGE_SIZE);
		if (crn_user_copy(out + n, (const void *)(from + n), piece) < 0)
			return -EFAULT;
		for (size_t end = n + piece; n < end; n++)
			if (!out[n])
				return (long)n;
	}
	out[n] = 0;
	return (long)n;
}

/* True also if that cannot be told. */
static bool names_agent(const char *text)
{
	size_t n = 0;

	for (; text[n]; n++)
		if (crn_starts_with(text + n, AGENT))
			return true;
	return n == TEXT_MAX - 1;
}

static bool keeps_environment(uintptr_t envp)
{
	bool preload = false, plan = false;
	char text[TEXT_MAX];
	uintptr_t at;

	for (; envp && !(preload && plan); envp += sizeof(at)) {
		if (crn_user_copy(&at, (const void *)envp, sizeof(at)) < 0)
			return true; /* the exec will fail */
		if (!at)
			break;
		if (user_text(text, sizeof(text), at) < 0)
			return true;
		plan |= crn_starts_with(text, CRN_PLAN_ENV "=");
		preload |= crn_starts_with(text, "LD_PRELOAD=") && names_agent(text);
	}
	return preload && plan;
}

static bool may_raise(const struct exec *x)
{
	struct statfs fs;

	return crn_sys5(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 0 &&
		(x->folder != AT_FDCWD || crn_sys2(SYS_statfs, x->path, &fs) < 0 ||
			!(fs.f_flags & ST_NOSUID));
}

/* As the kernel decides whether ld.so is told not to trust the environment (AT_SECURE). */
static const char *untrusted(const struct exec *x, const struct stat *st, bool script)
{
	uint32_t uid[3], gid[3];
	char caps[64];

	if (crn_sys3(SYS_getresuid, &uid[0], &uid[1], &uid[2]) < 0 ||
		crn_sys3(SYS_getresgid, &gid[0], &gid[1], &gid[2]) < 0)
		return NULL;
	if (!script && may_raise(x)) {
		if ((st->st_mode & S_ISUID && st->st_uid != uid[0]) ||
			((st->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) &&
				st->st_gid != gid[0]))
			return "it is setuid or setgid to somebody else";
		if (uid[0] && x->folder == AT_FDCWD &&
			crn_sys4(SYS_getxattr, x->path, "security.capability", caps,
				sizeof(caps)) > 0)
			return "it has file capabilities";
		if (st->st_mode & S_ISUID)
			uid[1] = st->st_uid;
		if ((st->st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
			gid[1] = st->st_gid;
	}
	if (uid[0] != uid[1] || gid[0] != gid[1])
		return "its real and its effective user or group differ";
	return NULL;
}

/* What the file is; NULL: nothing that the agent could not be in, as far as can be seen. */
static const char *unfit(const struct exec *x, bool *script)
{
	union {
		Elf64_Ehdr elf;
		char text[sizeof(Elf64_Ehdr)];
	} head = {.text = {0}};
	long fd = crn_sys3(SYS_openat, x->folder, x->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC), n;
	bool linked = false;
	Elf64_Phdr ph;

	if (fd < 0)
		return NULL;
	n = crn_sys4(SYS_pread64, fd, &head, sizeof(head), 0);
	*script = n > 2 && head.text[0] == '#' && head.text[1] == '!';
	if (n < (long)sizeof(head) || __builtin_memcmp(head.text, ELFMAG, SELFMAG) != 0) {
		crn_sys1(SYS_close, fd);
		return NULL;
	}
	/* ld.so itself is a shared object that names no interpreter, and preloads. */
	for (unsigned i = 0; i < head.elf.e_phnum && i < 64 && !linked; i++)
		linked = crn_sys4(SYS_pread64, fd, &ph, sizeof(ph),
				 (long)(head.elf.e_phoff + i * sizeof(ph))) != sizeof(ph) ||
			ph.p_type == PT_INTERP;
	crn_sys1(SYS_close, fd);
	if (head.elf.e_ident[EI_CLASS] != ELFCLASS64 || head.elf.e_machine != EM_X86_64)
		return "it is not a 64-bit x86 program";
	return linked || head.elf.e_type != ET_EXEC ? NULL : "it is statically linked";
}

static const char *why_bare(const struct exec *x)
{
	bool script = false;
	const char *why;
	struct stat st;

	if (crn_sys4(SYS_newfstatat, x->folder, x->path, &st, x->flags) < 0 ||
		!S_ISREG(st.st_mode) || !(st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)))
		return NULL; /* the exec will fail, or nobody knows */
	why = unfit(x, &script);
	if (!why)
		why = untrusted(x, &st, script);
	if (!why && !keeps_environment(x->envp))
		why = "LD_PRELOAD and CAIRN_PLAN have gone from its environment";
	return why;
}

void crn_exec_look(const struct crn_call *call)
{
	bool at = call->nr == SYS_execveat;
	struct exec x = {
		.folder = at ? call->args[0] : AT_FDCWD,
		.path = call->args[at],
		.flags = at ? call->args[4] & (AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW) : 0,
		.envp = (uintptr_t)call->args[at ? 3 : 2],
	};
	char path[200];
	const char *why;

	if (!crn_here.agent.config.site_count ||
		user_text(path, sizeof(path), (uintptr_t)x.path) < 0)
		return;
	why = why_bare(&x);
	if (why)
		crn_warn("%s runs without checkpoints: %s", *path ? path : "a program", why);
}
