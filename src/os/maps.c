/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/status.h"
#include "os/descriptor.h"
#include "os/maps.h"
#include "os/memory.h"
#include "os/proc.h"
#include "os/sys.h"

/* struct procmap_query (Linux 6.11). */
struct query {
	uint64_t size, query_flags, query_addr;
	uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset;
	uint64_t inode;
	uint32_t dev_major, dev_minor;
	uint32_t name_size, build_id_size;
	uint64_t name_addr, build_id_addr;
};
_Static_assert(sizeof(struct query) == 104, "ABI");

#define QUERY_IOCTL    0xc0686611ul /* _IOWR('f', 17, struct procmap_query) */
#define QUERY_READABLE 0x01
#define QUERY_WRITABLE 0x02
#define QUERY_EXEC     0x04
#define QUERY_SHARED   0x08
#define QUERY_OR_NEXT  0x10
#define NAME_MAX_BYTES 4096u

/* A number that is open may be a file of the program's by now: it is neither read nor closed. */
static int ensure_open(struct crn_maps *m)
{
	if (crn_likely(crn_fd_is(m->fd, &m->id)))
		return 0;
	m->fd = crn_fd_open("/proc/self/maps", O_RDONLY);
	return m->fd < 0 ? m->fd : crn_fd_identify(m->fd, &m->id);
}

int crn_maps_open(struct crn_maps *m, char *buffer)
{
	struct crn_mapping any;
	int err;

	m->buffer = buffer;
	m->query = true;
	m->fd = -1;
	err = ensure_open(m);
	if (err < 0)
		return err;
	crn_maps_begin(m, 0, CRN_MAPS_NO_NAMES);
	/* Whatever keeps the ioctl from answering (an old kernel, a filter), the text remains. */
	if (crn_maps_next(m, &any) < 0)
		m->query = false;
	return crn_maps_begin(m, 0, 0);
}

bool crn_maps_has_query(void)
{
	struct crn_maps maps;
	void *buffer;
	bool has = false;

	if (crn_memory_map(&buffer, CRN_MAPS_BUFFER) < 0)
		return false;
	if (crn_maps_open(&maps, buffer) == 0) {
		has = maps.query;
		crn_maps_close(&maps);
	}
	crn_memory_unmap(buffer, CRN_MAPS_BUFFER);
	return has;
}

void crn_maps_close(struct crn_maps *m)
{
	if (crn_fd_is(m->fd, &m->id))
		crn_fd_close(m->fd);
	m->fd = -1;
}

int crn_maps_begin(struct crn_maps *m, uintptr_t from, uint32_t filter)
{
	m->filter = filter;
	m->next = from;
	m->from = m->to = 0;
	m->eof = false;
	CRN_TRY(ensure_open(m));
	if (m->query)
		return 0;
	return (int)CRN_MIN(crn_sys3(SYS_lseek, m->fd, 0, 0 /* SEEK_SET */), 0l);
}

/* ---- By PROCMAP_QUERY ------------------------------------------------------ */

static uint64_t query_filter(uint32_t filter)
{
	return (filter & CRN_MAPS_READABLE ? QUERY_READABLE : 0) |
		(filter & CRN_MAPS_WRITABLE ? QUERY_WRITABLE : 0) |
		(filter & CRN_MAPS_SHARED ? QUERY_SHARED : 0);
}

static int query_one(struct crn_maps *m, uint64_t addr, uint64_t flags, struct crn_mapping *out)
{
	bool names = !(m->filter & CRN_MAPS_NO_NAMES);
	struct query q = {
		.size = sizeof(q),
		.query_flags = flags,
		.query_addr = addr,
		.name_size = names ? NAME_MAX_BYTES : 0,
		.name_addr = names ? (uint64_t)(uintptr_t)m->buffer : 0,
	};
	long err = crn_sys3(SYS_ioctl, m->fd, QUERY_IOCTL, &q);

	if (err == -ENOENT)
		return 0;
	if (err == -ENAMETOOLONG && names) {
		/* A path longer than PATH_MAX has no name that anybody could give. */
		q.name_size = 0;
		q.name_addr = 0;
		err = crn_sys3(SYS_ioctl, m->fd, QUERY_IOCTL, &q);
	}
	if (err < 0)
		return (int)err;
	if (!q.name_size)
		m->buffer[0] = '\0';
	*out = (struct crn_mapping){
		.begin = q.vma_start,
		.end = q.vma_end,
		.offset = q.vma_offset,
		.inode = q.inode,
		.dev_major = q.dev_major,
		.dev_minor = q.dev_minor,
		.prot = (q.vma_flags & QUERY_READABLE ? PROT_READ : 0) |
			(q.vma_flags & QUERY_WRITABLE ? PROT_WRITE : 0) |
			(q.vma_flags & QUERY_EXEC ? PROT_EXEC : 0),
		.shared = q.vma_flags & QUERY_SHARED,
		.name = m->buffer,
	};
	return 1;
}

/* ---- By text --------------------------------------------------------------- */

/* A whole line in the buffer, NUL in place of its newline; NULL and *err (0: the end). */
static char *next_line(struct crn_maps *m, int *err)
{
	for (size_t seen = m->from;;) {
		long got;

		for (; seen < m->to; seen++)
			if (m->buffer[seen] == '\n') {
				char *line = m->buffer + m->from;

				m->buffer[seen] = '\0';
				m->from = seen + 1;
				return line;
			}
		*err = 0;
		if (m->eof)
			return NULL;
		if (m->from) {
			/*
			 * Forward and overlapping downwards: rep movsb copies upwards, which is
			 * right.
			 */
			crn_copy(m->buffer, m->buffer + m->from, m->to - m->from);
			seen -= m->from;
			m->to -= m->from;
			m->from = 0;
		}
		*err = -EOVERFLOW;
		if (m->to == CRN_MAPS_BUFFER)
			return NULL;
		got = crn_fd_read(m->fd, m->buffer + m->to, CRN_MAPS_BUFFER - m->to);
		*err = (int)got;
		if (got < 0)
			return NULL;
		m->eof = got == 0;
		m->to += (size_t)got;
	}
}

/* begin-end rwxp offset major:minor inode            name */
static void parse(const char *line, struct crn_mapping *out)
{
	const char *at = line;

	out->begin = crn_proc_digits(&at, 16);
	at++;
	out->end = crn_proc_digits(&at, 16);
	at++;
	out->prot = (at[0] == 'r' ? PROT_READ : 0) | (at[1] == 'w' ? PROT_WRITE : 0) |
		(at[2] == 'x' ? PROT_EXEC : 0);
	out->shared = at[3] == 's';
	at += 5;
	out->offset = crn_proc_digits(&at, 16);
	at++;
	out->dev_major = (uint32_t)crn_proc_digits(&at, 16);
	at++;
	out->dev_minor = (uint32_t)crn_proc_digits(&at, 16);
	at++;
	out->inode = crn_proc_digits(&at, 10);
	while (*at == ' ')
		at++;
	out->name = at;
}

static int text_next(struct crn_maps *m, struct crn_mapping *out)
{
	int err = 0;
	char *line;

	while ((line = next_line(m, &err))) {
		parse(line, out);
		if (out->end <= m->next)
			continue;
		if (m->filter & CRN_MAPS_READABLE && !(out->prot & PROT_READ))
			continue;
		if (m->filter & CRN_MAPS_WRITABLE && !(out->prot & PROT_WRITE))
			continue;
		if (m->filter & CRN_MAPS_SHARED && !out->shared)
			continue;
		return 1;
	}
	return err;
}

/* ---- Both ------------------------------------------------------------------ */

int crn_maps_next(struct crn_maps *m, struct crn_mapping *out)
{
	int got;

	if (m->query)
		got = query_one(m, m->next, QUERY_OR_NEXT | query_filter(m->filter), out);
	else
		got = text_next(m, out);
	if (got > 0)
		m->next = out->end;
	return got;
}

int crn_maps_ask(const struct crn_maps *m, uintptr_t addr, struct crn_mapping *out)
{
	char no_name[1];
	struct crn_maps own = { .fd = m->fd, .filter = CRN_MAPS_NO_NAMES, .buffer = no_name };
	int got;

	if (!m->query || !crn_fd_is(m->fd, &m->id))
		return -ENOSYS;
	got = query_one(&own, addr, 0, out);
	out->name = "";
	return got;
}

int crn_maps_closed(const struct crn_maps *m, uintptr_t begin, uintptr_t end)
{
	struct crn_mapping at;

	for (; begin < end; begin = at.end) {
		int got = crn_maps_ask(m, begin, &at);

		if (got <= 0)
			return got;
		if (at.prot & PROT_WRITE)
			return 0;
	}
	return 1;
}

int crn_maps_find(struct crn_maps *m, uintptr_t addr, struct crn_mapping *out)
{
	int err = crn_maps_begin(m, addr, 0);

	if (err < 0)
		return err;
	if (m->query)
		return query_one(m, addr, 0, out);
	err = text_next(m, out);
	return err > 0 ? out->begin <= addr : err;
}
