/* SPDX-License-Identifier: MIT */
/*
 * userfaultfd in write-protect mode. The distribution's header may be older than the kernel, so the
 * few names that we need are defined here, as the kernel's ABI fixes them.
 */
#ifndef CRN_OS_USERFAULT_H
#define CRN_OS_USERFAULT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* UFFD_FEATURE_* */
enum crn_uffd_feature {
	CRN_UFFD_PAGEFAULT_FLAG_WP = 1u << 0,
	CRN_UFFD_EVENT_REMAP = 1u << 2,  /* who moves pages waits until the event is read */
	CRN_UFFD_EVENT_REMOVE = 1u << 3, /* and who drops them */
	CRN_UFFD_EVENT_UNMAP = 1u << 6,  /* and who unmaps, moves away or maps over */
	CRN_UFFD_SIGBUS = 1u << 7,
	CRN_UFFD_WP_SHMEM = 1u << 12,       /* WP_HUGETLBFS_SHMEM: shared memory and memfd */
	CRN_UFFD_WP_UNPOPULATED = 1u << 13, /* pages that are not there yet can be protected */
	CRN_UFFD_WP_ASYNC = 1u << 15,       /* the kernel opens a page itself and remembers */
};

/* How this process may have one. */
enum crn_uffd_way {
	CRN_UFFD_NOT_AT_ALL,
	CRN_UFFD_BY_SYSCALL,   /* userfaultfd(2), kernel faults included */
	CRN_UFFD_BY_USER_MODE, /* userfaultfd(2) with UFFD_USER_MODE_ONLY: the unprivileged way */
	CRN_UFFD_BY_DEVICE,    /* /dev/userfaultfd */
};

/*
 * What readers of a userfaultfd's events have seen; in memory that they share. First `seen` grows,
 * then one event is read, which lets its causer go on, then `done` grows. So who has seen a call
 * return that changed a mapping finds another `seen` than before it; where both agree nobody is in
 * between.
 *
 * The event itself goes to the log, at the place that `seen` named before it grew; that stays
 * without one if another reader was faster.
 */
struct crn_uffd_events {
	_Atomic uint32_t seen, done;
	_Atomic uint32_t dropped; /* pages were: that happens after its event, at any time */
	struct crn_uffd_event *log; /* CRN_UFFD_LOG of them, used in a circle */
};

#define CRN_UFFD_LOG 1024u

/* struct uffd_msg */
struct crn_uffd_event {
	uint8_t kind; /* enum crn_uffd_event_kind; 0: none */
	uint8_t reserved[7];
	uint64_t args[3];
};

enum crn_uffd_event_kind {
	/* from, to, length; has been done. The reader unregisters what has moved. */
	CRN_UFFD_REMAPPED = 0x14,
	CRN_UFFD_REMOVED = 0x15,  /* begin, end; will be done when the event has been read */
	CRN_UFFD_UNMAPPED = 0x16, /* begin, end; has been done */
};

/*
 * A descriptor (high, close-on-exec, non-blocking) with the features enabled, or -errno: -EPERM,
 * -ENOSYS, -EINVAL if the kernel lacks a feature. `way`, if not NULL, says how it was had. features
 * == 0 enables none.
 */
int crn_uffd_open(uint64_t features, enum crn_uffd_way *way);

/*
 * All features of the kernel (a throw-away descriptor asks). 0 or -errno; outs untouched on
 * failure.
 */
int crn_uffd_features(uint64_t *features, enum crn_uffd_way *way);

/* WP mode only. -EINVAL: a mapping inside cannot be registered; -EBUSY: somebody else has it. */
int crn_uffd_register(int uffd, uintptr_t addr, size_t len);
int crn_uffd_unregister(int uffd, uintptr_t addr, size_t len);

/*
 * Is all of the range one mapping, and registered? 0, or -ENOENT and other -errno. The first page
 * should be there, else it is the zero page afterwards.
 */
int crn_uffd_whole(int uffd, uintptr_t addr, size_t len);

/*
 * Protect or open a range. -EAGAIN (a mapping is changing at this moment) is retried; -ENOENT means
 * that the range is not (all) registered any more. _beside: of a userfaultfd with events, which are
 * read meanwhile.
 */
int crn_uffd_protect(int uffd, uintptr_t addr, size_t len, bool protect);
int crn_uffd_protect_beside(
	int uffd, uintptr_t addr, size_t len, bool protect, struct crn_uffd_events *e);
/*
 * Protect the page at addr, where a registered mapping begins. False: it cannot be done alone,
 * because it is a part of a huge page of hugetlbfs, all of which is protected and opened at once.
 */
bool crn_uffd_protect_single(int uffd, uintptr_t addr);

#endif
