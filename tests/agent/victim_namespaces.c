/* SPDX-License-Identifier: MIT */
/*
 * The first child of a process that has unshared its PID namespace is the init of the new one, and
 * nobody is born there after its end: it must be the program's, under every tracker.
 */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include "expect.h"

#define TURNS 5

static void sites(void)
{
	for (int i = 0; i < TURNS; i++)
		EXPECT(poll(NULL, 0, 0) == 0);
}

/* With a lock, which a close of the file would end: what reads the file is done by a child. */
static void maps_a_locked_file(void)
{
	static const char name[] = "victim_namespaces.file";
	struct flock all = { .l_type = F_WRLCK };
	char page[4096] = "content";
	int fd = open(name, O_CREAT | O_RDWR, 0600);
	char *p;

	EXPECT(fd >= 0 && write(fd, page, sizeof(page)) == sizeof(page));
	EXPECT(fcntl(fd, F_SETLK, &all) == 0);
	p = mmap(NULL, sizeof(page), PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	EXPECT(p != MAP_FAILED);
	sites();
	p[1] = 'x';
	sites();
	EXPECT(munmap(p, sizeof(page)) == 0);
	sites();
	EXPECT(close(fd) == 0 && unlink(name) == 0);
}

/* `early`: it has a session before. */
static void unshares(bool early)
{
	int status;
	pid_t pid;

	if (early)
		sites();
	EXPECT(unshare(CLONE_NEWPID) == 0);
	sites();
	maps_a_locked_file();
	EXPECT((pid = fork()) >= 0);
	if (!pid) {
		sites();
		EXPECT(fork() >= 0);
		_exit(getpid() != 1 && getppid() != 1);
	}
	EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
	sites();
}

int main(void)
{
	for (int early = 0; early < 2; early++) {
		int status;
		pid_t pid = fork();

		if (!pid) {
			if (geteuid() != 0 && unshare(CLONE_NEWUSER) < 0)
				_exit(77);
			unshares(early);
			_exit(0);
		}
		EXPECT(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
		if (WEXITSTATUS(status) == 77) {
			printf("SKIP: user namespaces\n");
			return 77;
		}
		EXPECT(status == 0);
	}
	printf("namespaces: ok\n");
	return 0;
}
