/* SPDX-License-Identifier: MIT */
/* More cases of libc_calls.c: children, threads, and what is asked of them. */
#ifndef CRN_TESTS_LIBC_CHILDREN_H
#define CRN_TESTS_LIBC_CHILDREN_H

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <search.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#ifdef __GLIBC__
#include <obstack.h>
#endif

extern char **environ;

static long spawned(char *at)
{
	char *argv[] = { "true", NULL };
	pid_t *pid = (pid_t *)at;
	posix_spawn_file_actions_t *files = (void *)(at + 64);
	posix_spawnattr_t *how = (void *)(at + 256);
	sigset_t none;
	long n;
	int status;

	sigemptyset(&none);
	n = posix_spawn_file_actions_init(files) + posix_spawnattr_init(how);
	n += posix_spawn_file_actions_addclose(files, 0);
	n += posix_spawn_file_actions_adddup2(files, 2, 1);
	n += posix_spawnattr_setflags(how, POSIX_SPAWN_SETSIGMASK);
	n += posix_spawnattr_setsigmask(how, &none);
	n += posix_spawnattr_getflags(how, (short *)(at + 800));
	n += posix_spawnattr_getsigmask(how, (sigset_t *)(at + 900));
	n += posix_spawnp(pid, "true", files, how, argv, environ);
	CHECK(waitpid(*pid, &status, 0) == *pid);
	n += posix_spawn_file_actions_destroy(files) + posix_spawnattr_destroy(how);
	n += posix_spawn(pid, "/bin/true", NULL, NULL, argv, environ);
	CHECK(waitpid(*pid, &status, 0) == *pid);
	memset(at, 0, 800); /* numbers and addresses differ */
	memset(at + 900 + 8, 0, sizeof(sigset_t) - 8);
	return n + status;
}

static long asked(char *at)
{
	long n = prctl(PR_GET_NAME, at) + prctl(PR_GET_PDEATHSIG, at + 40);

	memset(at, 0, 16);
	return n + prctl(PR_GET_CHILD_SUBREAPER, at + 60);
}

/* Requests whose numbers do not tell that the kernel writes something, or where. */
static long requested(char *at)
{
	int any = socket(AF_INET, SOCK_DGRAM, 0);
	struct { char name[16]; void *data; } link = { "lo", at + 1024 };
	long n = ioctl(ends[0], 0x8903 /* FIOGETOWN */, at);

	n += ioctl(file, 2 /* FIGETBSZ */, at + 256);
	n += fcntl(ends[0], 17 /* F_GETOWNER_UIDS */, at + 512);
	*(unsigned *)(at + 1024) = 10; /* ETHTOOL_GLINK */
	n += ioctl(any, 0x8946 /* SIOCETHTOOL */, &link);
	close(any);
	return n;
}

static void once(void) {}

static long attributes(char *at)
{
	pthread_attr_t *a = (void *)at;
	pthread_mutexattr_t *m = (void *)(at + 100);
	pthread_rwlockattr_t *l = (void *)(at + 120);
	pthread_barrierattr_t *b = (void *)(at + 140);
	pthread_condattr_t *c = (void *)(at + 160);
	int *to = (void *)(at + 200);
	long n = pthread_attr_init(a) + pthread_mutexattr_init(m) + pthread_rwlockattr_init(l) +
		pthread_barrierattr_init(b) + pthread_condattr_init(c);

	n += pthread_attr_setguardsize(a, 8192);
	n += pthread_attr_getguardsize(a, (size_t *)(at + 240));
	n += pthread_attr_setscope(a, PTHREAD_SCOPE_SYSTEM) + pthread_attr_getscope(a, to + 2);
	n += pthread_attr_getdetachstate(a, to) + pthread_attr_getinheritsched(a, to + 1);
	n += pthread_attr_getschedpolicy(a, to + 3);
	n += pthread_mutexattr_setrobust(m, PTHREAD_MUTEX_ROBUST);
	n += pthread_mutexattr_gettype(m, to + 4) + pthread_mutexattr_getrobust(m, to + 5);
	n += pthread_rwlockattr_setpshared(l, 1) + pthread_rwlockattr_getpshared(l, to + 6);
	n += pthread_barrierattr_setpshared(b, 1) + pthread_barrierattr_getpshared(b, to + 7);
	n += pthread_condattr_setpshared(c, 1) + pthread_condattr_getpshared(c, to + 8);
	n += pthread_attr_destroy(a);
	memset(at, 0, 190); /* is libc's business */
	return n;
}

static long waited_by_clock(char *at)
{
	const struct timespec past = { 0 };
	cnd_t *c = (void *)at;
	mtx_t *m = (void *)(at + 100);
	once_flag *flag = (void *)(at + 200);
	int *result = (void *)(at + 300);
	long n;

	memset(at, 0, 400);
	n = mtx_init(m, mtx_plain) + cnd_init(c) + mtx_lock(m);
	n += (cnd_timedwait(c, m, &past) == thrd_timedout) + mtx_unlock(m);
#ifdef __GLIBC__
	sem_t *s = (void *)(at + 400);

	n += sem_init(s, 0, 1) + sem_clockwait(s, CLOCK_MONOTONIC, &past);
	n += pthread_mutex_clocklock((pthread_mutex_t *)m, CLOCK_MONOTONIC, &past) + mtx_unlock(m);
#endif
	call_once(flag, once);
	*result = (int)n;
	n += clock_getcpuclockid(0, (clockid_t *)(at + 320));
	*(clockid_t *)(at + 320) = 0;
	return n;
}

/* What large files have other names for, and what calls the program back. */
static long others(char *at)
{
	char *const words[] = { "size", "name", NULL };
	struct link { struct link *next, *prev; } *l = (void *)(at + 1000);
	char **rest = (char **)(at + 500), **value = rest + 1, *end;
	long n;

	l[0] = l[1] = l[2] = (struct link){ 0 };
	insque(&l[0], NULL);
	insque(&l[1], &l[0]);
	insque(&l[2], &l[0]);
	remque(&l[2]);
	n = l[0].next == &l[1] && l[1].prev == &l[0];
	memset(l, 0, 3 * sizeof(*l));
	*rest = strcpy(at + 520, "name=rest,size");
	n += getsubopt(rest, words, value) * 10 + (long)strlen(*value);
	*rest = *value = NULL;
	n += strtol("12", &end, 10);
#ifdef __GLIBC__
	struct obstack *o = (void *)(at + 2000);
	struct dirent64 **files;

	memset(o, 0, sizeof(*o));
	_obstack_begin(o, 0, 0, (void *(*)(long))malloc, free);
	obstack_grow(o, text, 60);
	obstack_blank(o, 9000);
	n += obstack_object_size(o);
	obstack_free(o, NULL);
	memset(o, 0, sizeof(*o));
	n += statvfs64("/", (struct statvfs64 *)at);
	memset(at, 0, sizeof(struct statvfs64));
	*(struct dirent64 ***)(at + 400) = NULL;
	n += scandir64("/proc/self/task", (struct dirent64 ***)(at + 400), NULL, NULL);
	files = *(struct dirent64 ***)(at + 400);
	for (int i = 0; i < 3; i++)
		free(files[i]);
	free(files);
	*(struct dirent64 ***)(at + 400) = NULL;
#endif
	return n;
}

#endif
