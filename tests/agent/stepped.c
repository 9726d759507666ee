/* SPDX-License-Identifier: MIT */
/*
 * stepped FUNCTION[:MAX] SIGNAL|call CAIRN [ARG...]: runs an agent's program (victim_stepped.c) and
 * sends it the signal at each instruction of a function of the agent: in the first turn behind its
 * first one, in the next behind its second, until it is left, or for MAX turns. `call`: it calls
 * functions of the program there, as a debugger does, which make a system call. Traced: no instant
 * is left to chance.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#include "expect.h"
#include "stepped.h"

#define AGENT     "libcairn-agent.so"
#define STEPS_MAX 5000
#define INT3      0xcc

static struct stepped *shared;
static pid_t pid;
static uint64_t agent_begin, agent_end;

static void skip(const char *why)
{
	printf("SKIP: %s\n", why);
	exit(77);
}

/* ---- where it is ----------------------------------------------------------------------------- */

/* A function's place in the agent's file, which is its distance from where that is mapped. */
static uint64_t symbol(const char *path, const char *name)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;
	const uint8_t *file;
	const Elf64_Shdr *s;
	uint64_t found = 0;

	EXPECT(fd >= 0 && !fstat(fd, &st));
	file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	EXPECT(file != MAP_FAILED);
	s = (const void *)(file + ((const Elf64_Ehdr *)file)->e_shoff);
	for (int i = 0; i < ((const Elf64_Ehdr *)file)->e_shnum; i++) {
		const Elf64_Sym *sym = (const void *)(file + s[i].sh_offset);
		const char *names = (const char *)file + s[s[i].sh_link].sh_offset;

		if (s[i].sh_type != SHT_SYMTAB)
			continue;
		for (size_t k = 0; k < s[i].sh_size / sizeof(*sym); k++)
			if (!strcmp(names + sym[k].st_name, name))
				found = sym[k].st_value;
	}
	munmap((void *)file, (size_t)st.st_size);
	close(fd);
	if (!found)
		skip("the agent's symbols");
	return found;
}

/* Finds the agent, too. */
static uint64_t address_of(const char *name)
{
	char path[64], line[512], file[512] = "", *at;
	FILE *maps;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	maps = fopen(path, "r");
	EXPECT(maps);
	while (fgets(line, sizeof(line), maps)) {
		line[strcspn(line, "\n")] = 0;
		at = strchr(line, '/');
		if (!at || !strstr(at, AGENT))
			continue;
		if (!agent_begin)
			agent_begin = strtoull(line, NULL, 16);
		agent_end = strtoull(strchr(line, '-') + 1, NULL, 16);
		strcpy(file, at);
	}
	fclose(maps);
	EXPECT(agent_begin);
	return agent_begin + symbol(file, name);
}

/* ---- tracing --------------------------------------------------------------------------------- */

static struct user_regs_struct registers(void)
{
	struct user_regs_struct r;

	EXPECT(!ptrace(PTRACE_GETREGS, pid, NULL, &r));
	return r;
}

/* Its next stop: the signal. The end of a program that has found something wrong is ours. */
static int stopped(void)
{
	int status;

	EXPECT(waitpid(pid, &status, 0) == pid);
	if (WIFEXITED(status))
		exit(WEXITSTATUS(status));
	if (!WIFSTOPPED(status))
		dprintf(2, "it died of signal %d\n", WTERMSIG(status));
	EXPECT(WIFSTOPPED(status));
	return WSTOPSIG(status);
}

static void poke(uint64_t at, uint8_t byte)
{
	long word = ptrace(PTRACE_PEEKTEXT, pid, at, NULL);

	memcpy(&word, &byte, 1);
	EXPECT(!ptrace(PTRACE_POKETEXT, pid, at, word));
}

/* On until it comes to that address; signals are its own business. */
static void run_to(uint64_t at)
{
	uint8_t byte = (uint8_t)ptrace(PTRACE_PEEKTEXT, pid, at, NULL);
	struct user_regs_struct r;
	int sig = 0;

	poke(at, INT3);
	for (;;) {
		EXPECT(!ptrace(PTRACE_CONT, pid, NULL, (long)sig));
		sig = stopped();
		r = registers();
		if (sig == SIGTRAP && r.rip == at + 1)
			break;
	}
	poke(at, byte);
	r.rip = at;
	EXPECT(!ptrace(PTRACE_SETREGS, pid, NULL, &r));
}

/*
 * So many instructions on; true if the function, or the whole agent if it never returns, has been
 * left meanwhile.
 */
static bool step(unsigned count)
{
	struct user_regs_struct r = registers();
	uint64_t entry = r.rsp, back = (uint64_t)ptrace(PTRACE_PEEKDATA, pid, entry, NULL);
	bool left = false;
	int sig;

	for (; count && !left; count--) {
		for (sig = 0; sig != SIGTRAP; sig = stopped()) /* its own are its business */
			EXPECT(!ptrace(PTRACE_SINGLESTEP, pid, NULL, (long)sig));
		r = registers();
		left = (r.rip == back && r.rsp > entry) ||
			r.rip - agent_begin >= agent_end - agent_begin;
	}
	/* Behind popf the kernel takes the trap flag for the program's own. */
	r.eflags &= ~0x100ull;
	EXPECT(!ptrace(PTRACE_SETREGS, pid, NULL, &r));
	return left;
}

/*
 * The signal comes to the process, here and now. Of a process that is traced the kernel drops no
 * signal, so none traces it meanwhile: its first thread runs in a circle at this very instruction.
 */
static void send_to_process(int sig)
{
	struct __ptrace_peeksiginfo_args first = { .nr = 1 };
	uint64_t at = registers().rip;
	long word = ptrace(PTRACE_PEEKTEXT, pid, at, NULL);
	siginfo_t info;

	if (ptrace(PTRACE_PEEKSIGINFO, pid, &first, &info) > 0)
		return; /* one of its own takes it elsewhere at once: no instant */
	EXPECT(!ptrace(PTRACE_POKETEXT, pid, at, (word & ~0xffffl) | 0xfeebl)); /* jmp . */
	EXPECT(!ptrace(PTRACE_DETACH, pid, NULL, NULL));
	EXPECT(!kill(pid, sig));
	EXPECT(!ptrace(PTRACE_SEIZE, pid, NULL, PTRACE_O_EXITKILL));
	EXPECT(!ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) && stopped() == SIGTRAP);
	EXPECT(registers().rip == at && !ptrace(PTRACE_POKETEXT, pid, at, word));
}

/* The program has a function called, wherever it is; of its signals the tracer passes on all. */
static void call_there(uint64_t function)
{
	struct user_regs_struct before = registers(), r = before;
	int sig = 0;

	r.rsp = ((before.rsp - 128) & ~15ull) - 8;
	r.rip = function;
	r.orig_rax = ~0ull;
	EXPECT(!ptrace(PTRACE_POKEDATA, pid, r.rsp, shared->back));
	EXPECT(!ptrace(PTRACE_SETREGS, pid, NULL, &r));
	do
		EXPECT(!ptrace(PTRACE_CONT, pid, NULL, (long)sig));
	while ((sig = stopped()) != SIGTRAP);
	r = registers();
	EXPECT(r.rip == shared->back + 1 && r.rax == (uint64_t)pid);
	EXPECT(!ptrace(PTRACE_SETREGS, pid, NULL, &before));
}

static void disturb(int sig)
{
	if (!sig) {
		for (int i = 0; i < shared->call_count; i++)
			call_there(shared->calls[i]);
		return;
	}
	for (shared->install = shared->late; shared->install == 1;)
		usleep(100);
	if (sig == SIGCHLD && !shared->late)
		send_to_process(sig);
	else
		EXPECT(!tgkill(pid, pid, sig));
	usleep(11000); /* more than a hundred recoveries a second are refused */
}

/* Up to main, which stops. */
static void start(char **command)
{
	char digits[12];
	int fd = memfd_create("stepped", 0), sig = 0;

	EXPECT(fd >= 0 && !ftruncate(fd, 4096));
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	EXPECT(shared != MAP_FAILED);
	snprintf(digits, sizeof(digits), "%d", fd);
	setenv(STEPPED_FD, digits, 1);
	pid = fork();
	if (!pid) {
		if (ptrace(PTRACE_TRACEME, 0, NULL, NULL))
			skip("ptrace");
		execv(command[0], command);
		_exit(127);
	}
	EXPECT(pid > 0 && stopped() == SIGTRAP);
	EXPECT(!ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_EXITKILL | PTRACE_O_TRACEEXEC));
	do {
		EXPECT(!ptrace(PTRACE_CONT, pid, NULL, (long)sig));
		sig = stopped();
		if (sig == SIGTRAP)
			sig = 0;
	} while (sig != SIGSTOP);
}

/* 0: a call. */
static int signal_of(const char *name)
{
	if (!strcmp(name, "call"))
		return 0;
	for (int sig = 1; sig < 32; sig++)
		if (!strcmp(sigabbrev_np(sig), name))
			return sig;
	return -1;
}

int main(int argc, char **argv)
{
	int sig = argc > 3 ? signal_of(argv[2]) : -1, status;
	char *name = argc > 3 ? strsep(&argv[1], ":") : NULL;
	unsigned steps = 1, max = argc > 3 && argv[1] ? (unsigned)atoi(argv[1]) : STEPS_MAX;
	uint64_t at;

	if (sig < 0)
		return 2;
	alarm(sig ? 0 : 60); /* a call that waits for the thread itself never ends */
	start(argv + 3);
	at = address_of(name);
	for (; steps <= max; steps++) {
		EXPECT(steps < STEPS_MAX);
		shared->crash = true;
		run_to(at);
		if (step(steps))
			break;
		disturb(sig);
	}
	shared->over = true;
	EXPECT(!ptrace(PTRACE_DETACH, pid, NULL, NULL));
	EXPECT(waitpid(pid, &status, 0) == pid && status == 0);
	EXPECT(!sig || (sig == SIGCHLD && !shared->late) || shared->handled >= steps - 1);
	printf("%s: ok, at %u instructions\n", name, steps - 1);
	return 0;
}
