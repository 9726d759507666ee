/* SPDX-License-Identifier: MIT */
/*
 * Reads into a buffer for whose old contents --memory-max has no room: checkpoints may fail, the
 * calls do not.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include "expect.h"

#define BYTES  (4500ul << 10)
#define ROUNDS 12

int main(void)
{
	int zeros = open("/dev/zero", O_RDONLY);
	char *buffer = malloc(BYTES);

	EXPECT(zeros >= 0 && buffer);
	for (int i = 1; i <= ROUNDS; i++) {
		memset(buffer, i, BYTES);
		poll(NULL, 0, 1);
		EXPECT(read(zeros, buffer, BYTES) == (ssize_t)BYTES);
		EXPECT(!buffer[0] && !memcmp(buffer, buffer + 1, BYTES - 1));
		poll(NULL, 0, 1);
	}
	printf("outgrown: ok\n");
	return 0;
}
