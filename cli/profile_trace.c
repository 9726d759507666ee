/* SPDX-License-Identifier: MIT */
/*
 * Follows a program, its children and all threads. A seccomp filter in the program names the calls
 * that may block; only these stop it, at their entry and their return. Threads that are not found
 * asleep for a while compute: they are looked at by PTRACE_INTERRUPT. PTRACE_O_EXITKILL ends all
 * of them if this command dies, because a filter without its tracer would answer ENOSYS.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>
#include "profile.h"

#define COMPUTE_NS 100000000ull /* not found asleep for so long: computing */
#define COUNT_NS   500000000ull
#define COUNT_FIRST 5          /* samples of a computing thread before its calls are counted */
#define COUNT_EVERY 40         /* samples of a computing thread between two counts of calls */
#define OPTIONS                                                                     \
	(PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | \
		PTRACE_O_TRACEEXEC | PTRACE_O_TRACESECCOMP | PTRACE_O_TRACESYSGOOD | \
		PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL)

static const struct {
	int nr;
	const char *name;
} calls[] = {
	{ SYS_epoll_wait, "epoll_wait" }, { SYS_epoll_pwait, "epoll_pwait" },
	{ SYS_epoll_pwait2, "epoll_pwait2" }, { SYS_poll, "poll" }, { SYS_ppoll, "ppoll" },
	{ SYS_select, "select" }, { SYS_pselect6, "pselect6" }, { SYS_accept, "accept" },
	{ SYS_accept4, "accept4" }, { SYS_read, "read" }, { SYS_readv, "readv" },
	{ SYS_recvfrom, "recvfrom" }, { SYS_recvmsg, "recvmsg" }, { SYS_recvmmsg, "recvmmsg" },
	{ SYS_futex, "futex" }, { SYS_nanosleep, "nanosleep" },
	{ SYS_clock_nanosleep, "clock_nanosleep" }, { SYS_wait4, "wait4" },
	{ SYS_waitid, "waitid" }, { SYS_pause, "pause" }, { SYS_rt_sigsuspend, "rt_sigsuspend" },
	{ SYS_rt_sigtimedwait, "rt_sigtimedwait" }, { SYS_semop, "semop" },
	{ SYS_semtimedop, "semtimedop" }, { SYS_msgrcv, "msgrcv" }, { SYS_flock, "flock" },
	{ SYS_io_getevents, "io_getevents" }, { SYS_io_pgetevents, "io_pgetevents" },
	{ SYS_io_uring_enter, "io_uring_enter" }, { SYS_mq_timedreceive, "mq_timedreceive" },
	{ SYS_connect, "connect" },
};
#define CALLS (sizeof(calls) / sizeof(calls[0]))

/* Only counted, at their entry. The kernel counts write(2) and its like itself, but not these. */
static const int sends[] = { SYS_sendto, SYS_sendmsg, SYS_sendmmsg };
#define SENDS       (sizeof(sends) / sizeof(sends[0]))
#define DATA_SEND   1 /* what the filter tells of them */

const char *profile_call_name(long nr)
{
	for (size_t i = 0; i < CALLS; i++)
		if (calls[i].nr == nr)
			return calls[i].name;
	return "computing";
}

/* ---- start ----------------------------------------------------------------------------------- */

static int install_filter(void)
{
	struct sock_filter code[CALLS + SENDS + 6];
	struct sock_fprog program = { 0, code };
	unsigned n = 0;

	code[n++] = (struct sock_filter)BPF_STMT(
		BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
	code[n++] = (struct sock_filter)BPF_JUMP(
		BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, CALLS + SENDS + 1);
	code[n++] = (struct sock_filter)BPF_STMT(
		BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (size_t i = 0; i < CALLS; i++)
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
			(unsigned)calls[i].nr, (uint8_t)(CALLS + SENDS - i), 0);
	for (size_t i = 0; i < SENDS; i++)
		code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K,
			(unsigned)sends[i], (uint8_t)(SENDS + 1 - i), 0);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE);
	code[n++] = (struct sock_filter)BPF_STMT(
		BPF_RET | BPF_K, SECCOMP_RET_TRACE | DATA_SEND);
	program.len = (unsigned short)n;
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
		return 0;
	/* Without privileges a filter is allowed to those who cannot gain any. */
	if (errno != EACCES || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}

static _Noreturn void become(char **argv)
{
	int e;

	raise(SIGSTOP);
	e = install_filter();
	if (e < 0) {
		fprintf(stderr, "cairn profile: no seccomp filters here: %s\n", strerror(-e));
		_exit(126);
	}
	execvp(argv[0], argv);
	fprintf(stderr, "cairn profile: %s: %s\n", argv[0], strerror(errno));
	_exit(errno == ENOENT ? 127 : 126);
}

static struct profile_task *task_find(struct profile *p, pid_t tid)
{
	for (struct profile_task *t = p->tasks; t; t = t->next)
		if (t->tid == tid && t->live)
			return t;
	return NULL;
}

static struct profile_process *process_find(struct profile *p, pid_t pid)
{
	for (struct profile_process *q = p->processes; q; q = q->next)
		if (q->pid == pid && q->live)
			return q;
	return NULL;
}

static struct profile_process *process_new(struct profile *p, pid_t pid, struct profile_process *of)
{
	struct profile_process *q = profile_alloc(sizeof(*q)), **end = &p->processes;

	q->pid = pid;
	q->live = true;
	q->root = !of;
	if (of) {
		q->parent = of->pid;
		q->creator = of;
		q->image = of->image;
		memcpy(q->exe, of->exe, sizeof(q->exe));
		memcpy(q->title, of->title, sizeof(q->title));
	} else {
		q->image = profile_image_new();
	}
	while (*end)
		end = &(*end)->next;
	*end = q;
	return q;
}

static struct profile_task *task_new(struct profile *p, pid_t tid, struct profile_process *q)
{
	struct profile_task *t = profile_alloc(sizeof(*t));

	t->tid = tid;
	t->process = q;
	t->live = true;
	t->slept_ns = profile_now();
	t->count_at = COUNT_FIRST;
	t->next = p->tasks;
	p->tasks = t;
	return t;
}

int profile_start(struct profile *p)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		become(p->argv);
	if (pid < 0 || waitpid(pid, &status, WUNTRACED) != pid || !WIFSTOPPED(status)) {
		fprintf(stderr, "cairn profile: no process could be started\n");
		return 1;
	}
	if (ptrace(PTRACE_SEIZE, pid, 0, OPTIONS) < 0) {
		fprintf(stderr, "cairn profile: ptrace is not allowed here: %s\n", strerror(errno));
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		return 1;
	}
	p->root = pid;
	task_new(p, pid, process_new(p, pid, NULL));
	kill(pid, SIGCONT);
	return 0;
}

/* ---- titles ---------------------------------------------------------------------------------- */

static void read_title(struct profile_process *q)
{
	char path[64], exe[sizeof(q->exe)], text[sizeof(q->title)];
	ssize_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)q->pid);
	n = readlink(path, exe, sizeof(exe) - 1);
	if (n > 0) { /* a process that ends has none any more */
		exe[n] = 0;
		memcpy(q->exe, exe, sizeof(exe));
	}
	snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)q->pid);
	f = fopen(path, "re");
	if (!f)
		return;
	n = (ssize_t)fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	if (n <= 0)
		return;
	for (ssize_t i = 0; i < n; i++)
		if ((unsigned char)text[i] < ' ')
			text[i] = ' ';
	while (n > 0 && text[n - 1] == ' ')
		n--;
	text[n] = 0;
	memcpy(q->title, text, sizeof(text));
}

static void read_writes(struct profile_task *t)
{
	char path[64], line[64];
	unsigned long n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/io", (int)t->process->pid, (int)t->tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "syscw: %lu", &n) == 1)
			t->writes = n;
	if (f)
		fclose(f);
}

void profile_snapshot(struct profile *p)
{
	uint64_t now = profile_now();

	for (struct profile_process *q = p->processes; q; q = q->next) {
		q->stayed = q->live;
		if (q->live)
			read_title(q);
	}
	for (struct profile_task *t = p->tasks; t; t = t->next) {
		t->stayed = t->live;
		if (!t->live)
			continue;
		read_writes(t);
		profile_loop_settle(t);
		if (t->in_call && t->current)
			t->current->ns += now - t->entered_ns;
	}
}

/* ---- what a stop says ------------------------------------------------------------------------ */

/*
 * Of the kind with the most places, the one that was passed least recently. So the places of a
 * start-up go, however often it passed them, and calls that are sites are not lost among samples.
 */
static struct profile_wait *least_needed(struct profile_task *t)
{
	unsigned counts[PROFILE_KINDS] = { 0 }, most = 0;
	struct profile_wait *w = NULL;

	for (unsigned i = 0; i < t->wait_count; i++)
		counts[profile_kind(t->waits[i].nr)]++;
	for (unsigned kind = 1; kind < PROFILE_KINDS; kind++)
		if (counts[kind] > counts[most])
			most = kind;
	for (unsigned i = 0; i < t->wait_count; i++)
		if (profile_kind(t->waits[i].nr) == most && (!w || t->waits[i].look < w->look))
			w = &t->waits[i];
	return w;
}

static struct profile_wait *wait_at(
	struct profile_task *t, const struct profile_stack *stack, long nr)
{
	struct profile_wait *w;

	for (unsigned i = 0; i < t->wait_count; i++)
		if (t->waits[i].stack == stack && t->waits[i].nr == nr)
			return &t->waits[i];
	if (t->wait_count < PROFILE_WAITS_MAX)
		w = &t->waits[t->wait_count++];
	else
		w = least_needed(t);
	*w = (struct profile_wait){ .stack = stack, .nr = nr };
	return w;
}

static void look(struct profile *p, struct profile_task *t, bool computing)
{
	const struct profile_stack *stack;
	struct user_regs_struct regs;

	if (!p->recording || ptrace(PTRACE_GETREGS, t->tid, 0, &regs) < 0)
		return;
	stack = profile_image_stack(t->process->image, t->tid, &regs);
	t->current = NULL;
	if (!stack)
		return;
	t->current = wait_at(t, stack, computing ? -1 : (long)regs.orig_rax);
	t->current->calls++;
	if (!t->current->total++)
		t->current->polls = profile_polls(t->tid, t->current->nr, regs.rdi);
	profile_loop_look(t, stack);
	t->current->look = t->loop.looks;
}

static void call_begins(struct profile *p, struct profile_task *t)
{
	t->entered_ns = profile_now();
	t->in_call = true;
	look(p, t, false);
	ptrace(PTRACE_SYSCALL, t->tid, 0, 0);
}

static void call_ends(const struct profile *p, struct profile_task *t)
{
	if (t->in_call && t->current && p->recording)
		t->current->ns += profile_now() - t->entered_ns;
	t->in_call = false;
	ptrace(PTRACE_CONT, t->tid, 0, 0);
}

static void born(struct profile *p, struct profile_task *parent, bool thread)
{
	struct user_regs_struct regs;
	unsigned long pid = 0;
	struct profile_task *t;

	ptrace(PTRACE_GETEVENTMSG, parent->tid, 0, &pid);
	if (!pid)
		return;
	t = task_find(p, (pid_t)pid);
	if (!t)
		t = task_new(p, (pid_t)pid,
			thread ? parent->process : process_new(p, (pid_t)pid, parent->process));
	if (!thread && p->recording && ptrace(PTRACE_GETREGS, parent->tid, 0, &regs) == 0)
		t->process->born_at =
			profile_image_stack(parent->process->image, parent->tid, &regs);
}

/* One call makes threads and processes alike: the kernel says which. */
static bool same_group(pid_t tid, pid_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)pid, (int)tid);
	return access(path, F_OK) == 0;
}

static void executed(struct profile *p, struct profile_task *t)
{
	struct profile_process *q = t->process;

	/* The thread that calls exec takes over the first one's id; the others are gone. */
	for (struct profile_task *o = p->tasks; o; o = o->next) {
		if (o->process != q || o == t)
			continue;
		o->live = false;
		o->wait_count = 0; /* of the program before */
		o->current = NULL;
	}
	q->image = profile_image_new();
	t->wait_count = 0;
	t->current = NULL;
	t->in_call = false;
	t->tid = q->pid;
	profile_loop_exec(t);
	read_title(q);
	if (!p->executed)
		memcpy(p->exe, q->exe, sizeof(p->exe));
	p->executed = true;
}

/* A sample of a thread that computes; now and then the calls of its loop's function are counted. */
static void computing(struct profile *p, struct profile_task *t)
{
	uint64_t function;

	look(p, t, true);
	t->samples++;
	if (t->loop.armed[PROFILE_WATCHES]) {
		if (profile_now() - t->loop.count_since > COUNT_NS)
			profile_loop_count_end(t);
	} else if (t->samples >= t->count_at) {
		function = profile_candidate(t);
		if (!function)
			return;
		profile_loop_count(t, function);
		t->count_at = t->samples + COUNT_EVERY;
	}
}

static void event(struct profile *p, struct profile_task *t, int event, int sig)
{
	unsigned long tid = 0, data = 0;

	switch (event) {
	case PTRACE_EVENT_SECCOMP:
		ptrace(PTRACE_GETEVENTMSG, t->tid, 0, &data);
		if (data != DATA_SEND) {
			call_begins(p, t);
			return;
		}
		t->sends++;
		break;
	case PTRACE_EVENT_FORK:
	case PTRACE_EVENT_VFORK:
		born(p, t, false);
		break;
	case PTRACE_EVENT_CLONE:
		ptrace(PTRACE_GETEVENTMSG, t->tid, 0, &tid);
		born(p, t, same_group((pid_t)tid, t->process->pid));
		break;
	case PTRACE_EVENT_EXEC:
		executed(p, t);
		break;
	case PTRACE_EVENT_EXIT:
		if (!p->recording)
			break;
		read_writes(t);
		if (t->tid == t->process->pid)
			read_title(t->process);
		break;
	case PTRACE_EVENT_STOP:
		if (sig == SIGSTOP || sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU) {
			ptrace(PTRACE_LISTEN, t->tid, 0, 0);
			return;
		}
		if (!t->in_call && profile_now() - t->slept_ns > COMPUTE_NS)
			computing(p, t);
		break;
	}
	ptrace(t->in_call ? PTRACE_SYSCALL : PTRACE_CONT, t->tid, 0, 0);
}

static void signal_stop(struct profile_task *t, int sig)
{
	struct user_regs_struct regs;
	siginfo_t info;

	/* TRAP_HWBKPT is 4. */
	if (sig == SIGTRAP && ptrace(PTRACE_GETSIGINFO, t->tid, 0, &info) == 0 &&
		info.si_code == 4 && ptrace(PTRACE_GETREGS, t->tid, 0, &regs) == 0) {
		profile_loop_trap(t, &regs);
		sig = 0; /* one more may be on its way when a watch is taken off */
	}
	ptrace(t->in_call ? PTRACE_SYSCALL : PTRACE_CONT, t->tid, 0, sig);
}

static void task_gone(struct profile *p, struct profile_task *t, int status)
{
	t->live = false;
	if (t->in_call && t->current && p->recording)
		t->current->ns += profile_now() - t->entered_ns;
	t->in_call = false;
	if (t->tid != t->process->pid)
		return;
	t->process->live = false;
	if (t->tid == p->root) {
		p->root_ended = true;
		p->root_status = status;
	}
}

static struct profile_task *adopt(struct profile *p, pid_t tid)
{
	struct profile_process *q;
	pid_t group = tid, parent = 0;
	char path[64], line[128];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f)) {
		if (!strncmp(line, "Tgid:", 5))
			group = atoi(line + 5);
		else if (!strncmp(line, "PPid:", 5))
			parent = atoi(line + 5);
	}
	if (f)
		fclose(f);
	q = process_find(p, group);
	if (!q) {
		q = process_find(p, parent);
		q = process_new(p, group, q ? q : p->processes);
	}
	return task_new(p, tid, q);
}

bool profile_event(struct profile *p, pid_t pid, int status)
{
	struct profile_task *t = task_find(p, pid);
	int sig;

	/* A newborn's first stop may come before its parent's. */
	if (!t && WIFSTOPPED(status) && status >> 16 == PTRACE_EVENT_STOP)
		t = adopt(p, pid);
	if (!t)
		return false;
	p->stops++;
	if (!WIFSTOPPED(status)) {
		task_gone(p, t, status);
		return true;
	}
	sig = WSTOPSIG(status);
	if (status >> 16)
		event(p, t, status >> 16, sig);
	else if (sig == (SIGTRAP | 0x80))
		call_ends(p, t);
	else
		signal_stop(t, sig);
	return true;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* Not stopped by us, and not on its way through the call. */
static bool asleep(pid_t tid)
{
	char path[64], text[256], *at;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = 0;
	at = strrchr(text, ')');
	return at && at[1] && at[2] == 'S';
}

void profile_tick(struct profile *p)
{
	uint64_t now = profile_now();

	if (!p->recording)
		return;
	for (struct profile_task *t = p->tasks; t; t = t->next) {
		if (!t->live)
			continue;
		if (!t->in_call) {
			if (now - t->slept_ns <= COMPUTE_NS)
				continue;
			/* In a call that is not followed: an interrupt may cut a write short. */
			if (asleep(t->tid))
				t->slept_ns = now;
			else
				ptrace(PTRACE_INTERRUPT, t->tid, 0, 0);
		} else if (t->current && asleep(t->tid)) {
			t->current->slept++;
			t->slept_ns = now;
		}
	}
}

unsigned profile_live(const struct profile *p)
{
	unsigned n = 0;

	for (const struct profile_task *t = p->tasks; t; t = t->next)
		n += t->live;
	return n;
}

bool profile_quiet(const struct profile *p)
{
	for (const struct profile_task *t = p->tasks; t; t = t->next)
		if (t->live && !t->in_call)
			return false;
	return true;
}

void profile_forget_counts(struct profile *p)
{
	for (struct profile_task *t = p->tasks; t; t = t->next) {
		for (unsigned i = 0; i < t->wait_count; i++)
			t->waits[i].calls = t->waits[i].slept = t->waits[i].ns = 0;
		t->entered_ns = profile_now();
		if (t->live)
			read_writes(t);
		t->writes_before = t->writes;
		t->sends = 0;
	}
}

void profile_signal_all(struct profile *p, int sig)
{
	for (struct profile_process *q = p->processes; q; q = q->next)
		if (q->live)
			kill(q->pid, sig);
}
