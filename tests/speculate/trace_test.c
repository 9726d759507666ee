/* SPDX-License-Identifier: MIT */
/* Traces come back as they were written, and no flipped, lost or added byte goes unnoticed. */
#include "spec_rig.h"
#include "speculate/trace.h"

#define ROOM  (1u << 20)
#define PAGES 300
#define IDENTITY "program x\nsites wait\n"

struct file {
	uint8_t bytes[ROOM];
	size_t size, fail_at;
};

static int append(void *owner, const void *bytes, size_t len)
{
	struct file *f = owner;

	if (f->fail_at && f->size + len > f->fail_at)
		return -28;
	assert_true(f->size + len <= ROOM);
	memcpy(f->bytes + f->size, bytes, len);
	f->size += len;
	return 0;
}

/* Interval i: its key, and pages anywhere between the first and the last of the address space. */
static size_t make_interval(unsigned i, uint64_t *key, uintptr_t *pages)
{
	uint64_t seed = i * 77 + 1;
	size_t count = i % 5 == 3 ? 0 : rig_mix(&seed) % PAGES;

	*key = i % 3 ? i : ~0ull - i;
	for (size_t k = 0; k < count; k++)
		pages[k] = ((uintptr_t)(rig_mix(&seed) >> (8 + k % 36)) | 0x1000) & ~0xffful;
	return count;
}

static void write_trace(struct file *f, unsigned intervals)
{
	struct crn_trace_writer w;
	uintptr_t pages[PAGES];
	uint64_t key;

	f->size = 0;
	assert_int_equal(crn_trace_begin(&w, append, f, IDENTITY), 0);
	for (unsigned i = 0; i < intervals; i++) {
		size_t count = make_interval(i, &key, pages);

		assert_int_equal(crn_trace_interval(&w, key, pages, count), 0);
	}
	assert_int_equal(crn_trace_end(&w), 0);
}

/* The number of intervals, all of them right, or negative with *r's error. */
static int read_trace(struct crn_trace_reader *r, const uint8_t *bytes, size_t size)
{
	uintptr_t pages[PAGES], expected[PAGES];
	uint64_t key, right_key;
	size_t count;
	int got;

	if (crn_trace_open(r, bytes, size) < 0)
		return CRN_PORT_EINVAL;
	for (unsigned i = 0;; i++) {
		got = crn_trace_next(r, &key, pages, PAGES, &count);
		if (got != CRN_TRACE_INTERVAL)
			return got == CRN_TRACE_END ? (int)i : got;
		assert_int_equal(count, make_interval(i, &right_key, expected));
		assert_int_equal(key, right_key);
		assert_memory_equal(pages, expected, count * sizeof(*pages));
	}
}

static struct file file, copy;

static void test_what_was_written_is_read(void **state)
{
	struct crn_trace_reader r;

	write_trace(&file, 200);
	assert_int_equal(read_trace(&r, file.bytes, file.size), 200);
	assert_int_equal(r.identity_size, strlen(IDENTITY));
	assert_memory_equal(r.identity, IDENTITY, strlen(IDENTITY));
	write_trace(&file, 0);
	assert_int_equal(read_trace(&r, file.bytes, file.size), 0);
}

static void test_every_flipped_byte_is_found(void **state)
{
	struct crn_trace_reader r;

	write_trace(&file, 12);
	for (size_t at = 0; at < file.size; at++) {
		for (unsigned bit = 0; bit < 8; bit++) {
			file.bytes[at] ^= (uint8_t)(1 << bit);
			assert_int_equal(read_trace(&r, file.bytes, file.size), CRN_PORT_EINVAL);
			assert_non_null(r.error);
			/* It is named where its record begins. */
			assert_true(r.offset <= at);
			file.bytes[at] ^= (uint8_t)(1 << bit);
		}
	}
	assert_int_equal(read_trace(&r, file.bytes, file.size), 12);
}

static void test_every_cut_is_found(void **state)
{
	struct crn_trace_reader r;

	write_trace(&file, 12);
	for (size_t size = 0; size < file.size; size++) {
		/* A copy at the end of its own block, so that a sanitizer sees a byte too far. */
		uint8_t *exact = malloc(size ? size : 1);

		memcpy(exact, file.bytes, size);
		assert_int_equal(read_trace(&r, exact, size), CRN_PORT_EINVAL);
		assert_true(r.cut);
		free(exact);
	}
}

static void test_a_lost_or_added_byte_is_found(void **state)
{
	struct crn_trace_reader r;

	write_trace(&file, 12);
	for (size_t at = 0; at < file.size; at++) {
		memcpy(copy.bytes, file.bytes, at);
		memcpy(copy.bytes + at, file.bytes + at + 1, file.size - at - 1);
		assert_int_equal(
			read_trace(&r, copy.bytes, file.size - 1), CRN_PORT_EINVAL);
		copy.bytes[at] = 'I';
		memcpy(copy.bytes + at + 1, file.bytes + at, file.size - at);
		assert_int_equal(
			read_trace(&r, copy.bytes, file.size + 1), CRN_PORT_EINVAL);
	}
}

static void test_too_little_room_reads_nothing(void **state)
{
	struct crn_trace_reader r;
	uintptr_t pages[PAGES];
	uint64_t key;
	size_t count;

	write_trace(&file, 1);
	assert_int_equal(crn_trace_open(&r, file.bytes, file.size), 0);
	assert_int_equal(crn_trace_next(&r, &key, pages, 0, &count), CRN_TRACE_ROOM);
	assert_true(count > 0);
	assert_int_equal(crn_trace_next(&r, &key, pages, count, &count), CRN_TRACE_INTERVAL);
	assert_int_equal(crn_trace_next(&r, &key, pages, PAGES, &count), CRN_TRACE_END);
}

/* The chain holds, but no program has such a page. */
static void test_pages_of_no_program_are_refused(void **state)
{
	static const uintptr_t wrong[] = { 0, 1ul << 56, ~0xffful };
	struct crn_trace_reader r;
	struct crn_trace_writer w;
	uintptr_t page;
	uint64_t key;
	size_t count;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		file.size = 0;
		crn_trace_begin(&w, append, &file, "");
		crn_trace_interval(&w, 0, &wrong[i], 1);
		assert_int_equal(crn_trace_end(&w), 0);
		assert_int_equal(crn_trace_open(&r, file.bytes, file.size), 0);
		assert_int_equal(crn_trace_next(&r, &key, &page, 1, &count), CRN_PORT_EINVAL);
		assert_non_null(r.error);
		assert_false(r.cut);
	}
}

static void test_a_failed_write_ends_the_trace(void **state)
{
	struct crn_trace_writer w;
	uintptr_t pages[PAGES];
	uint64_t key;
	int err = 0;

	file.size = 0;
	file.fail_at = 5000;
	assert_int_equal(crn_trace_begin(&w, append, &file, ""), 0);
	for (unsigned i = 0; i < 50; i++) {
		size_t count = make_interval(i, &key, pages);

		err = crn_trace_interval(&w, key, pages, count);
	}
	assert_int_equal(err, -28);
	assert_int_equal(crn_trace_end(&w), -28);
	assert_true(file.size <= 5000);
	file.fail_at = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_was_written_is_read),
		cmocka_unit_test(test_every_flipped_byte_is_found),
		cmocka_unit_test(test_every_cut_is_found),
		cmocka_unit_test(test_a_lost_or_added_byte_is_found),
		cmocka_unit_test(test_too_little_room_reads_nothing),
		cmocka_unit_test(test_pages_of_no_program_are_refused),
		cmocka_unit_test(test_a_failed_write_ends_the_trace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
