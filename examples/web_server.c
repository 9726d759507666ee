/* SPDX-License-Identifier: MIT */
/*
 * A web server of one screen: HTTP/1.1 with keep-alive, enough for `ab` and `curl`.
 *
 *	GET /            a page with the number of requests served so far
 *	GET /size/N      N bytes
 *	GET /crash/BUG   runs into the bug of that name
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "line_server.h"
#include "planted_bug.h"

#define SIZE_MAX_BYTES (16u << 20)

/* One request on its way: what came before the empty line that ends it. */
struct request {
	char path[256];
	bool keep_alive;
};

static uint64_t served;

static void respond(struct client *client, const struct request *r, const char *status,
	const char *body, size_t len)
{
	client_printf(client,
		"HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n"
		"Connection: %s\r\n\r\n",
		status, len, r->keep_alive ? "keep-alive" : "close");
	client_send(client, body, len);
}

static void serve_size(struct client *client, const struct request *r, size_t len)
{
	char *body = len <= SIZE_MAX_BYTES ? malloc(len + 1) : NULL;

	if (!body) {
		respond(client, r, "507 Insufficient Storage", "too much\n", 9);
		return;
	}
	for (size_t i = 0; i < len; i++)
		body[i] = 'a' + i % 26;
	respond(client, r, "200 OK", body, len);
	free(body);
}

static void serve(struct client *client, const struct request *r)
{
	char body[64];
	int len;

	served++;
	if (strcmp(r->path, "/") == 0) {
		len = snprintf(body, sizeof(body), "request %llu\n", (unsigned long long)served);
		respond(client, r, "200 OK", body, len);
	} else if (strncmp(r->path, "/size/", 6) == 0) {
		serve_size(client, r, strtoul(r->path + 6, NULL, 10));
	} else if (strncmp(r->path, "/crash/", 7) == 0 && planted_bug_trigger(r->path + 7)) {
		respond(client, r, "200 OK", "survived\n", 9);
	} else {
		respond(client, r, "404 Not Found", "nothing here\n", 13);
	}
}

static bool on_line(struct client *client, char *line, size_t len)
{
	struct request **slot = (struct request **)client_slot(client);
	char version[16];

	if (!*slot) {
		*slot = calloc(1, sizeof(**slot));
		if (!*slot)
			return false;
	}
	if (!(*slot)->path[0]) {
		if (sscanf(line, "GET %255s %15s", (*slot)->path, version) != 2)
			return false;
		(*slot)->keep_alive = strcmp(version, "HTTP/1.1") == 0;
	} else if (strncasecmp(line, "connection:", 11) == 0) {
		(*slot)->keep_alive = strcasestr(line, "keep-alive") != NULL;
	} else if (len == 0) {
		struct request done = **slot;

		memset(*slot, 0, sizeof(**slot));
		serve(client, &done);
		return done.keep_alive;
	}
	return true;
}

int main(int argc, char **argv)
{
	return line_server_main(argc, argv, on_line);
}
