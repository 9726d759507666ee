/* SPDX-License-Identifier: MIT */
/*
 * Threads that are born while others take checkpoints. The kernel writes a thread's tid words and
 * its rseq area unasked: a tracker that has closed those pages makes joins hang, or the process
 * die.
 */
#include <poll.h>
#include <pthread.h>
#include "expect.h"

static void *chatter(void *arg)
{
	int ends[2];
	char c = 'c';

	EXPECT(!pipe(ends));
	for (int i = 0; i < 20; i++) {
		struct pollfd p = { .fd = ends[0], .events = POLLIN };

		EXPECT(write(ends[1], &c, 1) == 1);
		EXPECT(poll(&p, 1, 1000) == 1);
		EXPECT(read(ends[0], &c, 1) == 1);
	}
	close(ends[0]);
	close(ends[1]);
	return arg;
}

int main(void)
{
	pthread_t t[4];
	void *result;

	for (int round = 0; round < 15; round++) {
		for (long i = 0; i < 4; i++)
			EXPECT(!pthread_create(&t[i], NULL, chatter, (void *)i));
		chatter(NULL);
		for (long i = 0; i < 4; i++)
			EXPECT(!pthread_join(t[i], &result) && result == (void *)i);
	}
	return 0;
}
