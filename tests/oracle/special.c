/* SPDX-License-Identifier: MIT */
/*
 * Rows that are not random programs: what returns twice, huge reserves, named surfaces, other
 * threads.
 */
#include <dirent.h>
#include <errno.h>
#include <fenv.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <xmmintrin.h>
#include "oracle.h"

static cairn_t *open_under(const char *strategy, const char *surface, uint32_t keep)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;

	o.tracker = W->rules->name;
	o.feed = W->feed;
	o.strategy = strategy;
	o.surface = surface;
	o.keep = W->keep = keep;
	W->all = strcmp(surface, "none") != 0;
	W->c = test_open(&o);
	return W->c;
}

static cairn_t *open_with(const char *surface, uint32_t keep)
{
	return open_under(NULL, surface, keep);
}

static void *map_pages(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		test_fail("mmap: errno %d", errno);
	return p;
}

/* ---- returns: registers, active stack, floating point control ---------------------- */

struct registers {
	uint64_t rbx, r12, r13, r14, r15, mxcsr, x87;
};

static void control_set(uint32_t mxcsr, uint16_t x87)
{
	_mm_setcsr(mxcsr);
	__asm__ volatile("fldcw %0" : : "m"(x87));
}

static uint64_t x87_get(void)
{
	uint16_t v;

	__asm__ volatile("fnstcw %0" : "=m"(v));
	return v;
}

/*
 * Known values into every callee-saved register, then the call: both returns must find
 * them there. rbp is the frame that `out` and `id` are found through.
 */
static __attribute__((noinline, noclone)) int checkpoint_registers(
	uint64_t *id_out, struct registers *out)
{
	cairn_t *c = W->c;
	uint64_t *id = id_out;
	struct registers *regs = out;
	int rc;

	__asm__ volatile("pushq %%rbp\n\t"
			 "movq %%rsp, %%rbp\n\t"
			 "andq $-16, %%rsp\n\t"
			 "pushq %%rdx\n\t"
			 "subq $8, %%rsp\n\t"
			 "movq $0x1111, %%rbx\n\t"
			 "movq $0x2222, %%r12\n\t"
			 "movq $0x3333, %%r13\n\t"
			 "movq $0x4444, %%r14\n\t"
			 "movq $0x5555, %%r15\n\t"
			 "call cairn_checkpoint\n\t"
			 "addq $8, %%rsp\n\t"
			 "popq %%rcx\n\t"
			 "movq %%rbx, 0(%%rcx)\n\t"
			 "movq %%r12, 8(%%rcx)\n\t"
			 "movq %%r13, 16(%%rcx)\n\t"
			 "movq %%r14, 24(%%rcx)\n\t"
			 "movq %%r15, 32(%%rcx)\n\t"
			 "movq %%rbp, %%rsp\n\t"
			 "popq %%rbp\n\t"
			 : "=a"(rc), "+D"(c), "+S"(id), "+d"(regs)
			 :
			 : "rbx", "r12", "r13", "r14", "r15", "rcx", "r8", "r9", "r10", "r11",
			 "memory", "cc");
	out->mxcsr = _mm_getcsr() & 0xffc0; /* control bits; the flags below are sticky */
	out->x87 = x87_get();
	return rc;
}

static void on_signal(int sig)
{
	int rc = cairn_restore(W->c, W->step);

	test_fail("cairn_restore in a handler: %d (%s)", rc, cairn_strerror(rc));
}

static void plain_restore(void)
{
	int rc = cairn_restore(W->c, W->step);

	test_fail("cairn_restore: %d (%s)", rc, cairn_strerror(rc));
}

/* How each round goes back: plainly, from a deeper frame, from a signal handler. */
static __attribute__((noinline)) void go_back(uint64_t round, int depth)
{
	volatile uint8_t deep[3000];

	for (size_t i = 0; i < sizeof(deep); i++)
		deep[i] = (uint8_t)round;
	if (depth > 0)
		go_back(round, depth - 1);
	else if (round % 3 == 2)
		raise(SIGUSR1);
	else
		plain_restore();
	__asm__ volatile("" : : "r"(deep) : "memory");
}

static void check_registers(const struct registers *r)
{
	CHECK_U64(r->rbx, 0x1111);
	CHECK_U64(r->r12, 0x2222);
	CHECK_U64(r->r13, 0x3333);
	CHECK_U64(r->r14, 0x4444);
	CHECK_U64(r->r15, 0x5555);
	CHECK_U64(r->mxcsr, 0x7f80); /* round towards zero, all masked */
	CHECK_U64(r->x87, 0x0f7f);
}

/* Where a checkpoint may cost no system call it knows no mask. */
static bool mask_comes_back(void)
{
	struct cairn_stats stats = { .size = sizeof(stats) };

	CHECK_OK(cairn_stats(W->c, &stats));
	return !W->rules->touch_first && !strcmp(stats.strategy, "none");
}

static __attribute__((noinline, noclone)) void returns_once(const char *surface)
{
	struct registers r;
	uint8_t locals[2000];
	uint64_t id = 0;
	sigset_t mask;
	int rc;

	memset(locals, 0x77, sizeof(locals));
	W->restores = 0;
	control_set(0x7f80, 0x0f7f);
	rc = checkpoint_registers(&id, &r);
	W->step = id;
	check_registers(&r);
	for (size_t i = 0; i < sizeof(locals); i++)
		CHECK_U64(locals[i], 0x77);
	sigprocmask(SIG_BLOCK, NULL, &mask);
	/* A blocked fault would kill. */
	if (sigismember(&mask, SIGSEGV) || (sigismember(&mask, SIGUSR1) && mask_comes_back()))
		test_fail("restored out of a handler, but its signal is still blocked");
	sigdelset(&mask, SIGUSR1);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	CHECK_U64((uint64_t)rc, W->restores ? CAIRN_RESTORED : CAIRN_TAKEN);
	if (++W->restores <= 12) {
		memset(locals, (int)W->restores, sizeof(locals));
		control_set(0x1f80, 0x037f);
		go_back(W->restores, (int)(W->restores % 5) * 4);
	}
	control_set(0x1f80, 0x037f);
	dprintf(1, "returns: %llu restores, surface %s\n", (unsigned long long)W->restores - 1,
		surface);
}

void special_returns(void)
{
	const char *surface = W->rules->explicit_only ? "none" : "all";

	signal(SIGUSR1, on_signal);
	open_with("none", 2);
	returns_once("none");
	CHECK_OK(cairn_close(W->c));
	open_with(surface, 2);
	returns_once(surface);
	CHECK_OK(cairn_close(W->c));
	open_under("none", surface, 2);
	returns_once(surface);
	CHECK_OK(cairn_close(W->c));
}

/* ---- sparse: a reserve of 8 GiB of which some pages are used ------------------------- */

#define SPARSE_LEN (8ul << 30)

static void sparse_write(uint8_t *base, uint64_t seed, uint8_t value)
{
	for (int i = 0; i < 40; i++)
		base[rnd_from(&seed) % SPARSE_LEN] = value;
}

static void sparse_check(const uint8_t *base, uint64_t seed, uint8_t value)
{
	for (int i = 0; i < 40; i++)
		CHECK_U64(base[rnd_from(&seed) % SPARSE_LEN], value);
}

void special_sparse(void)
{
	struct cairn_stats stats = { .size = sizeof(stats) };
	uint8_t *base = map_pages(SPARSE_LEN), byte;
	uint64_t first, second, peek = 5;

	sparse_write(base, 5, 0x11);
	if (W->rules->explicit_only) {
		open_with("none", 2);
		CHECK_OK(cairn_area_add(W->c, base, SPARSE_LEN));
	} else {
		open_with("all", 2);
	}
	CHECK_RC(cairn_checkpoint(W->c, &first), CAIRN_TAKEN);
	sparse_write(base, 5, 0x22);
	sparse_write(base, 6, 0x33);
	CHECK_RC(cairn_checkpoint(W->c, &second), CAIRN_TAKEN);
	CHECK_OK(cairn_peek(W->c, first, base + rnd_from(&peek) % SPARSE_LEN, &byte, 1));
	CHECK_U64(byte, 0x11);
	sparse_write(base, 7, 0x44);
	CHECK_OK(cairn_rewind(W->c, second));
	sparse_check(base, 5, 0x22);
	sparse_check(base, 6, 0x33);
	sparse_check(base, 7, 0);
	CHECK_OK(cairn_rewind(W->c, first));
	sparse_check(base, 5, 0x11);
	sparse_check(base, 6, 0);
	CHECK_OK(cairn_stats(W->c, &stats));
	if (stats.engine_bytes > 512ul << 20)
		test_fail("%llu bytes of engine for 120 pages",
			(unsigned long long)stats.engine_bytes);
	CHECK_OK(cairn_close(W->c));
}

/* ---- grown: what a mapping grows by in place is no area -------------------------------- */

#define GROWN (1024 * PAGE) /* as much as one scan goes over, and more */

/* Into the hole between two areas. */
void special_grown(void)
{
	uint8_t *first;
	uint64_t id;

	open_with("none", 2);
	/* What the engine maps for its first area is not to come into the hole. */
	CHECK_OK(cairn_area_add(W->c, map_pages(PAGE), PAGE));
	first = map_pages(GROWN + PAGE);
	CHECK(!munmap(first + PAGE, GROWN - PAGE));
	first[0] = first[GROWN] = 1;
	CHECK_OK(cairn_area_add(W->c, first, PAGE));
	CHECK_OK(cairn_area_add(W->c, first + GROWN, PAGE));
	CHECK_RC(cairn_checkpoint(W->c, &id), CAIRN_TAKEN);
	*first = 1; /* what mprotect has closed would stay so */
	CHECK(mremap(first, PAGE, GROWN, 0) == first);
	for (volatile unsigned round = 0; round < 4; round++) {
		for (size_t at = 0; at <= GROWN; at += PAGE)
			first[at] = 2;
		CHECK_RC(cairn_checkpoint(W->c, &id), CAIRN_TAKEN);
		for (size_t at = 0; at <= GROWN; at += PAGE)
			first[at] = 3;
		CHECK_OK(cairn_rewind(W->c, id));
		CHECK(first[0] == 2 && first[GROWN] == 2);
		for (size_t at = PAGE; at < GROWN; at += PAGE)
			CHECK_U64(first[at], 3);
	}
	CHECK_OK(cairn_close(W->c));
}

/* ---- surfaces: "program", names, ranges ------------------------------------------------ */

/* Not zeros: .bss has no name in the map, .data has the program's. */
static uint8_t surface_static[3 * PAGE] __attribute__((aligned(4096))) = { 1 };

static void expect_surface(
	const char *surface, uint8_t *mapped, bool static_back, bool heap_back, bool mapped_back)
{
	volatile uint8_t *heap = malloc(100);
	uint64_t id;

	surface_static[PAGE] = heap[50] = mapped[PAGE] = 1;
	open_with(surface, 1);
	CHECK_RC(cairn_checkpoint(W->c, &id), CAIRN_TAKEN);
	surface_static[PAGE] = heap[50] = mapped[PAGE] = 2;
	CHECK_OK(cairn_rewind(W->c, id));
	if (surface_static[PAGE] != (static_back ? 1 : 2) || heap[50] != (heap_back ? 1 : 2) ||
		mapped[PAGE] != (mapped_back ? 1 : 2))
		test_fail("surface %s: static %d, heap %d, mapping %d", surface,
			surface_static[PAGE], heap[50], mapped[PAGE]);
	CHECK_OK(cairn_close(W->c));
	free((void *)heap);
}

/* A page where the .bss of some loaded object ends, which is the likeliest place to be confused. */
static int map_behind(struct dl_phdr_info *info, size_t size, void *out)
{
	uintptr_t end = 0;
	uint8_t *page;

	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *s = &info->dlpi_phdr[i];

		if (s->p_type == PT_LOAD && s->p_vaddr + s->p_memsz > end)
			end = s->p_vaddr + s->p_memsz;
	}
	end = (info->dlpi_addr + end + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
	page = mmap((void *)end, PAGE, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (page == MAP_FAILED)
		return 0;
	*(uint8_t **)out = page;
	return 1;
}

void special_surfaces(void)
{
	uint8_t *mapped = map_pages(8 * PAGE), *later = NULL;
	char range[64];
	uint64_t id;

	snprintf(range, sizeof(range), "%p-%p", (void *)mapped, (void *)(mapped + 4 * PAGE));
	if (W->rules->explicit_only) {
		struct cairn_options o = CAIRN_OPTIONS_INIT;

		open_with("none", 1); /* or skip */
		CHECK_OK(cairn_close(W->c));
		o.tracker = W->rules->name;
		o.surface = range;
		CHECK_RC(cairn_open(&W->c, &o), CAIRN_EAREAONLY);
		return;
	}
	expect_surface("all", mapped, true, true, true);
	expect_surface("program", mapped, true, true, false);
	expect_surface("[heap]", mapped, false, true, false);
	expect_surface(range, mapped, false, false, true);
	expect_surface(CAIRN_ORACLE_NAME, mapped, true, false, false);
	snprintf(range, sizeof(range), "[heap],%p-%p", (void *)mapped, (void *)(mapped + 4 * PAGE));
	expect_surface(range, mapped, false, true, true);

	open_with("program", 1); /* a mapping that comes later is no part of it */
	if (!dl_iterate_phdr(map_behind, &later))
		later = map_pages(PAGE);
	CHECK_RC(cairn_checkpoint(W->c, &id), CAIRN_TAKEN);
	*later = 9;
	CHECK_OK(cairn_rewind(W->c, id));
	CHECK_U64(*later, 9);
	CHECK_OK(cairn_close(W->c));
}

/* ---- other_thread: its stack may not be rolled back under its feet ------------------------- */

static pthread_barrier_t *meet;

/* In /proc, the thread that is not the first; the numbers there may be of another namespace. */
static int open_other(void)
{
	char first[32] = "", path[320];
	struct dirent *entry;
	int fd = -1;
	DIR *tasks = opendir("/proc/self/task");

	CHECK(tasks && readlink("/proc/self", first, sizeof(first) - 1) > 0);
	while (fd < 0 && (entry = readdir(tasks))) {
		if (entry->d_name[0] == '.' || !strcmp(entry->d_name, first))
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/stat", entry->d_name);
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	closedir(tasks);
	return fd;
}

/* It goes back to sleep in its next barrier, as soon as it gets a processor. */
static void await_other_asleep(void)
{
	char text[256];
	int asleep = 0;

	while (asleep < 3) {
		int fd = open_other();
		ssize_t n = read(fd, text, sizeof(text) - 1);

		CHECK(fd >= 0 && n > 0);
		text[n] = '\0';
		close(fd);
		asleep = strstr(text, ") S ") ? asleep + 1 : 0;
		usleep(2000);
	}
}

static void *other_main(void *arg)
{
	for (;;) {
		volatile uint8_t local[512];

		pthread_barrier_wait(meet);
		for (size_t i = 0; i < sizeof(local); i++)
			local[i]++;
		pthread_barrier_wait(meet);
	}
	return arg;
}

void special_threads(void)
{
	pthread_barrierattr_t attr;
	pthread_t thread;
	uint8_t *page = map_pages(PAGE);
	uint64_t id;

	if (W->rules->explicit_only) {
		struct cairn_options o = CAIRN_OPTIONS_INIT;

		o.tracker = W->rules->name;
		open_with("none", 1); /* or skip: the host cannot */
		CHECK_OK(cairn_close(W->c));
		CHECK_RC(cairn_open(&W->c, &o), CAIRN_EAREAONLY);
		return;
	}
	meet = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(meet != MAP_FAILED);
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(meet, &attr, 2);
	CHECK_U64((uint64_t)pthread_create(&thread, NULL, other_main, NULL), 0);
	pthread_barrier_wait(meet);
	pthread_barrier_wait(meet);
	await_other_asleep();
	open_with("all", 1);
	CHECK_RC(cairn_checkpoint(W->c, &id), CAIRN_TAKEN);
	*page = 1;
	CHECK_OK(cairn_rewind(W->c, id)); /* it slept: nothing of it has changed */
	CHECK_U64(*page, 0);
	*page = 2;
	pthread_barrier_wait(meet);
	pthread_barrier_wait(meet);
	await_other_asleep();
	CHECK_RC(cairn_restore(W->c, id), CAIRN_ETHREADS);
	CHECK_RC(cairn_rewind(W->c, id), CAIRN_ETHREADS);
	CHECK_U64(*page, 2);
	CHECK_RC(cairn_checkpoint(W->c, &id), CAIRN_TAKEN);
	*page = 3;
	CHECK_OK(cairn_rewind(W->c, id));
	CHECK_U64(*page, 2);
	CHECK_OK(cairn_close(W->c));
}
