/* SPDX-License-Identifier: MIT */
/*
 * Patterns and buffers of streams, of which libc keeps a part in the program's memory, and a part
 * in its own heap: after a rewind both parts go together still. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include "../lib/harness.h"

#define ROUNDS 30
#define WORDS  40

/* The program's: comes back. */
static struct re_pattern_buffer found, freed;
static struct re_registers registers;
static regex_t plain;
static char *blocks[WORDS];
static struct {
	_Alignas(128) char before[40]; /* in one region with the buffer's begin */
	char buffer[1000];
	char after[40];
} stream;

static void compile(struct re_pattern_buffer *re, const char *pattern)
{
	memset(re, 0, sizeof(*re));
	re->fastmap = malloc(256);
	CHECK(re->fastmap && !re_compile_pattern(pattern, strlen(pattern), re));
}

static void search(unsigned round)
{
	char text[100];
	int at = (int)(round % 50), len = snprintf(text, sizeof(text), "%*sab%u", at, "", round);

	CHECK_U64(re_search(&found, text, len, 0, len, &registers), (unsigned)at);
	CHECK_U64(registers.start[0], (unsigned)at);
	CHECK_U64(registers.end[1], (unsigned)len);
}

/* Libc's heap is used for other things. */
static void churn(unsigned round)
{
	for (size_t i = 0; i < WORDS; i++) {
		regex_t other;
		char word[20];

		snprintf(word, sizeof(word), "x%u(y*)[%zu]", round, i);
		CHECK(!regcomp(&other, word, REG_EXTENDED));
		regfree(&other);
		free(blocks[i]);
		blocks[i] = strdup(word);
	}
}

static void change(unsigned round)
{
	search(round + 1);
	regfree(&freed);
	regfree(&plain);
	churn(round);
	compile(&freed, "z\\(.*\\)z\\(.\\)z\\(.\\)");
	CHECK_U64(re_match(&freed, "zazbzc", 6, 0, &registers), 6u);
	CHECK(!regcomp(&plain, "other", 0));
}

static void check_patterns(unsigned round)
{
	regmatch_t match[2];

	CHECK(!regexec(&plain, "the quick fox", 2, match, 0));
	CHECK_U64(match[1].rm_so, 6u);
	CHECK_U64(re_match(&freed, "qq", 2, 0, NULL), 2u);
	search(round);
}

/* All that was printed arrives, whatever came back beside the buffer. */
static void check_stream(cairn_t *c)
{
	FILE *f = tmpfile();
	char text[5000];
	uint64_t id;
	size_t n;

	CHECK(f && !setvbuf(f, stream.buffer, _IOFBF, sizeof(stream.buffer)));
	CHECK(fprintf(f, "begin ") == 6);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	stream.before[3] = stream.after[3] = 1;
	for (int i = 0; i < 300; i++)
		CHECK(fprintf(f, "%09d ", i) == 10);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(!stream.before[3] && !stream.after[3] && !fflush(f));
	rewind(f);
	n = fread(text, 1, sizeof(text), f);
	CHECK_U64(n, 3006u);
	for (int i = 0; i < 300; i++)
		CHECK(atoi(text + 6 + 10 * i) == i && text[6 + 10 * i + 9] == ' ');
	CHECK(!fclose(f));
}

int main(int argc, char **argv)
{
	struct re_pattern_buffer before[2];
	char fastmap[256];
	uint64_t id;
	cairn_t *c;

	(void)argc;
	c = test_open_built(argv[1]);
	re_set_syntax(RE_SYNTAX_POSIX_BASIC);
	for (unsigned round = 0; round < ROUNDS; round++) {
		compile(&found, "a\\(b[0-9]*\\)");
		compile(&freed, "q*");
		CHECK(!regcomp(&plain, "qu(i)ck", REG_EXTENDED));
		if (round % 2)
			search(round);
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		before[0] = found;
		before[1] = freed;
		memcpy(fastmap, found.fastmap, sizeof(fastmap));
		CHECK_OK(cairn_rewind(c, id));
		change(round);
		CHECK_OK(cairn_rewind(c, id));
		CHECK(!memcmp(&before[0], &found, sizeof(found)));
		CHECK(!memcmp(&before[1], &freed, sizeof(freed)));
		CHECK(!memcmp(fastmap, found.fastmap, sizeof(fastmap)));
		churn(round);
		check_patterns(round);
		regfree(&found);
		regfree(&freed);
		regfree(&plain);
	}
	check_stream(c);
	CHECK_OK(cairn_close(c));
	return 0;
}
