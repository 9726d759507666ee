/* SPDX-License-Identifier: MIT */
/*
 * A bug for a server that has none: preloaded, it spoils memory and crashes when what was received
 * contains a magic header. The damage is told from the repair: `depth` is zero outside of this
 * code, and the scar is in no page that was there before, unless memory was not brought back.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MAGIC "X-Planted: crash"

static volatile int depth;
static char *volatile scar;
static int *volatile nowhere;

static void planted(const void *buffer, ssize_t len)
{
	if (depth || scar)
		abort(); /* what the crash left behind is still there */
	if (len <= 0 || !memmem(buffer, (size_t)len, MAGIC, sizeof(MAGIC) - 1))
		return;
	depth++;
	scar = malloc(100000);
	if (scar)
		memset(scar, 0x5a, 100000);
	memset((void *)buffer, 0x5a, (size_t)len);
	*nowhere = 0;
}

EXPORT ssize_t recv(int fd, void *buffer, size_t len, int flags)
{
	static ssize_t (*real)(int, void *, size_t, int);
	ssize_t got;

	if (!real)
		real = (ssize_t (*)(int, void *, size_t, int))dlsym(RTLD_NEXT, "recv");
	got = real(fd, buffer, len, flags);
	planted(buffer, got);
	return got;
}

EXPORT ssize_t read(int fd, void *buffer, size_t len)
{
	static ssize_t (*real)(int, void *, size_t);
	ssize_t got;

	if (!real)
		real = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
	got = real(fd, buffer, len);
	planted(buffer, got);
	return got;
}
