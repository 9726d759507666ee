/* SPDX-License-Identifier: MIT */
/*
 * A program that uses the library itself, under the agent: libcairn.so joins its engine, a copy
 * from libcairn.a cannot, and must not take back the agent's memory. argv[1]: joins, own.
 */
#include <cairn/cairn.h>
#include <poll.h>
#include <stdbool.h>
#include "expect.h"

static volatile long value;

static void come_to_sites(void)
{
	for (int i = 0; i < 3; i++)
		EXPECT(poll(NULL, 0, 1) == 0);
}

static void go_back(cairn_t *c)
{
	uint64_t id;
	int ret;

	value = 1;
	ret = cairn_checkpoint(c, &id);
	if (ret == CAIRN_TAKEN) {
		value = 2;
		ret = cairn_restore(c, id);
	}
	EXPECT(ret == CAIRN_RESTORED && value == 1);
}

int main(int argc, char **argv)
{
	bool joins = argc > 1 && !strcmp(argv[1], "joins");
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	cairn_t *c;

	come_to_sites();
	if (joins) {
		EXPECT(cairn_open(&c, &options) == 0);
		go_back(c);
		EXPECT(cairn_close(c) == 0);
	} else {
		EXPECT(cairn_open(&c, &options) == CAIRN_EBUSY);
		options.surface = "none";
		EXPECT(cairn_open(&c, &options) == CAIRN_EBUSY);
	}
	come_to_sites();
	puts("joins: ok");
	return 0;
}
