/* SPDX-License-Identifier: MIT */
/* Can the agent get into a program? Found as execvp finds it, and refused before it runs. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>
#include "elf_file.h"
#include "runnable.h"

int refuse(int status, const char *program, const char *why)
{
	fprintf(stderr, "cairn run: %s: %s\n", program, why);
	return status;
}

static bool can_be_run(const char *path)
{
	struct stat st;

	if (access(path, X_OK) < 0 || stat(path, &st) < 0)
		return false;
	if (S_ISREG(st.st_mode))
		return true;
	errno = EACCES;
	return false;
}

/* As execvp looks for it, which goes on behind a folder of that name. False with errno. */
static bool find_program(const char *name, char *path)
{
	const char *at = getenv("PATH"), *end;
	int error = ENOENT;

	if (strchr(name, '/')) {
		snprintf(path, PATH_MAX, "%s", name);
		return can_be_run(path);
	}
	if (!at)
		at = "/bin:/usr/bin";
	for (; *name; at = end + 1) {
		end = strchrnul(at, ':');
		snprintf(
			path, PATH_MAX, "%.*s%s%s", (int)(end - at), at, end > at ? "/" : "", name);
		if (can_be_run(path))
			return true;
		if (errno == EACCES)
			error = EACCES;
		if (!*end)
			break;
	}
	errno = error;
	return false;
}

/* The program that a script names in its first line; false if it is none. */
static bool script_interpreter(const char *path, char *out)
{
	FILE *f = fopen(path, "re");
	char line[256] = "", *at = line + 2, *end;
	bool ok;

	if (!f)
		return false;
	ok = fgets(line, sizeof(line), f) && line[0] == '#' && line[1] == '!';
	fclose(f);
	if (!ok)
		return false;
	at += strspn(at, " \t");
	end = at + strcspn(at, " \t\n");
	*end = 0;
	return *at && snprintf(out, PATH_MAX, "%s", at) < PATH_MAX;
}

/* Would the kernel give it more rights than we have, so that ld.so ignores LD_PRELOAD? */
static bool gains_rights(const struct stat *st)
{
	return ((st->st_mode & S_ISUID) && st->st_uid != geteuid()) ||
		((st->st_mode & S_ISGID) && st->st_gid != getegid()) ||
		((st->st_mode & (S_ISUID | S_ISGID)) && geteuid() != getuid());
}

static int check_at(const char *name, char *path, int depth)
{
	const char *interpreter;
	enum elf_kind kind;
	struct elf_file f;
	struct stat st;
	int e;

	if (!find_program(name, path))
		return refuse(errno == EACCES ? EXIT_REFUSED : EXIT_MISSING, name, strerror(errno));
	if (stat(path, &st) < 0)
		return refuse(EXIT_MISSING, name, strerror(errno));
	if (gains_rights(&st))
		return refuse(EXIT_REFUSED, name,
			"programs that are setuid or setgid to others cannot be run under Cairn: "
			"run it as its owner, or a copy without that bit");
	if (getxattr(path, "security.capability", NULL, 0) >= 0)
		return refuse(EXIT_REFUSED, name,
			"programs with file capabilities cannot be run under Cairn: a copy has "
			"none");
	e = elf_open(&f, path);
	if (e == -ENOEXEC) {
		char next[PATH_MAX];

		if (depth < 4 && script_interpreter(path, next))
			return check_at(next, path, depth + 1);
		return refuse(EXIT_REFUSED, name,
			"not a 64-bit x86 program, nor a script that names its interpreter (#!)");
	}
	if (e < 0)
		return refuse(EXIT_REFUSED, name, strerror(-e));
	kind = elf_kind_of(&f, &interpreter);
	elf_close(&f);
	if (kind == ELF_STATIC)
		return refuse(
			EXIT_REFUSED, name,
			"statically linked programs cannot be run under Cairn: link it without "
			"-static, or with libcairn");
	if (kind != ELF_DYNAMIC)
		return refuse(EXIT_REFUSED, name, "not a 64-bit x86 program");
	return 0;
}

int check_program(const char *name, char *path)
{
	return check_at(name, path, 0);
}
