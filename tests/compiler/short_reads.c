/* SPDX-License-Identifier: MIT */
/*
 * stdio's wrappers do what libc does where a stream has a pause or an error in the middle, and
 * where a text is printed onto itself. argv: TRACKER.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include <wchar.h>
#include "../lib/harness.h"

/* What the reads of a stream give, one after another; an empty one fails. */
struct script {
	const char *const *next;
	int error;
};

static ssize_t give(void *cookie, char *to, size_t n)
{
	struct script *s = cookie;
	const char *text = *s->next++;
	size_t len = strlen(text);

	CHECK(len <= n);
	if (!len) {
		errno = s->error;
		return -1;
	}
	memcpy(to, text, len);
	return (ssize_t)len;
}

static FILE *open_script(struct script *s)
{
	FILE *f = fopencookie(s, "r", (cookie_io_functions_t){ .read = give });

	CHECK(f != NULL);
	return f;
}

static void items(void)
{
	static const char *const reads[] = { "0123456789", "", "more" };
	struct script s = { .next = reads, .error = EINTR };
	FILE *f = open_script(&s);
	char to[14];

	CHECK(fread(to, 1, sizeof(to), f) == 10 && ferror(f) && errno == EINTR);
	CHECK(s.next == reads + 2 && !fclose(f));
}

/* An old error does not spoil a new line. */
static void lines(void)
{
	static const char *const reads[] = { "", "one\ntwo\n", "par", "", "lost", "" };
	struct script s = { .next = reads, .error = EAGAIN };
	FILE *f = open_script(&s);
	char to[16] = "";

	CHECK(!fgets(to, sizeof(to), f) && ferror(f));
	CHECK(fgets(to, sizeof(to), f) && !strcmp(to, "one\n"));
	CHECK(fgets(to, sizeof(to), f) && !strcmp(to, "two\n") && ferror(f));
	CHECK(fgets(to, sizeof(to), f) && !strcmp(to, "par"));
	s.error = EIO;
	CHECK(!fgets(to, sizeof(to), f) && errno == EIO);
	CHECK(!fclose(f));
}

static void onto_itself(void)
{
	static char text[2000];
	char *volatile to = text;

	memset(text, 'x', 600);
	CHECK_RC(sprintf(to, "%sEND", (char *)to), 603);
	CHECK(text[0] == 'x' && !strcmp(text + 600, "END"));
}

/* Wrappers that call others' functions find them in a static program, too. */
static void others(void)
{
	static char to[100000];
	int fd = open("/dev/zero", O_RDONLY), ends[2];
	FILE *f = fopen("/dev/null", "w");

	CHECK(fd >= 0 && f && !socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	CHECK(read(fd, to + 1, sizeof(to) - 1) == sizeof(to) - 1);
	CHECK(pread(fd, to + 1, sizeof(to) - 1, 5) == sizeof(to) - 1);
	CHECK(write(ends[0], "x", 1) == 1 && recv(ends[1], to + 1, sizeof(to) - 1, 0) == 1);
	CHECK(readlink("/proc/self/exe", to, sizeof(to)) > 0);
	setbuf(f, to);
	CHECK_RC(fwprintf(f, L"%d", 10), 2);
	CHECK(!fclose(f) && !close(fd) && !close(ends[0]) && !close(ends[1]));
}

static void *read_line(void *f)
{
	char to[16];

	return fgets(to, sizeof(to), f);
}

static void *read_items(void *f)
{
	char to[16];

	return fread(to, 1, sizeof(to), f) ? f : NULL;
}

static void *read_new_line(void *f)
{
	static char *line;
	static size_t room;

	return getline(&line, &room, f) > 0 ? line : NULL;
}

/* A thread that is cancelled in a read leaves no lock behind. */
static void cancelled(void *(*run)(void *))
{
	pthread_t thread;
	void *result;
	FILE *f;
	int fd[2];

	CHECK(!pipe(fd) && (f = fdopen(fd[0], "r")));
	CHECK(!pthread_create(&thread, NULL, run, f) && !pthread_cancel(thread));
	CHECK(!pthread_join(thread, &result) && result == PTHREAD_CANCELED);
	CHECK(!ftrylockfile(f));
	funlockfile(f);
	CHECK(!fclose(f) && !close(fd[1]));
}

int main(int argc, char **argv)
{
	uint64_t id;
	cairn_t *c;

	CHECK(argc == 2);
	c = test_open_built(argv[1]);
	CHECK_RC(cairn_checkpoint(c, &id), CAIRN_TAKEN);
	items();
	lines();
	onto_itself();
	others();
	CHECK_OK(cairn_close(c));
	cancelled(read_line);
	cancelled(read_items);
	cancelled(read_new_line);
	return 0;
}
