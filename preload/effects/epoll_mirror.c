/* SPDX-License-Identifier: MIT */
/*
 * A mirror of every epoll set. The kernel does not tell what a descriptor's item was before a MOD
 * or DEL, which mask a fired one-shot item had, or which descriptor an event belongs to, and a
 * restore needs all three. A set is read from /proc/self/fdinfo when it is first met, and followed
 * from then on.
 */
#include <sys/epoll.h>
#include "base/copy.h"
#include "base/log.h"
#include "effects/hooks.h"
#include "os/descriptor.h"

#define FREE    (-1)
#define REMOVED (-2)

static bool table_grow(struct crn_epoll_set *set)
{
	uint32_t size = set->size && set->count * 4 < set->size ? set->size
		: set->size                                     ? set->size * 2
								: 64;
	struct crn_epoll_item *items = crn_effects_alloc(size * sizeof(*items));

	if (!items)
		return false;
	for (uint32_t i = 0; i < size; i++)
		items[i].fd = FREE;
	for (uint32_t i = 0; i < set->size; i++) {
		uint32_t at = (uint32_t)set->items[i].fd & (size - 1);

		if (set->items[i].fd < 0)
			continue;
		while (items[at].fd != FREE)
			at = (at + 1) & (size - 1);
		items[at] = set->items[i];
	}
	set->items = items;
	set->size = size;
	set->used = set->count;
	return true;
}

struct crn_epoll_item *crn_epoll_find(struct crn_epoll_set *set, int fd)
{
	if (!set || !set->size)
		return NULL;
	for (uint32_t at = (uint32_t)fd & (set->size - 1); set->items[at].fd != FREE;
		at = (at + 1) & (set->size - 1))
		if (set->items[at].fd == fd)
			return &set->items[at];
	return NULL;
}

static struct crn_epoll_item *item_add(struct crn_epoll_set *set, int fd)
{
	struct crn_epoll_item *item = crn_epoll_find(set, fd);
	uint32_t at;

	if (item)
		return item;
	if (set->used * 2 >= set->size && !table_grow(set))
		return NULL;
	at = (uint32_t)fd & (set->size - 1);
	while (set->items[at].fd >= 0)
		at = (at + 1) & (set->size - 1);
	set->used += set->items[at].fd == FREE;
	set->count++;
	set->items[at] = (struct crn_epoll_item){.fd = fd};
	return &set->items[at];
}

static void item_set(struct crn_epoll_set *set, int fd, uint32_t events, uint64_t data)
{
	struct crn_epoll_item *item = item_add(set, fd);

	if (!item) {
		crn_effects_cannot_undo("an epoll set is too big to be mirrored");
		set->live = false;
		return;
	}
	*item = (struct crn_epoll_item){.fd = fd, .events = events, .data = data, .edge = true};
	set->oneshots += !!(events & EPOLLONESHOT);
}

static void item_remove(struct crn_epoll_set *set, int fd)
{
	struct crn_epoll_item *item = crn_epoll_find(set, fd);

	if (!item)
		return;
	item->fd = REMOVED;
	set->count--;
}

/* ---- the first sight of a set ---------------------------------------------------------------- */

static bool parse_number(const char **s, unsigned base, uint64_t *out)
{
	const char *p = *s;
	bool any = false;

	while (*p == ' ')
		p++;
	for (*out = 0;; p++, any = true) {
		unsigned digit = *p >= '0' && *p <= '9' ? (unsigned)(*p - '0')
			: *p >= 'a' && *p <= 'f' ? (unsigned)(*p - 'a' + 10) : 99;

		if (digit >= base)
			break;
		*out = *out * base + digit;
	}
	*s = p;
	return any;
}

/* A fired one-shot item shows nothing but its private bits. */
static bool has_fired(uint64_t events)
{
	return (events & EPOLLONESHOT) &&
		!(events & ~(uint64_t)(EPOLLONESHOT | EPOLLET | EPOLLWAKEUP | EPOLLEXCLUSIVE));
}

/* The set is known, but for which of its items have fired. */
static void note_fired(struct crn_epoll_set *set, int fd, uint64_t events)
{
	struct crn_epoll_item *item = crn_epoll_find(set, fd);

	if (item && !item->fired && has_fired(events))
		item->fired = crn_agent->effects->interval;
}

/* "tfd:        5 events:       19 data:                5  pos:0 ino:... sdev:..." */
static void parse_line(struct crn_epoll_set *set, const char *line, bool known)
{
	uint64_t fd, events, data;

	if (!crn_starts_with(line, "tfd:"))
		return;
	line += 4;
	if (!parse_number(&line, 10, &fd) || !crn_starts_with(line, " events:"))
		return;
	line += 8;
	if (!parse_number(&line, 16, &events) || !crn_starts_with(line, " data:"))
		return;
	line += 6;
	if (!parse_number(&line, 16, &data))
		return;
	if (known)
		return note_fired(set, (int)fd, events);
	item_set(set, (int)fd, (uint32_t)events, data);
	/* It may have fired long ago: it stays so. */
	if (has_fired(events))
		crn_epoll_find(set, (int)fd)->fired = UINT32_MAX;
}

static void read_set(struct crn_epoll_set *set, bool known)
{
	char path[48], buffer[1024];
	size_t used = 0;
	long n;
	int fd;

	crn_format(path, sizeof(path), "/proc/self/fdinfo/%d", set->fd);
	fd = crn_fd_open(path, 0);
	if (fd < 0)
		return;
	while ((n = crn_fd_read(fd, buffer + used, sizeof(buffer) - 1 - used)) > 0) {
		size_t begin = 0;

		used += (size_t)n;
		for (size_t i = 0; i < used; i++) {
			if (buffer[i] != '\n')
				continue;
			buffer[i] = '\0';
			parse_line(set, buffer + begin, known);
			begin = i + 1;
		}
		for (size_t i = begin; i < used; i++)
			buffer[i - begin] = buffer[i];
		used -= begin;
		if (used == sizeof(buffer) - 1)
			used = 0; /* no line of fdinfo is that long */
	}
	crn_fd_close(fd);
}

/* A duplicate is used like the first number: mio adds by one what it waits for by the other. */
static struct crn_epoll_set *set_of_copy(int epfd, struct crn_fd *f)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < CRN_EPOLL_SETS_MAX; i++)
		if (e->epolls[i].live && crn_fd_is_copy(epfd, e->epolls[i].fd)) {
			f->ino = (uint64_t)e->epolls[i].fd;
			return &e->epolls[i];
		}
	return NULL;
}

struct crn_epoll_set *crn_epoll_look(int epfd)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_epoll_set *free_set = NULL, *same;
	struct crn_fd *f = crn_fd_look(epfd);

	/* Without --recover there is no mirror. */
	if (f->kind != CRN_FD_EPOLL || !e->epolls)
		return NULL;
	for (uint32_t i = 0; i < CRN_EPOLL_SETS_MAX; i++) {
		if (e->epolls[i].live && (uint64_t)e->epolls[i].fd == f->ino)
			return &e->epolls[i];
		if (!e->epolls[i].live && !free_set)
			free_set = &e->epolls[i];
	}
	same = set_of_copy(epfd, f);
	if (same)
		return same;
	if (!free_set)
		return NULL;
	for (uint32_t i = 0; i < free_set->size; i++) /* its table is used again */
		free_set->items[i].fd = FREE;
	free_set->count = free_set->used = free_set->oneshots = free_set->delivered = 0;
	free_set->fd = epfd;
	free_set->live = true;
	e->epolls_used = CRN_MAX(e->epolls_used, (uint32_t)(free_set - e->epolls) + 1);
	read_set(free_set, false);
	return free_set;
}

/* ---- following it ---------------------------------------------------------------------------- */

void crn_epoll_note(int epfd, int op, int fd, uint32_t events, uint64_t data)
{
	struct crn_epoll_set *set = crn_epoll_look(epfd);

	if (!set)
		return;
	if (op == EPOLL_CTL_DEL)
		item_remove(set, fd);
	else
		item_set(set, fd, events, data);
}

int crn_epoll_put(int epfd, int op, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = {.events = events, .data.u64 = data};
	long ret = crn_sys4(SYS_epoll_ctl, epfd, op, fd, &event);

	if (ret == 0)
		crn_epoll_note(epfd, op, fd, events, data);
	return (int)ret;
}

void crn_epoll_forget_fd(int fd)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < CRN_EPOLL_SETS_MAX; i++)
		if (e->epolls[i].live)
			item_remove(&e->epolls[i], fd);
}

bool crn_epoll_holds(int fd)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < e->epolls_used; i++)
		if (e->epolls[i].live && crn_epoll_find(&e->epolls[i], fd))
			return true;
	return false;
}

void crn_epoll_leave(struct crn_call *call, int fd)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < CRN_EPOLL_SETS_MAX; i++) {
		struct crn_epoll_set *set = &e->epolls[i];
		struct crn_epoll_item *item = set->live ? crn_epoll_find(set, fd) : NULL;
		struct crn_inverse *inv;

		if (!item || crn_sys4(SYS_epoll_ctl, set->fd, EPOLL_CTL_DEL, fd, 0) < 0)
			continue;
		inv = crn_inverse_add(call, CRN_INV_EPOLL, set->fd);
		if (inv) {
			inv->other = fd;
			/* One that had fired before the checkpoint comes back fired. */
			inv->a = item->fired && item->fired != e->interval ? EPOLLONESHOT
									   : item->events;
			inv->b = item->data;
			inv->c = EPOLL_CTL_ADD;
		}
		item_remove(set, fd);
	}
}

void crn_epoll_join_again(int fd)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < CRN_EPOLL_SETS_MAX; i++) {
		const struct crn_epoll_set *set = &e->epolls[i];
		const struct crn_epoll_item *item =
			set->live ? crn_epoll_find(&e->epolls[i], fd) : NULL;
		struct epoll_event event;

		if (!item)
			continue;
		event.events = item->fired && item->fired != e->interval ? EPOLLONESHOT
									 : item->events;
		event.data.u64 = item->data;
		crn_sys4(SYS_epoll_ctl, set->fd, EPOLL_CTL_ADD, fd, &event);
	}
}

void crn_epoll_closed(int epfd)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t i = 0; i < CRN_EPOLL_SETS_MAX; i++) {
		struct crn_epoll_set *set = &e->epolls[i];

		if (!set->live || set->fd != epfd)
			continue;
		set->fd = crn_fd_rename(epfd);
		set->live = set->fd >= 0;
	}
}

/* The item of this event has fired. False: several may be meant. */
static bool fire(struct crn_epoll_set *set, uint64_t data)
{
	struct crn_epoll_item *found = NULL;

	for (uint32_t i = 0; i < set->size; i++) {
		struct crn_epoll_item *item = &set->items[i];

		if (item->fd < 0 || item->data != data || !(item->events & EPOLLONESHOT) ||
			item->fired)
			continue;
		if (found)
			return false;
		found = item;
	}
	if (found)
		found->fired = crn_agent->effects->interval;
	return true;
}

void crn_epoll_delivered(const struct crn_call *call)
{
	struct crn_effects *e = crn_agent->effects;
	struct crn_epoll_set *set = crn_epoll_look((int)call->args[0]);
	/* SAFETY: the kernel has just written `result` events there. */
	const struct epoll_event *events = (const struct epoll_event *)call->args[1];

	if (!set)
		return;
	set->delivered = e->interval;
	if (!set->oneshots)
		return;
	for (long n = 0; n < call->result; n++)
		if (!fire(set, events[n].data.u64))
			return read_set(set, true); /* the kernel knows of all */
}

/* An exclusive item cannot be modified. */
static void arm_again(const struct crn_epoll_set *set, int fd, struct epoll_event *event)
{
	if (!(event->events & EPOLLEXCLUSIVE)) {
		crn_sys4(SYS_epoll_ctl, set->fd, EPOLL_CTL_MOD, fd, event);
		return;
	}
	crn_sys4(SYS_epoll_ctl, set->fd, EPOLL_CTL_DEL, fd, event);
	crn_sys4(SYS_epoll_ctl, set->fd, EPOLL_CTL_ADD, fd, event);
}

/*
 * A consumed edge does not come back by itself, and MOD with the same mask makes the kernel look
 * again (measured). So every edge-triggered item of a set that handed out events since the
 * checkpoint, and every one-shot item that fired since, is armed again; an event too many is
 * allowed by the contract of both.
 */
static void rearm(struct crn_epoll_set *set, bool delivered)
{
	for (uint32_t i = 0; i < set->size; i++) {
		struct crn_epoll_item *item = &set->items[i];
		struct epoll_event event = {.events = item->events, .data.u64 = item->data};
		bool fired_since = item->fired == crn_agent->effects->interval;

		if (item->fd < 0)
			continue;
		item->edge = true;
		if (!delivered)
			continue;
		if (fired_since)
			item->fired = 0;
		if (fired_since || (item->events & (EPOLLET | EPOLLONESHOT)) == EPOLLET)
			arm_again(set, item->fd, &event);
	}
}

void crn_epoll_rearm(void)
{
	struct crn_effects *e = crn_agent->effects;

	for (uint32_t s = 0; s < CRN_EPOLL_SETS_MAX; s++)
		if (e->epolls[s].live)
			rearm(&e->epolls[s], e->epolls[s].delivered == e->interval);
}

static bool has_item(const struct crn_epoll_set *set, const struct epoll_event *event)
{
	for (uint32_t i = 0; i < set->size; i++)
		if (set->items[i].fd >= 0 && set->items[i].data == event->data.u64 &&
			(set->items[i].events | EPOLLERR | EPOLLHUP) & event->events)
			return true;
	return false;
}

/* What has been given to one that is gone may have been another one's edge. */
long crn_epoll_sift(int epfd, struct epoll_event *events, long count)
{
	struct crn_epoll_set *set = crn_epoll_look(epfd);
	long kept = 0;

	if (!set)
		return count;
	for (long i = 0; i < count; i++)
		if (has_item(set, &events[i]))
			events[kept++] = events[i];
	if (kept < count)
		rearm(set, true);
	return kept;
}
