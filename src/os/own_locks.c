/* SPDX-License-Identifier: MIT */
#include "os/own_locks.h"

#include <errno.h>
#include <stdbool.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/proc.h"
#include "os/thread.h"

/* 1: POSIX  ADVISORY  READ 1234 fd:01:5678 0 EOF */
enum { NUMBER, KIND, MODE, ACCESS, PID, FILE_ID, BEGIN, LAST, WORDS };

/* What the kernel tells by one read, from one look at its list. */
#define TEXT_MAX 4096

/* The words of a line; behind it. */
static const char *split(const char *at, const char *words[WORDS])
{
	int n = 0;

	for (int i = 0; i < WORDS; i++)
		words[i] = "";
	while (*at && *at != '\n') {
		while (*at == ' ')
			at++;
		if (n < WORDS)
			words[n++] = at;
		while (*at && *at != ' ' && *at != '\n')
			at++;
	}
	return at + (*at == '\n');
}

static uint64_t number(const char *at)
{
	uint64_t value = 0;

	if (*at < '0' || *at > '9')
		return UINT64_MAX; /* EOF */
	for (; *at >= '0' && *at <= '9'; at++)
		value = value * 10 + (uint64_t)(*at - '0');
	return value;
}

int crn_own_locks(uint64_t begin, uint64_t last)
{
	char text[TEXT_MAX + 1];
	const char *words[WORDS];
	long len;

	if (crn_proc_is_foreign())
		return -EXDEV;
	CRN_TRY(len = crn_file_read("/proc/locks", text, sizeof(text)));
	if (len == TEXT_MAX)
		return -EMSGSIZE;
	for (const char *at = text; *at;) {
		at = split(at, words);
		if (crn_starts_with(words[KIND], "POSIX") &&
			number(words[PID]) == (uint64_t)crn_getpid() &&
			number(words[BEGIN]) <= last && number(words[LAST]) >= begin)
			return 1;
	}
	return 0;
}
