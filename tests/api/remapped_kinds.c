/* SPDX-License-Identifier: MIT */
/* Parts of an explicit area that become memory of another kind, at moments when nobody looks. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "remapped.h"

#define FIRST 10ul
#define COUNT 3ul

static uint8_t before[PAGES * PAGE];

/* A page of the part is written: a rewind puts it back, or is refused and changes nothing. */
static void check_part(void)
{
	int rc;

	memcpy(at_checkpoint, area, sizeof(at_checkpoint));
	for (size_t i = 4; i < FIRST + COUNT; i += 3)
		area[i * PAGE + 50] ^= 0x55;
	memcpy(before, area, sizeof(before));
	rc = cairn_rewind(c, id);
	CHECK(memcmp(area, rc == 0 ? at_checkpoint : before, sizeof(before)) == 0);
	CHECK(rc == 0 || rc == CAIRN_ELAYOUT || rc == CAIRN_EFAILED || rc == CAIRN_EEVICTED);
}

static void put_file_over(void)
{
	uint8_t page[PAGE];
	int fd = test_file();

	memset(page, 100, sizeof(page));
	for (size_t i = 0; i < COUNT; i++)
		CHECK(pwrite(fd, page, PAGE, (off_t)(i * PAGE)) == (ssize_t)PAGE);
	CHECK(mmap(area + FIRST * PAGE, COUNT * PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_FIXED, fd, 0) != MAP_FAILED);
	close(fd);
}

static const char *strategy = "none";

static void open_session(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	bool images = !strcmp(tracker, "images");

	o.tracker = images ? "async" : tracker;
	o.feed = images ? "bpf-images" : NULL;
	o.surface = "none";
	o.strategy = strategy;
	o.keep = 4;
	c = test_open(&o);
}

static void open_area(void)
{
	area = map_area();
	area[5] = 1;
	open_session();
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
}

/* Before anybody has looked at the area since it was added. */
void exchanged_at_once(void)
{
	open_area();
	put_file_over();
	CHECK(cairn_checkpoint(c, &id) >= 0);
	check_part();
	CHECK_OK(cairn_close(c));
}

/* ---- Each kind over each --------------------------------------------------------------------- */

static void put_over(int flags)
{
	CHECK(mmap(area + FIRST * PAGE, COUNT * PAGE, PROT_READ | PROT_WRITE,
		      flags | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED);
}

static void put_plain_over(void)
{
	put_over(MAP_PRIVATE);
}

static void put_shared_over(void)
{
	put_over(MAP_SHARED);
}

static void take_away(void)
{
	CHECK(munmap(area + FIRST * PAGE, COUNT * PAGE) == 0);
}

static bool takes_shared(void)
{
	return strcmp(tracker, "fork") != 0;
}

/* Does a restore bring back what was there? Else it is refused. */
static bool is_followed(void)
{
	return !told_of_nothing() && strcmp(tracker, "images") != 0;
}

static bool is_refusal(int rc)
{
	return rc == CAIRN_ELAYOUT || rc == CAIRN_EFAILED || rc == CAIRN_EEVICTED;
}

static void for_each_exchange(void (*check)(void (*exchange)(void)))
{
	kind = PLAIN;
	do {
		check(put_plain_over);
		check(put_file_over);
		check(take_away);
		if (takes_shared())
			check(put_shared_over);
	} while (++kind < (takes_shared() ? KINDS : SHARED));
	kind = PLAIN;
}

static void check_back(void (*exchange)(void))
{
	uint64_t older;
	uint8_t byte;
	int rc;

	open_area();
	area[FIRST * PAGE + 50] = 7;
	CHECK(cairn_checkpoint(c, &older) == CAIRN_TAKEN);
	memcpy(at_checkpoint, area, sizeof(at_checkpoint));
	exchange();
	rc = cairn_peek(c, older, area + FIRST * PAGE + 50, &byte, 1);
	CHECK(rc == 0 ? byte == 7 : is_refusal(rc));
	if (exchange != take_away) {
		uint8_t kept[PAGES * PAGE];

		memcpy(kept, at_checkpoint, sizeof(kept));
		CHECK(cairn_checkpoint(c, &id) >= 0);
		check_part();
		memcpy(at_checkpoint, kept, sizeof(kept));
	}
	rc = cairn_rewind(c, older);
	CHECK(rc == 0 ? is_restored() : is_refusal(rc));
	CHECK(rc == 0 || kind >= SHARED || !is_followed());
	CHECK_OK(cairn_close(c));
	munmap(area, PAGES * PAGE);
}

/* After the area has been looked at, and back to before. */
void exchanged(void)
{
	for_each_exchange(check_back);
}

static void check_younger(void (*exchange)(void))
{
	uint64_t older;
	int rc;

	open_area();
	CHECK_OK(cairn_area_remove(c, area, PAGES * PAGE));
	CHECK(cairn_checkpoint(c, &older) == CAIRN_TAKEN);
	area[5] = 2;
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	area[5] = 3;
	exchange();
	if (exchange != take_away)
		memset(area + FIRST * PAGE, 77, COUNT * PAGE);
	CHECK(cairn_checkpoint(c, &id) >= 0 || !is_followed());
	rc = cairn_rewind(c, older);
	CHECK(rc == 0 || (!is_followed() && is_refusal(rc)));
	CHECK(area[5] == 3);
	CHECK((msync(area + FIRST * PAGE, PAGE, MS_ASYNC) == 0) == (exchange != take_away));
	CHECK(exchange == take_away || area[FIRST * PAGE + 50] == 77);
	CHECK_OK(cairn_close(c));
	munmap(area, PAGES * PAGE);
}

/* The restore goes to before the area: it is left alone, whatever has become of it. */
void exchanged_younger(void)
{
	for_each_exchange(check_younger);
}

static void check_removed(void (*exchange)(void))
{
	open_area();
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	area[FIRST * PAGE] = 4; /* will be closed again */
	exchange();
	CHECK(cairn_checkpoint(c, &id) >= 0 || !is_followed());
	CHECK_RC(cairn_area_add(c, area + FIRST * PAGE, PAGE), CAIRN_EOVERLAP);
	CHECK_OK(cairn_area_remove(c, area, PAGES * PAGE));
	if (exchange == take_away)
		put_plain_over();
	memset(area, 9, PAGES * PAGE); /* nothing of it is closed any more */
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	memset(area, 10, PAGES * PAGE);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(area[0] == 9 && !memcmp(area, area + 1, PAGES * PAGE - 1));
	CHECK_OK(cairn_close(c));
	munmap(area, PAGES * PAGE);
}

/* It is removed as it was added, and can be added again. */
void exchanged_removed(void)
{
	for_each_exchange(check_removed);
}

/* ---- By memory that cannot be watched -------------------------------------------------------- */

/* Another userfaultfd has it. */
static int take_part(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register range = {
		.range = { (uintptr_t)area + FIRST * PAGE, COUNT * PAGE },
		.mode = UFFDIO_REGISTER_MODE_MISSING,
	};
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);

	if (fd < 0)
		test_skip("userfaultfd");
	memset(area + FIRST * PAGE, 6, COUNT * PAGE); /* nothing is missing */
	CHECK(ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &range) == 0);
	return fd;
}

/* Memory of the same kind, so that only the tracker finds out; no interval goes unwatched. */
void exchanged_taken(void)
{
	int fd, rc;

	open_area();
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	put_plain_over();
	fd = take_part();
	for (int i = 0; i < 6; i++) {
		if (i == 4)
			close(fd);
		area[FIRST * PAGE] = (uint8_t)i;
		rc = cairn_checkpoint(c, &id);
		CHECK(rc >= 0 || rc == -EBUSY);
		if (rc >= 0)
			check_part();
	}
	CHECK(rc >= 0);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(is_restored());
	CHECK_OK(cairn_close(c));
}

/* ---- In a look that ends in a refusal -------------------------------------------------------- */

/* Something else that has gone for good refuses the rewind; the part is followed all the same. */
void exchanged_refused(void)
{
	uint8_t *other;

	kind = OF_FILE;
	open_area();
	other = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(other != MAP_FAILED);
	CHECK_OK(cairn_area_add(c, other, PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	put_plain_over();
	CHECK(munmap(other, PAGE) == 0);
	CHECK(is_refusal(cairn_rewind(c, id)));
	CHECK(cairn_checkpoint(c, &id) >= 0);
	check_part();
	CHECK_OK(cairn_close(c));
}

/* ---- Of several kinds from the start --------------------------------------------------------- */

static void drop_mixed(size_t page)
{
	uint8_t byte;
	int rc;

	CHECK(madvise(area + page * PAGE, PAGE, MADV_DONTNEED) == 0);
	CHECK(cairn_checkpoint(c, &id) >= 0);
	memcpy(at_checkpoint, area, sizeof(at_checkpoint));
	area[page * PAGE] ^= 1;
	rc = cairn_peek(c, id, area + page * PAGE, &byte, 1);
	CHECK(rc == 0 ? byte == at_checkpoint[page * PAGE] : is_refusal(rc));
	rc = cairn_rewind(c, id);
	CHECK(rc == 0 ? is_restored() : is_refusal(rc));
	CHECK(rc == 0 || !is_followed());
}

/* A private file beside shared memory, in one area: a page that is dropped is the file's again. */
void mixed(void)
{
	kind = SHARED;
	area = map_area();
	put_file_over();
	open_session();
	CHECK_OK(cairn_area_add(c, area, PAGES * PAGE));
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	area[FIRST * PAGE] = area[(FIRST + 1) * PAGE] = 1;
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	drop_mixed(FIRST);
	CHECK_OK(cairn_close(c));
}

/* ---- Closed, or gone while open -------------------------------------------------------------- */

/* The last page of a file is closed: it is no file that was cut. */
void closed_end(void)
{
	kind = OF_FILE;
	open_area();
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	area[5] = 2;
	CHECK(mprotect(area + (PAGES - 1) * PAGE, PAGE, PROT_NONE) == 0);
	CHECK_OK(cairn_rewind(c, id));
	CHECK(area[5] == 1);
	CHECK_OK(cairn_close(c));
}

#ifndef SYS_mseal
#define SYS_mseal 462
#endif

/* A page is closed to stores and sealed (Linux 6.10): what it was it cannot become again. */
void sealed_page(void)
{
	int rc;

	open_area();
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	area[5] = 2;
	CHECK(mprotect(area + 7 * PAGE, PAGE, PROT_READ) == 0);
	if (syscall(SYS_mseal, area + 7 * PAGE, PAGE, 0) < 0) {
		puts("skipped: no mseal");
		return;
	}
	rc = cairn_rewind(c, id);
	CHECK(rc == CAIRN_ELAYOUT && area[5] == 2);
	CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	area[5] = 3;
	CHECK_OK(cairn_rewind(c, id));
	CHECK(area[5] == 2);
	CHECK_OK(cairn_close(c));
}

/* Pages that are written in each interval are closed, and copied at checkpoints all the same. */
void closed_hot(void)
{
	strategy = "decay";
	open_area();
	for (uint8_t i = 1; i < 12; i++) {
		memset(area + 4 * PAGE, i, 4 * PAGE);
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
	}
	CHECK(mprotect(area + 5 * PAGE, 2 * PAGE, PROT_NONE) == 0);
	for (uint8_t i = 0; i < 3; i++) {
		uint8_t byte = 0;

		area[4 * PAGE] ^= 1;
		CHECK(cairn_checkpoint(c, &id) == CAIRN_TAKEN);
		CHECK_OK(cairn_peek(c, id, area + 5 * PAGE, &byte, 1));
		CHECK(byte == 11);
		CHECK_OK(cairn_rewind(c, id));
	}
	CHECK(mprotect(area + 5 * PAGE, 2 * PAGE, PROT_READ | PROT_WRITE) == 0);
	CHECK(area[5 * PAGE] == 11 && !memcmp(area + 5 * PAGE, area + 6 * PAGE, PAGE));
	CHECK_OK(cairn_close(c));
}

/* Pages that were written have gone. */
void open_hole(void)
{
	int rc;

	begin(map_at(NULL, PAGES, 0), "decay");
	CHECK(munmap(area + 5 * PAGE, PAGE) == 0);
	rc = cairn_rewind(c, id);
	CHECK(rc == 0 ? is_restored() : rc == CAIRN_ELAYOUT);
	CHECK(rc == 0 || told_of_nothing());
	CHECK_OK(cairn_close(c));
}
