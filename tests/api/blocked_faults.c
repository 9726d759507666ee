/* SPDX-License-Identifier: MIT */
/*
 * blocked_faults TRACKER OBJECT: a program that has blocked all signals would die of a load that
 * raises one. A part of a loaded object cannot be read, because its file has been cut short: a
 * session over all memory opens all the same, and brings back what can be read.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/sendfile.h>
#include "../lib/harness.h"

#define PAGE 4096ul

static volatile uint8_t mine = 1;

static uint8_t *load_copy(const char *object, int *copy)
{
	char name[] = "./blocked_faults-XXXXXX";
	int original = open(object, O_RDONLY);
	off_t size = lseek(original, 0, SEEK_END), at = 0;
	void *loaded, *data;

	*copy = mkstemp(name);
	CHECK(original >= 0 && *copy >= 0);
	while (at < size)
		CHECK(sendfile(*copy, original, &at, (size_t)size) > 0);
	loaded = dlopen(name, RTLD_NOW);
	CHECK(unlink(name) == 0);
	data = loaded ? dlsym(loaded, "cut_data") : NULL;
	CHECK(data);
	return data;
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint8_t *data;
	uint64_t id;
	sigset_t all;
	cairn_t *c;
	int copy;

	CHECK(argc == 3);
	data = load_copy(argv[2], &copy);
	data[0] = 1;
	CHECK(ftruncate(copy, PAGE) == 0);
	sigfillset(&all);
	CHECK(sigprocmask(SIG_BLOCK, &all, NULL) == 0);
	o.tracker = argv[1];
	c = test_open(&o);
	for (int i = 0; i < 3; i++)
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	mine = 2;
	CHECK_OK(cairn_rewind(c, id));
	CHECK(mine == 1);
	CHECK_OK(cairn_close(c));
	_exit(0); /* the object's own functions have gone, too */
}
