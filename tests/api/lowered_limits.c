/* SPDX-License-Identifier: MIT */
/*
 * lowered_limits TRACKER CASE: the program lowers RLIMIT_AS or RLIMIT_DATA to what it uses, after a
 * checkpoint at which it used more. A restore brings all of that back and leaves the limit, or,
 * where the limit may not be raised, is refused before anything changes.
 */
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include "../lib/harness.h"

#define SIZE (1ul << 20)

static cairn_t *c;
static uint64_t id;
static uint8_t *area;
static char word[16] = "before";

static uint64_t used(const char *what)
{
	char text[4096], *at;
	int fd = open("/proc/self/status", O_RDONLY);
	ssize_t n = read(fd, text, sizeof(text) - 1);

	CHECK(n > 0 && close(fd) == 0);
	text[n] = 0;
	at = strstr(text, what);
	CHECK(at);
	return strtoull(at + strlen(what), NULL, 10) << 10;
}

static void lower(int resource, bool hard)
{
	uint64_t now = used(resource == RLIMIT_AS ? "VmSize:" : "VmData:");
	struct rlimit limit;

	CHECK(getrlimit(resource, &limit) == 0 && limit.rlim_cur > now);
	limit.rlim_cur = now;
	if (hard)
		limit.rlim_max = now;
	CHECK(setrlimit(resource, &limit) == 0);
}

static bool as_it_was(void)
{
	for (size_t i = 0; i < SIZE; i++)
		if (area[i] != (uint8_t)(i * 7))
			return false;
	return true;
}

static void take(void)
{
	area = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(area != MAP_FAILED);
	for (size_t i = 0; i < SIZE; i++)
		area[i] = (uint8_t)(i * 7);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	strcpy(word, "after");
}

/* Back to `take`; the limit is what was set. */
static void back(int resource)
{
	struct rlimit was, is;

	CHECK(getrlimit(resource, &was) == 0);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(as_it_was() && !strcmp(word, "before"));
	memset(area, 1, SIZE);
	CHECK(getrlimit(resource, &is) == 0);
	CHECK(is.rlim_cur == was.rlim_cur && is.rlim_max == was.rlim_max);
}

static void gone(int resource)
{
	take();
	CHECK(munmap(area, SIZE) == 0);
	lower(resource, false);
	back(resource);
}

static void gone_space(void)
{
	gone(RLIMIT_AS);
}

static void gone_data(void)
{
	gone(RLIMIT_DATA);
}

/* It may have the right to raise it again. */
static void gone_for_good(int resource)
{
	unsigned char there;
	int err;

	take();
	CHECK(munmap(area, SIZE) == 0);
	lower(resource, true);
	err = cairn_rewind(c, id);
	CHECK(err == 0 || err == -ENOMEM);
	if (err == 0) {
		CHECK(as_it_was() && !strcmp(word, "before"));
		return;
	}
	CHECK(!strcmp(word, "after"));
	CHECK(mincore(area, SIZE, &there) < 0 && errno == ENOMEM);
}

static void gone_space_for_good(void)
{
	gone_for_good(RLIMIT_AS);
}

static void gone_data_for_good(void)
{
	gone_for_good(RLIMIT_DATA);
}

/* What a restore unmaps makes room for what it maps again, whatever the limit. */
static void replaced(void)
{
	uint8_t *other;

	take();
	CHECK(munmap(area, SIZE) == 0);
	other = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(other != MAP_FAILED);
	other[0] = 1;
	lower(RLIMIT_AS, true);
	lower(RLIMIT_DATA, true);
	back(RLIMIT_AS);
}

static void closed(void)
{
	take();
	CHECK(mprotect(area, SIZE, PROT_READ) == 0);
	lower(RLIMIT_DATA, false);
	back(RLIMIT_DATA);
}

static const struct test_case cases[] = {
	{ "gone_space", gone_space },
	{ "gone_data", gone_data },
	{ "gone_space_for_good", gone_space_for_good },
	{ "gone_data_for_good", gone_data_for_good },
	{ "replaced", replaced },
	{ "closed", closed },
	{ NULL, NULL },
};

int main(int argc, char **argv)
{
	struct cairn_options options = CAIRN_OPTIONS_INIT;

	CHECK(argc == 3);
	options.tracker = argv[1];
	options.keep = 2;
	c = test_open(&options);
	return test_run_case(cases, argv[2]);
}
