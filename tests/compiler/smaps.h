/* SPDX-License-Identifier: MIT */
/* /proc/self/smaps, read without stdio and malloc: their memory is the process's. */
#ifndef CRN_TESTS_SMAPS_H
#define CRN_TESTS_SMAPS_H

#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include "../lib/harness.h"

/* In memory that no restore brings back. */
struct smaps {
	char text[1 << 20];
};

static inline void read_smaps(struct smaps *m)
{
	int fd = open("/proc/self/smaps", O_RDONLY | O_CLOEXEC);
	size_t used = 0;
	ssize_t n;

	CHECK(fd >= 0);
	while ((n = read(fd, m->text + used, sizeof(m->text) - 1 - used)) > 0)
		used += (size_t)n;
	close(fd);
	m->text[used] = 0;
	CHECK(used < sizeof(m->text) - 1);
}

/* Cuts the next mapping out of the text: its line, and its flags after that line's end. */
static inline char *next_mapping(char **text, const char **flags)
{
	char *line = *text, *end;

	if (!*line)
		return NULL;
	end = strstr(line, "\nVmFlags:");
	CHECK(end);
	end = strchr(end + 1, '\n');
	*end = 0;
	*text = end + 1;
	end = strchr(line, '\n');
	*end = 0;
	*flags = end + 1;
	return line;
}

#endif
