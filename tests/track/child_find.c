/* SPDX-License-Identifier: MIT */
#include "child_find.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>
#include "../lib/harness.h"

const char *child_name;
volatile sig_atomic_t sigchlds;

/* The state letter and the parent of a process; 0 if it is not there. */
static char look_at(pid_t pid, pid_t *parent, bool *named)
{
	char path[32], text[256] = { 0 }, *name_end, state;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return 0;
	name_end = strrchr(text, ')');
	snprintf(path, sizeof(path), "(%s)", child_name);
	*named = strstr(text, path) != NULL;
	return sscanf(name_end, ") %c %d", &state, parent) == 2 ? state : 0;
}

size_t children_find(pid_t pids[CHILDREN_MAX])
{
	DIR *proc = opendir("/proc");
	struct dirent *entry;
	size_t count = 0;

	CHECK(proc != NULL);
	while ((entry = readdir(proc))) {
		pid_t parent, pid = atoi(entry->d_name);
		bool named;
		char state = pid > 0 ? look_at(pid, &parent, &named) : 0;

		if (state && state != 'Z' && state != 'X' && named && parent == getpid() &&
			count < CHILDREN_MAX)
			pids[count++] = pid;
	}
	closedir(proc);
	return count;
}

bool is_dead(pid_t pid)
{
	pid_t parent;
	bool named;
	char state = look_at(pid, &parent, &named);

	return !state || state == 'Z' || state == 'X' || !named;
}

void expect_deaths(const pid_t *pids, size_t count)
{
	for (int waited = 0; waited < PATIENCE_MS; waited += 10) {
		size_t dead = 0;

		for (size_t i = 0; i < count; i++)
			dead += is_dead(pids[i]);
		if (dead == count)
			return;
		usleep(10000);
	}
	test_fail("a %s lives on", child_name);
}

void on_sigchld(int sig)
{
	sigchlds++;
}

void expect_no_children(void)
{
	siginfo_t info;

	CHECK(wait(NULL) == -1 && errno == ECHILD);
	CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
	CHECK(waitpid(0, NULL, WUNTRACED) == -1 && errno == ECHILD);
	CHECK(waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOHANG) == -1 && errno == ECHILD);
}
