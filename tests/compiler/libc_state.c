/* SPDX-License-Identifier: MIT */
/*
 * A program that lives on the state of its libc: streams, heap, environment, random numbers,
 * tables, time zones, signals. Between its steps checkpoints are taken and restores leave
 * (csmith_points.c); built with -fcairn-complete, all of that state comes back, byte by byte, and
 * what it prints at its end is what it prints without a session.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fenv.h>
#include <fcntl.h>
#include <locale.h>
#include <search.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

void oracle_point(void);

#define ROUNDS 24
#define BLOCKS 64

static unsigned long sum = 5381;
static FILE *lines, *memory; /* one that is read, one that grows */
static char *grown;
static size_t grown_size;
static int file, ends[2];
static void *tree;
static char *blocks[BLOCKS];
static volatile sig_atomic_t signals;

static void add(const char *text)
{
	while (*text)
		sum = sum * 33 + (unsigned char)*text++;
}

static void add_number(long n)
{
	sum = sum * 33 + (unsigned long)n;
}

static void randoms(int round)
{
	unsigned short seed[3] = { 1, 2, (unsigned short)round };

	add_number(rand() + random() + (long)(drand48() * 1e6) + lrand48() + nrand48(seed));
	if (round % 5 == 3)
		srand((unsigned)round);
}

static void streams(int round)
{
	char line[64];

	if (!fgets(line, sizeof(line), lines)) {
		rewind(lines);
		add_number(ftell(lines));
	} else {
		add(line);
	}
	add_number(getc(lines));
	ungetc('u', lines);
	fprintf(memory, "%d:%s:%8.3f ", round, line, round / 7.0);
	fflush(memory);
	add(grown + grown_size / 2);
}

static void heap(int round)
{
	for (int i = 0; i < 40; i++) {
		int slot = rand() % BLOCKS;
		size_t size = (size_t)(rand() % 7 ? rand() % 300 : rand() % 300000) + 1;

		if (blocks[slot] && rand() % 3) {
			free(blocks[slot]);
			blocks[slot] = NULL;
			continue;
		}
		blocks[slot] = rand() % 4 ? realloc(blocks[slot], size)
					  : (free(blocks[slot]), calloc(1, size));
		memset(blocks[slot], round, size);
		add_number((unsigned char)blocks[slot][size - 1]);
	}
}

static int compare(const void *a, const void *b)
{
	return strcmp(a, b);
}

static void tables(int round)
{
	char name[32], *copy, **found;
	ENTRY entry = { .data = NULL };

	snprintf(name, sizeof(name), "name%d", rand() % 40);
	copy = strdup(name);
	found = tsearch(copy, &tree, compare);
	add(*found);
	if (*found != copy)
		free(copy);
	if (round % 3 == 0 && (found = tfind(name, &tree, compare))) {
		copy = *found;
		tdelete(name, &tree, compare);
		free(copy);
	}
	entry.key = "fixed";
	add_number(hsearch(entry, round ? FIND : ENTER) != NULL);
	setenv(name, round % 2 ? "odd" : "even", 1);
	add(getenv(name));
	if (round % 4 == 0)
		unsetenv(name);
}

static void times_and_places(int round)
{
	time_t t = 86400L * 400 * round;
	wchar_t wide[40];

	setenv("TZ", round % 2 ? "UTC0" : "CET-1CEST,M3.5.0,M10.5.0", 1);
	tzset();
	add(asctime(localtime(&t)));
	add(setlocale(LC_ALL, round % 2 ? "C" : "C.UTF-8"));
	add_number((long)mbstowcs(wide, "w\xc3\xa4it", 40));
	add(strerror(round));
	errno = round;
	fesetround(round % 2 ? FE_UPWARD : FE_TONEAREST);
	snprintf((char *)wide, sizeof(wide), "%.3f", round / 3.0);
	add((char *)wide);
	fesetround(FE_TONEAREST);
}

static void count_signal(int n)
{
	signals += n == SIGUSR1;
}

static void kernel(int round)
{
	static jmp_buf again;
	char buffer[300];
	struct stat st;

	add_number(pread(file, buffer, sizeof(buffer), round) + fstat(file, &st) + st.st_size);
	buffer[299] = 0;
	add(buffer + 290);
	add_number(send(ends[0], "message", 7, 0) + recv(ends[1], buffer, sizeof(buffer), 0));
	signal(SIGUSR1, count_signal);
	raise(SIGUSR1);
	add_number(signals);
	if (!setjmp(again))
		longjmp(again, 1);
	add_number(errno);
}

static void prepare(void)
{
	static char text[2048];

	file = memfd_create("lines", 0);
	for (int i = 0; i < 60; i++)
		sprintf(text + strlen(text), "line %d of a file\n", i * i);
	if (write(file, text, sizeof(text)) != sizeof(text))
		exit(2);
	/* Not of the descriptor, whose position would not go back. */
	lines = fmemopen(text, strlen(text), "r");
	memory = open_memstream(&grown, &grown_size);
	if (!hcreate(50) || socketpair(AF_UNIX, SOCK_STREAM, 0, ends) < 0)
		exit(2);
}

int main(void)
{
	static void (*const steps[])(int) = { randoms, streams, heap, tables, times_and_places,
		kernel };

	prepare();
	for (int round = 0; round < ROUNDS; round++) {
		for (size_t i = 0; i < sizeof(steps) / sizeof(*steps); i++) {
			steps[i](round);
			oracle_point();
		}
	}
	printf("%lx\n", sum);
	return 0;
}
