/* SPDX-License-Identifier: MIT */
/*
 * cairn doctor under seccomp filters that refuse, and under one that kills: it must report, not
 * fail. usage: doctor_test CAIRN
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <cmocka.h>

static const char *cairn;

/*
 * One system call is answered with `action`, and so is the device's way to a userfaultfd (_IO(0xaa,
 * 0)); all others run.
 */
static int forbid(unsigned nr, unsigned action)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, nr, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xaa00, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, action),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(code) / sizeof(code[0]), code };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* What `cairn doctor --json` prints, and its exit status. nr == 0: no filter. */
static int doctor(char *out, size_t size, unsigned nr, unsigned action)
{
	size_t used = 0;
	ssize_t n;
	int ends[2], status;
	pid_t pid;

	assert_int_equal(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		dup2(ends[1], 1);
		close(ends[0]);
		close(ends[1]);
		if (nr && forbid(nr, action) < 0)
			_exit(77);
		execl(cairn, "cairn", "doctor", "--json", NULL);
		_exit(78);
	}
	close(ends[1]);
	while (used < size - 1 && (n = read(ends[0], out + used, size - 1 - used)) > 0)
		used += (size_t)n;
	out[used] = '\0';
	close(ends[0]);
	waitpid(pid, &status, 0);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 77)
		skip();
	return WEXITSTATUS(status);
}

/* The object of one feature or tracker, cut out. */
static const char *object(const char *json, const char *name)
{
	static char copy[1024];
	char key[64];
	const char *at;

	snprintf(key, sizeof(key), "{\"name\":\"%s\"", name);
	at = strstr(json, key);
	assert_non_null(at);
	snprintf(copy, sizeof(copy), "%.*s", (int)(strchr(at, '}') - at + 1), at);
	return copy;
}

static char json[16384];

static void plain(void **state)
{
	assert_int_equal(doctor(json, sizeof(json), 0, 0), 0);
	assert_int_equal(json[0], '{');
	assert_string_equal(json + strlen(json) - 2, "}\n");
	assert_non_null(strstr(object(json, "mprotect"), "\"works\":true"));
	assert_non_null(strstr(json, "\"killed_at\":null"));
}

static void refused(void **state)
{
	assert_int_equal(doctor(json, sizeof(json), SYS_userfaultfd, SECCOMP_RET_ERRNO | EPERM), 0);
	assert_non_null(strstr(json, "\"seccomp\":2"));
	assert_non_null(strstr(object(json, "userfaultfd"), "seccomp filter is in force"));
	assert_non_null(strstr(object(json, "userfaultfd"), "\"error\":-1,"));
	assert_null(strstr(object(json, "userfaultfd"), "\"enable\":null"));
	assert_non_null(strstr(object(json, "async"), "\"works\":false"));
	assert_null(strstr(json, "\"areas\":\"async\""));
}

static void missing(void **state)
{
	assert_int_equal(doctor(json, sizeof(json), SYS_bpf, SECCOMP_RET_ERRNO | ENOSYS), 0);
	assert_non_null(strstr(object(json, "bpf"), "\"works\":false"));
	assert_non_null(strstr(object(json, "bpf"), "\"error\":-38,"));
	assert_non_null(strstr(object(json, "mprotect"), "\"works\":true"));
}

static void killed(void **state)
{
	assert_int_equal(doctor(json, sizeof(json), SYS_userfaultfd, SECCOMP_RET_KILL_PROCESS), 0);
	assert_non_null(strstr(json, "\"killed_at\":\"userfaultfd\""));
	assert_non_null(strstr(object(json, "async"), "\"works\":false"));
	assert_non_null(strstr(object(json, "mprotect"), "\"works\":true"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(plain),
		cmocka_unit_test(refused),
		cmocka_unit_test(missing),
		cmocka_unit_test(killed),
	};

	if (argc != 2) {
		fprintf(stderr, "usage: doctor_test CAIRN\n");
		return 1;
	}
	cairn = argv[1];
	return cmocka_run_group_tests(tests, NULL, NULL);
}
