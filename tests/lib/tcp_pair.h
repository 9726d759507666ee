/* SPDX-License-Identifier: MIT */
/*
 * Two ends of a connection that the agent takes for a client's, unlike those of a socketpair of the
 * program's own.
 */
#ifndef TEST_TCP_PAIR_H
#define TEST_TCP_PAIR_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

/* 0, or -1. ends[0] is the accepting side's. */
static inline int tcp_pair(int ends[2])
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	ends[1] = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&at, len) || listen(listener, 1) ||
		getsockname(listener, (struct sockaddr *)&at, &len) ||
		connect(ends[1], (struct sockaddr *)&at, len))
		return -1;
	ends[0] = accept(listener, NULL, NULL);
	close(listener);
	return ends[0] < 0 ? -1 : 0;
}

#endif
