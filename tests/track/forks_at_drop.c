/* SPDX-License-Identifier: MIT */
/*
 * forks_at_drop: another thread may fork while an area ends: the processor's trap flag puts a fork
 * between any two instructions of what forgets the area (crn_faults_disinherit). Each child stores
 * to what it has inherited closed, and has done so soon. Linked with --wrap.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include "../lib/harness.h"

#define PAGE 4096ul
#define HIGH ((uint8_t *)0x700000000000)
#define LOW  ((uint8_t *)0x100000000)
#define REST ((uint8_t *)0x200000000)

struct crn_faults;
void __real_crn_faults_disinherit(struct crn_faults *f, uintptr_t begin, uintptr_t end);
void __wrap_crn_faults_disinherit(struct crn_faults *f, uintptr_t begin, uintptr_t end);

static volatile bool armed;
static unsigned forks;

static void set_trap_flag(bool on)
{
	if (on)
		__asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
	else
		__asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
}

void __wrap_crn_faults_disinherit(struct crn_faults *f, uintptr_t begin, uintptr_t end)
{
	sigset_t trap;

	if (!armed) {
		__real_crn_faults_disinherit(f, begin, end);
		return;
	}
	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	sigprocmask(SIG_UNBLOCK, &trap, NULL); /* the call holds signals back */
	set_trap_flag(true);
	__real_crn_faults_disinherit(f, begin, end);
	set_trap_flag(false);
}

static void on_trap(int sig)
{
	long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0), got;
	int status;

	(void)sig;
	if (!child) {
		*(volatile uint8_t *)LOW = 2;
		*(volatile uint8_t *)REST = 2;
		_exit(*LOW == 2 && *REST == 2 ? 0 : 1);
	}
	for (int waited = 0; !(got = waitpid((pid_t)child, &status, WNOHANG)); waited++) {
		if (waited == 20000)
			test_fail("child %u stores for ever", forks);
		usleep(1000);
	}
	if (got != child || status)
		test_fail("child %u: status %x", forks, status);
	forks++;
}

static void map(uint8_t *at)
{
	CHECK(mmap(at, PAGE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at);
}

int main(void)
{
	struct sigaction action = { .sa_handler = on_trap };
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;

	map(HIGH);
	map(LOW);
	map(REST);
	o.tracker = "mprotect";
	o.surface = "none";
	o.strategy = "none";
	c = test_open(&o);
	CHECK_OK(cairn_area_add(c, HIGH, PAGE));
	CHECK_OK(cairn_area_add(c, LOW, PAGE));
	CHECK_OK(cairn_area_add(c, REST, PAGE));
	CHECK(!sigaction(SIGTRAP, &action, NULL));
	armed = true;
	CHECK_OK(cairn_area_remove(c, HIGH, PAGE));
	armed = false;
	CHECK(forks > 10);
	CHECK_OK(cairn_area_add(c, HIGH, PAGE)); /* in the place that has become free */
	*HIGH = 1;
	CHECK_OK(cairn_close(c));
	return 0;
}
