/* SPDX-License-Identifier: MIT */
/*
 * Exceptions that are blocks of libc's heap (-fcairn-heap=off): an interval in which one is thrown is
 * refused, one in which none is comes back.
 */
#include "../lib/harness.h"

static volatile int value;

static void throw_one(int n)
{
	try {
		throw n;
	} catch (int caught) {
		value = caught;
	}
}

int main()
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;
	uint64_t id;

	CHECK_OK(cairn_open(&c, &o));
	throw_one(1);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	throw_one(2);
	CHECK_RC(cairn_restore(c, id), CAIRN_EFAILED);
	CHECK(value == 2);
	if (cairn_checkpoint(c, &id) == CAIRN_TAKEN) {
		value = 3;
		CHECK(cairn_restore(c, id) < 0);
	}
	CHECK(value == 2);
	CHECK_OK(cairn_close(c));
	return 0;
}
