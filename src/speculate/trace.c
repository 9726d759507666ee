/* SPDX-License-Identifier: MIT */
/* Writing and reading traces; the format is in trace.h. */
#include "speculate/trace.h"

#define FNV_FIRST 0xcbf29ce484222325ull
#define FNV_PRIME 0x100000001b3ull
#define PAGE_BITS (56 - CRN_PORT_PAGE_SHIFT) /* with page tables of five levels */

static const uint8_t magic[8] = { 'c', 'a', 'i', 'r', 'n', 't', 'r', 'c' };

static uint64_t zigzag(int64_t value)
{
	return (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
}

/* ---- Writing --------------------------------------------------------------------------- */

int crn_trace_flush(struct crn_trace_writer *w)
{
	if (w->error < 0 || !w->used)
		return w->error;
	w->error = w->write(w->owner, w->buffer, w->used);
	w->used = 0;
	return w->error = w->error < 0 ? w->error : 0;
}

static void put(struct crn_trace_writer *w, uint8_t byte)
{
	if (w->used == sizeof(w->buffer))
		crn_trace_flush(w);
	if (w->error < 0)
		return;
	w->chain = (w->chain ^ byte) * FNV_PRIME;
	w->buffer[w->used++] = byte;
}

static void put_fixed(struct crn_trace_writer *w, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		put(w, (uint8_t)(value >> i * 8));
}

static void put_varint(struct crn_trace_writer *w, uint64_t value)
{
	for (; value >= 0x80; value >>= 7)
		put(w, (uint8_t)(value | 0x80));
	put(w, (uint8_t)value);
}

static unsigned varint_size(uint64_t value)
{
	unsigned size = 1;

	while (value >>= 7)
		size++;
	return size;
}

int crn_trace_begin(struct crn_trace_writer *w, crn_trace_write_fn write, void *owner,
	const char *identity)
{
	size_t len = 0;

	while (identity[len] && len < CRN_TRACE_IDENTITY)
		len++;
	w->write = write;
	w->owner = owner;
	w->chain = FNV_FIRST;
	w->intervals = w->pages = 0;
	w->error = 0;
	w->used = 0;
	for (unsigned i = 0; i < sizeof(magic); i++)
		put(w, magic[i]);
	put_fixed(w, CRN_TRACE_VERSION, 4);
	put_fixed(w, CRN_PORT_PAGE, 4);
	put_fixed(w, len, 4);
	put_fixed(w, 0, 4);
	for (size_t i = 0; i < len; i++)
		put(w, (uint8_t)identity[i]);
	put_fixed(w, w->chain, 8);
	return crn_trace_flush(w);
}

static uint64_t step(const uintptr_t *pages, size_t i)
{
	uint64_t number = pages[i] >> CRN_PORT_PAGE_SHIFT;
	uint64_t before = i ? pages[i - 1] >> CRN_PORT_PAGE_SHIFT : 0;

	return zigzag((int64_t)(number - before));
}

int crn_trace_interval(
	struct crn_trace_writer *w, uint64_t key, const uintptr_t *pages, size_t count)
{
	uint64_t size = varint_size(key) + varint_size(count);

	for (size_t i = 0; i < count; i++)
		size += varint_size(step(pages, i));
	put(w, 'I');
	put_varint(w, size);
	put_varint(w, key);
	put_varint(w, count);
	for (size_t i = 0; i < count; i++)
		put_varint(w, step(pages, i));
	put_fixed(w, w->chain, 8);
	w->intervals++;
	w->pages += count;
	return w->error;
}

int crn_trace_end(struct crn_trace_writer *w)
{
	put(w, 'E');
	put_fixed(w, w->intervals, 8);
	put_fixed(w, w->pages, 8);
	put_fixed(w, w->chain, 8);
	return crn_trace_flush(w);
}

/* ---- Reading ----------------------------------------------------------------------------- */

static int wrong(struct crn_trace_reader *r, const char *what)
{
	r->error = what;
	return CRN_PORT_EINVAL;
}

static int cut(struct crn_trace_reader *r)
{
	r->cut = true;
	return wrong(r, "the trace is cut short");
}

static uint64_t fixed_at(const uint8_t *at, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)at[i] << i * 8;
	return value;
}

/* False: no varint that ends before `end`, or more than 64 bits. */
static bool varint_at(const uint8_t **at, const uint8_t *end, uint64_t *value)
{
	*value = 0;
	for (unsigned shift = 0; *at < end && shift < 64; shift += 7) {
		uint8_t byte = *(*at)++;

		*value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return true;
	}
	return false;
}

/* The chain over [offset, chain's place) must be what stands there. */
static bool chain_holds(struct crn_trace_reader *r, const uint8_t *from, const uint8_t *place)
{
	uint64_t chain = r->chain;

	for (; from < place; from++)
		chain = (chain ^ *from) * FNV_PRIME;
	if (chain != fixed_at(place, 8))
		return false;
	for (; from < place + 8; from++)
		chain = (chain ^ *from) * FNV_PRIME;
	r->chain = chain;
	return true;
}

int crn_trace_open(struct crn_trace_reader *r, const void *bytes, size_t size)
{
	uint64_t len;

	*r = (struct crn_trace_reader){ .bytes = bytes, .size = size, .chain = FNV_FIRST };
	for (size_t i = 0; i < sizeof(magic) && i < size; i++)
		if (r->bytes[i] != magic[i])
			return wrong(r, "not a trace");
	if (size < CRN_TRACE_HEADER)
		return cut(r);
	len = fixed_at(r->bytes + 16, 4);
	if (len > CRN_TRACE_IDENTITY)
		return wrong(r, "the header is corrupt");
	if (size < CRN_TRACE_HEADER + len + 8)
		return cut(r);
	if (!chain_holds(r, r->bytes, r->bytes + CRN_TRACE_HEADER + len))
		return wrong(r, "the header is corrupt");
	if (fixed_at(r->bytes + 8, 4) != CRN_TRACE_VERSION)
		return wrong(r, "a trace of another version");
	if (fixed_at(r->bytes + 12, 4) != CRN_PORT_PAGE || fixed_at(r->bytes + 20, 4))
		return wrong(r, "a trace of another page size or with unknown features");
	r->identity = (const char *)r->bytes + CRN_TRACE_HEADER;
	r->identity_size = len;
	r->offset = CRN_TRACE_HEADER + len + 8;
	return 0;
}

static int read_trailer(struct crn_trace_reader *r)
{
	const uint8_t *at = r->bytes + r->offset;

	if (r->size - r->offset < 25)
		return cut(r);
	if (!chain_holds(r, at, at + 17))
		return wrong(r, "the trailer is corrupt");
	if (fixed_at(at + 1, 8) != r->intervals || fixed_at(at + 9, 8) != r->pages)
		return wrong(r, "the trailer counts other intervals than there are");
	if (r->size - r->offset > 25)
		return wrong(r, "there is something behind the trailer");
	return CRN_TRACE_END;
}

/* Addresses of programs only: strategies take 0 for none, and look at the pages around each. */
static bool read_pages(const uint8_t *at, const uint8_t *end, uintptr_t *pages, size_t count)
{
	uint64_t number = 0, value;

	for (size_t i = 0; i < count; i++) {
		if (!varint_at(&at, end, &value))
			return false;
		number += value >> 1 ^ -(value & 1);
		if (!number || number >> PAGE_BITS)
			return false;
		if (pages)
			pages[i] = (uintptr_t)(number << CRN_PORT_PAGE_SHIFT);
	}
	return at == end;
}

int crn_trace_next(struct crn_trace_reader *r, uint64_t *key, uintptr_t *pages, size_t capacity,
	size_t *count)
{
	const uint8_t *first = r->bytes + r->offset, *last = r->bytes + r->size;
	const uint8_t *at = first + 1, *end;
	uint64_t size, number, context, chain = r->chain;

	if (r->error)
		return CRN_PORT_EINVAL;
	if (r->offset == r->size)
		return cut(r);
	if (*first == 'E')
		return read_trailer(r);
	if (*first != 'I')
		return wrong(r, "neither an interval nor the trailer");
	if (!varint_at(&at, last, &size))
		return last - at < 10 ? cut(r) : wrong(r, "a length of more than 64 bits");
	if (size > (uint64_t)(last - at) || (uint64_t)(last - at) - size < 8)
		return cut(r);
	end = at + size;
	if (!chain_holds(r, first, end))
		return wrong(r, "the interval is corrupt");
	/* Each page takes a byte at least, so the count is bounded by the file. */
	if (!varint_at(&at, end, &context) || !varint_at(&at, end, &number) ||
		number > (uint64_t)(end - at))
		return wrong(r, "the interval does not hold what it says");
	*count = (size_t)number;
	if (number > capacity) {
		r->chain = chain;
		return CRN_TRACE_ROOM;
	}
	if (!read_pages(at, end, pages, *count))
		return wrong(r, "the interval does not hold what it says");
	*key = context;
	r->offset = (size_t)(end + 8 - r->bytes);
	r->intervals++;
	r->pages += number;
	return CRN_TRACE_INTERVAL;
}
