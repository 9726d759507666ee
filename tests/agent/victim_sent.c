/* SPDX-License-Identifier: MIT */
/*
 * victim_sent COUNT: signals of faults that are sent, by another process, without end, while pages
 * are written, checkpoints taken and other signals handled. They may come at any instruction, also
 * of the agent's own handler. Each is given to the program's handler or is one with another that
 * waits for it, with what it was sent with; no store is lost; none is taken for a crash.
 */
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include "expect.h"

#define PAGE  4096
#define PAGES 48

static const int kinds[] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGUSR1 };
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* Nobody takes back what is here. */
static struct shared {
	atomic_uint sent[KINDS], rounds;
	atomic_bool begun, over;
} *shared;

static pid_t sender;
static volatile unsigned handled, rounds;
static volatile unsigned value[KINDS], known[KINDS]; /* at its last: given; sent by then */
static uint8_t pages[PAGES * PAGE] __attribute__((aligned(PAGE)));
static uint8_t altstack[32 * PAGE] __attribute__((aligned(PAGE)));
static struct {
	volatile unsigned count;
	uint8_t rest[PAGE - sizeof(unsigned)];
} by_handler[KINDS] __attribute__((aligned(PAGE)));

static size_t kind_of(int sig)
{
	size_t k = 0;

	while (kinds[k] != sig)
		k++;
	return k;
}

static void on_signal(int sig, siginfo_t *info, void *uc)
{
	size_t k = kind_of(sig);
	uint8_t *here = (uint8_t *)&k;
	struct sigaction now;
	sigset_t mask;

	(void)uc;
	if (info->si_signo != sig || info->si_code != SI_QUEUE || info->si_pid != sender) {
		dprintf(2, "signal %d: %d, code %d, at %p, not sent by %d\n", sig, info->si_signo,
			info->si_code, info->si_addr, sender);
		_exit(1);
	}
	known[k] = shared->sent[k]; /* counted before it is sent */
	EXPECT((unsigned)info->si_value.sival_int <= known[k]);
	EXPECT((unsigned)info->si_value.sival_int > value[k]);
	EXPECT(here > altstack && here < altstack + sizeof(altstack));
	EXPECT(!sigaction(sig, NULL, &now) && now.sa_sigaction == on_signal);
	EXPECT(!sigprocmask(SIG_SETMASK, NULL, &mask) && sigismember(&mask, sig) == 1);
	value[k] = (unsigned)info->si_value.sival_int;
	by_handler[k].count++;
	handled++;
}

static _Noreturn void send_all(pid_t to)
{
	uint32_t random = 1;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (!shared->begun)
		;
	while (!shared->over) {
		union sigval value;
		size_t k;

		random = random * 1664525 + 1013904223;
		k = (random >> 16) % KINDS;
		value.sival_int = (int)++shared->sent[k];
		EXPECT(!sigqueue(to, kinds[k], value));
		if (!(random >> 28))
			sched_yield();
	}
	_exit(0);
}

static void handle_all(void)
{
	struct sigaction a = { .sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	stack_t s = { .ss_sp = altstack, .ss_size = sizeof(altstack) };

	EXPECT(!sigaltstack(&s, NULL));
	for (size_t k = 0; k < KINDS; k++)
		EXPECT(!sigaction(kinds[k], &a, NULL));
}

/* All pages are written in each round, and hold what the round before has left. */
static void one_round(void)
{
	EXPECT(rounds == shared->rounds);
	for (size_t i = 0; i < PAGES; i++) {
		volatile uint32_t *at = (volatile uint32_t *)&pages[i * PAGE];

		EXPECT(*at == rounds && at[PAGE / 4 - 1] == rounds);
		*at = at[PAGE / 4 - 1] = rounds + 1;
	}
	rounds++;
	shared->rounds++;
	poll(NULL, 0, 0);
}

/* The last one of each kind, or one that was pending then, has come. */
static bool all_known(void)
{
	for (size_t k = 0; k < KINDS; k++)
		if (known[k] != shared->sent[k])
			return false;
	return true;
}

static void block(int how)
{
	sigset_t set;

	sigemptyset(&set);
	for (size_t k = 0; k < KINDS; k += 2)
		sigaddset(&set, kinds[k]);
	EXPECT(!sigprocmask(how, &set, NULL));
}

int main(int argc, char **argv)
{
	unsigned want = argc > 1 ? (unsigned)atoi(argv[1]) : 1000, sum = 0;
	pid_t self = getpid(), ended;
	int status;

	shared = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	EXPECT(shared != MAP_FAILED);
	handle_all();
	poll(NULL, 0, 0);
	sender = fork();
	if (!sender)
		send_all(self);
	shared->begun = true; /* it is known by whom */
	while (handled < want) {
		if (rounds % 8 == 3)
			block(SIG_BLOCK);
		one_round();
		if (rounds % 8 == 5)
			block(SIG_UNBLOCK);
	}
	block(SIG_UNBLOCK);
	shared->over = true;
	/* the last signals may come meanwhile */
	while ((ended = waitpid(sender, &status, 0)) < 0 && errno == EINTR)
		continue;
	EXPECT(ended == sender && status == 0);
	for (int i = 0; i < 10000 && !all_known(); i++)
		one_round();
	for (size_t k = 0; k < KINDS; k++)
		sum += by_handler[k].count;
	EXPECT(sum == handled && all_known());
	dprintf(1, "sent: ok, %u handled in %u rounds\n", handled, rounds);
	return 0;
}
