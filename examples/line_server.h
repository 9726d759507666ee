/* SPDX-License-Identifier: MIT */
/*
 * What the example servers share: listen on 127.0.0.1, accept, cut the input into lines, send
 * answers (whole, later if the socket is full), quit on SIGTERM with status 0.
 */
#ifndef EXAMPLES_LINE_SERVER_H
#define EXAMPLES_LINE_SERVER_H

#include <stdbool.h>
#include <stddef.h>

struct client;

/*
 * One line without its end ("\n" or "\r\n"), NUL-terminated; it may be written to. Return false to
 * close the connection after what was answered has been sent.
 */
typedef bool (*line_fn)(struct client *client, char *line, size_t len);

/* Queue bytes for the client. Sent when the present batch of input has been handled. */
void client_send(struct client *client, const void *data, size_t len);
void client_printf(struct client *client, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* A place for one pointer of the handler's, NULL at first, given to free() at the end. */
void **client_slot(struct client *client);

/*
 * The server's main: reads [--loop epoll|edge|poll|select] [--port N] (0, the default: any free
 * one), prints "listening on 127.0.0.1:PORT" to stdout, serves until SIGTERM or SIGINT. Returns the
 * exit status.
 */
int line_server_main(int argc, char **argv, line_fn on_line);

/* For a command that ends the server. */
void line_server_stop(void);

#endif
