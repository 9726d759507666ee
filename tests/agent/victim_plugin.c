/* SPDX-License-Identifier: MIT */
/* Loaded by victim_loaded: a system call in code that no plan knows. */
__attribute__((visibility("default"))) long plugin_call(long nr, long a, long b);

long plugin_call(long nr, long a, long b)
{
	long ret;

	__asm__ volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b) : "rcx", "r11", "memory");
	return ret;
}
