/* SPDX-License-Identifier: MIT */
#include "track/feeds/bpf_hub.h"
#include <errno.h>
#include "base/bits.h"
#include "base/copy.h"
#include "base/log.h"
#include "base/status.h"
#include "os/bpf.h"
#include "os/clock.h"
#include "os/descriptor.h"
#include "os/memory.h"
#include "os/thread.h"
#include "track/feeds/bpf_attach.h"

/* Until whoever makes a hub, or holds its lock, is taken for dead. */
#define PATIENCE_NS 5000000000ull
#define NAP_MAX	    16
#define SWEEP_MAX   64 /* entries that are removed together: 10 ms for all */

/* In the page that the record begins with. */
struct record {
	uint32_t ready; /* links are there */
	uint32_t retired;
	uint32_t lock;
	uint32_t links[CRN_LINKS]; /* numbers */
	uint32_t turns; /* times that the lock was taken */
};

_Static_assert(sizeof(struct record) <= CRN_PAGE_SIZE, "one page of it is mapped");

struct hub {
	int table;
	uint32_t number; /* of the table */
	struct record *record; /* NULL: there is none yet */
};

/* Its number stays. */
static void shut(struct hub *h)
{
	if (h->record)
		crn_memory_unmap(h->record, CRN_PAGE_SIZE);
	crn_fd_close(h->table);
	h->record = NULL;
	h->table = -1;
}

/* Longer each time: hundreds may wait, and would take the processor from whom they wait for. */
static void nap(unsigned *naps)
{
	*naps = CRN_MIN(*naps + 1, NAP_MAX);
	crn_doze(*naps * CRN_MILLISECOND);
}

static bool is_set(const uint32_t *flag)
{
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void set(uint32_t *flag)
{
	__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
}

/* ---- Finding and making one ------------------------------------------------------------------ */

static void give_back(int links[CRN_LINKS])
{
	for (size_t i = 0; i < CRN_LINKS; i++) {
		crn_fd_close(links[i]);
		links[i] = -1;
	}
}

/* All of them, or none: then it has ended. */
static int take_links(const struct hub *h, int links[CRN_LINKS])
{
	for (size_t i = 0; i < CRN_LINKS; i++) {
		links[i] = crn_bpf_link_open(h->record->links[i]);
		if (links[i] < 0) {
			int err = links[i];

			give_back(links);
			return err;
		}
	}
	return 0;
}

static int map_record(struct hub *h)
{
	uint32_t number;
	void *page;

	CRN_TRY(crn_bpf_table_get(h->table, CRN_HUB_RECORD, &number));
	CRN_TRY(crn_bpf_array_page(number, &page));
	h->record = page;
	return 0;
}

/*
 * The oldest hub that can be joined or is being made: so all agree on one. 1: there is one, and
 * links are open if it can be joined; 0: there is none.
 */
static int find(const char *name, struct hub *h, int links[CRN_LINKS])
{
	int err;

	*h = (struct hub){ .table = -1 };
	while ((err = crn_bpf_map_next(&h->number)) >= 0) {
		h->table = crn_bpf_map_named(h->number, name);
		if (h->table == -ENOENT)
			continue;
		CRN_TRY(h->table);
		err = map_record(h);
		if (err == -ENOENT)
			return 1;
		if (err >= 0 && !is_set(&h->record->retired) &&
			(!is_set(&h->record->ready) || take_links(h, links) >= 0))
			return 1;
		shut(h);
		CRN_TRY(err);
	}
	h->table = -1;
	return err == -ENOENT ? 0 : err;
}

/* Others see it from the start; it is ready when it has programs. Its arrays are like `array`. */
static int make(const char *name, struct hub *h, int array)
{
	void *memory;
	int record, err;

	CRN_TRY(h->table = crn_bpf_table(name, CRN_HUB_MEMBERS + 1, array));
	CRN_TRY(crn_bpf_map_number(h->table, &h->number));
	CRN_TRY(record = crn_bpf_array(sizeof(struct crn_bpf_shared), &memory));
	crn_memory_unmap(memory, sizeof(struct crn_bpf_shared));
	err = crn_bpf_table_put(h->table, CRN_HUB_RECORD, record);
	crn_fd_close(record);
	return err < 0 ? err : map_record(h);
}

static int equip(struct hub *h, int links[CRN_LINKS])
{
	int err = crn_bpf_share(h->table, links);

	for (size_t i = 0; i < CRN_LINKS && err >= 0; i++)
		err = crn_bpf_link_number(links[i], &h->record->links[i]);
	if (err >= 0)
		set(&h->record->ready);
	return err;
}

/* ---- Joining one ----------------------------------------------------------------------------- */

static void unlock(struct hub *h)
{
	__atomic_store_n(&h->record->lock, 0, __ATOMIC_RELEASE);
}

/*
 * -ESTALE: it takes nobody in any more. Whoever holds the lock may still finish what he does. Many
 * may be waiting: only who has held it for too long is taken for dead.
 */
static int lock(struct hub *h)
{
	uint64_t since = crn_clock_kernel_ns();
	uint32_t seen = 0, turns;
	unsigned naps = 0;

	while (__atomic_exchange_n(&h->record->lock, 1, __ATOMIC_ACQUIRE)) {
		turns = __atomic_load_n(&h->record->turns, __ATOMIC_RELAXED);
		if (turns != seen) {
			seen = turns;
			since = crn_clock_kernel_ns();
		} else if (crn_clock_kernel_ns() - since > PATIENCE_NS) {
			set(&h->record->retired);
		}
		if (is_set(&h->record->retired))
			return -ESTALE;
		nap(&naps);
	}
	__atomic_add_fetch(&h->record->turns, 1, __ATOMIC_RELAXED);
	if (!is_set(&h->record->retired))
		return 0;
	unlock(h);
	return -ESTALE;
}

/* 1: there is no entry, or it is dead; 0: somebody needs it; or -errno. */
static int is_free(const struct hub *h, uint64_t key)
{
	const struct crn_bpf_shared *s;
	uint32_t number;
	void *page;
	int err = crn_bpf_table_get(h->table, key, &number);

	if (err < 0)
		return err == -ENOENT ? 1 : err;
	CRN_TRY(crn_bpf_array_page(number, &page));
	s = page;
	err = __atomic_load_n(&s->over, __ATOMIC_ACQUIRE) != 0;
	crn_memory_unmap(page, CRN_PAGE_SIZE);
	return err;
}

static void sweep(struct hub *h)
{
	uint64_t over[SWEEP_MAX], key = 0;
	uint32_t count = 0;

	for (bool first = true; count < SWEEP_MAX; first = false) {
		if (crn_bpf_table_next(h->table, &key, first) < 0)
			break;
		if (key != CRN_HUB_RECORD && is_free(h, key) > 0)
			over[count++] = key;
	}
	crn_bpf_table_drop(h->table, over, count);
}

static int enter(struct hub *h, uint64_t mm, int array)
{
	int err;

	CRN_TRY(lock(h));
	if (h->record->turns % CRN_HUB_DEAD == 0)
		sweep(h);
	err = is_free(h, mm);
	if (err >= 0)
		err = err ? crn_bpf_table_put(h->table, mm, array) : -EEXIST;
	if (err == -E2BIG) {
		sweep(h);
		err = crn_bpf_table_put(h->table, mm, array);
	}
	unlock(h);
	return err == -E2BIG ? -ENOSPC : err;
}

/* One attempt to join, and the hub that it makes if it finds none. */
struct joining {
	const char *name;
	uint64_t mm, deadline; /* for whoever makes the hub */
	int array;
	unsigned naps;
	struct hub own;
	int own_links[CRN_LINKS];
};

/* 0: it is done; 1: not yet. */
static int try_once(struct joining *j, int links[CRN_LINKS])
{
	struct hub found;
	int err = find(j->name, &found, links);

	if (err < 0)
		return err;
	if (!err) {
		if (j->own.table >= 0)
			return -ENOENT; /* our own was retired meanwhile */
		CRN_TRY(make(j->name, &j->own, j->array));
		return 1;
	}
	if (links[0] >= 0) {
		err = enter(&found, j->mm, j->array);
		if (err == -ESTALE) {
			give_back(links);
			j->deadline = crn_clock_kernel_ns() + PATIENCE_NS;
			err = 1;
		}
	} else if (found.number == j->own.number) {
		err = equip(&j->own, j->own_links);
		err = err < 0 ? err : 1;
	} else if (crn_clock_kernel_ns() > j->deadline) {
		/* Its maker is stopped: whoever comes later need not wait for him as well. */
		err = found.record ? 1 : -EBUSY;
		if (found.record)
			set(&found.record->retired);
		j->deadline = crn_clock_kernel_ns() + PATIENCE_NS;
	} else {
		nap(&j->naps);
		err = 1;
	}
	shut(&found);
	return err;
}

int crn_bpf_hub_join(uint64_t mm, int array, int links[CRN_LINKS])
{
	char name[CRN_BPF_NAME];
	struct joining j = {
		.name = name,
		.mm = mm,
		.array = array,
		.deadline = crn_clock_kernel_ns() + PATIENCE_NS,
		.own = { .table = -1 },
	};
	uint32_t kind;
	int err;

	CRN_TRY(crn_bpf_kind(&kind));
	crn_format(name, sizeof(name), "cairn_%x", kind);
	for (size_t i = 0; i < CRN_LINKS; i++)
		links[i] = j.own_links[i] = -1;
	do
		err = try_once(&j, links);
	while (err > 0);
	/* `links` are others', or the same ones opened a second time. */
	if (err < 0)
		give_back(links);
	give_back(j.own_links);
	shut(&j.own);
	return err;
}
