#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What `cairn profile report` makes of programs whose loops are not where they are expected.

    test_loop_report.py CAIRN_CC ROOT [TEST...]
"""

import json
import os
import re
import sys
import unittest
from pathlib import Path

import test_loop_profile
from test_loop_profile import Folder

CALLS = 200

# A loop in a library that is not counted calls back; the callback has a loop of its own, or none.
LIBRARY = """
#include <poll.h>
void run(void (*turn)(void))
{
	for (;;) {
		poll(0, 0, 0);
		turn();
	}
}
"""
CALLED_BACK = """
#include <poll.h>
#include <stdlib.h>
void run(void (*turn)(void));
static int turns;
static void turn(void)
{
	for (int i = 0; i < TIMES; i++)
		poll(0, 0, 0);
	if (!TIMES)
		poll(0, 0, 0);
	if (++turns == 200)
		exit(0);
}
int main(void)
{
	run(turn);
}
"""
# Its children read each request in two parts: one of them waits for most of their life.
IN_PARTS = """
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void read_part(int us)
{
	for (int left = 1; left > 0; left--)
		usleep(us);
}
static void serve(void)
{
	read_part(20000);
	read_part(1);
	exit(0);
}
int main(void)
{
	for (int i = 0; i < 10; i++) {
		if (!fork())
			serve();
		wait(0);
	}
	return 0;
}
"""
# From main on, nobody finds the file by its name.
MOVES = """
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	if (rename("counts", "moved"))
		return 1;
	if (argc > 1)
		closefrom(3);
	for (int i = 0; i < 150; i++) {
		int pid = fork();
		if (!pid) {
			for (int j = 0; j < 3; j++)
				usleep(1);
			exit(0);
		}
		waitpid(pid, 0, 0);
	}
	return 0;
}
"""
THREADS = """
#include <pthread.h>
#include <unistd.h>
static void *sleeper(void *data)
{
	for (;;)
		usleep(100);
}
int main(void)
{
	pthread_t other;
	if (BESIDE)
		pthread_create(&other, 0, sleeper, 0);
	for (int i = 0; i < 40; i++)
		usleep(1000);
	return 0;
}
"""
SHAPED = """
#include <poll.h>
#include <stdlib.h>
struct request { char text[64]; };
static int turns;
static void get(struct request *r)
{
	if (poll(0, 0, 0) < 0)
		exit(1);
	r->text[0] = (char)turns;
	if (++turns == 200)
		exit(0);
}
static void answer(struct request *r)
{
	r->text[1] = 0;
}
int main(void)
{
	for (;;) {
		struct request r;
		get(&r);
		if (r.text[0] % 3 == 0)
			continue;
		answer(&r);
	}
}
"""
CHANGES_ROOT = """
#include <stdlib.h>
#include <unistd.h>
static void turn(int i)
{
	usleep(1);
	if (i == 30)
		exit(0);
}
int main(int argc, char **argv)
{
	if (argc > 1 && (chroot(argv[1]) || chdir("/") || setuid(65534)))
		return 77;
	for (int i = 0;; i++)
		turn(i);
}
"""


class Reports(Folder):
    def text(self, path: str = "counts") -> str:
        return self.run_in(self.cairn, "profile", "report", path).stdout

    def test_loops_of_a_library(self) -> None:
        """What is called again and again by code that does not count is named."""
        library = ("-fPIC", "-shared", "-o", "librun.so")
        self.run_in("cc", self.source(LIBRARY, "lib.c"), *library)
        link = (self.source(CALLED_BACK), "-L.", "-lrun", "-Wl,-rpath,$ORIGIN")
        for times in (0, 3):
            self.cc("-g", "-fcairn-profile", f"-DTIMES={times}", *link)
            self.file.unlink(missing_ok=True)
            self.profile("./a.out")
            (only,) = self.report()["classes"]
            self.assertEqual(only["outside"], 0 if times else CALLS)
            self.assertEqual((only["called"] or {}).get("times"), CALLS if times else None)
            text = self.text()
            self.assertIn(f": {CALLS} times\n    Build that code with -fcairn-profile", text)
            self.assertIn("turn (program.c:8)" if times else "functions that call poll", text)
            self.assertNotIn("give it a load", text)
        self.cc("-g", "-fcairn-profile", "lib.c", *library)
        self.profile("./a.out")
        (only,) = self.report()["classes"]
        self.assertEqual((only["outside"], only["called"]), (0, None))
        self.assertTrue(next(x for x in only["loops"] if x["function"] == "run")["site"])
        self.assertNotIn("Build that code", self.text())

    def test_requests_that_come_in_parts(self) -> None:
        """What waits for one part of one request is no loop over requests."""
        self.cc("-O2", "-fcairn-profile", self.source(IN_PARTS))
        self.profile("./a.out")
        children = next(c for c in self.report()["classes"] if c["processes"] == 10)
        (part,) = (x for x in children["loops"] if x["function"] == "read_part")
        self.assertEqual((part["turns"], part["entries"], part["kind"]), (20, 20, "long"))
        self.assertFalse(part["site"], part)

    def test_a_file_that_cannot_be_opened_again(self) -> None:
        """It grows for all processes; if they close what they do not know, the rest is told of."""
        self.cc("-O2", "-D_GNU_SOURCE", "-fcairn-profile", self.source(MOVES))
        self.profile("./a.out")
        report = self.report("moved")
        self.assertEqual((report["processes"], report["lost"]), (151, 0))
        self.profile("./a.out", "close")
        report = self.report("moved")
        self.assertEqual((report["processes"], report["lost"]), (64, 87))
        self.assertIn("87 more processes found no room", self.text("moved"))

    def test_other_threads_are_told_of(self) -> None:
        for beside in (0, 1):
            self.cc("-fcairn-profile", "-pthread", f"-DBESIDE={beside}", self.source(THREADS))
            self.file.unlink(missing_ok=True)
            self.profile("./a.out")
            self.assertEqual("-fcairn-threads" in self.text(), bool(beside))

    def test_other_options(self) -> None:
        """At -O0 a loop may have another shape: that is said, and with -g it is found."""
        for flag, checkpoints in (("-g0", None), ("-g", CALLS)):
            self.cc("-O2", flag, "-fcairn-profile", self.source(SHAPED), "-o", "shaped")
            self.file.unlink(missing_ok=True)
            self.profile("./shaped")
            self.cc("-O2", flag, "-fcairn-sites=counts", "program.c", "-o", "shaped")
            said = self.run_in("./shaped", CAIRN_STATS="json").stderr
            self.assertEqual(json.loads(said)["checkpoints"], CALLS)
            built = self.cc("-O0", flag, "-fcairn-sites=counts", "program.c", "-o", "again").stderr
            said = self.run_in("./again", CAIRN_STATS="json").stderr
            self.assertEqual("other options" in built, checkpoints is None, built)
            self.assertEqual(json.loads(said)["checkpoints"] if said else None, checkpoints)

    def test_sites_in_another_root(self) -> None:
        """Where there is no /proc, and no right to look for one."""
        self.cc("-fcairn-profile", self.source(CHANGES_ROOT), "-o", "changes")
        root = self.folder / "root"
        root.mkdir()
        self.folder.chmod(0o755)
        done = self.run_in("./changes", str(root), CAIRN_PROFILE="counts", status=None)
        rights = int(re.search(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())[1], 16)
        if done.returncode == 77 or not rights >> 21 & 1:
            self.skipTest("chroot and CAP_SYS_ADMIN")
        self.assertEqual(self.report()["lost"], 0)
        for flags in ([], ["-fcairn-unit"]):
            self.cc(*flags, "-fcairn-sites=counts", "program.c", "-o", "changes")
            said = self.run_in("./changes", str(root), CAIRN_STATS="json").stderr
            self.assertEqual(json.loads(said)["checkpoints"], 31, said)

    def test_names_of_cxx(self) -> None:
        """By their symbols, as -fcairn-site takes them, and as they are written."""
        text = ("#include <unistd.h>\nnamespace some { __attribute__((noinline)) void turn(long n) "
                "{ while (n--) usleep(100); } }\nint main() { some::turn(900); }\n")
        self.cc("-O2", "-fcairn-profile", self.source(text, "p.cc"),
                compiler=str(Path(test_loop_profile.CAIRN_CC).with_name("cairn-c++")))  # fmt: skip
        self.profile("./a.out")
        said = self.run_in(self.cairn, "profile", "report", "counts").stdout
        self.assertIn(" _ZN4some4turnEl [some::turn(long)] (p.cc, loop 1 of 1)", said)
        self.assertIn(("_ZN4some4turnEl", 0), self.loops())


if __name__ == "__main__":
    test_loop_profile.CAIRN_CC, test_loop_profile.ROOT = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
