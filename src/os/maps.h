/* SPDX-License-Identifier: MIT */
/*
 * The process's mappings without malloc: by the PROCMAP_QUERY ioctl where the kernel has it (one
 * cheap call per mapping, and only for mappings that are asked for), otherwise from the text of
 * /proc/self/maps through a caller's buffer.
 *
 * A walk is not atomic. It never shows one mapping twice, and it shows every mapping that does not
 * change during the walk. Addresses only rise.
 */
#ifndef CRN_OS_MAPS_H
#define CRN_OS_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include "os/descriptor.h"

struct crn_mapping {
	uintptr_t begin, end;
	uint64_t offset, inode;
	uint32_t dev_major, dev_minor;
	int prot; /* PROT_* */
	bool shared;
	const char *name; /* path, "[heap]", "[stack]"..., "" if anonymous; valid until the next
			     call on this walk */
};

/* Its device in one number, as structures of ours keep it. */
static inline uint64_t crn_mapping_device(const struct crn_mapping *m)
{
	return (uint64_t)m->dev_major << 32 | m->dev_minor;
}

/* Keep only mappings with all of these. */
enum crn_maps_filter {
	CRN_MAPS_READABLE = 1u << 0,
	CRN_MAPS_WRITABLE = 1u << 1,
	CRN_MAPS_SHARED = 1u << 2,
	CRN_MAPS_NO_NAMES =
		1u << 8, /* not a filter: names are not wanted (cheaper); they may be "" */
};

#define CRN_MAPS_BUFFER 8192

/* The fields belong to maps.c. */
struct crn_maps {
	int fd;
	struct crn_fd_identity id;
	bool query;      /* PROCMAP_QUERY works */
	uint32_t filter; /* enum crn_maps_filter */
	uintptr_t next;  /* mappings that end at or below are behind us */
	char *buffer;    /* CRN_MAPS_BUFFER bytes of the caller */
	size_t from, to; /* unread text in the buffer */
	bool eof;
};

/*
 * Open /proc/self/maps at a high number; `buffer` (CRN_MAPS_BUFFER bytes) stays the walk's. 0 or
 * -errno.
 */
int crn_maps_open(struct crn_maps *m, char *buffer);
void crn_maps_close(struct crn_maps *m);

/* Does the kernel answer by PROCMAP_QUERY, without text? */
bool crn_maps_has_query(void);

/*
 * Start (again) with the first mapping that ends above `from`. A descriptor that the program has
 * closed is opened anew. 0 or -errno.
 */
int crn_maps_begin(struct crn_maps *m, uintptr_t from, uint32_t filter);
/* 1 and *out, 0 at the end, -errno. */
int crn_maps_next(struct crn_maps *m, struct crn_mapping *out);

/*
 * Is all of [begin, end) mapped, and can nothing of it be written? 1, 0, or -errno: the kernel
 * answers no queries, or the descriptor is the program's by now. Any context, also in the middle of
 * a walk.
 */
int crn_maps_closed(const struct crn_maps *m, uintptr_t begin, uintptr_t end);

/*
 * The mapping that holds addr, without its name: 1 and *out, 0 if there is none, or -errno, as
 * above. Any context, likewise.
 */
int crn_maps_ask(const struct crn_maps *m, uintptr_t addr, struct crn_mapping *out);

/* The mapping that holds addr: 1 and *out, 0 if there is none, -errno. Ends a walk in progress. */
int crn_maps_find(struct crn_maps *m, uintptr_t addr, struct crn_mapping *out);

#endif
