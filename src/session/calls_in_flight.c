/* SPDX-License-Identifier: MIT */
/*
 * System calls of other threads that are under way while a checkpoint is taken. The kernel may
 * still write to their buffers, so trackers that would refuse such a write must leave the buffers
 * open.
 */
#include "session/engine.h"
#include "base/check.h"

struct in_flight {
	cairn_t *c;
	struct crn_ranges *ranges;
	int err;
};

static void note_in_flight(void *arg, uintptr_t addr, size_t len)
{
	struct in_flight *to = arg;
	uintptr_t end = addr + len < addr ? UINTPTR_MAX : addr + len;

	if (to->err >= 0)
		to->err = crn_ranges_add(to->c, to->ranges, addr, end);
}

int crn_in_flight_add(cairn_t *c, struct crn_ranges *ranges, bool others)
{
	struct in_flight to = { c, ranges, 0 };

	if (c->agent && crn_agent_in_flight)
		crn_agent_in_flight(others, note_in_flight, &to);
	return to.err;
}

int crn_in_flight_begin(cairn_t *c)
{
	int err;

	if (!crn_refuses_kernel(c->ops))
		return 0;
	c->in_flight.count = 0;
	err = crn_in_flight_add(c, &c->in_flight, false);
	c->env.in_flight = c->in_flight.at;
	c->env.in_flight_count = err < 0 ? 0 : c->in_flight.count;
	return err;
}

void crn_in_flight_end(cairn_t *c)
{
	c->env.in_flight_count = 0;
}
