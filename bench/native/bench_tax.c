/* SPDX-License-Identifier: MIT */
/*
 * What a session with a feed costs everybody else on the host: the price of a page fault in a
 * process that is not tracked, without any session, beside one that scans, and beside one that is
 * fed. And of one in the tracked process, outside its areas.
 */
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cairn/cairn.h"
#include "measure.h"

#define TABLE "tax"

enum { NO_SESSION, BY_SCAN, BY_BPF, WAYS };
static const char *const rows[WAYS] = { "no session", "session, scan", "session, bpf" };
static struct series strangers[WAYS], own[WAYS];
static int missing[WAYS];

static uint64_t fault_pages(size_t pages)
{
	char *at = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		0);
	uint64_t begin;

	if (at == MAP_FAILED)
		fail("mmap", "no memory");
	madvise(at, pages * PAGE, MADV_NOHUGEPAGE);
	begin = tick();
	for (size_t p = 0; p < pages; p++)
		at[p * PAGE] = 1;
	begin = tick() - begin;
	munmap(at, pages * PAGE);
	return begin;
}

/* In a child of its own: the engine is not there. The time comes back through a pipe. */
static uint64_t fault_elsewhere(size_t pages)
{
	uint64_t cycles = 0;
	int ends[2];
	pid_t pid;

	if (pipe(ends) || (pid = fork()) < 0)
		fail("fork", "refused");
	if (!pid) {
		(void)fault_pages(pages); /* its page tables */
		cycles = fault_pages(pages);
		_exit(write(ends[1], &cycles, sizeof(cycles)) != sizeof(cycles));
	}
	if (read(ends[0], &cycles, sizeof(cycles)) != sizeof(cycles))
		fail("pipe", "the child said nothing");
	close(ends[0]);
	close(ends[1]);
	waitpid(pid, NULL, 0);
	return cycles;
}

static void run(int way, size_t pages, int samples)
{
	static const char *const feeds[WAYS] = { NULL, "scan", "bpf" };
	struct cairn_options options = CAIRN_OPTIONS_INIT;
	cairn_t *session = NULL;

	options.tracker = "async";
	options.strategy = "none"; /* the tracker's own price */
	options.surface = "none";
	options.feed = feeds[way];
	if (way != NO_SESSION)
		missing[way] = cairn_open(&session, &options);
	if (missing[way] < 0)
		return;
	for (int i = 0; i < samples; i++) {
		series_add(&own[way], 0, fault_pages(pages));
		series_add(&strangers[way], 0, fault_elsewhere(pages));
	}
	if (session && cairn_close(session) < 0)
		fail("cairn_close", "refused");
}

int main(int argc, char **argv)
{
	size_t pages = 2000;

	measure_begin(argc, argv);
	for (int round = 0; round < (toy ? 1 : 9); round++)
		for (int way = 0; way < WAYS; way++)
			run(way, pages, toy ? 2 : 10);
	for (int way = 0; way < WAYS; way++) {
		if (missing[way] < 0) {
			emit_missing(TABLE, rows[way], cairn_strerror(missing[way]));
			continue;
		}
		emit(TABLE, rows[way], &strangers[way], pages, "\"where\":\"another process\"");
		emit(TABLE, rows[way], &own[way], pages, "\"where\":\"the same process\"");
		series_free(&strangers[way]);
		series_free(&own[way]);
	}
	return 0;
}
