/* SPDX-License-Identifier: MIT */
/* System calls from a late plugin, from code made at run time, from stdio and from syscall(2). */
#include <dlfcn.h>
#include <libgen.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include "expect.h"

static void test_plugin(void)
{
#ifndef NO_PLUGIN
	char path[4096], name[4200];
	long (*call)(long, long, long);
	void *plugin;
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	EXPECT(n > 0);
	path[n] = 0;
	snprintf(name, sizeof(name), "%s/victim_plugin.so", dirname(path));
	for (int i = 0; i < 20; i++) {
		plugin = dlopen(name, RTLD_NOW);
		EXPECT(plugin);
		*(void **)&call = dlsym(plugin, "plugin_call");
		EXPECT(call && call(SYS_getpid, 0, 0) == getpid());
		EXPECT(call(SYS_close, -1, 0) == -EBADF);
		EXPECT(!dlclose(plugin));
	}
#endif
}

/* mov $nr, %eax; syscall; ret, at many addresses. */
static void test_generated(void)
{
	static const uint8_t code[] = { 0xb8, SYS_getppid, 0, 0, 0, 0x0f, 0x05, 0xc3 };
	uint8_t *page =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	EXPECT(page != MAP_FAILED);
	for (int i = 0; i < 256; i++)
		memcpy(page + i * 16, code, sizeof(code));
	EXPECT(!mprotect(page, 4096, PROT_READ | PROT_EXEC));
	for (int i = 0; i < 256; i++)
		EXPECT(((long (*)(void))(page + i * 16))() == getppid());
	EXPECT(!munmap(page, 4096));
}

static void test_stdio(void)
{
	char line[64];
	FILE *f = tmpfile();

	EXPECT(f && fprintf(f, "%d\n", 4711) == 5 && !fflush(f));
	rewind(f);
	EXPECT(fgets(line, sizeof(line), f) && !strcmp(line, "4711\n") && !fclose(f));
	EXPECT(syscall(SYS_getpid) == getpid());
	EXPECT(syscall(SYS_write, 1, "", 0) == 0);
}

int main(void)
{
	test_plugin();
	test_generated();
	test_stdio();
	puts("loaded: ok");
	return 0;
}
