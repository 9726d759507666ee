#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cairn-cc takes any command line of clang, refuses what cannot work, and instruments once.

    test_cairn_cc.py CAIRN_CC ROOT [TEST...]
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CAIRN_CC = ROOT = ""

PROGRAM = """
#include <stdio.h>
#include <cairn/cairn.h>
long stored(long v);
static long word = 1;
int main(void)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	cairn_t *c;
	uint64_t id;
	int err = cairn_open(&c, &o);

	if (err < 0) {
		printf("%s\\n", cairn_strerror(err));
		return 3;
	}
	stored(5);
	if (cairn_checkpoint(c, &id) == CAIRN_RESTORED) {
		printf("%ld %ld\\n", word, stored(0));
		return 0;
	}
	word = 2;
	stored(6);
	return cairn_restore(c, id) < 0;
}
"""
PART = """
static long kept;
long stored(long v)
{
	long old = kept;
	if (v)
		kept = v;
	return old;
}
"""
RESTORED = "1 5\n"
# What is in files does not go back: the fifth turn is taken twice, and counts once.
LOGGED = """
static long many[1 << 16];
static void turn(void) { many[1]++; }
int main(void)
{
	turn();
	for (long i = 0; i < 1 << 20; i++)
		((volatile long *)many)[i * 7919 % (1 << 16)] = i;
	return 0;
}
"""
WORKER = """
#include <pthread.h>
static volatile int turns;
__attribute__((noinline)) void turn(void) { turns++; }
static void *work(void *a) { for (int i = 0; i < 3; i++) turn(); return a; }
int main(int argc, char **argv)
{
    pthread_t t;
    if (argc > 1)
        return work(0) != 0;
    return pthread_create(&t, 0, work, 0) || pthread_join(t, 0);
}
"""
SLEEPER = """
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static int turns, pipes[2];
static void *sleeper(void *unused)
{
	if (write(pipes[1], "t", 1) == 1)
		pause();
	return unused;
}
static void turn(void) { turns++; }
int main(void)
{
	pthread_t thread;
	char there;

	if (pipe(pipes) || pthread_create(&thread, NULL, sleeper, NULL) ||
			read(pipes[0], &there, 1) != 1)
		return 1;
	for (int i = 0; i < 10; i++)
		turn();
	printf("%d\\n", turns);
	return 0;
}
"""
THROWER = """
#include <poll.h>
#include <stdio.h>
#include <string>
static int turns;
static int turn(std::string text)
{
	turns++;
	return text.size() ? poll(nullptr, 0, 1) : 7;
}
int main()
{
	int sum = 0;
	for (int i = 0; i < 5; i++)
		sum += turn(std::string(40, 'x'));
	printf("%d %d\\n", turns, sum);
}
"""
SITES = """
#define _GNU_SOURCE
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cairn/cairn.h>
static int turns;
static void turn(int taken)
{
	turns += write(taken, "t", 1) == 1;
}
int main(void)
{
	int taken = memfd_create("taken", 0), restored = memfd_create("restored", 0), child;
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t oldest, newest;
	cairn_t *c;

	for (int i = 0; i < 5; i++)
		turn(taken);
	if (!lseek(restored, 0, SEEK_CUR) && write(restored, "r", 1) == 1) {
		if (cairn_open(&c, &o) < 0 || cairn_range(c, &oldest, &newest) < 0)
			return 3;
		return cairn_restore(c, newest) < 0;
	}
	printf("%d %ld\\n", turns, (long)lseek(taken, 0, SEEK_CUR));
	fflush(stdout);
	child = fork();
	if (!child) {
		for (int i = 0; i < 3; i++)
			turn(taken);
		return turns - 8;
	}
	for (int i = 0; i < 20; i++)
		usleep(1);
	return waitpid(child, &turns, 0) != child || turns;
}
"""


class Compiling(unittest.TestCase):
    """A folder, and what is compiled there."""

    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.write("program.c", PROGRAM)
        self.write("part.c", PART)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def cc(self, *words: str, compiler: str = CAIRN_CC, stdin: str | None = None,
           status: int | None = 0) -> subprocess.CompletedProcess:  # fmt: skip
        done = subprocess.run(
            [compiler or CAIRN_CC, f"-I{ROOT}/include", *words], cwd=self.folder,
            capture_output=True, text=True, input=stdin, timeout=250)  # fmt: skip
        if status is not None:
            self.assertEqual(done.returncode, status, done.stderr)
        return done

    def run_built(self, name: str = "a.out") -> str:
        done = subprocess.run([self.folder / name], cwd=self.folder, capture_output=True, text=True,
                              timeout=200)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def native(self, *words: str) -> None:
        subprocess.run(words, cwd=self.folder, check=True, capture_output=True)


class CommandLine(Compiling):
    def test_sources_at_once(self) -> None:
        self.cc("-O2", "program.c", "part.c")
        self.assertEqual(self.run_built(), RESTORED)

    def test_help_has_all_options_of_the_manual(self) -> None:
        page = Path(ROOT, "docs", "man", "cairn-cc.1").read_text().replace("\\-", "-")
        named = set(re.findall(r"^\.TP\n\.B[IR]? (-fcairn-[a-z-]+)", page, re.MULTILINE))
        said = self.cc("--help").stdout
        ours, _, clangs = said.partition("\n\n")[2].partition("\n\n")
        many = re.search(r"-fcairn-\{([a-z,]+)\}", ours)
        listed = set(re.findall(r"^  (-fcairn-[a-z-]+)(?!\{)", ours, re.MULTILINE)) - {"-fcairn-"}
        listed |= {f"-fcairn-{name}" for name in many[1].split(",")} if many else set()
        self.assertEqual(listed, named)
        self.assertIn("USAGE: clang", clangs)

    def test_objects(self) -> None:
        self.cc("-O2", "-c", "program.c", "-MD", "-MF", "program.d")
        self.cc("-O2", "-c", "part.c", "-o", "other.o")
        self.assertIn("program.c", (self.folder / "program.d").read_text())
        self.cc("program.o", "other.o", "-lm", "-o", "out")
        self.assertEqual(self.run_built("out"), RESTORED)

    def test_end_of_variables_is_known(self) -> None:
        """Else the run-time asks the kernel of each variable that a system call writes."""
        self.write("reads.c", "#include <unistd.h>\n"
                   "char into[9]; int main(void) { return read(0, into, 9) < 0; }\n")  # fmt: skip
        self.cc("-O2", "reads.c")
        said = subprocess.run(["nm", self.folder / "a.out"], capture_output=True, text=True)
        kinds = {words[-1]: words[-2] for words in map(str.split, said.stdout.splitlines())}
        for name in ("_end", "__bss_start"):
            self.assertIn(kinds[name], "bBdD", name)

    def test_archive(self) -> None:
        self.cc("-O1", "-c", "part.c")
        subprocess.run(["ar", "rc", "libpart.a", "part.o"], cwd=self.folder, check=True,
                       capture_output=True)  # fmt: skip
        self.cc("program.c", "-L.", "-lpart")
        self.assertEqual(self.run_built(), RESTORED)

    def test_units_and_bitcode_mixed(self) -> None:
        self.cc("-O2", "-fno-lto", "-c", "part.c")
        self.cc("-O2", "program.c", "part.o")
        self.assertEqual(self.run_built(), RESTORED)

    def test_assembly_has_hooks(self) -> None:
        self.cc("-O2", "-S", "part.c")
        self.assertIn("__cairn_slow", (self.folder / "part.s").read_text())
        self.cc("program.c", "part.s")
        self.assertEqual(self.run_built(), RESTORED)

    def test_shared_library(self) -> None:
        self.cc("-O2", "-fPIC", "-shared", "part.c", "-o", "libpart.so")
        self.cc("program.c", "-L.", "-lpart", f"-Wl,-rpath,{self.folder}")
        self.assertEqual(self.run_built(), RESTORED)

    def test_relocatable(self) -> None:
        self.cc("-c", "part.c")
        self.cc("-r", "part.o", "-o", "whole.o")
        self.cc("program.c", "whole.o")
        self.assertEqual(self.run_built(), RESTORED)

    def test_static_pie(self) -> None:
        self.cc("-static-pie", "program.c", "part.c")
        self.assertEqual(self.run_built(), RESTORED)

    def test_standard_input_and_language(self) -> None:
        self.cc("-x", "c", "-", "-x", "none", "part.c", stdin=PROGRAM)
        self.assertEqual(self.run_built(), RESTORED)
        # a language that holds to the end of the line is not the run-time's
        self.cc("-fcairn-profile", "part.c", "-xc", "-", stdin=PROGRAM)
        self.cc("part.c", "-x", "c", "/dev/stdin", stdin=PROGRAM)
        self.assertEqual(self.run_built(), RESTORED)

    def test_fat_objects(self) -> None:
        """Distributions ask for native code beside the bitcode: it would have no hooks."""
        flags = ("-O2", "-flto=auto", "-ffat-lto-objects")
        self.cc(*flags, "-c", "program.c", "part.c")
        self.cc(*flags, "program.o", "part.o")
        self.assertEqual(self.run_built(), RESTORED)

    def test_response_file(self) -> None:
        self.write("words", "-O2 program.c -fcairn-tracker=undolog\npart.c")
        self.cc("@words")
        self.assertEqual(self.run_built(), RESTORED)

    def test_preprocessing_and_questions(self) -> None:
        self.assertIn("int main", self.cc("-E", "program.c").stdout)
        self.assertIn("cairn.h", self.cc("-M", "program.c").stdout)
        self.assertIn("clang version", self.cc("--version").stdout)
        self.assertIn("x86_64", self.cc("-print-target-triple").stdout)

    def test_configure_checks(self) -> None:
        self.write("conftest.c", "char strlcpy(); int main(void) { return strlcpy(); }")
        self.cc("-o", "conftest", "conftest.c", status=1)
        self.write("conftest.c", "int main(void) { return 0; }")
        self.cc("-Werror", "-o", "conftest", "conftest.c")
        self.assertEqual(self.run_built("conftest"), "")

    def test_cxx(self) -> None:
        self.write("thrown.cc", "#include <stdexcept>\n#include <iostream>\n"
                   "int main() { try { throw std::runtime_error(\"x\"); }"
                   " catch (std::exception &e) { std::cout << e.what(); } }")  # fmt: skip
        self.cc("-O2", "thrown.cc", compiler=str(Path(CAIRN_CC).with_name("cairn-c++")))
        self.assertEqual(self.run_built(), "x")

    def test_lines_of_inlined_code(self) -> None:
        self.write("inlined.c", "\nvoid fill(int *p) { while (*p) *p++ = 7; }")
        self.write("main.c", "void fill(int *); int a[9];\nint main(void) { fill(a); }")
        said = self.cc("-O2", "-g", "-fcairn-report", "main.c", "inlined.c").stderr
        self.assertIn("main: an interval may be long: a loop at line 2 of fill (inlined.c) without",
                      said)  # fmt: skip

    def test_named_target(self) -> None:
        self.cc("--target=x86_64-pc-linux-gnu", "program.c", "part.c")
        self.assertEqual(self.run_built(), RESTORED)

    def test_refusals(self) -> None:
        for words, said in (
            (["-fcairn-tracer=shadow", "program.c"], "-fcairn-tracer"),
            (["-fcairn-tracker=pages", "program.c"], "'pages'"),
            (["-fcairn-region=100", "program.c"], "'100'"),
            (["-fcairn-site=a+b", "program.c"], "'a+b'"),
            (["-fcairn-site-threads=some", "program.c"], "'some'"),
            (["-fcairn-tags=bits", "program.c"], "'bits'"),
            (["-fcairn-threads", "-fcairn-tracker=undolog", "program.c"], "-fcairn-threads"),
            (["-fcairn-threads", "-fcairn-tags=epoch", "program.c"], "-fcairn-tags=epoch"),
            (["-no-pie", "program.c"], "position independent"),
            (["-Wl,-O1,-no-pie", "program.c"], "-no-pie: an instrumented"),
            (["-Xlinker", "--no-pie", "program.c"], "--no-pie: an instrumented"),
            (["-static", "program.c"], "-static-pie"),
            (["-m16", "program.c"], "-m16 is not supported"),
            (["-c", "-fsplit-stack", "program.c"], "-fsplit-stack is not supported"),
            (["-c", "-fsanitize=cfi,safe-stack", "program.c"], "a checkpoint copies one stack"),
            (["-c", "--target=i386-linux-gnu", "program.c"], "i386-linux-gnu is not supported"),
            (["-c", "-target", "x86_64-linux-gnux32", "program.c"], "gnux32 is not supported"),
            (["-fcairn-save=off", "-fcairn-tracker=undolog", "program.c"], "shadow"),
            (["-fcairn-hybrid", "-fcairn-threads", "program.c"], "-fcairn-threads do not go"),
            (["-fcairn-hybrid", "-fcairn-unit", "program.c"], "-fcairn-unit do not go"),
            (["-fcairn-hybrid", "-shared", "part.c"], "-shared do not go"),
            (["-fcairn-hybrid", "-static-pie", "program.c"], "-static-pie do not go"),
            (["-fcairn-hybrid", "-fcairn-heap=off", "program.c"], "-fcairn-heap=off do not go"),
            (["-c", "program.c", "-o"], "belongs to -o"),
        ):
            self.assertIn(said, self.cc(*words, status=1).stderr)

    def test_objects_of_different_kinds_do_not_link(self) -> None:
        for part, program, theirs, ours in (
            ("-fcairn-region=64", "-O1", "-fcairn-region=64", "-fcairn-region=128"),
            ("-fcairn-tags=epoch", "-O1", "-fcairn-tags=epoch", "than epoch"),
            ("-O1", "-fcairn-tags=epoch", "than epoch", "-fcairn-tags=epoch"),
            ("-O1", "-fcairn-threads", "-fcairn-region=128", "-fcairn-region=128 -fcairn-threads"),
            ("-fcairn-tracker=undolog", "-O1", "-fcairn-tracker=undolog", "-fcairn-region=128"),
        ):  # fmt: skip
            self.cc("-fcairn-unit", "-fPIC", "-c", part, "part.c")
            self.cc("-shared", "part.o", "-o", "libpart.so")
            self.cc("-r", "part.o", "-o", "whole.o")
            for name, words in (("part.o", ["part.o"]), ("whole.o", ["whole.o"]),
                                ("libpart.so", ["-L.", "-lpart"])):  # fmt: skip
                said = self.cc(program, "program.c", *words, status=1).stderr
                self.assertIn(f"{name} has hooks for", said)
                self.assertRegex(said, f"for .*{theirs}; this link is for .*{ours}: compile all")

    def test_what_the_linker_finds_itself(self) -> None:
        """An archive may hold what is not linked; a library may be another when it starts."""
        self.cc("-fcairn-unit", "-fPIC", "-c", "-fcairn-region=64", "part.c")
        subprocess.run(["ar", "rc", "libpart.a", "part.o"], cwd=self.folder, check=True,
                       capture_output=True)  # fmt: skip
        done = self.cc("program.c", "-L.", "-lpart", status=1)
        self.assertIn("warning: something in libpart.a has hooks for -fcairn-region=64",
                      done.stderr)  # fmt: skip
        self.assertIn("__cairn_abi_shadow_64", done.stderr)
        self.write("alone.c", "int main(void) { return 0; }")
        self.cc("alone.c", "-L.", "-lpart")
        self.cc("-fPIC", "-shared", "part.c", "-o", "libother.so")
        self.cc("program.c", "-L.", "-lother", f"-Wl,-rpath,{self.folder}")
        self.assertEqual(self.run_built(), RESTORED)
        self.cc("-fPIC", "-shared", "-fcairn-region=64", "part.c", "-o", "libother.so")
        done = subprocess.run([self.folder / "a.out"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 127)
        self.assertIn("__cairn_abi_shadow_64", done.stderr)

    def test_other_versions_of_hooks_do_not_link(self) -> None:
        self.cc("-O1", "-fcairn-unit", "-S", "part.c")
        code = (self.folder / "part.s").read_text()
        found, version = re.search(r"__cairn_abi_version_(\d+)", code).group(0, 1)
        self.write("part.s", code.replace(found, "__cairn_abi_version_0"))
        self.cc("-c", "part.s")
        said = self.cc("program.c", "part.o", status=1).stderr
        self.assertIn("part.o has hooks for a cairn-cc whose hooks have version 0; this link is "
                      f"for a cairn-cc whose hooks have version {version}", said)  # fmt: skip

    def test_code_without_hooks(self) -> None:
        """No session if no code has any; a warning if the code that takes checkpoints has none."""
        self.native("cc", "-fPIE", f"-I{ROOT}/include", "-c", "program.c", "part.c")
        for tracker in ("shadow", "undolog"):
            said = self.cc(f"-fcairn-tracker={tracker}", "program.o", "part.o").stderr
            self.assertIn("warning: program.o takes checkpoints, and has no hooks", said)
            self.assertNotIn("part.o", said)
            done = subprocess.run([self.folder / "a.out"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 3, done.stdout)
            self.assertIn("no code of this program has hooks", done.stderr)
            self.assertEqual(self.cc("-fcairn-profile", "program.o", "part.o").stderr, "")
            said = self.cc(f"-fcairn-tracker={tracker}", "program.c", "part.o").stderr
            self.assertEqual((said, self.run_built()), ("", "1 6\n"))

    def test_fixed_addresses_do_not_start(self) -> None:
        """Linked by hand, without what cairn-cc knows."""
        lib = Path(CAIRN_CC).parent.parent / "lib"
        for tracker, kinds in (("shadow", ["shadow_128", "tags_zero"]), ("undolog", ["undolog"])):
            self.cc("-fcairn-unit", "-c", f"-fcairn-tracker={tracker}", "program.c", "part.c")
            kinds = [f"{lib}/libcairn_rt_{kind}.a" for kind in kinds]
            command = ["cc", "-no-pie", "program.o", "part.o", "-Wl,--whole-archive", *kinds,
                       "-Wl,--no-whole-archive", f"{lib}/libcairn_rt_libc.a",
                       f"{lib}/libcairn_rt.a", f"{lib}/libcairn.a"]  # fmt: skip
            for words, status, said in (([], 127, "it was linked with -no-pie; link it as a PIE"),
                                        (["-pie"], 0, "")):  # fmt: skip
                subprocess.run([*command, *words], cwd=self.folder, check=True)
                done = subprocess.run([self.folder / "a.out"], capture_output=True, text=True)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(said, done.stderr)

    def test_one_set_of_hooks(self) -> None:
        """A unit that has its hooks keeps them, and gets no others, when it comes again."""
        self.cc("-O2", "-S", "-emit-llvm", "part.c")
        once = (self.folder / "part.ll").read_text()
        self.assertEqual(once.count("call preserve_allcc void @__cairn_slow"), 1)
        done = self.cc("-O2", "-S", "-emit-llvm", "-x", "ir", "part.ll", "-o", "again.ll")
        again = (self.folder / "again.ll").read_text()
        self.assertEqual(again.count("call preserve_allcc void @__cairn_slow"), 1, done.stderr)

    def test_no_saving(self) -> None:
        self.cc("-O2", "-fcairn-save=off", "program.c", "part.c")
        done = subprocess.run([self.folder / "a.out"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 3)
        self.assertIn("-fcairn-save=off", done.stderr)

    def test_other_layouts(self) -> None:
        """Where mappings lie elsewhere the program begins anew; /proc knows it as before."""
        self.write("names.c", """
            #include <stdio.h>
            #include <stdlib.h>
            #include <string.h>
            #include <cairn/cairn.h>
            int main(int argc, char **argv)
            {
                char *text = malloc(1 << 20);
                struct cairn_options o = CAIRN_OPTIONS_INIT;
                cairn_t *c;
                FILE *f;
                if (cairn_open(&c, &o) < 0)
                    return 3;
                memset(text, 0, 1 << 20);
                for (int i = 1; i < argc; i++) {
                    f = fopen(argv[i], "r");
                    printf("%zu ", fread(text, 1, 1 << 20, f));
                    for (char *s = text; *s; s += strlen(s) + 1)
                        printf("%s|", s);
                    memset(text, 0, 1 << 20);
                    fclose(f);
                }
                return 0;
            }""")
        for tracker in ("shadow", "undolog"):
            self.cc("-O1", f"-fcairn-tracker={tracker}", "names.c", "-o", "names")
            self.check_layouts()

    def check_layouts(self) -> None:
        command = ["./names", "/proc/self/cmdline", "/proc/self/environ", "/proc/self/comm"]
        want = f"{len(chr(0).join(command)) + 1} {'|'.join(command)}|9 A=b c|D=|6 names\n|"
        for before in ([], ["setarch", "-R"], ["setarch", "-L"], ["prlimit", "--stack=unlimited"],
                       ["setarch", "-L", "-R", "prlimit", "--stack=unlimited"]):  # fmt: skip
            done = subprocess.run([*before, "env", "-i", "A=b c", "D=", *command],
                                  cwd=self.folder, capture_output=True, text=True)  # fmt: skip
            self.assertEqual((done.returncode, done.stdout), (0, want),
                             f"{before} {done.stderr}")  # fmt: skip

    def test_little_address_space(self) -> None:
        limit = ["prlimit", f"--as={1 << 40}"]
        self.cc("program.c", "part.c")
        done = subprocess.run([*limit, self.folder / "a.out"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 127)
        self.assertIn("-fcairn-tracker=undolog", done.stderr)
        self.cc("program.c", "part.c", "-fcairn-tracker=undolog")
        for limit, said in ((1 << 40, ""), (2 << 30, "leaves an interval"),
                            (128 << 20, "leaves an interval")):  # fmt: skip
            done = subprocess.run(["prlimit", f"--as={limit}", self.folder / "a.out"],
                                  capture_output=True, text=True)  # fmt: skip
            self.assertEqual((done.returncode, done.stdout), (0, RESTORED), done.stderr)
            self.assertIn(said, done.stderr)

    def test_little_memory_to_promise(self) -> None:
        """Reserved memory counts as used, as with vm.overcommit_memory=2."""
        for limit in (1 << 30, 64 << 20):
            words = ["prlimit", f"--data={limit}", self.folder / "a.out"]
            self.cc("program.c", "part.c")
            done = subprocess.run(words, capture_output=True, text=True)
            self.assertEqual(done.returncode, 127)
            self.assertIn("cannot start here: 6 TiB of address space for the shadow", done.stderr)
            self.assertIn("vm.overcommit_memory", done.stderr)
            self.cc("program.c", "part.c", "-fcairn-tracker=undolog")
            done = subprocess.run(words, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (0, RESTORED), done.stderr)
            self.assertIn("leaves an interval", done.stderr)

    def test_sites(self) -> None:
        """A function of the program, static and small; one of libc, every tenth time."""
        sites = ["-fcairn-site=turn", "-fcairn-site=usleep:return/10", "-fcairn-site=turn"]
        self.write("sites.c", SITES)
        for words, checkpoints in (
            (["-O2"], {3, 5 + 2}), (["-O0", "-g", "-fcairn-tracker=undolog"], {3, 5 + 2}),
            (["-O2", "-fcairn-unit"], {3, 5}),
        ):  # fmt: skip
            self.cc(*words, *sites, "sites.c")
            done = subprocess.run([self.folder / "a.out"], capture_output=True, text=True,
                                  env={"CAIRN_STATS": "json"})  # fmt: skip
            self.assertEqual((done.returncode, done.stdout), (0, "5 6\n"), done.stderr)
            taken = {json.loads(line)["checkpoints"] for line in done.stderr.splitlines()}
            self.assertEqual(taken, checkpoints)
        done = subprocess.run([self.folder / "a.out"], capture_output=True, text=True,
                              env={"CAIRN_STATS": "json", "CAIRN_SITE_EVERY": "2"})  # fmt: skip
        taken = {json.loads(line)["checkpoints"] for line in done.stderr.splitlines()}
        self.assertEqual((done.returncode, taken), (0, {2}), done.stderr)

    def test_site_behind_a_call_that_may_throw(self) -> None:
        self.write("thrower.cc", THROWER)
        for words in (["-O2"], ["-O0", "-g"]):
            subprocess.run([Path(CAIRN_CC).with_name("cairn-c++"), *words,
                            "-fcairn-site=poll:return", "thrower.cc"],
                           cwd=self.folder, check=True)  # fmt: skip
            done = subprocess.run([self.folder / "a.out"], capture_output=True, text=True,
                                  env={"CAIRN_STATS": "json"})  # fmt: skip
            self.assertEqual((done.returncode, done.stdout), (0, "5 0\n"), done.stderr)
            self.assertEqual(json.loads(done.stderr)["checkpoints"], 5)

    def test_site_threads(self) -> None:
        """A thread that sleeps: no session, unless it is promised that it writes nothing."""
        self.write("sleeper.c", SLEEPER)
        for words, checkpoints in (([], None), (["-fcairn-site-threads=one"], 10)):
            for tracker in ("shadow", "undolog"):
                self.cc("-O2", f"-fcairn-tracker={tracker}", "-fcairn-site=turn", *words,
                        "sleeper.c")  # fmt: skip
                done = subprocess.run([self.folder / "a.out"], capture_output=True, text=True,
                                      env={"CAIRN_STATS": "json"})  # fmt: skip
                self.assertEqual((done.returncode, done.stdout), (0, "10\n"), done.stderr)
                if checkpoints:
                    self.assertEqual(json.loads(done.stderr)["checkpoints"], checkpoints)
                else:
                    self.assertIn("no session: ETHREADS", done.stderr)

    def test_site_in_thread(self) -> None:
        """Of the stack only the main thread's end is known."""
        self.write("worker.c", WORKER)
        self.cc("-O2", "-fcairn-threads", "-fcairn-site=turn", "-fcairn-site-threads=one",
                "worker.c")  # fmt: skip
        for words, least in (([], 0), (["main"], 16)):
            done = subprocess.run([self.folder / "a.out", *words], capture_output=True, text=True,
                                  env={"CAIRN_STATS": "json"})  # fmt: skip
            figures = json.loads(done.stderr)
            self.assertEqual(figures["checkpoints"], 3, done.stderr)
            most = 100_000 if least else 0
            self.assertTrue(least <= figures["stack_bytes"] <= most, done.stderr)

    def test_site_environment(self) -> None:
        """The limit of a site's session; what a checkpoint copies of the stack."""
        self.write("logged.c", LOGGED)
        self.cc("-O2", "-fcairn-tracker=undolog", "-fcairn-site=turn", "logged.c")
        for limit, reached in (("16777216", True), ("", False)):
            environment = {"CAIRN_STATS": "json", "CAIRN_MEMORY_MAX": limit}
            done = subprocess.run([self.folder / "a.out"], capture_output=True, text=True,
                                  env=environment)  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual("undo log: its limit of " in done.stderr, reached, done.stderr)
            stack = json.loads(done.stderr.splitlines()[-1])["stack_bytes"]
            self.assertTrue(16 <= stack < 100_000, done.stderr)

    def test_report(self) -> None:
        done = self.cc("-O2", "-fcairn-report", "program.c", "part.c")
        self.assertRegex(done.stderr, r"cairn: main: \d+ writes")
        self.assertRegex(done.stderr, r"cairn: total: \d+ functions")

    def test_registers_are_covered(self) -> None:
        """Of jumps: what is saved is kept, and no warning says that it is not."""
        for words in (("-O0",), ("-O2", "-fcairn-tracker=undolog"), ("-O2", "-fcairn-unit")):
            done = self.cc("-fcairn-warn-uncovered", f"{ROOT}/tests/compiler/jumps.c", *words)
            self.assertNotIn("warning", done.stderr)
            self.assertEqual(self.run_built(), "")

    def test_unknown_option_of_the_pass(self) -> None:
        """The pass itself refuses what it does not know, should the wrapper be older."""
        clang = re.search(r'(?s)n (\d+).*?"(.*?)"', self.cc("-###", "-c", "part.c").stderr)
        plugin = Path(CAIRN_CC).parent.parent / "lib" / f"cairn-pass-{clang[1]}.so"
        done = subprocess.run(
            [clang[2], f"-fpass-plugin={plugin}", "-c", "part.c"], cwd=self.folder,
            env={**os.environ, "CAIRN_PASS": "frob=on"}, capture_output=True, text=True,
        )  # fmt: skip
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("frob=on", done.stderr)


if __name__ == "__main__":
    CAIRN_CC, ROOT = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
