/* SPDX-License-Identifier: MIT */
/*
 * Input that is still to be given again when the program forks. Parent and child have the same
 * descriptors. Whoever reads first must get the input and the other nothing, as from the kernel. So
 * the input is copied to memory that both share, with one word per stream, the claim: the first
 * process that takes from the stream leaves its process id there. The child finds the copy at its
 * first call, opens its session there, and adopts it.
 *
 *	mapping  | struct crn_left_input | streams | claims | the pool up to pool_used |
 *
 * The mapping is shared, so it is in no surface. It stays mapped, because all this happens only
 * between a recovery and the moment at which the input has been read.
 */
#include <sched.h>
#include "base/copy.h"
#include "base/log.h"
#include "effects/effects.h"
#include "effects/inherited_input.h"
#include "os/memory.h"

struct crn_left_input {
	uint32_t stream_count, pool_used;
	struct crn_stream *streams;
	uint8_t *pool;
};

bool crn_stream_is_gone(const struct crn_stream *s)
{
	uint32_t who = s->claim ? __atomic_load_n(s->claim, __ATOMIC_ACQUIRE) : 0;

	return who && who != (uint32_t)crn_agent->pid;
}

bool crn_stream_claim(struct crn_stream *s)
{
	uint32_t nobody = 0;

	if (!s->claim)
		return true;
	__atomic_compare_exchange_n(s->claim, &nobody, (uint32_t)crn_agent->pid, false,
		__ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	return !crn_stream_is_gone(s);
}

bool crn_input_leave(void)
{
	struct crn_effects *e = crn_agent->effects;
	size_t streams = e->stream_count * sizeof(struct crn_stream),
	       claims = (e->stream_count * sizeof(uint32_t) + 7) & ~7ul;
	struct crn_left_input *l;
	uint32_t *words;
	void *at;

	if (crn_memory_map_shared(&at, sizeof(*l) + streams + claims + e->pool_used) < 0)
		return false;
	l = at;
	crn_maps_changed(crn_agent->session);
	l->stream_count = e->stream_count;
	l->pool_used = e->pool_used;
	l->streams = (struct crn_stream *)(l + 1);
	words = (uint32_t *)((uint8_t *)l->streams + streams);
	l->pool = (uint8_t *)words + claims;
	for (uint32_t i = 0; i < e->stream_count; i++)
		if (!e->streams[i].claim) /* else it is shared already */
			e->streams[i].claim = &words[i];
	crn_copy(l->streams, e->streams, streams);
	crn_copy(l->pool, e->pool, e->pool_used);
	crn_agent->left_input = l;
	return true;
}

void crn_input_adopt(void)
{
	struct crn_effects *e = crn_agent->effects;
	const struct crn_left_input *l = crn_agent->left_input;

	crn_agent->left_input = NULL;
	if (!l)
		return;
	crn_copy(e->streams, l->streams, l->stream_count * sizeof(*l->streams));
	crn_copy(e->pool, l->pool, l->pool_used);
	e->stream_count = l->stream_count;
	e->pool_used = l->pool_used;
	/* Timers and the like are known by the numbers by which the parent knew them. */
	for (uint32_t i = 0; i < e->stream_count; i++)
		if (!e->streams[i].dev && e->streams[i].ino <= INT32_MAX)
			crn_fd_look((int)e->streams[i].ino);
	crn_streams_count();
}
