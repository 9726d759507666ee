/* SPDX-License-Identifier: MIT */
/*
 * More cases of libc_calls.c: calls that fail, or do only a part. What they answer, errno and what
 * they have written is as without hooks.
 */
#ifndef CRN_TESTS_LIBC_FAILURES_H
#define CRN_TESTS_LIBC_FAILURES_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <grp.h>
#include <iconv.h>
#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <regex.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <wchar.h>

/* The answer and errno are in the sum. */
#ifndef TOLD
#define TOLD(n, err) /* for a look at what differs */
#endif
#define ADD(call)                                 \
	do {                                      \
		long result_ = (errno = 0, (long)(call)); \
		TOLD(result_, errno);             \
		n = (n * 31 + result_) * 31 + errno; \
	} while (0)

static long failed_reads(char *at)
{
	struct iovec none = { at + 100, 0 }, part = { at + 128, 10 };
	int folder = open(".", O_RDONLY | O_DIRECTORY);
	long n = 0;

	ADD(read(-1, at, 10));
	ADD(read(folder, at, 5000));
	ADD(read(file, at, 0));
	ADD(pread(file, at, 10, -1));
	ADD(pread(file, at, 100, 1 << 30));
	ADD(readv(file, &part, -1));
	ADD(readv(file, &none, 1));
	ADD(preadv(file, &part, 1, -5));
	ADD(getrandom(at, 10, 0x1000));
	ADD(readlink(".", at, 100));
	ADD(readlink("/proc/self/cwd", at, 0));
	ADD(readlink("/no/such/name", at, 100));
	ADD(readlinkat(-1, "name", at, 100));
	ADD(readlink("/proc/self/fd/9999", at + 300, 4));
	ADD(getcwd(at, 1) == NULL);
	ADD(getcwd(at, 0) == NULL);
	ADD(realpath("/no/such/name", at + 1024) == NULL);
	ADD(realpath("", NULL) == NULL);
	ADD(stat("/no/such/name", (struct stat *)at));
	ADD(fstat(-1, (struct stat *)at));
	ADD(fstatat(AT_FDCWD, "", (struct stat *)at, 0));
	ADD(pipe2((int *)at, -1));
	ADD(mkstemp(strcpy(at + 512, "no-places")));
	ADD(ioctl(file, TIOCGWINSZ, at));
	ADD(ioctl(-1, FIONREAD, at));
	ADD(fcntl(file, F_GETLK, memset(at + 700, 0x77, sizeof(struct flock))));
	ADD(scandir("/no/such/name", (struct dirent ***)at, NULL, NULL));
	close(folder);
	return n;
}

static long failed_streams(char *at)
{
	FILE *f = fdopen(dup(file), "r"), *write_only = fopen("/dev/null", "w");
	char *line = NULL;
	size_t room = 0;
	long n = 0;

	ADD(fgets(at, 1, f) == at);
	ADD(fgets(at + 64, 0, f) == NULL);
	ADD(fgets(at + 64, 10, write_only) == NULL);
	ADD(fread(at + 64, 0, 10, f));
	ADD(fread(at + 64, 10, 1, write_only));
	ADD(fseek(f, 0, SEEK_END) + (long)fread(at + 64, 3, 9, f) + feof(f));
	ADD(fgets(at + 64, 10, f) == NULL);
	ADD(fseek(f, -5, SEEK_END) + (long)fread(at + 128, 3, 9, f) + feof(f));
	ADD(fscanf(f, "%s", at + 300));
	ADD(getline(&line, &room, f));
	ADD((line != NULL) + (long)room);
	ADD(getline(&line, &room, write_only));
	ADD(getdelim(NULL, NULL, 'x', f));
	ADD(snprintf(at + 400, 0, "%d", 12345));
	ADD(snprintf(at + 400, 1, "%d", 12345));
	ADD(snprintf(at + 410, 3, "%d", 12345));
	ADD(swprintf((wchar_t *)(at + 512), 2, L"%d", 12345));
	ADD(snprintf(at + 700, 50, "%ls", L"\x7fffffff") < 0);
	ADD(sscanf("", "%d", (int *)(at + 800)));
	ADD(sscanf("x", "%d", (int *)(at + 800)));
	ADD(sscanf("99999999999999999999", "%ld", (long *)(at + 808)));
	ADD(sscanf("a b", "%1$s", at + 900));
	ADD(dprintf(-1, "%d", 1));
	free(line);
	ADD(fclose(f) + fclose(write_only));
	return n;
}

#ifdef __GLIBC__
int __snprintf_chk(char *to, size_t n, int flag, size_t size, const char *format, ...);
int __sprintf_chk(char *to, int flag, size_t size, const char *format, ...);
#else
#define __snprintf_chk(to, n, flag, size, ...) snprintf(to, n, __VA_ARGS__)
#define __sprintf_chk(to, flag, size, ...)     sprintf(to, __VA_ARGS__)
#endif

/* A part is written. */
static long failed_prints(char *at)
{
	long n = 0;

	ADD(snprintf(at, 100, "abc%lcd", (wint_t)0x7fffffff));
	ADD(sprintf(at + 200, "abcd%lcd", (wint_t)0x7fffffff));
	ADD(__snprintf_chk(at + 400, 100, 1, 200, "abcde%lcd", (wint_t)0x7fffffff));
	ADD(__sprintf_chk(at + 600, 1, 200, "abcdef%lcd", (wint_t)0x7fffffff));
	ADD(snprintf(at + 800, 3, "abc%lcd", (wint_t)0x7fffffff));
	ADD(__snprintf_chk(at + 816, 3, 1, 200, "abc%lcd", (wint_t)0x7fffffff));
	ADD(__snprintf_chk(at + 832, 0, 1, 200, "abc%lcd", (wint_t)0x7fffffff));
	return n;
}

static long failed_conversions(char *at)
{
	char *end, *from = (char *)"\xff\xfe", *to = at + 600;
	size_t left = 2, room = 40;
	iconv_t how = iconv_open("UTF-16LE", "UTF-8");
	regex_t re;
	long n = 0;

	ADD(strtol("99999999999999999999", &end, 10) == LONG_MAX);
	ADD(strtol("12", &end, 99));
	ADD(strtoul("-1", &end, 10) == ULONG_MAX);
	ADD(strtoimax("-99999999999999999999", &end, 10) == INTMAX_MIN);
	ADD(strtod("1e999", &end) > 1e300);
	ADD(strtod("x", &end));
	ADD(mbstowcs((wchar_t *)at, "a\xff", 9) == (size_t)-1);
	ADD(wcstombs(at + 64, L"b\x7fffffff", 9) == (size_t)-1);
	ADD(mbrtowc((wchar_t *)(at + 128), "\xff", 1, NULL) == (size_t)-1);
	ADD(wctomb(at + 192, 0x7fffffff));
	ADD(iconv(how, &from, &left, &to, &room) == (size_t)-1);
	from = (char *)"abc";
	left = 3;
	room = 4;
	ADD(iconv(how, &from, &left, &to, &room) == (size_t)-1);
	ADD((long)left * 10 + (long)room + iconv_close(how));
	ADD(iconv_open("no-such-set", "UTF-8") == (iconv_t)-1);
	ADD(regcomp(&re, "a(b", REG_EXTENDED) != 0);
	ADD((long)regerror(REG_EPAREN, NULL, at + 256, 6) > 6);
	ADD((long)strftime(at + 300, 3, "%Y-%m-%d", &(struct tm){ .tm_mday = 1 }));
	ADD((long)strftime(at + 310, 9, "", &(struct tm){ .tm_mday = 1 }));
	ADD(strptime("x", "%Y", (struct tm *)(at + 400)) == NULL);
	n += newlocale(LC_ALL_MASK, "no_such_locale", NULL) == NULL; /* errno: it knows it later */
	ADD((long)confstr(-1, at + 500, 10));
	ADD((long)confstr(_CS_PATH, at + 500, 3) > 3);
	return n;
}

static long failed_waits(char *at)
{
	struct msghdr m = { 0 };
	struct epoll_event *events = (struct epoll_event *)(at + 300);
	socklen_t *len = (socklen_t *)(at + 200);
	int ep = epoll_create1(0);
	sem_t *s = (sem_t *)(at + 900);
	long n = 0;

	*len = 4;
	ADD(recv(-1, at, 10, 0));
	ADD(recv(file, at, 10, 0));
	ADD(recv(ends[1], at, 10, MSG_DONTWAIT));
	ADD(recv(ends[1], at, 5000, MSG_DONTWAIT));
	ADD(recvfrom(ends[1], at, 10, MSG_DONTWAIT | MSG_OOB, NULL, NULL));
	ADD(recvmsg(ends[1], &m, MSG_DONTWAIT));
	ADD(recvmsg(file, &m, 0));
	ADD(accept(ends[1], (struct sockaddr *)at, len));
	ADD(getpeername(file, (struct sockaddr *)at, len));
	ADD(getsockopt(ends[1], SOL_SOCKET, 9999, at, len));
	ADD(getsockopt(ends[1], SOL_SOCKET, SO_TYPE, at + 64, len) + (long)*len);
	ADD(socketpair(AF_INET, SOCK_STREAM, 0, (int *)at));
	ADD(epoll_wait(ep, events, 0, 0));
	ADD(epoll_wait(ep, events, -1, 0));
	ADD(epoll_wait(ep, events, 100, 0));
	ADD(epoll_wait(file, events, 4, 0));
	ADD(select(-1, (fd_set *)at, NULL, NULL, NULL));
	ADD(poll(NULL, 0, 0));
	ADD(waitpid(-1, (int *)at, WNOHANG));
	ADD(getrlimit(9999, (struct rlimit *)at));
	ADD(clock_gettime(9999, (struct timespec *)at));
	ADD(nanosleep(&(struct timespec){ 0, -1 }, (struct timespec *)at));
	ADD(sem_init(s, 0, 0) + sem_trywait(s));
	ADD(sem_timedwait(s, &(struct timespec){ 0 }));
	ADD(inet_pton(AF_INET, "1.2.3", at + 700) * 10 + inet_pton(AF_UNIX, "1", at + 700));
	ADD(inet_ntop(AF_INET, "\1\2\3\4", at + 750, 4) == NULL);
	ADD(getaddrinfo("256.1.1.1", NULL, &(struct addrinfo){ .ai_flags = AI_NUMERICHOST },
		(struct addrinfo **)(at + 800)));
	close(ep);
	return n;
}

static long failed_names(char *at)
{
	struct passwd *user = (struct passwd *)at, **found = (struct passwd **)(at + 200);
	glob_t *names = (glob_t *)(at + 300);
	long n = 0;

	memset(names, 0, sizeof(*names));
	ADD(getpwnam_r("root", user, at + 500, 3, found));
	ADD(getpwnam_r("no such user", user, at + 500, 300, found));
	ADD(*found == NULL);
	memset(user, 0, sizeof(*user));
	memset(at + 500, 0, 300);
	ADD(gethostname(at + 900, 1));
	ADD(ttyname_r(file, at + 1000, 100));
	ADD(ptsname_r(file, at + 1000, 100));
	ADD(glob("/no/such/*", 0, NULL, names));
	globfree(names);
	ADD(posix_memalign((void **)(at + 1200), 3, 10));
	ADD(malloc(SIZE_MAX - 5000) == NULL);
	ADD(calloc((size_t)1 << (sizeof(long) * 4), (size_t)1 << (sizeof(long) * 4)) == NULL);
	ADD(realloc(NULL, SIZE_MAX) == NULL);
	ADD(aligned_alloc(64, SIZE_MAX - 100) == NULL);
	ADD(mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED);
	ADD(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, -1, 0) == MAP_FAILED);
	ADD(munmap(at + 1, 4096));
	ADD(mremap((void *)4096, 4096, 8192, MREMAP_MAYMOVE) == MAP_FAILED);
	ADD(mremap((void *)4096, 8192, 4096, 0) == MAP_FAILED);
	ADD(mremap(at, 4096, 8192, -1) == MAP_FAILED);
	ADD(madvise(at, 4096, 9999));
	ADD(madvise((void *)4096, 4096, 102 /* MADV_GUARD_INSTALL, of Linux 6.13 */) < 0);
	ADD(setenv("", "x", 1) + setenv("a=b", "x", 1) * 2 + unsetenv("a=b") * 4);
	ADD(pthread_attr_setstacksize((pthread_attr_t *)(at + 1300), 1));
	memset(names, 0, sizeof(*names));
	return n;
}

#endif
