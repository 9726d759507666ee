/* SPDX-License-Identifier: MIT */
#include "track/hooked/inner_pages.h"
#include "base/arena.h"

static void lost(struct crn_track_env *env, uintptr_t addr, int why)
{
	struct crn_track_env *session = ((struct crn_inner_pages *)env)->session;

	session->lost(session, addr, why);
}

static int load(struct crn_track_env *env, void *dst, uintptr_t addr, size_t len)
{
	struct crn_track_env *session = ((struct crn_inner_pages *)env)->session;

	return session->load(session, dst, addr, len);
}

int crn_inner_open(struct crn_inner_pages *p, struct crn_track_env *session)
{
	CRN_TRY(crn_inner->probe(session->host));
	p->session = session;
	p->env = *session;
	p->env.predictor = NULL;
	p->env.one_thread = true;
	p->env.faults_forwarded = true; /* there are none */
	p->env.feed = "scan";
	p->env.dropped = true;
	p->env.lost = lost;
	p->env.load = load;
	p->env.closed = false; /* nobody follows mappings */
	return crn_inner->open(&p->tracker, &p->env);
}

void crn_inner_close(struct crn_inner_pages *p)
{
	if (p->tracker)
		crn_inner->close(p->tracker);
	p->tracker = NULL;
}

struct page_sink {
	struct crn_sink sink;
	struct crn_arena *arena;
};

static int discard_prepare(struct crn_sink *self, size_t count, size_t bare)
{
	return crn_frame_reserve(((struct page_sink *)self)->arena, bare);
}

static int discard_take(struct crn_sink *self, uintptr_t addr, size_t len, void *old, bool owned)
{
	if (owned)
		crn_frame_free(((struct page_sink *)self)->arena, old);
	return 0;
}

int crn_inner_catch_up(struct crn_inner_pages *p)
{
	struct page_sink discard = {
		.sink = { .prepare = discard_prepare, .take = discard_take },
		.arena = p->env.arena,
	};

	return crn_inner->interval_end(p->tracker, &discard.sink);
}
