/* SPDX-License-Identifier: MIT */
#include "line_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "event_loop.h"
#include "planted_bug.h"

#define LINE_MAX_BYTES (1 << 20)

struct buffer {
	char *data;
	size_t len, size;
};

struct client {
	struct watch watch; /* first: a watch of a client is the client */
	struct buffer in, out;
	bool closing;
	void *slot;
};

static struct event_loop *the_loop;
static line_fn the_handler;

static void *buffer_room(struct buffer *b, size_t more)
{
	if (b->size - b->len < more) {
		size_t size = (b->len + more) * 2;
		char *data = realloc(b->data, size);

		if (!data) {
			fprintf(stderr, "out of memory\n");
			exit(1);
		}
		b->data = data;
		b->size = size;
	}
	return b->data + b->len;
}

static void buffer_drop(struct buffer *b, size_t count)
{
	b->len -= count;
	if (b->len > 0)
		memmove(b->data, b->data + count, b->len);
}

void client_send(struct client *client, const void *data, size_t len)
{
	memcpy(buffer_room(&client->out, len), data, len);
	client->out.len += len;
}

void client_printf(struct client *client, const char *fmt, ...)
{
	char text[512];
	va_list ap;
	int len;

	va_start(ap, fmt);
	len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	client_send(client, text, (size_t)len < sizeof(text) ? (size_t)len : sizeof(text) - 1);
}

void **client_slot(struct client *client)
{
	return &client->slot;
}

static void client_close(struct client *client)
{
	event_loop_remove(the_loop, &client->watch);
	close(client->watch.fd);
	free(client->in.data);
	free(client->out.data);
	free(client->slot);
	free(client);
}

/* False if the client is gone. */
static bool client_flush(struct client *client)
{
	bool was_full = client->watch.want_write;

	while (client->out.len > 0) {
		ssize_t sent =
			send(client->watch.fd, client->out.data, client->out.len, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && errno == EAGAIN)
			break;
		if (sent < 0) {
			client_close(client);
			return false;
		}
		buffer_drop(&client->out, sent);
	}
	if (client->closing && client->out.len == 0) {
		client_close(client);
		return false;
	}
	client->watch.want_write = client->out.len > 0;
	if (client->watch.want_write != was_full)
		event_loop_change(the_loop, &client->watch);
	return true;
}

static void client_lines(struct client *client)
{
	size_t begin = 0;
	char *end;

	while (!client->closing &&
		(end = memchr(client->in.data + begin, '\n', client->in.len - begin))) {
		char *line = client->in.data + begin;
		size_t len = end - line;

		begin += len + 1;
		if (len > 0 && line[len - 1] == '\r')
			len--;
		line[len] = '\0';
		client->closing = !the_handler(client, line, len);
	}
	buffer_drop(&client->in, begin);
	if (client->in.len > LINE_MAX_BYTES)
		client->closing = true;
}

static void client_ready(struct event_loop *loop, struct watch *watch, bool readable, bool writable)
{
	struct client *client = (struct client *)watch;

	while (readable && !client->closing) {
		ssize_t got = read(watch->fd, buffer_room(&client->in, 4096), 4096);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && errno == EAGAIN)
			break;
		if (got <= 0) {
			client_close(client);
			return;
		}
		client->in.len += got;
		client_lines(client);
		if (!event_loop_is_edge(loop))
			break;
	}
	client_flush(client);
}

static void listener_ready(
	struct event_loop *loop, struct watch *watch, bool readable, bool writable)
{
	do {
		int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		struct client *client;

		if (fd < 0)
			return;
		client = calloc(1, sizeof(*client));
		if (client)
			client->watch = (struct watch){ .fd = fd, .ready = client_ready };
		if (!client || event_loop_add(loop, &client->watch) < 0) {
			close(fd);
			free(client);
		}
	} while (event_loop_is_edge(loop));
}

/* The listening descriptor, or -1 with errno; *port is what the kernel gave. */
static int listen_at(uint16_t *port)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
		.sin_port = htons(*port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	int on = 1;

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&at, len) < 0 || listen(fd, 128) < 0 ||
		getsockname(fd, (struct sockaddr *)&at, &len) < 0) {
		close(fd);
		return -1;
	}
	*port = ntohs(at.sin_port);
	return fd;
}

/* SIGTERM and SIGINT come through a pipe, so that the loop ends where it waits and nowhere else. */
static int stop_pipe[2];

static void on_stop_signal(int sig)
{
	int saved = errno;

	if (write(stop_pipe[1], "", 1) < 0)
		_exit(128 + sig);
	errno = saved;
}

static void stop_ready(struct event_loop *loop, struct watch *watch, bool readable, bool writable)
{
	event_loop_stop(loop);
}

void line_server_stop(void)
{
	event_loop_stop(the_loop);
}

static int serve(uint16_t port)
{
	struct sigaction action = { .sa_handler = on_stop_signal };
	struct watch listener = { .ready = listener_ready };
	struct watch stop = { .ready = stop_ready };
	int ret;

	listener.fd = listen_at(&port);
	if (listener.fd < 0 || pipe2(stop_pipe, O_CLOEXEC | O_NONBLOCK) < 0 ||
		!planted_bug_prepare()) {
		perror("cannot start");
		return 1;
	}
	stop.fd = stop_pipe[0];
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	ret = event_loop_add(the_loop, &listener);
	if (ret == 0)
		ret = event_loop_add(the_loop, &stop);
	printf("listening on 127.0.0.1:%d\n", port);
	fflush(stdout);
	if (ret == 0)
		ret = event_loop_run(the_loop);
	if (ret < 0)
		fprintf(stderr, "event loop: %s\n", strerror(-ret));
	return ret < 0 ? 1 : 0;
}

int line_server_main(int argc, char **argv, line_fn on_line)
{
	static const struct option options[] = { { "loop", required_argument, NULL, 'l' },
		{ "port", required_argument, NULL, 'p' }, { NULL, 0, NULL, 0 } };
	const char *kind = "epoll";
	uint16_t port = 0;
	int option;

	while ((option = getopt_long(argc, argv, "l:p:", options, NULL)) >= 0) {
		if (option == 'l') {
			kind = optarg;
		} else if (option == 'p') {
			port = strtoul(optarg, NULL, 10);
		} else {
			fprintf(stderr, "usage: %s [--loop epoll|edge|poll|select] [--port N]\n",
				argv[0]);
			return 2;
		}
	}
	the_handler = on_line;
	the_loop = event_loop_new(kind);
	if (!the_loop) {
		fprintf(stderr, "%s: no such loop, or no memory\n", kind);
		return 2;
	}
	return serve(port);
}
