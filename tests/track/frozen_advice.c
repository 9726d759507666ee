/* SPDX-License-Identifier: MIT */
/* Memory that the program's own children do not get: checkpoints hold it, those still do not. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "frozen.h"

/* In a child of the program the advice still counts. */
static void expect_advice(volatile uint8_t *wiped, volatile uint8_t *missing)
{
	int ends[2], status;
	pid_t pid;

	CHECK(!pipe(ends));
	pid = fork();
	if (pid == 0) {
		if (write(ends[1], (const void *)missing, 1) != -1 || errno != EFAULT)
			_exit(1);
		_exit(*wiped == 0 ? 0 : 2);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_U64((uint64_t)status, 0);
	close(ends[0]);
	close(ends[1]);
}

/* With `late` the checkpoints before the advice have proved that nothing is missing. */
static void advice_case(bool late)
{
	volatile uint8_t *wiped = map_pages(4, MAP_PRIVATE), *missing = map_pages(4, MAP_PRIVATE);
	uint64_t id;
	uint8_t seen;

	open_session(4);
	CHECK_OK(cairn_area_add(c, (void *)wiped, 4 * PAGE));
	CHECK_OK(cairn_area_add(c, (void *)missing, 4 * PAGE));
	wiped[0] = missing[0] = 1;
	if (late)
		(void)checkpoint();
	CHECK(!madvise((void *)wiped, 4 * PAGE, MADV_WIPEONFORK));
	CHECK(!madvise((void *)missing, 4 * PAGE, MADV_DONTFORK));
	wiped[PAGE] = missing[PAGE] = 2;
	id = checkpoint();
	wiped[0] = missing[0] = 3;
	wiped[PAGE] = missing[PAGE] = 3;
	wiped[2 * PAGE] = missing[2 * PAGE] = 3;
	CHECK_OK(cairn_peek(c, id, (void *)wiped, &seen, 1));
	CHECK_U64(seen, 1);
	CHECK_OK(cairn_peek(c, id, (void *)missing, &seen, 1));
	CHECK_U64(seen, 1);
	(void)checkpoint();
	expect_advice(wiped, missing);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(wiped[0] == 1 && wiped[PAGE] == 2 && wiped[2 * PAGE] == 0);
	CHECK(missing[0] == 1 && missing[PAGE] == 2 && missing[2 * PAGE] == 0);
	expect_advice(wiped, missing);
	CHECK_OK(cairn_close(c));
}

void case_advice(void)
{
	advice_case(false);
}

void case_late_advice(void)
{
	advice_case(true);
}

/* Of 8 pages: what a child of the program finds, a bit for each that is there with its content. */
static unsigned inherited(const volatile uint8_t *pages)
{
	int ends[2], status;
	unsigned seen = 0;
	pid_t pid;

	CHECK(!pipe(ends));
	pid = fork();
	if (pid == 0) {
		for (unsigned i = 0; i < 8; i++)
			if (write(ends[1], (const void *)(pages + i * PAGE), 1) == 1 &&
				pages[i * PAGE])
				seen |= 1u << i;
		_exit((int)seen);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	close(ends[0]);
	close(ends[1]);
	return (unsigned)WEXITSTATUS(status);
}

static void write_pages(volatile uint8_t *pages, uint8_t value)
{
	for (size_t i = 0; i < 8; i++)
		pages[i * PAGE] = value;
}

/* Parts of one area have advice, others have not; and it may be taken back. */
void case_advice_parts(void)
{
	volatile uint8_t *pages = map_pages(8, MAP_PRIVATE);
	uint64_t id;

	open_session(4);
	CHECK_OK(cairn_area_add(c, (void *)pages, 8 * PAGE));
	write_pages(pages, 1);
	CHECK(!madvise((void *)(pages + 3 * PAGE), 2 * PAGE, MADV_DONTFORK));
	CHECK(!madvise((void *)(pages + 6 * PAGE), PAGE, MADV_WIPEONFORK));
	id = checkpoint();
	write_pages(pages, 2);
	CHECK_OK(cairn_rewind(c, id));
	for (size_t i = 0; i < 8; i++)
		CHECK_U64(pages[i * PAGE], 1);
	CHECK_U64(inherited(pages), 0xa7);
	(void)checkpoint();
	CHECK_U64(inherited(pages), 0xa7);
	CHECK(!madvise((void *)(pages + 3 * PAGE), 2 * PAGE, MADV_DOFORK));
	CHECK(!madvise((void *)(pages + 6 * PAGE), PAGE, MADV_KEEPONFORK));
	id = checkpoint();
	CHECK_U64(inherited(pages), 0xff);
	write_pages(pages, 3);
	CHECK_OK(cairn_rewind(c, id));
	for (size_t i = 0; i < 8; i++)
		CHECK_U64(pages[i * PAGE], 1);
	CHECK_OK(cairn_close(c));
}

/* Pages of a file that a child does not get are as good as others. */
void case_advice_file(void)
{
	int file = memfd_create("advised", MFD_CLOEXEC);
	volatile uint8_t *map;
	uint64_t id;

	open_session(2);
	CHECK(file >= 0 && !ftruncate(file, 8 * PAGE) && pwrite(file, "f", 1, 0) == 1);
	map = mmap(NULL, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
	CHECK(map != MAP_FAILED);
	CHECK_OK(cairn_area_add(c, (void *)map, 8 * PAGE));
	CHECK(!madvise((void *)map, 8 * PAGE, MADV_DONTFORK));
	map[PAGE] = 1;
	id = checkpoint();
	map[0] = map[PAGE] = 2;
	CHECK_OK(cairn_rewind(c, id));
	CHECK(map[0] == 'f' && map[PAGE] == 1);
	CHECK_OK(cairn_close(c));
}
