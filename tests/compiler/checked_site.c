/* SPDX-License-Identifier: MIT */
/*
 * The differential oracle for programs that have sites (-fcairn-site) and no idea of it. Linked,
 * without hooks, into such a program: its __cairn_site is taken in place of the run-time's. Every
 * so many checkpoints all memory of the process is copied (snapshot.h); where the interval ends, a
 * copy of the process goes back to the checkpoint and compares every byte. The program itself goes
 * back, too, before the interval has changed anything, goes on, and must answer as always.
 *
 * The copy of the process has the engine's memory, too, which other children find empty. Not
 * compared, because it is libc's own: the heap of brk, thread-local variables of libraries. Run it
 * with LD_BIND_NOW=1: else ld.so writes to the program's table of functions whenever one is new.
 *
 * Environment: CHECKED_LOG, a file, which gets a line for each comparison: "same PID CHECKPOINT
 * BYTES", or "MISMATCH", "REFUSED", "KILLED" with more. CHECKED_EVERY: checkpoints from one to the
 * next (on average; 100). CHECKED_IN_PLACE: the program itself goes back and compares, and has the
 * interval again: for page mode, whose view of the pages (pagemap, keeper) no forked copy has.
 */
#define _GNU_SOURCE
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include "snapshot.h"

#ifdef __i386__
#define COPY_MAX       (128ul << 20)
#define THREAD_POINTER "%%gs:0"
#else
#define COPY_MAX       (2ul << 30)
#define THREAD_POINTER "%%fs:0"
#endif

/* All that must survive a restore, in shared memory. */
static struct checker {
	cairn_t *session;
	pid_t owner;
	uint64_t random, every;
	uint64_t until; /* checkpoints until the next that is compared */
	bool armed;     /* `copy` is of the newest checkpoint */
	bool back;      /* the program itself goes back to it, at its end */
	struct snapshot copy;
	struct range engine[RANGES_MAX];
	size_t engine_count;
	struct smaps smaps;
	char *tls_begin, *tls_end; /* of the program in this thread */
} *checker;

extern char __executable_start[]; /* lld's */

static uint64_t draw(uint64_t below)
{
	checker->random = checker->random * 6364136223846793005u + 1442695040888963407u;
	return (checker->random >> 33) % below;
}

/* The program's own thread-local variables end at the thread pointer. */
static void find_tls(void)
{
	const ElfW(Phdr) *p = (const ElfW(Phdr) *)getauxval(AT_PHDR);

	__asm__("mov " THREAD_POINTER ", %0" : "=r"(checker->tls_end));
	checker->tls_begin = checker->tls_end;
	for (unsigned long i = 0; i < getauxval(AT_PHNUM); i++)
		if (p[i].p_type == PT_TLS)
			checker->tls_begin -= p[i].p_memsz;
}

static uint64_t every_so_many = 100;
static bool in_place;
static char log_name[256] = "/dev/stderr";

/* At the start: programs clear their environment. */
static __attribute__((constructor)) void ask_environment(void)
{
	const char *every = getenv("CHECKED_EVERY"), *log = getenv("CHECKED_LOG");

	in_place = getenv("CHECKED_IN_PLACE");
	if (every)
		every_so_many = strtoul(every, NULL, 10);
	if (log)
		snprintf(log_name, sizeof(log_name), "%s", log);
}

static void begin(unsigned threads)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	if (checker) /* of the process that forked this one: part_shared would copy it */
		CHECK(!munmap(checker, sizeof(*checker) + COPY_MAX));
	checker = mmap(NULL, sizeof(*checker) + COPY_MAX, PROT_READ | PROT_WRITE,
		MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	CHECK(checker != MAP_FAILED);
	checker->owner = getpid();
	checker->copy.copy = (char *)(checker + 1);
	checker->copy.copy_max = COPY_MAX;
	checker->random = 1;
	checker->every = every_so_many;
	checker->until = 1 + draw(checker->every);
	find_tls();
	o.threads = threads;
	CHECK_OK(cairn_open(&checker->session, &o));
}

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...)
{
	int fd = open(log_name, O_WRONLY | O_APPEND | O_CLOEXEC);
	char line[200];
	va_list words;
	int len;

	va_start(words, format);
	len = vsnprintf(line, sizeof(line), format, words);
	va_end(words);
	if (fd >= 0 && write(fd, line, (size_t)len) == len)
		close(fd);
}

/* The memory that other children find empty. */
static void find_engine(void)
{
	char *text = checker->smaps.text, *line;
	const char *flags;

	read_smaps(&checker->smaps);
	checker->engine_count = 0;
	while ((line = next_mapping(&text, &flags))) {
		char *rest, *begin = (char *)strtoul(line, &rest, 16);
		char *end = (char *)strtoul(rest + 1, NULL, 16);

		if (!strstr(flags, " wf"))
			continue;
		CHECK(checker->engine_count < RANGES_MAX);
		checker->engine[checker->engine_count++] = (struct range){ begin, end, 0, false };
	}
}

static void advise_engine(int advice)
{
	for (size_t i = 0; i < checker->engine_count; i++) {
		struct range *r = &checker->engine[i];

		CHECK(!madvise(r->begin, (size_t)(r->end - r->begin), advice));
	}
}

/* In the copy of the process: what others share with it is not put back, but a copy of that. */
static void part_shared(void)
{
	char *text = checker->smaps.text, *line, *own = (char *)checker;
	const char *flags;

	read_smaps(&checker->smaps);
	while ((line = next_mapping(&text, &flags))) {
		char *rest, *begin = (char *)strtoul(line, &rest, 16), *copy;
		size_t len = (size_t)((char *)strtoul(rest + 1, NULL, 16) - begin);

		if (!strstr(flags, " sh") || !strstr(flags, " wr") ||
			(own >= begin && own < begin + len))
			continue;
		copy = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		CHECK(copy != MAP_FAILED);
		memcpy(copy, begin, len);
		CHECK(mremap(copy, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, begin) == begin);
	}
}

/* Back at the checkpoint. */
static bool compare(uint64_t id)
{
	const struct range *r;
	char *p = find_difference(&checker->copy, &r);

	if (!p)
		tell("same %d %lu %lu\n", checker->owner, (unsigned long)id,
			(unsigned long)checker->copy.used);
	else
		tell("MISMATCH %d %lu %p of %p-%p, program + 0x%lx\n", checker->owner,
			(unsigned long)id, (void *)p, (void *)r->begin, (void *)r->end,
			(unsigned long)(p - __executable_start));
	return !p;
}

/* The interval ends: nobody but us sees the child that undoes it. */
static void check_interval(void)
{
	int status;
	long pid;

	if (in_place) {
		checker->back = true;
		CHECK_OK(cairn_restore(checker->session, checker->copy.id));
	}
	find_engine();
	advise_engine(MADV_KEEPONFORK);
	pid = syscall(SYS_clone, 0ul, NULL, NULL, NULL, 0ul);
	if (!pid) {
		int err;

		part_shared();
		err = cairn_restore(checker->session, checker->copy.id);
		tell("REFUSED %d %lu %s\n", checker->owner, (unsigned long)checker->copy.id,
			cairn_strerror(err));
		_exit(2);
	}
	CHECK(pid > 0);
	advise_engine(MADV_WIPEONFORK);
	CHECK(waitpid((pid_t)pid, &status, __WALL) == pid);
	if (WIFSIGNALED(status))
		tell("KILLED %d %lu signal %d\n", checker->owner, (unsigned long)checker->copy.id,
			WTERMSIG(status));
	checker->armed = false;
}

/* Without what belongs to libc. */
static void trim(struct snapshot *s)
{
	for (size_t i = 0; i < s->count; i++) {
		struct range *r = &s->ranges[i];

		if (r->libc_heap)
			r->end = r->begin;
		if (checker->tls_end > r->begin && checker->tls_end <= r->end) {
			r->at += (size_t)(checker->tls_begin - r->begin);
			r->begin = checker->tls_begin;
			r->end = checker->tls_end;
		}
	}
}

void __cairn_site(uint32_t *count, uint32_t every, uint32_t threads);

void __cairn_site(uint32_t *count, uint32_t every, uint32_t threads)
{
	sigset_t all, blocked;
	uint64_t id;
	int err;

	if (++*count < every)
		return;
	*count = 0;
	if (!checker || checker->owner != getpid())
		begin(threads);
	/* What a handler stored between copy and checkpoint would be in one of them only. */
	sigfillset(&all);
	CHECK(!pthread_sigmask(SIG_SETMASK, &all, &blocked));
	if (checker->armed)
		check_interval();
	if (!--checker->until) {
		checker->until = 1 + draw(2 * checker->every);
		take_snapshot(&checker->copy, &checker->smaps, __builtin_frame_address(0));
		trim(&checker->copy);
		checker->armed = true;
	}
	err = cairn_checkpoint(checker->session, &id);
	if (err == CAIRN_RESTORED && getpid() != checker->owner)
		_exit(!compare(checker->copy.id));
	if (err == CAIRN_RESTORED && checker->back) {
		compare(checker->copy.id);
		checker->back = checker->armed = false;
	}
	if (err != CAIRN_RESTORED) {
		CHECK_OK(err);
		checker->copy.id = id;
		if (checker->armed)
			CHECK_OK(cairn_restore(checker->session, id)); /* it does not return here */
	}
	CHECK(!pthread_sigmask(SIG_SETMASK, &blocked, NULL));
}
