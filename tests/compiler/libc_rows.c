/* SPDX-License-Identifier: MIT */
/*
 * One row for each function of libc that writes memory of the program and whose wrapper no other
 * test would miss: what it wrote comes back, and it did what it does without hooks (libc_run.h).
 * Without its wrapper no row would pass (canary.libc.rows), for which reason nothing else may write
 * to the same places before it.
 *
 *	ROW(name, outcome, before, call...)
 *
 * before: done before the checkpoint. call: it writes from `at` on; `n` is its result.
 */
#define OUT (40 * 1024)
#include "libc_rows.h"
#include "libc_rows_files.h"
#include "libc_rows_heap.h"
#include "libc_rows_network.h"
#include "libc_rows_process.h"
#include "libc_rows_threads.h"

#define BEFORE(...) __VA_ARGS__
#define ROW(name, outcome, before, ...)                       \
	static void before_##name(char *at) { (void)at; before; } \
	static long call_##name(char *at)                     \
	{                                                     \
		long n = 0;                                   \
                                                              \
		(void)at;                                     \
		__VA_ARGS__;                                  \
		return n;                                     \
	}
#include "libc_rows_list.def"
#undef ROW

static const struct libc_case cases[] = {
#define ROW(name, outcome, before, ...) { #name, call_##name, outcome, before_##name },
#include "libc_rows_list.def"
};

int main(int argc, char **argv)
{
	CHECK(setlocale(LC_CTYPE, "C.UTF-8"));
	place = newlocale(LC_ALL_MASK, "C", NULL);
	CHECK(place && !setenv("TZ", "CET-1", 1));
	tzset(); /* of which only the first sets errno */
	make_input();
	open_streams();
	open_files();
	open_sockets();
	open_resolver();
	block_signals();
	join_groups();
	make_orphan();
	return run_cases(cases, sizeof(cases) / sizeof(*cases), argc > 1 ? argv[1] : NULL);
}
