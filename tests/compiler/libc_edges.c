/* SPDX-License-Identifier: MIT */
/*
 * What libc writes to memory of the program where that is easily taken for more than it is, or for
 * less: the last bytes that are mapped, pointers that mean nothing, tables that were named long
 * ago. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <iconv.h>
#include <langinfo.h>
#include <limits.h>
#include <locale.h>
#include <pthread.h>
#include <regex.h>
#include <sched.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../lib/harness.h"

#define TEXT (1ul << 20)
#define PAGE 4096ul

static char table[128], other[64], before[128];

#pragma weak dlsym

/* The first that libc frees is what dlsym had to say of an error: in the midst of another dlsym. */
static void missing_names(void)
{
	for (int i = 0; i < 3 && dlsym; i++)
		CHECK(!dlsym(RTLD_DEFAULT, "there_is_no_such_function"));
}

/* Short words of a long text, to where nothing is mapped behind. */
static void scan(void)
{
	char *text = malloc(TEXT), *end, set[8];

	end = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(text && end != MAP_FAILED && !munmap(end + PAGE, PAGE));
	memset(text, 'x', TEXT);
	for (size_t i = 3; i < TEXT; i += 4)
		text[i] = ' ';
	text[TEXT - 1] = 0;
	CHECK_RC(sscanf(text, "%s", end + PAGE - 4), 1);
	CHECK(!strcmp(end + PAGE - 4, "xxx"));
	CHECK_RC(sscanf(text, "%*s %[x]", end + PAGE - 4), 1);
	CHECK_RC(sscanf("a b", "%7s", set), 1);
	CHECK(!munmap(end, PAGE));
	free(text);
}

static void match(void)
{
	regex_t re;

	CHECK(!regcomp(&re, "a(b)", REG_NOSUB | REG_EXTENDED));
	CHECK(!regexec(&re, "xab", 2, (regmatch_t *)16, 0));
	regfree(&re);
}

/* The program's texts stay as they are, and change only when they are its own. */
static void environment(void)
{
	static char text[] = "EDGE=1";

	CHECK(!putenv(text) && !setenv("EDGE", "1", 1));
	text[5] = '2';
	CHECK(!strcmp(getenv("EDGE"), "1"));
	CHECK(!setenv("EDGE", "1", 1) && !unsetenv("EDGE"));
}

static void paths(void)
{
	char to[PATH_MAX] = "untouched";

	CHECK(!realpath("/proc/no-such-name/beyond", to) && !strcmp(to, "/proc/no-such-name"));
	CHECK(realpath("/proc/..", to) && !strcmp(to, "/"));
}

static void randoms(cairn_t *c, int way)
{
	uint64_t id;

	CHECK(initstate(1, table, sizeof(table)));
	CHECK(way != 3 || initstate(2, other, sizeof(other)));
	CHECK(way != 3 || setstate(table) == other);
	memcpy(before, table, sizeof(table));
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	CHECK_OK(cairn_rewind(c, id));
	switch (way) {
	case 0:
	case 3:
		for (int i = 0; i < 5; i++)
			(void)random();
		break;
	case 1:
		srandom(7);
		break;
	case 2:
		(void)random();
		CHECK(initstate(3, other, sizeof(other)) == table && setstate(table) == other);
		break;
	default:
		(void)rand();
		break;
	}
	CHECK(memcmp(before, table, sizeof(table)) != 0);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(!memcmp(before, table, sizeof(table)));
}

/* Libc's heap is used for other things. */
static void churn(void)
{
	for (int i = 0; i < 200; i++) {
		posix_spawn_file_actions_t f;
		regex_t re;

		CHECK(!regcomp(&re, "a(b)*[cd]", REG_EXTENDED));
		regfree(&re);
		CHECK(!posix_spawn_file_actions_init(&f));
		CHECK(!posix_spawn_file_actions_addopen(&f, 50, "/nowhere", 0, 0));
		CHECK(!posix_spawn_file_actions_destroy(&f));
	}
}

/* What has been ended, or has grown, is there again. */
static void ends(cairn_t *c)
{
	static pthread_attr_t attributes;
	static posix_spawn_file_actions_t files;
	iconv_t how = iconv_open("UTF-16LE", "UTF-8");
	locale_t l = newlocale(LC_ALL_MASK, "C.UTF-8", NULL);
	char out[8], *argv[] = { "true", NULL }, *in = "x", *to = out;
	size_t in_left = 1, out_left = sizeof(out);
	volatile int turn = 0;
	uint64_t id;
	int status;
	pid_t pid;

	CHECK(how != (iconv_t)-1 && l);
	CHECK(!pthread_getattr_np(pthread_self(), &attributes));
	CHECK(!posix_spawn_file_actions_init(&files));
	for (int i = 0; i < 8; i++) /* libc's first list is full */
		CHECK(!posix_spawn_file_actions_addopen(&files, 10 + i, "/dev/null", 0, 0));
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	CHECK_OK(cairn_rewind(c, id));
	for (turn = 0; turn < 3; turn++) {
		CHECK(!pthread_attr_destroy(&attributes) && !iconv_close(how));
		freelocale(l);
		for (int i = 0; i < 20; i++)
			CHECK(!posix_spawn_file_actions_addclose(&files, 100 + i));
		CHECK(turn == 1 || !posix_spawn_file_actions_destroy(&files));
		churn();
		CHECK_OK(cairn_rewind(c, id));
		churn();
	}
	CHECK(!posix_spawnp(&pid, "true", &files, NULL, argv, environ));
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	CHECK(!iconv(how, &in, &in_left, &to, &out_left) && out[0] == 'x' && out_left == 6);
	CHECK(uselocale(l) && uselocale(LC_GLOBAL_LOCALE) == l);
	freelocale(l);
	CHECK(!pthread_attr_destroy(&attributes) && !iconv_close(how));
	CHECK(!posix_spawn_file_actions_destroy(&files));
	for (int i = 0; i < 3; i++) { /* what was put off is done */
		CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
		free(malloc(10));
	}
}

/* A base is as it was, whatever libc has made of it. */
static void bases(cairn_t *c)
{
	locale_t base = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL), made;
	char codeset[20] = ""; /* not UTF-8 in a static program */
	volatile int turn;
	uint64_t id;

	CHECK(base != NULL);
	strncpy(codeset, nl_langinfo_l(CODESET, base), sizeof(codeset) - 1);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	CHECK_OK(cairn_rewind(c, id));
	for (turn = 0; turn < 3; turn++) {
		CHECK(!newlocale(LC_CTYPE_MASK, "no_such_locale", base));
		made = newlocale(LC_CTYPE_MASK, "C", base);
		CHECK(made && !strcmp(nl_langinfo_l(CODESET, made), "ANSI_X3.4-1968"));
		freelocale(made);
		churn();
		CHECK_OK(cairn_rewind(c, id));
		CHECK(!strcmp(nl_langinfo_l(CODESET, base), codeset));
	}
	freelocale(base);
}

static void sets(cairn_t *c)
{
	static pthread_attr_t a;
	cpu_set_t set, got;
	uint64_t id;

	CPU_ZERO(&set);
	CPU_SET(0, &set);
	CHECK(!pthread_attr_init(&a));
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(!pthread_attr_setaffinity_np(&a, sizeof(set), &set));
	CHECK(!pthread_attr_getaffinity_np(&a, sizeof(got), &got) && CPU_COUNT(&got) == 1);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(!pthread_attr_getaffinity_np(&a, sizeof(got), &got) && CPU_COUNT(&got) != 1);
	CHECK(!pthread_attr_destroy(&a));
}

int main(int argc, char **argv)
{
	uint64_t id;
	cairn_t *c;

	CHECK(argc == 2);
	missing_names();
	c = test_open_built(argv[1]);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	scan();
	match();
	environment();
	paths();
	for (int way = 0; way < 5; way++)
		randoms(c, way);
	ends(c);
	bases(c);
	sets(c);
	CHECK_OK(cairn_close(c));
	return 0;
}
