/* SPDX-License-Identifier: MIT */
/*
 * victim_stepped WHAT: waits, and does WHAT, turn by turn, while stepped.c stops it at instructions
 * of the agent and sends it signals. Whatever is done about these, it runs on with no signal
 * blocked. WHAT:
 *
 *	calm     the handler crashes when it is told to     crash   each turn crashes
 *	fork     each turn has a child                      alarm   each turn raises SIGALRM
 *	late     the same, and another thread gives SIGCHLD a handler, which each turn takes away
 *
 * Beside it a thread waits for a message of which a part is there. A signal that nobody handles
 * must not end that.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "expect.h"
#include "stepped.h"

static struct stepped *shared;
static pid_t self;
static const char *what;

static void crash(void)
{
	volatile int *nowhere = (volatile int *)16;

	*nowhere = 0;
}

static void on_signal(int sig)
{
	EXPECT(getpid() == self);
	if (!shared->late || sig == SIGCHLD)
		atomic_fetch_add(&shared->handled, 1);
	if (!strcmp(what, "calm") && atomic_exchange(&shared->crash, false))
		crash();
}

static void *receive(void *fd)
{
	char bytes[8];

	EXPECT(recv(*(int *)fd, bytes, sizeof(bytes), MSG_WAITALL) == sizeof(bytes));
	return NULL;
}

static void *install_late(void *unused)
{
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	unsigned now = 1;

	for (; !shared->over; now = 1) {
		if (shared->install == now)
			EXPECT(!sigaction(SIGCHLD, &act, NULL));
		atomic_compare_exchange_strong(&shared->install, &now, 2);
		usleep(100);
	}
	return unused;
}

__asm__(".pushsection .text; .globl stepped_back; stepped_back: int3; .popsection");
extern const uint8_t stepped_back[];

static void make_calls(void)
{
	/* mov $SYS_getpid, %eax; syscall; ret */
	static const uint8_t code[] = {0xb8, SYS_getpid, 0, 0, 0, 0x0f, 0x05, 0xc3};
	uint8_t *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	EXPECT(at != MAP_FAILED);
	memcpy(at, code, sizeof(code));
	memcpy(at + 64, code, sizeof(code));
	shared->calls[0] = (uintptr_t)getpid;
	shared->calls[1] = (uintptr_t)at;
	shared->calls[2] = (uintptr_t)(at + 64);
	shared->call_count = !strcmp(what, "alarm") ? 1 : STEPPED_CALLS;
	shared->back = (uintptr_t)stepped_back;
	EXPECT(((pid_t(*)(void))(uintptr_t)shared->calls[1])() == self);
}

static void one_turn(void)
{
	/* two crashes of one turn would be too many */
	bool odd = atomic_fetch_add(&shared->turns, 1) % 2;
	struct sigaction ignored = { .sa_handler = SIG_DFL };
	int status;
	pid_t pid;

	if (!strcmp(what, "crash") && odd)
		crash();
	if (!strcmp(what, "alarm") || shared->late)
		kill(self, SIGALRM);
	if (shared->late)
		EXPECT(!sigaction(SIGCHLD, &ignored, NULL));
	if (!strcmp(what, "fork")) {
		pid = (pid_t)syscall(SYS_clone, 0, 0, 0, 0, 0); /* which sends no SIGCHLD */
		if (!pid)
			_exit(0);
		EXPECT(pid > 0 && waitpid(pid, &status, __WALL) == pid && status == 0);
	}
}

int main(int argc, char **argv)
{
	const char *fd = getenv(STEPPED_FD);
	struct sigaction act = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
	uint64_t mask[16];
	pthread_t thread;
	int ends[2], left;

	if (!fd || argc < 2)
		return 2;
	what = argv[1];
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(fd), 0);
	EXPECT(shared != MAP_FAILED);
	self = getpid();
	make_calls();
	EXPECT(!sigaction(SIGALRM, &act, NULL) && !sigaction(SIGBUS, &act, NULL));
	EXPECT(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends) && write(ends[1], "half", 4) == 4);
	shared->late = !strcmp(what, "late");
	if (shared->late)
		EXPECT(!pthread_create(&thread, NULL, install_late, NULL));
	EXPECT(!pthread_create(&thread, NULL, receive, &ends[0]));
	while (!ioctl(ends[0], FIONREAD, &left) && left)
		poll(NULL, 0, 1);
	for (int i = 0; i < 4; i++)
		poll(NULL, 0, 0); /* the thread has slept for more than an interval */
	raise(SIGSTOP); /* whoever traces it is here now */
	while (!shared->over) {
		poll(NULL, 0, 0);
		memset(mask, 0, sizeof(mask));
		EXPECT(!sigprocmask(SIG_BLOCK, NULL, (sigset_t *)mask) && mask[0] == 0);
		one_turn();
	}
	EXPECT(write(ends[1], "rest", 4) == 4 && !pthread_join(thread, NULL));
	return 0;
}
