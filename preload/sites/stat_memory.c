/* SPDX-License-Identifier: MIT */
/* The page that `cairn stat` reads, and the summary at exit, which is made of the same figures. */
#include <sys/mman.h>
#include "base/copy.h"
#include "base/log.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/sys.h"
#include "recover/recover.h"
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
	sites->stat_fd = fd;
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
	if (!r)
		return;
	page->recoveries = r->recoveries;
	page->refused = r->refused;
	page->resets = r->resets;
	page->recovery_ns = r->recovery_ns;
	page->recovery_ns_last = r->recovery_ns_last;
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
	char line[1024];
	size_t n = crn_format(line, sizeof(line),
		"{\"pid\": %d, \"tracker\": \"%s\", \"hits\": %lu, \"checkpoints\": %lu, "
		"\"outputs\": %lu, \"failed\": %lu, "
		"\"nested\": %lu, \"recoveries\": %lu, \"refused\": %lu, \"resets\": %lu, "
		"\"pages_saved\": %lu, "
		"\"pages_restored\": %lu, \"checkpoint_ns\": %lu, \"recovery_ns\": %lu, "
		"\"surface_bytes\": %lu, "
		"\"engine_bytes\": %lu, \"engine_bytes_max\": %lu}\n",
		p->pid, s->tracker, p->hits, p->checkpoints, p->outputs, p->failed, p->nested,
		p->recoveries, p->refused, p->resets, s->pages_saved, s->pages_restored,
		s->checkpoint_ns, p->recovery_ns, s->surface_bytes, s->engine_bytes,
		s->engine_bytes_max);

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
	if (!p->recover)
		return;
	n = crn_format(text, sizeof(text),
		"cairn:   %lu recoveries (%lu us on average), %lu refused, %lu connections reset\n",
		p->recoveries, mean(p->recovery_ns, p->recoveries) / 1000, p->refused, p->resets);
	print(text, n, sizeof(text));
}

void crn_stat_summary(void)
{
	struct crn_stat_page none = {.pid = crn_agent->pid, .recover = crn_agent->config.recover};
	const struct crn_stat_page *page = crn_agent->stat ? crn_agent->stat : &none;

	if (crn_agent->stat)
		crn_stat_update(crn_agent->sites, true);
	if (crn_agent->config.stats_json)
		summary_json(page);
	else
		summary_text(page);
}
