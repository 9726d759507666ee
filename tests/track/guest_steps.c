/* SPDX-License-Identifier: MIT */
/*
 * guest_steps TRACKER PLAN STRIDE [FLAGS]: children of vfork are killed in the midst of the handler
 * that serves their store; one of them after each single instruction there (each STRIDEth). The
 * program goes on, and comes back to its checkpoint. All store to the same page, or to the next one
 * if it is open. FLAGS: p, under CAIRN_PROTECT; a, all that the program may do next is done each
 * time.
 * PLAN: what happens to each child in turn.
 *
 *	s	is killed after the next number of instructions
 *	t	the same, from where it begins to put right what another one has left
 *	o	is killed when it has opened the page
 *	n	is killed before it opens it
 *	c	is killed with the gate shut, when it has opened the page
 *	C	is killed with the gate shut, before it opens it
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <ucontext.h>
#include "base/arena.h"
#include "track/undo/undo_pages.h"

#define PAGES 8ul
#include "../lib/marked_area.h"
#include "watcher.h"

#define AT        5ul
#define LIMIT     240
#define TRAP_FLAG 0x100
#define STEPS_MAX 20000ul

static pid_t program;
static volatile char fate;
static volatile unsigned long steps, until; /* of the child */
static volatile uintptr_t last;
static volatile size_t target; /* the page to store to */
static volatile int opens;
static volatile bool paused;

static void die(void)
{
	kill(getpid(), SIGKILL);
}

/* ---- Single steps ------------------------------------------------------------------------ */

static void set_trap_flag(void)
{
	__asm__ volatile("lea -128(%%rsp), %%rsp\n\t"
			 "pushfq\n\t"
			 "orq %0, (%%rsp)\n\t"
			 "popfq\n\t"
			 "lea 128(%%rsp), %%rsp" ::"i"(TRAP_FLAG)
			 : "memory", "cc");
}

/* An instruction that repeats itself counts once. */
static void on_step(int sig, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)sig;
	(void)info;
	if (paused) {
		registers[REG_EFL] &= ~(greg_t)TRAP_FLAG;
		return;
	}
	if ((uintptr_t)registers[REG_RIP] == last)
		return;
	last = (uintptr_t)registers[REG_RIP];
	if (++steps == until)
		die();
}

static void begin_steps(char how)
{
	sigset_t trap;

	if (fate != how || getpid() == program || steps)
		return;
	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	sigprocmask(SIG_UNBLOCK, &trap, NULL);
	paused = false;
	set_trap_flag();
}

void __real_undo_guests_settle(struct crn_undo_pages *u, const struct crn_guest *self);
void __wrap_undo_guests_settle(struct crn_undo_pages *u, const struct crn_guest *self);
void __wrap_undo_guests_settle(struct crn_undo_pages *u, const struct crn_guest *self)
{
	begin_steps('t');
	__real_undo_guests_settle(u, self);
	/* Nothing is said to be free that is not. */
	if (getpid() == program && !u->env->seal)
		crn_arena_check(u->env->arena);
}

/* Between these the child is stepped. */
struct crn_guest *__real_crn_guest_enter(struct crn_guests *guests, struct crn_guest_visit *v);
struct crn_guest *__wrap_crn_guest_enter(struct crn_guests *guests, struct crn_guest_visit *v);
struct crn_guest *__wrap_crn_guest_enter(struct crn_guests *guests, struct crn_guest_visit *v)
{
	begin_steps('s');
	return __real_crn_guest_enter(guests, v);
}

void __real_crn_guest_leave(struct crn_guests *guests, struct crn_guest_visit *v);
void __wrap_crn_guest_leave(struct crn_guests *guests, struct crn_guest_visit *v);
void __wrap_crn_guest_leave(struct crn_guests *guests, struct crn_guest_visit *v)
{
	__real_crn_guest_leave(guests, v);
	if (getpid() != program)
		paused = true;
}

/* Not within the copy, which changes nothing that others see. */
int __real_crn_guarded_copy(void *to, const void *from, size_t len);
int __wrap_crn_guarded_copy(void *to, const void *from, size_t len);
int __wrap_crn_guarded_copy(void *to, const void *from, size_t len)
{
	bool stepped = steps && !paused && getpid() != program;
	int err;

	paused |= stepped;
	err = __real_crn_guarded_copy(to, from, len);
	if (stepped) {
		paused = false;
		set_trap_flag();
	}
	return err;
}

/* ---- At one place ------------------------------------------------------------------------- */

/* The first page that is to die with the gate shut cannot be opened alone. */
static bool refuse(void)
{
	if (getpid() == program)
		return false;
	if (fate == 'n' || (fate == 'C' && opens))
		die();
	return (fate == 'c' || fate == 'C') && !opens++;
}

static void opened(void)
{
	if (getpid() != program && (fate == 'o' || fate == 'c'))
		die();
}

int __real_crn_memory_reopen(void *addr, size_t len, int prot);
int __wrap_crn_memory_reopen(void *addr, size_t len, int prot);
int __wrap_crn_memory_reopen(void *addr, size_t len, int prot)
{
	int err;

	if (refuse())
		return -ENOMEM;
	err = __real_crn_memory_reopen(addr, len, prot);
	opened();
	return err;
}

int __real_crn_uffd_protect_beside(
	int uffd, uintptr_t addr, size_t len, bool protect, struct crn_uffd_events *e);
int __wrap_crn_uffd_protect_beside(
	int uffd, uintptr_t addr, size_t len, bool protect, struct crn_uffd_events *e);
int __wrap_crn_uffd_protect_beside(
	int uffd, uintptr_t addr, size_t len, bool protect, struct crn_uffd_events *e)
{
	int err;

	if (refuse())
		return -ENOMEM;
	err = __real_crn_uffd_protect_beside(uffd, addr, len, protect, e);
	opened();
	return err;
}

/* ---- What the program does ------------------------------------------------------------------ */

static void expect_pages(uint8_t value)
{
	for (size_t i = 0; i < PAGES; i++)
		if (area[i * PAGE + i] != value)
			test_fail("after %lu steps: page %zu has %u, not %u", until, i,
				area[i * PAGE + i], value);
}

/* True: it was killed. */
static bool kill_child(char how)
{
	volatile pid_t pid;
	int status;

	fate = how;
	opens = 0;
	steps = 0;
	last = 0;
	pid = vfork();
	if (pid == 0) {
		area[target * PAGE + target] = 77;
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	fate = 0;
	steps = 0;
	if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
		test_fail("after %lu steps: signal %d", until, WTERMSIG(status));
	if (how == 'o' || how == 'c')
		target++;
	return WIFSIGNALED(status);
}

static void checkpoint(uint64_t *id)
{
	int err = cairn_checkpoint(c, id);

	if (err != CAIRN_TAKEN)
		test_fail("after %lu steps: checkpoint: %s", until, cairn_strerror(err));
}

static void rewind_to(uint64_t id)
{
	int err = cairn_rewind(c, id);

	if (err < 0)
		test_fail("after %lu steps: rewind: %s", until, cairn_strerror(err));
}

enum then { STORE, REWIND, CHECKPOINT, THENS };

/* False: the child that is stepped has not been killed any more. */
static bool run(const char *plan, enum then then)
{
	uint64_t id, next;
	bool stepped = true;

	write_all(1);
	checkpoint(&id);
	area[PAGE] = 5;
	target = AT;
	for (const char *how = plan; *how; how++) {
		bool killed = kill_child(*how);

		if (*how == 's' || *how == 't')
			stepped = killed;
	}
	if (then == STORE)
		area[AT * PAGE + AT] = 4;
	else if (then == REWIND)
		rewind_to(id);
	else
		checkpoint(&next);
	write_all(10);
	rewind_to(id);
	expect_pages(1);
	write_all(2);
	checkpoint(&next);
	write_all(3);
	rewind_to(next);
	expect_pages(2);
	rewind_to(id);
	expect_pages(1);
	return stepped;
}

int main(int argc, char **argv)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	struct sigaction step = { .sa_sigaction = on_step, .sa_flags = SA_SIGINFO };
	const char *flags = argc > 4 ? argv[4] : "";
	unsigned long stride = argc > 3 ? strtoul(argv[3], NULL, 10) : 0;
	bool more = true, all = strchr(flags, 'a');

	if (!stride)
		test_fail("usage: guest_steps TRACKER PLAN STRIDE [FLAGS]");
	program = getpid();
	watcher_begin(LIMIT);
	CHECK(!sigaction(SIGTRAP, &step, NULL));
	o.tracker = argv[1];
	o.strategy = "none";
	o.surface = "none";
	o.keep = 4;
	o.flags = strchr(flags, 'p') ? CAIRN_PROTECT : 0;
	open_with_area(&o);
	for (until = 1; more; until += stride) {
		if (until > STEPS_MAX)
			test_fail("no end after %lu steps", STEPS_MAX);
		more = run(argv[2], (enum then)(until % THENS));
		for (enum then then = STORE; all && more && then < THENS; then++)
			if (then != (enum then)(until % THENS))
				(void)run(argv[2], then);
	}
	printf("%lu steps\n", until);
	CHECK_OK(cairn_close(c));
	return 0;
}
