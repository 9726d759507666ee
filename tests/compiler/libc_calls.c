/* SPDX-License-Identifier: MIT */
/*
 * libc and the kernel write memory of a program that cairn-cc has built: after a restore every byte
 * of it is as it was, and the calls did what they do without hooks. argv: TRACKER, or nothing to
 * run without a session. Each case prints a sum of what it wrote: the same with and without.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <iconv.h>
#include <inttypes.h>
#include <libgen.h>
#include <math.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <pwd.h>
#include <regex.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <termios.h>
#include <threads.h>
#include <time.h>
#include <uchar.h>
#include <wchar.h>

#define OUT (96 * 1024)
#include "libc_run.h"
#include "libc_children.h"
#include "libc_failures.h"
#include "libc_tables.h"

/* ---- Cases: what they write lies from `at` on; they return something of their result ------- */

static long strings(char *at)
{
	char *end;

	end = stpcpy(strcpy(at, text) + 300, text + 7);
	strncpy(at + 600, text, 400);
	stpncpy(at + 1100, text, 50);
	strcat(strcpy(at + 1200, "x"), text);
	strncat(strcpy(at + 1500, "y"), text, 77);
	strxfrm(at + 1700, text, 20);
	return end - at;
}

static long bytes(char *at)
{
	memcpy(at, text, 140);
	memmove(at + 150, at + 20, 100);
	memset(at + 300, 'm', 501);
	memccpy(at + 900, text, 'q', 100);
	mempcpy(at + 1000, text, 33);
	bzero(at + 1100, 45);
	explicit_bzero(at + 1200, 46);
	bcopy(text, at + 1300, 47);
	swab(text, at + 1400, 48);
	return 0;
}

static long tokens(char *at)
{
	char **rest = (char **)at, *s = at + 64;
	long count = 0;

	for (char *t = strtok_r(strcpy(s, text), " ,", rest); t; t = strtok_r(NULL, " ,", rest))
		count += t - s;
	for (char *t = strtok(strcpy(s + 300, text), " ,"); t; t = strtok(NULL, " ,"))
		count += t - s;
	*rest = strcpy(s + 600, text);
	for (char *t = strsep(rest, " ,"); t; t = strsep(rest, " ,"))
		count += t - s;
	*rest = NULL;
	return count;
}

static long wide(char *at)
{
	wchar_t *w = (wchar_t *)at;
	long count;

	count = (long)mbstowcs(w, text, 150);
	wcscpy(w + 160, w);
	wcsncpy(w + 320, w, 200);
	wcscat(wcscpy(w + 600, L"x"), w);
	wmemcpy(w + 900, w, 99);
	wmemmove(w + 905, w + 900, 90);
	wmemset(w + 1000, L'w', 70);
	count += swprintf(w + 1100, 80, L"%d %s%n", 5, "wide", (int *)(at + 5412));
	FILE *null = fopen("/dev/null", "w");
	count += fwprintf(null, L"%*d%hn", 4, 7, (short *)(at + 5418));
	fclose(null);
	count += (long)wcstombs(at + 5000, w, 300);
	count += wctomb(at + 5400, L'c');
	return count;
}

static long printed(char *at)
{
	int null = open("/dev/null", O_WRONLY);
	long n;

	n = sprintf(at, "%s %d %.3f", text, 42, 1.5);
	n += snprintf(at + 300, 40, "%s", text);
	n += snprintf(at + 400, 4000, "%s%s%s%s%s", text, text, text, text, text);
	n += snprintf(at + 4500, 900, "%s%s%s%s%s%s%s", text, text, text, text, text, text, text);
	n += snprintf(NULL, 0, "%s", text);
	n += snprintf(at + 5600, 100, "%s%n %*d %.2f%ln %Lf%hhn", text, (int *)(at + 5512), 5, 42,
		1.5, (long *)(at + 5520), 2.0L, (signed char *)(at + 5530));
	n += dprintf(null, "%*.*f%n%d%hn", 9, 2, 1.0, (int *)(at + 5540), 3,
		(short *)(at + 5544));
	close(null);
	return n + sprintf(at + 5500, "%a", 0.5);
}

static long scanned(char *at)
{
	int *i = (int *)at;
	long *l = (long *)(at + 16);
	double *d = (double *)(at + 32);
	float *f = (float *)(at + 48);
	long double *q = (long double *)(at + 64);
	short *h = (short *)(at + 80);
	long n = sscanf("7 8 9.5 2.5 4.25 -3 word 0x1f [set] cc 12 end",
		"%d %ld %lf %f %Lf %hd %s %i [%[a-z] ] %2c %*d %n", i, l, d, f, q, h, at + 100,
		i + 1, at + 200, at + 300, i + 2);

	if (n != 3)
		n += sscanf("100 200", "%2$d %1$ld", l + 1, i + 3);
#ifdef __GLIBC__
	/* As it was before C99, by the name that headers give it for programs of that time. */
	int old_sscanf(const char *from, const char *format, ...) __asm__("sscanf");
	char **allocated = (char **)(at + 768);
	n += old_sscanf("word set", "%as %a[set]", allocated, allocated + 1);
	n += (long)strlen(strcpy(at + 640, allocated[0])) + (long)strlen(allocated[1]);
	free(allocated[0]);
	free(allocated[1]);
	allocated[0] = allocated[1] = NULL;
#endif
	/* More than fit into a list of the wrapper's. */
#define EIGHT(m)  &(m)[0], &(m)[1], &(m)[2], &(m)[3], &(m)[4], &(m)[5], &(m)[6], &(m)[7]
#define FORMAT    "%1d%1d%1d%1d%1d%1d%1d%1d"
#define DIGITS    "12345678"
	i = (int *)(at + 1024);
	n += sscanf(DIGITS DIGITS DIGITS DIGITS DIGITS DIGITS DIGITS DIGITS DIGITS,
		FORMAT FORMAT FORMAT FORMAT FORMAT FORMAT FORMAT FORMAT FORMAT, EIGHT(i),
		EIGHT(i + 8), EIGHT(i + 16), EIGHT(i + 24), EIGHT(i + 32), EIGHT(i + 40),
		EIGHT(i + 48), EIGHT(i + 56), EIGHT(i + 256));
	/* The rest of a long double is nobody's. */
	memset((char *)q + 10, 0, 6);
	return n;
}

static long numbers(char *at)
{
	char **end = (char **)at;
	double *d = (double *)(at + 128);
	int *e = (int *)(at + 200);
	unsigned *seed = (unsigned *)(at + 204);
	long n = strtol("123abc", end, 10) + (long)strtoul("0x77 ", end + 1, 0);

	n += (long)strtod("1e3!", end + 2) + (long)strtoll("-5", end + 3, 10);
	n += (long)(frexp(20.5, e) * 64) + (long)modf(3.25, d);
	n += (long)remquo(17.0, 3.0, e + 4);
	*seed = 5;
	n += rand_r(seed);
	n += (*end)[0];
	memset(end, 0, 4 * sizeof(*end)); /* addresses differ from build to build */
	return n;
}

/* Random numbers whose state is the program's, of glibc alone. */
static long drawn(char *at)
{
#ifdef __GLIBC__
	struct random_data *r = (struct random_data *)at;
	struct drand48_data *d = (struct drand48_data *)(at + 64);
	unsigned short *seed = (unsigned short *)(at + 128), from[7] = { 1, 2, 3, 4, 5, 6, 7 };
	int32_t *small = (int32_t *)(at + 140);
	long *l = (long *)(at + 160), n;
	double *x = (double *)(at + 200);

	memset(at, 0, 1000);
	initstate_r(9, at + 300, 64, r);
	initstate_r(8, at + 400, 128, r);
	random_r(r, small);
	srandom_r(7, r);
	setstate_r(at + 300, r);
	random_r(r, small + 1);
	seed48_r(from, d);
	mrand48_r(d, l);
	erand48_r(seed, d, x);
	nrand48_r(seed, d, l + 1);
	jrand48_r(seed, d, l + 2);
	lcong48_r(from, d);
	lrand48_r(d, l + 3);
	n = small[0] + small[1] + l[0] + l[1] + l[2] + l[3] + (long)(*x * 1000);
	memset(r, 0, sizeof(*r)); /* addresses differ from build to build */
	return n;
#else
	return at[0] = 1;
#endif
}

static long spelled(char *at)
{
	wchar_t **end = (wchar_t **)at;
	mbstate_t *state = (mbstate_t *)(at + 64);
	struct termios *t = (struct termios *)(at + 200);
	long n;

	memset(at, 0, 400);
	n = (long)wcstof(L"2.5x", end) + (long)wcstold(L"7.5", end + 1);
	n += (long)wcstoimax(L"-12 ", end + 2, 10) + (long)wcstoumax(L"0x1f", end + 3, 16);
	n += **end;
	memset(end, 0, 4 * sizeof(*end));
	n += (long)mbrtoc16((char16_t *)(at + 80), "a", 1, state);
	n += (long)mbrtoc32((char32_t *)(at + 84), "b", 1, state);
	n += (long)c16rtomb(at + 90, u'c', state) + (long)c32rtomb(at + 100, U'd', state);
	cfmakeraw(t);
	cfsetispeed(t, B9600);
	cfsetospeed(t, B38400);
#ifdef __GLIBC__
	n += fcvt_r(12.375, 2, (int *)(at + 120), (int *)(at + 124), at + 130, 20);
	n += ecvt_r(-0.5, 3, (int *)(at + 152), (int *)(at + 156), at + 160, 20);
	memfrob(strcpy(at + 400, text), 50);
	strfry(strcpy(at + 600, "aaaaaaaa"));
#endif
	return n + (long)cfgetospeed(t) + lround(lgammaf_r(4.5f, (int *)(at + 700)) * 100) +
		lround((double)remquol(17, 3, (int *)(at + 704)));
}

static int by_value(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static long sorted(char *at)
{
	int *v = (int *)at;

	for (int i = 0; i < 600; i++)
		v[i] = i * 7919 % 601;
	qsort(v, 600, sizeof(*v), by_value);
	return v[17];
}

static long times_told(char *at)
{
	time_t *t = (time_t *)at;
	struct tm *tm = (struct tm *)(at + 16);

	*t = 86400 * 365;
	gmtime_r(t, tm);
	tm->tm_zone = NULL;
	asctime_r(tm, at + 100);
	tm->tm_mday += 40;
	tm->tm_isdst = 0;
	timegm(tm);
	memset(at + 16 + 9 * sizeof(int), 0, 24); /* padding, and tm_zone */
	ctime_r(t, at + 150);
	return (long)strftime(at + 300, 200, "%Y-%m-%d", tm) + (strptime("12", "%d", tm) != NULL);
}

static long clocks(char *at)
{
	time((time_t *)at);
	gettimeofday((struct timeval *)(at + 16), NULL);
	clock_gettime(CLOCK_MONOTONIC, (struct timespec *)(at + 32));
	clock_getres(CLOCK_MONOTONIC, (struct timespec *)(at + 48));
	times((struct tms *)(at + 64));
	getitimer(ITIMER_REAL, (struct itimerval *)(at + 128));
	getrusage(RUSAGE_SELF, (struct rusage *)(at + 200));
	sysinfo((struct sysinfo *)(at + 400));
	uname((struct utsname *)(at + 600));
	getrlimit(RLIMIT_NOFILE, (struct rlimit *)(at + 1100));
	gethostname(at + 1200, 200);
	return getrandom(at + 1500, 333, 0);
}

static long files_told(char *at)
{
	struct stat *st = (struct stat *)at;

	stat("/proc/self/exe", st);
	lstat("/proc/self/exe", st + 1);
	fstat(file, st + 2);
	fstatat(AT_FDCWD, ".", st + 3, 0);
	statvfs("/", (struct statvfs *)(at + 1000));
	readlink("/proc/self/cwd", at + 1500, 1000);
	return getcwd(at + 3000, 900) != NULL && realpath("/proc/self/cwd", at + 8000) != NULL;
}

static long reads(char *at)
{
	struct iovec parts[2] = { { at + 30000, 77 }, { at + 30100, 5000 } };
	long n = pread(file, at, 100, 3) + pread(file, at + 300, 20000, 5);

	lseek(file, 7, SEEK_SET);
	n += read(file, at + 25000, 1) + read(file, at + 26000, 3000);
	n += readv(file, parts, 2) + preadv(file, parts, 2, 9);
	n += pread(file, (char *)(((uintptr_t)at + 40000) & -512ul), 1024, 0);
	return n;
}

static long received(char *at)
{
	struct iovec parts[2] = { { at + 100, 10 }, { at + 200, 2000 } };
	struct msghdr m = { .msg_iov = parts, .msg_iovlen = 2 };
	struct epoll_event *events = (struct epoll_event *)(at + 3000);
	struct pollfd *fds = (struct pollfd *)(at + 9000);
	socklen_t *len = (socklen_t *)(at + 9500);
	long n = send(ends[0], text, 100, 0);
	int ep = epoll_create1(0);
	struct epoll_event want = { .events = EPOLLIN };

	epoll_ctl(ep, EPOLL_CTL_ADD, ends[1], &want);
	n += epoll_wait(ep, events, 16, 0);
	close(ep);
	*fds = (struct pollfd){ .fd = ends[1], .events = POLLIN };
	n += poll(fds, 1, 0);
	n += ioctl(ends[1], FIONREAD, at + 9100) + recv(ends[1], at, 40, MSG_PEEK);
	n += recv(ends[1], at + 10000, 20, 0) + recvmsg(ends[1], &m, 0);
	n += send(ends[0], text, 130, 0) + recv(ends[1], at + 11000, 30000, 0);
	n += send(ends[0], text, 30, 0) + recvfrom(ends[1], at + 9600, 300, 0, NULL, NULL);
	*len = sizeof(int);
	n += getsockopt(ends[0], SOL_SOCKET, SO_TYPE, at + 9520, len);
	return n;
}

static long selected(char *at)
{
	fd_set *set = (fd_set *)at;
	struct timeval *t = (struct timeval *)(at + 200);
	struct flock *lock = (struct flock *)(at + 300);
	int *pair = (int *)(at + 400);
	long n;

	FD_ZERO(set);
	FD_SET(ends[0], set);
	*t = (struct timeval){ 0, 1 };
	n = select(ends[0] + 1, set, NULL, NULL, t);
	*t = (struct timeval){ 0, 0 };
	*lock = (struct flock){ .l_type = F_WRLCK };
	n += fcntl(file, F_GETLK, lock);
	n += pipe(pair) + socketpair(AF_UNIX, SOCK_STREAM, 0, pair + 2);
	for (int i = 0; i < 4; i++) {
		close(pair[i]);
		pair[i] -= pair[0] - 1;
	}
	return n;
}

static long named(char *at)
{
	struct sockaddr_in *in = (struct sockaddr_in *)at;
	struct addrinfo **found = (struct addrinfo **)(at + 400);
	struct addrinfo numeric = { .ai_flags = AI_NUMERICHOST };
	long n = inet_pton(AF_INET, "127.1.2.3", &in->sin_addr);

	in->sin_family = AF_INET;
	n += inet_ntop(AF_INET, &in->sin_addr, at + 100, 200) != NULL;
	n += getnameinfo((struct sockaddr *)in, sizeof(*in), at + 200, 100, at + 300, 50,
		NI_NUMERICHOST | NI_NUMERICSERV);
	n += inet_aton("10.0.0.1", (struct in_addr *)(at + 390));
	n += getaddrinfo("127.0.0.1", NULL, &numeric, found);
	freeaddrinfo(*found);
	*found = NULL;
	return n;
}

static long signals(char *at)
{
	sigset_t *set = (sigset_t *)at;

	memset(at, 0, 1000);
	sigemptyset(set);
	sigfillset(set + 1);
	sigaddset(set, SIGUSR1);
	sigdelset(set + 1, SIGUSR2);
	sigprocmask(SIG_BLOCK, NULL, set + 2);
	sigpending(set + 3);
	sigaction(SIGUSR1, NULL, (struct sigaction *)(set + 4));
	return sigaltstack(NULL, (stack_t *)(at + 900)) + sigismember(set, SIGUSR1);
}

static long waited(char *at)
{
	pid_t pid = fork();

	if (!pid)
		_exit(7);
	return waitpid(pid, (int *)at, 0) == pid ? WEXITSTATUS(*(int *)at) : -1;
}

static long locked(char *at)
{
	pthread_mutex_t *m = (pthread_mutex_t *)at;
	sem_t *s = (sem_t *)(at + 100);

	pthread_mutex_init(m, NULL);
	sem_init(s, 0, 3);
	sem_wait(s);
	sem_getvalue(s, (int *)(at + 200));
	pthread_mutex_lock(m);
	pthread_mutex_unlock(m);
	return pthread_mutex_trylock(m) + pthread_mutex_unlock(m);
}

static long locked_by_standard(char *at)
{
	mtx_t *m = (mtx_t *)at;
	cnd_t *c = (cnd_t *)(at + 100);
	pthread_barrier_t *b = (pthread_barrier_t *)(at + 200);
	struct timespec long_ago = { 0 };
	sigset_t *set = (sigset_t *)(at + 400);
	struct protoent of, *found = NULL;
	char names[512];
	long n;

	memset(at, 0, 1000);
	n = mtx_init(m, mtx_timed) + mtx_lock(m) + (mtx_timedlock(m, &long_ago) == thrd_timedout);
	n += mtx_unlock(m) + mtx_trylock(m) + mtx_unlock(m);
	n += cnd_init(c) + cnd_signal(c) + cnd_broadcast(c);
	n += pthread_barrier_init(b, NULL, 1);
	n += pthread_barrier_wait(b) == PTHREAD_BARRIER_SERIAL_THREAD;
	n += pthread_mutex_timedlock((pthread_mutex_t *)m, &long_ago) + mtx_unlock(m);
	pthread_barrier_destroy(b);
	sigaddset(set, SIGUSR1);
	sigandset(set + 1, set, set);
	sigorset(set + 2, set, set + 1);
#ifdef __GLIBC__
	getprotobynumber_r(6, &of, names, sizeof(names), &found);
#endif
	return n + sigismember(set + 2, SIGUSR1);
}

static long converted(char *at)
{
	regmatch_t *match = (regmatch_t *)at;
	regex_t re;
	char *from = (char *)text, *to = at + 500;
	size_t left = 100, room = 900;
	iconv_t how = iconv_open("UTF-16LE", "ASCII");
	long n = regcomp(&re, "qu(i)ck", REG_EXTENDED);

	n += regexec(&re, text, 2, match, 0);
	n += (long)regerror(REG_NOMATCH, &re, at + 100, 60);
	regfree(&re);
	n += (long)iconv(how, &from, &left, &to, &room);
	iconv_close(how);
	return n + (long)room;
}

static long stream(char *at)
{
	FILE *f = fdopen(dup(file), "r");
	long n;

	rewind(f);
	n = (long)fread(at, 7, 300, f) + (fgets(at + 3000, 50, f) != NULL);
	n += (fgets(at + 3100, 2000, f) != NULL) + (long)strlen(at + 3100);
	n += (long)fread(at + 6000, 1000, 40, f);
	rewind(f);
	n += fscanf(f, "%s %9s %c", at + 50000, at + 50100, at + 50200);
	fclose(f);
	return n;
}

static const struct libc_case cases[] = {
	{ "strings", strings, SAME, NULL }, { "bytes", bytes, SAME, NULL },
	{ "tokens", tokens, SAME, NULL }, { "wide", wide, SAME, NULL },
	{ "printed", printed, SAME, NULL }, { "scanned", scanned, SAME, NULL },
	{ "numbers", numbers, SAME, NULL }, { "drawn", drawn, SAME, NULL },
	{ "spelled", spelled, SAME, NULL }, { "standard", locked_by_standard, SAME, NULL },
	{ "sorted", sorted, SAME, NULL }, { "times", times_told, SAME, NULL },
	{ "clocks", clocks, DIFFERS, NULL }, { "files", files_told, DIFFERS, NULL },
	{ "reads", reads, SAME, NULL }, { "received", received, SAME, NULL },
	{ "selected", selected, SAME, NULL }, { "named", named, SAME, NULL },
	{ "signals", signals, DIFFERS, NULL }, { "waited", waited, SAME, NULL },
	{ "locked", locked, SAME, NULL }, { "converted", converted, SAME, NULL },
	{ "stream", stream, SAME, NULL }, { "treed", treed, SAME, NULL },
	{ "hashed", hashed, SAME, NULL }, { "queued", queued, SAME, NULL },
	{ "enciphered", enciphered, SAME, NULL }, { "scanned wide", scanned_wide, SAME, NULL },
	{ "spawned", spawned, SAME, NULL }, { "asked", asked, SAME, NULL },
	{ "attributes", attributes, SAME, NULL }, { "by clock", waited_by_clock, SAME, NULL },
	{ "others", others, SAME, NULL }, { "requested", requested, SAME, NULL },
	{ "failed reads", failed_reads, SAME, NULL },
	{ "failed streams", failed_streams, SAME, NULL },
	{ "failed prints", failed_prints, SAME, NULL },
	{ "failed conversions", failed_conversions, SAME, NULL },
	{ "failed waits", failed_waits, SAME, NULL },
	{ "failed names", failed_names, SAME, NULL },
};

int main(int argc, char **argv)
{
	make_input();
	return run_cases(cases, sizeof(cases) / sizeof(*cases), argc > 1 ? argv[1] : NULL);
}
