/* SPDX-License-Identifier: MIT */
/*
 * A small event loop with four ways to wait: epoll level-triggered, epoll edge-triggered, poll and
 * select. The servers beside it run on any of them (--loop), because each asks something else of
 * whoever checkpoints them: an edge that was consumed does not come again by itself.
 */
#ifndef EXAMPLES_EVENT_LOOP_H
#define EXAMPLES_EVENT_LOOP_H

#include <stdbool.h>
#include <stddef.h>

struct event_loop;

/* One watched descriptor; embed it in what it belongs to. */
struct watch {
	int fd;
	bool want_write; /* also wake up when it can be written */
	/* Never called again once the watch was removed, even for an event fetched before. */
	void (*ready)(struct event_loop *loop, struct watch *watch, bool readable, bool writable);
};

/* kind: "epoll", "edge", "poll" or "select". NULL if there is no such kind or no memory. */
struct event_loop *event_loop_new(const char *kind);

/* True if `ready` must read until EAGAIN, or it will not be told of the rest. */
bool event_loop_is_edge(const struct event_loop *loop);

/* 0 or -errno. The watch stays the caller's; it must be removed before its descriptor is closed. */
int event_loop_add(struct event_loop *loop, struct watch *watch);
int event_loop_change(struct event_loop *loop, struct watch *watch);
void event_loop_remove(struct event_loop *loop, struct watch *watch);

/* Wait and dispatch until event_loop_stop. 0 or -errno. */
int event_loop_run(struct event_loop *loop);
void event_loop_stop(struct event_loop *loop);

#endif
