/* SPDX-License-Identifier: MIT */
/*
 * The first and only process of the test machine: runs the oracle once for each line of /rows
 * ("row tracker" or "row:seed tracker"), says how it ended, and switches the machine off. It has a
 * few huge pages. Linked statically.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int run(const char *what, char *tracker)
{
	char row[64], *seed = strchr(strcpy(row, what), ':');
	char *argv[] = { "/oracle", "--row", row, "--tracker", tracker, NULL, NULL, NULL };
	int status;
	pid_t pid = fork();

	if (seed) {
		*seed = '\0';
		argv[5] = "--seed";
		argv[6] = seed + 1;
	}
	if (pid == 0) {
		execv(argv[0], argv);
		_exit(126);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 125;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(void)
{
	char row[64], tracker[64];
	FILE *rows;

	mkdir("/proc", 0755);
	mkdir("/tmp", 01777);
	if (mount("proc", "/proc", "proc", 0, NULL) || mount("tmp", "/tmp", "tmpfs", 0, NULL) ||
		chdir("/tmp"))
		puts("RESULT init mount failed");
	rows = fopen("/proc/sys/vm/nr_hugepages", "w");
	if (rows)
		fputs("4", rows);
	if (rows)
		fclose(rows);
	rows = fopen("/rows", "r");
	while (rows && fscanf(rows, "%63s %63s", row, tracker) == 2) {
		printf("RESULT %s %s %d\n", row, tracker, run(row, tracker));
		fflush(stdout);
	}
	puts("RESULT done");
	fflush(stdout);
	sync();
	reboot(RB_POWER_OFF);
	return 0;
}
