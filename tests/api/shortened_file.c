/* SPDX-License-Identifier: MIT */
/*
 * A private file mapping whose file is cut short under it: its pages are gone, and whoever touches
 * them is killed by SIGBUS. That may not happen inside the engine.
 * cut_file_test TRACKER [clean]
 *
 * With "clean" one of the pages that go has not been written since the first checkpoint: a tracker
 * that has no copy of it cannot go back to when it was there.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cairn/cairn.h"

#define PAGE 4096ul

static int failures;
static bool copies = true; /* the tracker has the content of clean pages */

static void expect(bool good, const char *what, int err)
{
	if (good)
		return;
	fprintf(stderr, "%s: %d (%s)\n", what, err, cairn_strerror(err));
	failures++;
}

static int ignore_change(void *ctx, void *addr, size_t len, const void *from, const void *to)
{
	return 0;
}

int main(int argc, char **argv)
{
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	int fd = memfd_create("cut", 0), err;
	bool clean = argc > 2;
	uint64_t first, second, third;
	volatile char *map;
	cairn_t *c;
	char byte;

	if (fd < 0 || ftruncate(fd, 4 * PAGE) < 0)
		return 1;
	map = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	memset((char *)map, 'a', 4 * PAGE);
	options.tracker = argc > 1 ? argv[1] : "auto";
	options.surface = "none";
	options.keep = 8;
	err = cairn_open(&c, &options);
	if (err == CAIRN_ENOTRACK) {
		printf("SKIP: tracker %s (this host cannot run it)\n", options.tracker);
		return 77;
	}
	expect(err >= 0, "cairn_open", err);
	if (clean)
		copies = strcmp(options.tracker, "uffd") && strcmp(options.tracker, "mprotect");
	err = cairn_area_add(c, (char *)map, 4 * PAGE);
	expect(err >= 0, "cairn_area_add", err);
	err = cairn_checkpoint(c, &first);
	expect(err >= 0, "first checkpoint", err);
	map[0] = 'b';
	map[2 * PAGE] = 'b';
	err = cairn_checkpoint(c, &second);
	expect(err >= 0, "second checkpoint", err);
	map[0] = 'c';
	if (!clean)
		map[PAGE] = 'c';
	map[2 * PAGE] = 'c';
	map[3 * PAGE] = 'c';
	if (ftruncate(fd, PAGE) < 0)
		return 1;

	/* The past is there; going back to it is refused, and changes nothing. */
	err = cairn_peek(c, second, (char *)map + 2 * PAGE, &byte, 1);
	expect(err >= 0 && byte == 'b', "peek of a page that is cut off", err);
	err = cairn_changes(c, second, CAIRN_NOW, ignore_change, NULL);
	expect(copies ? err >= 0 : err == CAIRN_ELAYOUT, "changes", err);
	err = cairn_rewind(c, second);
	expect(err == CAIRN_ELAYOUT && map[0] == 'c', "rewind to the newest", err);
	err = cairn_rewind(c, first);
	expect(err == CAIRN_ELAYOUT && map[0] == 'c', "rewind to an older one", err);
	err = cairn_checkpoint(c, &third);
	expect(err >= 0, "third checkpoint", err);

	/* When the file is as long as it was, everything can be put back. */
	if (ftruncate(fd, 4 * PAGE) < 0)
		return 1;
	err = cairn_rewind(c, third);
	expect(err >= 0 && map[0] == 'c' && map[2 * PAGE] == 0, "rewind to the cut file", err);
	err = cairn_rewind(c, second);
	if (copies)
		expect(err >= 0 && map[0] == 'b' && map[PAGE] == 'a' && map[2 * PAGE] == 'b',
			"rewind to before", err);
	else
		expect(err < 0 && map[0] == 'c' && map[2 * PAGE] == 0, "rewind to before", err);
	err = cairn_close(c);
	expect(err >= 0, "cairn_close", err);
	return failures != 0;
}
