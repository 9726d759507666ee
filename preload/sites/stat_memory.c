/* SPDX-License-Identifier: MIT */
/* The page that `cairn stat` reads, and the summary at exit, which is made of the same figures. */
#include <sys/mman.h>
#include "base/copy.h"
#include "base/log.h"
#include "effects/hold.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/log_writer.h"
#include "os/sys.h"
#include "recover/recover.h"
#include "session/session.h"
#include "sites/sites.h"
#include "stat_page.h"

/* About 50 ms on any machine: the engine's figures are copied no more often. */
#define STAT_TICKS (1ull << 27)

int crn_stat_open(struct crn_sites *sites)
{
	const struct crn_config *config = &crn_agent->config;
	struct crn_stat_page *page;
	long addr;
	int fd = crn_fd_memory(CRN_STAT_NAME, CRN_STAT_SIZE);

	if (fd < 0)
		return fd;
	addr = crn_sys6(SYS_mmap, 0, CRN_STAT_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if ((unsigned long)addr >= -4095ul) {
		crn_fd_close(fd);
		return (int)addr;
	}
	/* A child writes into a page of its own. */
	crn_sys3(SYS_madvise, addr, CRN_STAT_SIZE, MADV_DONTFORK);
	crn_fd_engine(fd, true);
	page = (struct crn_stat_page *)addr;
	page->version = CRN_STAT_VERSION;
	page->pid = crn_agent->pid;
	page->keep = config->keep ? config->keep : config->recover ? 8 : 1;
	page->recover = config->recover;
	page->site_count = config->site_count;
	for (uint32_t i = 0; i < CRN_MIN(config->site_count, (uint32_t)CRN_ARRAY_SIZE(page->sites));
		i++)
		crn_copy(page->sites[i], config->sites[i].text, sizeof(page->sites[i]));
	page->opened_ns = crn_clock_kernel_ns();
	page->engine.size = sizeof(page->engine);
	crn_agent->stat = page;
	crn_stat_update(sites, true);
	page->magic = CRN_STAT_MAGIC;
	return 0;
}

static void fill(struct crn_stat_page *page, const struct crn_sites *sites)
{
	const struct crn_recover *r = crn_agent->recover;

	page->hits = 0;
	for (uint32_t i = 0; i < crn_agent->config.site_count; i++)
		page->hits += sites->hits[i];
	page->newest = crn_agent->newest;
	page->checkpoints = sites->taken;
	page->outputs = sites->outputs;
	page->failed = sites->failed;
	page->nested = sites->nested;
	page->held = crn_hold_sends();
	if (!r)
		return;
	page->recoveries = r->recoveries;
	page->refused = r->refused;
	page->resets = r->resets;
	page->recovery_ns = r->recovery_ns;
	page->recovery_ns_last = r->recovery_ns_last;
}

static void fill_rivals(struct crn_stat_page *page)
{
	struct crn_rival r;
	size_t i = 0;

	for (; i < CRN_STAT_RIVALS && crn_session_rival(crn_agent->session, i, &r); i++) {
		struct crn_stat_rival *to = &page->rivals[i];

		crn_fill(to, 0, sizeof(*to));
		crn_copy(to->name, r.name, CRN_MIN(crn_strlen(r.name), sizeof(to->name) - 1));
		to->intervals = r.intervals;
		to->overcopied = r.overcopied;
		to->undercopied = r.undercopied;
		to->weighted_smc = r.weighted_smc;
		to->weighted_host = r.weighted_host;
		to->host_cycles = r.host_cycles;
		to->own_cycles = r.own_cycles;
	}
	page->rival_count = i;
}

void crn_stat_update(struct crn_sites *sites, bool all)
{
	struct crn_stat_page *page = crn_agent->stat;
	uint64_t now;

	if (!page)
		return;
	now = crn_clock_ticks();
	__atomic_store_n(&page->sequence, page->sequence + 1, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	fill(page, sites);
	if (all || now - sites->stat_tsc > STAT_TICKS) {
		sites->stat_tsc = now;
		(void)!cairn_stats(crn_agent->session, &page->engine);
		fill_rivals(page);
	}
	__atomic_store_n(&page->sequence, page->sequence + 1, __ATOMIC_RELEASE);
}

/* ---- the summary ----------------------------------------------------------------------------- */

static uint64_t mean(uint64_t sum, uint64_t count)
{
	return count ? sum / count : 0;
}

static void print(const char *text, size_t len, size_t size)
{
	int fd = crn_log_start();

	if (fd >= 0)
		crn_fd_write_line(fd, text, CRN_MIN(len, size - 1));
}

static void summary_json(const struct crn_stat_page *p)
{
	const struct cairn_stats *s = &p->engine;
	char line[2048];
	size_t n = crn_format(line, sizeof(line),
		"{\"pid\": %d, \"tracker\": \"%s\", \"keep\": %u, "
		"\"hits\": %lu, \"checkpoints\": %lu, "
		"\"outputs\": %lu, \"failed\": %lu, "
		"\"nested\": %lu, \"recoveries\": %lu, \"refused\": %lu, \"resets\": %lu, "
		"\"pages_saved\": %lu, "
		"\"pages_restored\": %lu, \"checkpoint_ns\": %lu, \"recovery_ns\": %lu, "
		"\"strategy\": \"%s\", \"strategy_why\": \"%s\", "
		"\"pages_eager\": %lu, \"faults\": %lu, \"hot_pages\": %lu, "
		"\"overcopied\": %lu, \"undercopied\": %lu, \"promotions\": %lu, "
		"\"evictions\": %lu, \"contexts\": %lu, "
		"\"price_fault\": %lu, \"price_copy\": %lu, \"price_protect\": %lu, "
		"\"price_open\": %lu, "
		"\"surface_bytes\": %lu, "
		"\"engine_bytes\": %lu, \"engine_bytes_max\": %lu, \"held\": %lu, "
		"\"feed\": \"%s\", \"feed_why\": \"%s\", \"scans\": %lu}\n",
		p->pid, s->tracker, p->keep, p->hits, p->checkpoints, p->outputs, p->failed,
		p->nested, p->recoveries, p->refused, p->resets, s->pages_saved, s->pages_restored,
		s->checkpoint_ns, p->recovery_ns, s->strategy, s->strategy_why, s->pages_eager,
		s->faults,
		s->hot_pages, s->overcopied, s->undercopied, s->promotions, s->evictions,
		s->contexts, s->price_fault, s->price_copy, s->price_protect, s->price_open,
		s->surface_bytes, s->engine_bytes,
		s->engine_bytes_max, p->held, s->feed, s->feed_why, s->scans);

	print(line, n, sizeof(line));
}

static void summary_text(const struct crn_stat_page *p)
{
	const struct cairn_stats *s = &p->engine;
	char text[1024];
	size_t n = crn_format(text, sizeof(text),
		"cairn: pid %d, tracker %s: %lu sites passed (%lu nested), %lu checkpoints (%lu of "
		"them after outputs), %lu failed\n"
		"cairn:   per checkpoint %lu.%02lu pages, %lu ns; surface %lu KiB, engine %lu KiB "
		"(at most %lu KiB)\n",
		p->pid, s->tracker[0] ? s->tracker : "none", p->hits, p->nested, p->checkpoints,
		p->outputs, p->failed, mean(s->pages_saved, p->checkpoints),
		mean(s->pages_saved * 100, p->checkpoints) % 100,
		mean(s->checkpoint_ns, p->checkpoints), s->surface_bytes >> 10,
		s->engine_bytes >> 10, s->engine_bytes_max >> 10);

	print(text, n, sizeof(text));
	if (s->feed[0]) {
		n = crn_format(text, sizeof(text), "cairn:   feed %s: %lu scans%s%s%s\n",
			s->feed, s->scans, s->feed_why[0] ? "; not " : "", s->feed_why,
			crn_stat_feed_hint(s));
		print(text, n, sizeof(text));
	}
	if (s->strategy[0]) {
		n = crn_format(text, sizeof(text),
			"cairn:   strategy %s (%s): %lu pages hot; per checkpoint "
			"%lu.%02lu overcopied, %lu.%02lu undercopied; %lu promotions, "
			"%lu evictions\n",
			s->strategy, s->strategy_why, s->hot_pages,
			mean(s->overcopied, p->checkpoints),
			mean(s->overcopied * 100, p->checkpoints) % 100,
			mean(s->undercopied, p->checkpoints),
			mean(s->undercopied * 100, p->checkpoints) % 100, s->promotions,
			s->evictions);
		print(text, n, sizeof(text));
	}
	if (s->price_copy) {
		uint64_t under = (s->price_fault + s->price_protect) * 100 / s->price_copy;

		n = crn_format(text, sizeof(text),
			"cairn:   prices here: a fault %lu cycles, a copy %lu, a protection %lu, "
			"an opening %lu; an overcopied page weighs 1, an undercopied one "
			"%lu.%02lu\n",
			s->price_fault, s->price_copy, s->price_protect, s->price_open,
			under / 100, under % 100);
		print(text, n, sizeof(text));
	}
	if (!p->recover)
		return;
	n = crn_format(text, sizeof(text),
		"cairn:   %lu recoveries (%lu us on average), %lu refused, %lu connections reset; "
		"%lu sends held\n",
		p->recoveries, mean(p->recovery_ns, p->recoveries) / 1000, p->refused, p->resets,
		p->held);
	print(text, n, sizeof(text));
}

/* Under --strategy meta: a line for each strategy, with means per interval. */
static void summary_rivals(bool json)
{
	struct crn_rival r;
	char text[512];

	for (size_t i = 0; crn_session_rival(crn_agent->session, i, &r); i++) {
		size_t n = crn_format(text, sizeof(text),
			json ? "{\"pid\": %d, \"rival\": \"%s\", \"intervals\": %lu, "
			       "\"op\": %lu.%02lu, \"up\": %lu.%02lu, \"mp\": %lu.%02lu, "
			       "\"wmp_smc\": %lu.%02lu, \"wmp_host\": %lu.%02lu, "
			       "\"cycles\": %lu, \"own_cycles\": %lu}\n"
			     : "cairn:   pid %d, %s: of %lu intervals each %lu.%02lu overcopied, "
			       "%lu.%02lu undercopied, %lu.%02lu together, %lu.%02lu weighted, "
			       "%lu.%02lu by the prices here; %lu cycles here, %lu of its own\n",
			crn_agent->pid, r.name, r.intervals, mean(r.overcopied, r.intervals),
			mean(r.overcopied * 100, r.intervals) % 100,
			mean(r.undercopied, r.intervals),
			mean(r.undercopied * 100, r.intervals) % 100,
			mean(r.overcopied + r.undercopied, r.intervals),
			mean((r.overcopied + r.undercopied) * 100, r.intervals) % 100,
			mean(r.weighted_smc, r.intervals) / 100,
			mean(r.weighted_smc, r.intervals) % 100,
			mean(r.weighted_host, r.intervals) / 100,
			mean(r.weighted_host, r.intervals) % 100,
			mean(r.host_cycles, r.intervals), mean(r.own_cycles, r.intervals));

		print(text, n, sizeof(text));
	}
}

void crn_stat_summary(void)
{
	struct crn_stat_page none = {.pid = crn_agent->pid, .recover = crn_agent->config.recover};
	const struct crn_stat_page *page = crn_agent->stat ? crn_agent->stat : &none;

	if (crn_agent->stat)
		crn_stat_update(crn_agent->sites, true);
	summary_rivals(crn_agent->config.stats_json);
	if (crn_agent->config.stats_json)
		summary_json(page);
	else
		summary_text(page);
}
