/* SPDX-License-Identifier: MIT */
/* More cases of libc_calls.c: tables that libc keeps, queues of the kernel, wide input. */
#ifndef CRN_TESTS_LIBC_TABLES_H
#define CRN_TESTS_LIBC_TABLES_H

#include <crypt.h>
#include <dirent.h>
#include <fcntl.h>
#include <mqueue.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/uio.h>
#include <unistd.h>
#include <wchar.h>

/* ---- Tables that libc keeps: what they hold from run to run must come back, too ------------- */

static int by_name(const void *a, const void *b)
{
	return strcmp(a, b);
}

static unsigned long visited;

static void visit(const void *node, VISIT which, int depth)
{
	(void)depth; /* is how libc balances them */
	if (which == postorder || which == leaf)
		visited = visited * 31 + (unsigned)atoi(*(char *const *)node);
}

static void no_free(void *key)
{
	visited += (unsigned)atoi(key);
}

static long treed(char *at)
{
	static void *lasting;
	static char keys[40][4];
	static int turn;
	void **tree = (void **)at;
	long n = 0;

	tree[0] = tree[1] = NULL;
	turn++;
	for (int i = 0; i < 40; i++) {
		sprintf(keys[i], "%d", i * 7 % 40 + 10);
		n += *(char **)tsearch(keys[i], tree, by_name) == keys[i];
		if (i % 3 == turn % 3)
			tsearch(keys[i], &lasting, by_name);
		else if (i % 4 == 1)
			n += 100 * (tdelete(keys[i], &lasting, by_name) != NULL);
		if (i < 9)
			tsearch(keys[i], tree + 1, by_name);
	}
	visited = 0;
	twalk(lasting, visit);
	twalk(tree[0], visit);
	tdestroy(tree[1], no_free);
	tree[1] = NULL;
	n += tfind("17", tree, by_name) != NULL;
	for (; tree[0]; n++)
		tdelete(*(char **)tree[0], tree, by_name);
	return n + (long)(visited % 1000003);
}

/* How many entries glibc lets a table for so many take; the standard asks for no more. */
static long filled(char *at, size_t wanted)
{
	static char names[64][8];
	struct hsearch_data *t = (struct hsearch_data *)at;
	ENTRY **found = (ENTRY **)(at + 100);
	long n = 0;

	memset(at, 0, 200);
	hcreate_r(wanted, t);
	for (; n < 64; n++) {
		sprintf(names[n], "f%ld", n);
		if (!hsearch_r((ENTRY){ names[n], NULL }, ENTER, found, t))
			break;
	}
	hdestroy_r(t);
#ifdef __GLIBC__
	return n;
#else
	return 0;
#endif
}

static long hashed(char *at)
{
	static char names[40][8];
	static long turn;
	struct hsearch_data *t = (struct hsearch_data *)at;
	ENTRY **found = (ENTRY **)(at + 100);
	long n = 0;

	if (!turn++)
		hcreate(100);
	memset(at, 0, 200);
	hcreate_r(20, t);
	for (long i = 0; i < 10; i++) {
		sprintf(names[i], "n%ld", i);
		n += hsearch_r((ENTRY){ names[i], names[i] }, ENTER, found, t);
		if (i == turn && hsearch((ENTRY){ names[i], (void *)turn }, ENTER))
			n += 100;
		if (hsearch((ENTRY){ names[i], NULL }, FIND))
			n += 1000 * (long)hsearch((ENTRY){ names[i], NULL }, FIND)->data;
	}
	n += hsearch_r((ENTRY){ "n7", NULL }, FIND, found, t) && *found;
	n += hsearch_r((ENTRY){ "none", NULL }, FIND, found, t);
	hdestroy_r(t);
	n += 10000 * (filled(at, 24) + filled(at, 2) + filled(at, 31));
	memset(at, 0, 200);
	return n;
}

static long queued(char *at)
{
	struct { long type; char text[96]; } sent = { 1, "queued" };
	int q = msgget(IPC_PRIVATE, 0600), s = semget(IPC_PRIVATE, 3, 0600);
	int m = shmget(IPC_PRIVATE, 4096, 0600);
	struct mq_attr how = { .mq_maxmsg = 2, .mq_msgsize = 64 };
	struct iovec to = { at + 1000, 100 }, from = { (void *)text, 100 };
	long n = msgsnd(q, &sent, 50, 0) + (long)msgrcv(q, at, 90, 0, 0);
	char name[40];
	mqd_t mq;
	DIR *d;

	n += msgctl(q, IPC_STAT, (struct msqid_ds *)(at + 200));
	n += shmctl(m, IPC_STAT, (struct shmid_ds *)(at + 400));
	n += semctl(s, 0, IPC_STAT, (struct semid_ds *)(at + 700));
	n += semctl(s, 1, SETVAL, 5) + semctl(s, 0, GETALL, (unsigned short *)(at + 900));
	n += msgctl(q, IPC_RMID, NULL) + shmctl(m, IPC_RMID, NULL) + semctl(s, 0, IPC_RMID);
	n += (long)process_vm_readv(getpid(), &to, 1, &from, 1, 0);
	sprintf(name, "/cairn-libc-%d", getpid());
	mq = mq_open(name, O_CREAT | O_RDWR, 0600, &how);
	mq_unlink(name);
	n += mq_send(mq, text, 64, 3) + mq_getattr(mq, (struct mq_attr *)(at + 1200));
	n += (long)mq_receive(mq, at + 1300, 64, (unsigned *)(at + 1400));
	n += mq_close(mq);
	d = opendir("/proc/self/task");
	n += readdir_r(d, (struct dirent *)(at + 1504), (struct dirent **)(at + 2400));
	closedir(d);
	memset(at + 200, 0, 700);
	memset(at + 1504, 0, 1000);
	return n;
}

static long enciphered(char *at)
{
	long n = 0;

#if defined(__GLIBC__) && defined(__x86_64__)
	struct crypt_data *data = (struct crypt_data *)(at + 100);

	memset(data, 0, sizeof(*data));
	n = crypt_r("word", "$1$salt", data) != NULL;
	strcpy(at, data->output);
	memset(data, 0, sizeof(*data));
#endif
	return n;
}

static long scanned_wide(char *at)
{
	FILE *f = fdopen(dup(file), "r");
	long n = swscanf(L"12 abc 3.5 wide", L"%d %9s %lf %9ls", (int *)at, at + 100,
		(double *)(at + 200), (wchar_t *)(at + 304));

	rewind(f);
	n += fwscanf(f, L"%s %9ls %lc", at + 400, (wchar_t *)(at + 504), (wchar_t *)(at + 600));
	fclose(f);
	return n;
}

#endif
