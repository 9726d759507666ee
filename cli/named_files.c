/* SPDX-License-Identifier: MIT */
#include "named_files.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "session/session.h"
#include "sites_text.h"

static bool wrong(const char *what, const char *path, const char *why)
{
	fprintf(stderr, "cairn run: %s %s: %s\n", what, path, why);
	return false;
}

static bool check_profile(const char *path, const char *surface, const char *sites)
{
	char why[CRN_PROFILE_WHY];
	/* Not to wait for whoever opens the other end of a pipe: it is refused below. */
	int fd = open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
	struct stat st = { .st_size = 0 };
	void *bytes = NULL;
	bool good;

	if (fd < 0 || fstat(fd, &st) < 0)
		return wrong("profile", path, strerror(errno));
	if (!S_ISREG(st.st_mode)) {
		close(fd);
		return wrong("profile", path, "not a regular file");
	}
	if (st.st_size)
		bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (bytes == MAP_FAILED)
		return wrong("profile", path, strerror(errno));
	good = crn_profile_check(bytes, (size_t)st.st_size, surface, sites, why) >= 0 ||
		wrong("profile", path, why);
	if (bytes)
		munmap(bytes, (size_t)st.st_size);
	return good;
}

bool check_oracle(const struct crn_config *c)
{
	const char *strategy = c->strategy;
	static const char name[] = "oracle", key[] = "profile=";
	char path[PATH_MAX], sites[512];
	const char *at;

	if (strncmp(strategy, name, strlen(name)) != 0)
		return true;
	at = strstr(strategy, key);
	if (!at) {
		fprintf(stderr, "cairn run: an oracle needs the trace of an earlier run: "
				"%.*s:profile=/PATH\n",
			(int)strcspn(strategy, ":"), strategy);
		return false;
	}
	snprintf(path, sizeof(path), "%s", at + strlen(key));
	path[strcspn(path, ",")] = 0;
	crn_sites_text(c, sites, sizeof(sites));
	/* A bound may be of another run. */
	return check_profile(path, strategy[strlen(name)] == ':' ? c->surface : NULL, sites);
}

bool check_trace(const char *path)
{
	char folder[PATH_MAX];
	struct stat st;
	char *slash;

	if (stat(path, &st) == 0) {
		if (S_ISDIR(st.st_mode))
			return wrong("trace", path, strerror(EISDIR));
		return access(path, W_OK) == 0 || wrong("trace", path, strerror(errno));
	}
	snprintf(folder, sizeof(folder), "%s", path);
	slash = strrchr(folder, '/');
	if (slash)
		slash[slash == folder] = 0;
	return access(slash ? folder : ".", W_OK | X_OK) == 0 ||
		wrong("trace", path, strerror(errno));
}
