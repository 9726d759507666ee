/* SPDX-License-Identifier: MIT */
/* Which feed, and its proof: a feed is believed only after it has been seen to report. */
#include "track/feeds/feed.h"
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/clock.h"
#include "os/memory.h"
#include "os/other_task.h"
#include "os/thread.h"
#include "os/userfault.h"

#define PROOF_PAGES  7
#define PROOF_TRIES  3
#define SETTLE_TRIES 64
#define REST_TRIES   128
#define REST_NS      2000000 /* for each: a quarter of a second in all */
/* All tries together, where each turn of ours takes as long as the others' do. */
#define PATIENCE_NS       2000000000ull
#define PATIENCE_NAMED_NS 10000000000ull /* there is no other one to be had */
#define OLD          1 /* what each byte of the pages is before */

const struct crn_feed_ops *const crn_feeds[] = {
	&crn_feed_bpf,
	&crn_feed_perf,
	NULL,
};

bool crn_feed_exists(const char *name)
{
	for (size_t i = 0; crn_feeds[i]; i++) {
		if (crn_streq(name, crn_feeds[i]->name))
			return true;
	}
	return crn_streq(name, "auto") || crn_streq(name, "scan") ||
		crn_streq(name, crn_feed_bpf_images.name);
}

/* ---- The proof ------------------------------------------------------------------------------- */

struct proof {
	struct crn_feed *feed;
	struct crn_range_list written, open;
	uintptr_t pages;
	int uffd;
	uint64_t deadline; /* crn_clock_kernel_ns */
};

/* Only an image that is right counts. */
static void note_image(void *arg, const struct crn_image *image)
{
	const uint8_t *old = image->old;
	struct proof *p = arg;

	for (size_t i = 0; old && i < CRN_PAGE_SIZE; i++)
		if (old[i] != OLD)
			return;
	if (old && image->calm)
		(void)crn_range_list_add(
			&p->written, image->page, image->page + CRN_PAGE_SIZE);
}

static int look(struct proof *p)
{
	crn_range_list_shrink(&p->written, 0);
	crn_range_list_shrink(&p->open, 0);
	if (!p->feed->ops->images)
		return p->feed->ops->drain(p->feed, &p->written, &p->open);
	return p->feed->ops->images(p->feed, note_image, p, &p->open);
}

/*
 * Nothing to report and nothing to doubt. Other threads may run: give up some time; and where each
 * must have been seen at rest, as much as it takes them on a busy machine to get there.
 */
static bool settle(struct proof *p)
{
	unsigned patience = p->feed->ops->births_doubt ? REST_TRIES : 0;

	for (unsigned tries = 0; tries < SETTLE_TRIES + patience; tries++) {
		int doubt = look(p);

		if (doubt == 0 && p->feed->ops->calm)
			p->feed->ops->calm(p->feed);
		if (doubt <= 0)
			return doubt == 0;
		if (crn_clock_kernel_ns() > p->deadline)
			break;
		if (tries < SETTLE_TRIES)
			crn_yield();
		else
			crn_doze(REST_NS);
	}
	return false;
}

static bool reports(struct proof *p, unsigned page)
{
	uintptr_t at = p->pages + page * CRN_PAGE_SIZE;

	return look(p) >= 0 && crn_range_list_meets(&p->written, at, at + CRN_PAGE_SIZE);
}

static bool reports_new_task(struct proof *p, unsigned page)
{
	return p->feed->ops->births_doubt ? look(p) == CRN_FEED_DOUBT : reports(p, page);
}

static bool proves_tasks(struct proof *p)
{
	uint8_t *at = (uint8_t *)p->pages;

	/* Each may be cause for doubt as it ends. */
	return crn_store_by_thread(at + 2 * CRN_PAGE_SIZE) >= 0 && reports_new_task(p, 2) &&
		settle(p) && crn_store_by_child(at + 3 * CRN_PAGE_SIZE) >= 0 &&
		reports_new_task(p, 3);
}

static const char restless[] = "it never comes to rest";

static const char *unproven(struct proof *p)
{
	uint8_t *at = (uint8_t *)p->pages;
	uint8_t byte = 7;

	if (!settle(p))
		return restless;
	*(volatile uint8_t *)at = 7;
	if (!reports(p, 0))
		return "a store was not reported";
	if (crn_store_by_kernel(at + CRN_PAGE_SIZE) < 0 || !reports(p, 1))
		return "a write by a system call was not reported";
	if (!proves_tasks(p))
		return "a store by another task was not reported";
	if (!settle(p) || crn_memory_force_write((uintptr_t)at + 4 * CRN_PAGE_SIZE, &byte, 1) < 0 ||
		(!look(p) && !reports(p, 4)))
		return "a write that raises no fault was not noticed";
	if (!settle(p) || crn_memory_advise(at + 5 * CRN_PAGE_SIZE, CRN_PAGE_SIZE, MADV_DONTNEED) ||
		!look(p))
		return "a dropped page was not noticed";
	(void)p->feed->ops->maps_quiet(p->feed);
	if (!settle(p) || crn_memory_protect(at + 6 * CRN_PAGE_SIZE, CRN_PAGE_SIZE, PROT_READ) ||
		!look(p) || p->feed->ops->maps_quiet(p->feed))
		return "a change of the mappings was not noticed";
	return NULL;
}

/* Somebody else on the host may disturb it: that is no reason to do without. */
static const char *try_often(struct proof *p, size_t len)
{
	const char *missing = NULL;

	for (unsigned tries = 0; tries < PROOF_TRIES; tries++) {
		(void)crn_memory_protect((void *)p->pages, len, PROT_READ | PROT_WRITE);
		crn_fill((void *)p->pages, OLD, len);
		if (crn_uffd_protect(p->uffd, p->pages, len, true) < 0)
			return "no memory to try it on";
		missing = unproven(p);
		if (!missing)
			break;
		if (crn_clock_kernel_ns() > p->deadline)
			return restless;
	}
	return missing;
}

/* NULL, or what it did not report. */
static const char *prove(
	struct crn_feed *feed, struct crn_track_env *env, int uffd, bool wanted)
{
	uint64_t patience = wanted ? PATIENCE_NAMED_NS : PATIENCE_NS;
	struct proof p = { .feed = feed, .uffd = uffd,
		.deadline = crn_clock_kernel_ns() + patience };
	const size_t len = PROOF_PAGES * CRN_PAGE_SIZE;
	const char *missing = "no memory to try it on";
	void *memory;

	if (crn_memory_map(&memory, len) < 0)
		return missing;
	p.pages = (uintptr_t)memory;
	if (feed->ops->bounds)
		feed->ops->bounds(feed, p.pages, p.pages + len);
	crn_range_list_open(&p.written, env->arena);
	crn_range_list_open(&p.open, env->arena);
	if (crn_uffd_register(uffd, p.pages, len) >= 0)
		missing = try_often(&p, len);
	crn_range_list_close(&p.written);
	crn_range_list_close(&p.open);
	crn_memory_unmap(memory, len);
	if (feed->ops->forget)
		feed->ops->forget(feed, p.pages, p.pages + len);
	return missing;
}

/* ---- The choice ------------------------------------------------------------------------------ */

static int refuse(struct crn_track_env *env, const struct crn_feed_ops *ops, const char *why)
{
	env->feed_refused = ops->name;
	env->feed_why = why;
	return CAIRN_ENOTRACK;
}

int crn_feed_prove(struct crn_feed **out, const struct crn_feed_ops *ops,
	struct crn_track_env *env, int uffd, bool wanted)
{
	enum crn_log_level level = wanted ? CRN_LOG_WARN : CRN_LOG_INFO;
	struct crn_feed *feed;
	const char *missing;
	int err = ops->open(&feed, env);

	if (err < 0) {
		crn_log(level, "feed %s: %s", ops->name, cairn_strerror(err));
		return refuse(env, ops, cairn_strerror(err));
	}
	missing = prove(feed, env, uffd, wanted);
	if (!missing && ops->hold(feed) < 0)
		missing = "too many descriptors";
	if (missing) {
		crn_log(level, "feed %s is not used: %s", ops->name, missing);
		ops->close(feed);
		return refuse(env, ops, missing);
	}
	*out = feed;
	return 0;
}

int crn_feed_choose(struct crn_feed **out, const char *name, struct crn_track_env *env, int uffd)
{
	bool any = !name || crn_streq(name, "auto");

	*out = NULL;
	if (!any && crn_streq(name, "scan"))
		return 0;
	if (any && env->shares_feed)
		return crn_feed_prove(out, &crn_feed_bpf, env, uffd, false);
	for (size_t i = 0; crn_feeds[i]; i++) {
		int err;

		if (!any && !crn_streq(name, crn_feeds[i]->name))
			continue;
		err = crn_feed_prove(out, crn_feeds[i], env, uffd, !any);
		if (!any || err >= 0)
			return err;
	}
	return any ? 0 : CAIRN_EOPTION;
}
