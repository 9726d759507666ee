/* SPDX-License-Identifier: MIT */
/* Connections are accepted, by listeners that wait and that do not, between checkpoints. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include "expect.h"

static void accept_one(int listener, const struct sockaddr_in *at)
{
	struct pollfd wait = { .fd = listener, .events = POLLIN };
	int client = socket(AF_INET, SOCK_STREAM, 0), server;
	char byte = 'x';

	EXPECT(client >= 0 && !connect(client, (const struct sockaddr *)at, sizeof(*at)));
	EXPECT(poll(&wait, 1, -1) == 1);
	server = accept(listener, NULL, NULL);
	EXPECT(server >= 0);
	EXPECT(write(client, "y", 1) == 1 && read(server, &byte, 1) == 1 && byte == 'y');
	close(client);
	close(server);
}

int main(void)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t len = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	EXPECT(listener >= 0 && !bind(listener, (struct sockaddr *)&at, len));
	EXPECT(!listen(listener, 1) && !getsockname(listener, (struct sockaddr *)&at, &len));
	for (int i = 0; i < 4; i++)
		accept_one(listener, &at);
	EXPECT(!fcntl(listener, F_SETFL, O_NONBLOCK));
	for (int i = 0; i < 4; i++)
		accept_one(listener, &at);
	EXPECT(accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
	puts("accepts: ok");
	return 0;
}
