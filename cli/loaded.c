/* SPDX-License-Identifier: MIT */
#include "loaded.h"
#include <fcntl.h>
#include <limits.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "elf_file.h"

extern char **environ;

bool loaded_is(const char *wanted, const char *name, const char *path)
{
	size_t n = strlen(wanted);
	const char *file = elf_base_name(name);
	char real[PATH_MAX];

	/* The file behind a link, as `cairn profile` and /proc show it. */
	if (realpath(path, real) && !strcmp(wanted, elf_base_name(real)))
		return true;
	return !strcmp(wanted, file) || !strcmp(wanted, elf_base_name(path)) ||
		!strcmp(wanted, path) || (!strncmp(wanted, file, n) && file[n] == '.');
}

/* "\tlibz.so.1 => /lib/libz.so.1 (0x7f...)", "\t/lib64/ld.so (0x...)"; the rest has no file. */
static bool split(char *line, char **name, char **path)
{
	char *arrow = strstr(line, " => "), *end = strstr(line, " (0x");

	if (!end)
		return false;
	*end = '\0';
	*name = line + strspn(line, " \t");
	*path = *name;
	if (arrow) {
		*arrow = '\0';
		*path = arrow + 4;
	}
	return **path == '/';
}

/* The linker's standard output, or NULL; *pid is to be waited for. */
static FILE *list(const char *interpreter, const char *program, pid_t *pid)
{
	char *argv[] = { (char *)interpreter, "--list", (char *)program, NULL };
	posix_spawn_file_actions_t actions;
	int fd[2], e;

	if (pipe2(fd, O_CLOEXEC) < 0)
		return NULL;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fd[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	e = posix_spawn(pid, interpreter, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(fd[1]);
	if (e == 0)
		return fdopen(fd[0], "r");
	close(fd[0]);
	return NULL;
}

bool loaded_each(const char *interpreter, const char *program,
	bool (*fn)(void *arg, const char *name, const char *path), void *arg)
{
	char *line = NULL, *name, *path;
	size_t room = 0;
	bool found = false;
	pid_t pid;
	FILE *f = list(interpreter, program, &pid);

	if (!f)
		return false;
	while (getline(&line, &room, f) > 0)
		if (!found && split(line, &name, &path))
			found = fn(arg, name, path);
	free(line);
	fclose(f);
	waitpid(pid, NULL, 0);
	return found;
}
