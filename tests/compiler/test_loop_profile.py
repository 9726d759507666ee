#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""From a program that counts its loops to one that takes a checkpoint per turn.

    test_loop_profile.py CAIRN_CC ROOT [TEST...]
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

CAIRN_CC = ROOT = ""
TURNS = 50

# What leaves loops: the end of their conditions, goto, longjmp out of two functions, return.
LEAVING = """
#include <setjmp.h>
#include <unistd.h>
static jmp_buf out;
static void inner(int n)
{
	for (;;) {
		usleep(1);
		if (n-- == 0)
			longjmp(out, 1);
	}
}
static int found(int n)
{
	for (int i = 0;; i++) {
		if (i == n)
			return i;
		usleep(1);
	}
}
static int deep(int n)
{
	int sum = 0;
	for (int i = 0; i < 2; i++)
		sum += n ? deep(n - 1) : usleep(1);
	return sum;
}
int main(void)
{
	for (volatile int i = 0; i < 4; i++) {
		while (!setjmp(out))
			inner(3);
		if (found(2) != 2)
			goto wrong;
	}
	return deep(7);
wrong:
	return 1;
}
"""
THROWING = """
#include <unistd.h>
static void thrower(int n)
{
	while (true) {
		usleep(1);
		if (n-- == 0)
			throw n;
	}
}
int main()
{
	int caught = 0;
	for (int i = 0; i < 6; i++)
		try {
			for (;;)
				thrower(2);
		} catch (int) {
			caught++;
		}
	return caught != 6;
}
"""
# Calls that may throw, and one that libc's headers define at -O1.
INVOKING = """
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string>
#include <unistd.h>
static int turns;
static void turn(std::string text)
{
	char *line = nullptr;
	size_t size = 0;
	int pair[2];
	if (pipe(pair) || write(pair[1], "one\\n", 4) != 4)
		throw 1;
	FILE *from = fdopen(pair[0], "r");
	if (getline(&line, &size, from) != 4 || text.size() != 40)
		throw 2;
	fclose(from);
	close(pair[1]);
	if (poll(nullptr, 0, 1) || ++turns == 50)
		kill(getpid(), SIGKILL);
}
int main()
{
	for (;;)
		turn(std::string(40, 'x'));
}
"""
# The last loop waits nowhere and enters no other: nothing but its turns tells how long it ran.
UNSEEN = """
#include <signal.h>
#include <time.h>
#include <unistd.h>
static void turn(int i)
{
	struct timespec to = { .tv_nsec = 100000 };
	syscall(35, &to, 0);
	if (i == 2000)
		kill(getpid(), SIGKILL);
}
int main(void)
{
	for (int i = 0; i < 20; i++)
		usleep(1000);
	for (int i = 0;; i++)
		turn(i);
}
"""
THREADS = """
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
static atomic_int turns;
static void *turn(void *data)
{
	for (;; turns++)
		usleep(1);
}
int main(void)
{
	pthread_t other;
	pthread_create(&other, 0, turn, 0);
	while (turns < 4)
		usleep(100);
	return 0;
}
"""
ASLEEP = """
#include <pthread.h>
#include <unistd.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static void *sleeper(void *data)
{
	pthread_mutex_lock(&lock);
	for (;;)
		pthread_cond_wait(&never, &lock);
}
int main(void)
{
	pthread_t other;
	pthread_create(&other, 0, sleeper, 0);
	for (int i = 0; i < 40; i++)
		usleep(1000);
	return 0;
}
"""
# Each process of a chain of forks; the last executes the program once more.
CHAIN = """
#include <sys/wait.h>
#include <unistd.h>
static int child(char **argv)
{
	int pid = fork(), status;
	if (pid)
		return waitpid(pid, &status, 0) != pid || status;
	pid = fork();
	if (pid)
		return waitpid(pid, &status, 0) != pid || status;
	execl("/proc/self/exe", argv[0], "last", (char *)0);
	return 9;
}
int main(int argc, char **argv)
{
	if (argc == 1)
		return child(argv);
	for (int i = 0; i < 20; i++)
		usleep(1);
	return 0;
}
"""
KEEPS = """
#include <cairn/cairn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void turn(int i, const char *keep)
{
	struct cairn_options o = CAIRN_OPTIONS_INIT;
	uint64_t oldest, newest;
	cairn_t *c;
	if (usleep(1) || i < 12)
		return;
	o.keep = (uint32_t)atoi(keep); /* it joins a session of that many alone */
	if (cairn_open(&c, &o) < 0 || cairn_range(c, &oldest, &newest) < 0)
		exit(2);
	printf("%d\\n", (int)(newest - oldest + 1));
	exit(0);
}
int main(int argc, char **argv)
{
	for (int i = 0;; i++)
		turn(i, argv[1]);
}
"""


class Folder(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.file = self.folder / "counts"
        self.cairn = str(Path(CAIRN_CC).with_name("cairn"))

    def run_in(self, *words: str, status: int | None = 0, **variables: str
               ) -> subprocess.CompletedProcess:  # fmt: skip
        environment = {k: v for k, v in os.environ.items() if not k.startswith("CAIRN_")}
        done = subprocess.run(
            words, cwd=self.folder, env={**environment, **variables}, capture_output=True,
            text=True, errors="replace", timeout=250)  # fmt: skip
        if status is not None:
            self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def cc(self, *words: str, status: int | None = 0, compiler: str = ""
           ) -> subprocess.CompletedProcess:  # fmt: skip
        return self.run_in(compiler or CAIRN_CC, f"-I{ROOT}/include", *words, status=status)

    def source(self, text: str, name: str = "program.c") -> str:
        (self.folder / name).write_text(text)
        return name

    def profile(self, *words: str) -> subprocess.CompletedProcess:
        return self.run_in(*words, CAIRN_PROFILE="counts")

    def report(self, path: str = "counts") -> dict[str, Any]:
        return json.loads(self.run_in(self.cairn, "profile", "report", "--json", path).stdout)

    def loops(self, path: str = "counts") -> dict[tuple[str, int], dict[str, Any]]:
        """Of a program with one class: by function and number."""
        (only,) = self.report(path)["classes"]
        return {(x["function"], x["index"]): x for x in only["loops"]}


class Counting(Folder):
    def test_classes_of_a_server(self) -> None:
        """Workers that are killed leave their figures; helpers are a class of their own."""
        self.cc("-O2", "-g", "-fcairn-profile", f"{ROOT}/tests/compiler/loop_server.c", "-o", "s")
        self.profile("./s", str(TURNS), "kill", "3")
        report = self.report()
        self.assertEqual((report["processes"], report["lost"], report["late"]), (6, 0, 0))
        master, workers, helpers = sorted(report["classes"], key=lambda c: -len(c["loops"]))
        master, workers, helpers = (
            next(c for c in report["classes"] if c["processes"] == n) for n in (1, 2, 3)
        )
        self.assertEqual((master["parent"], master["forked_at"]), (None, None))
        self.assertEqual((workers["parent"], workers["forked_at"]["function"]), (0, "main"))
        self.assertEqual((helpers["parent"], helpers["forked_at"]["function"]), (0, "serve"))
        (site,) = (x for x in workers["loops"] if x["site"])
        self.assertEqual((site["function"], site["kind"]), ("work", "never ended"))
        self.assertEqual((site["turns"], site["entries"], site["exits"]), (2 * TURNS, 2, 0))
        self.assertEqual(site["calls"], ["poll", "recv", "write"])
        # each turn polls, receives and writes; the last one does not write
        self.assertEqual(site["waits"], 2 * (3 * TURNS + 2))
        quiet = next(x for x in workers["loops"] if x["function"] == "add_up")
        self.assertEqual((quiet["entries"], quiet["exits"]), (2 * TURNS, 2 * TURNS))
        (site,) = (x for x in master["loops"] if x["function"] == "serve")
        self.assertEqual((site["turns"], site["entries"], site["exits"]), (TURNS, 1, 0))
        text = self.run_in(self.cairn, "profile", "report", "counts").stdout
        self.assertRegex(text, rf"\* work \(.*loop_server.c:\d+\): never ended; {2 * TURNS} turns")
        self.assertIn("cairn-cc -fcairn-sites=counts", text)

    def test_what_leaves_loops(self) -> None:
        self.cc("-O1", "-fcairn-profile", self.source(LEAVING))
        self.profile("./a.out")
        loops = self.loops()
        want = {
            ("inner", 0): (4 * 3, 4), ("found", 0): (4 * 2, 4), ("main", 0): (4, 1),
            ("main", 1): (0, 4), ("deep", 0): (2 * 255, 255),
        }  # fmt: skip
        for name, (turns, entries) in want.items():
            seen = loops[name]
            self.assertEqual((seen["turns"], seen["entries"], seen["exits"]),
                             (turns, entries, entries), name)  # fmt: skip

    def test_exceptions(self) -> None:
        """A loop that only exceptions leave: its last end is seen when the thread next looks."""
        self.cc("-O2", "-fcairn-profile", self.source(THROWING, "p.cc"),
                compiler=str(Path(CAIRN_CC).with_name("cairn-c++")))  # fmt: skip
        self.profile("./a.out")
        loops = self.loops()
        thrower = next(x for (name, _), x in loops.items() if "thrower" in name)
        self.assertEqual((thrower["turns"], thrower["entries"], thrower["exits"]), (12, 6, 6))
        self.assertEqual((loops["main", 0]["turns"], loops["main", 0]["exits"]), (6, 1))
        self.assertEqual((loops["main", 1]["entries"], loops["main", 1]["exits"]), (6, 6))

    def test_waits_that_may_throw(self) -> None:
        self.cc("-O2", "-fcairn-profile", self.source(INVOKING, "p.cc"),
                compiler=str(Path(CAIRN_CC).with_name("cairn-c++")))  # fmt: skip
        self.run_in("./a.out", status=-signal.SIGKILL, CAIRN_PROFILE="counts")
        loop = self.loops()["main", 0]
        self.assertEqual((loop["kind"], loop["site"], loop["turns"]), ("never ended", True, 49))
        self.assertEqual((loop["calls"], loop["waits"]), (["poll", "write", "getline"], 150))

    def test_turns_tell_the_time(self) -> None:
        self.cc("-O2", "-D_GNU_SOURCE", "-fcairn-profile", self.source(UNSEEN))
        self.run_in("./a.out", status=-signal.SIGKILL, CAIRN_PROFILE="counts")
        loop = self.loops()["main", 1]
        self.assertEqual((loop["kind"], loop["site"], loop["turns"]), ("never ended", True, 2000))
        self.assertGreater(loop["seconds"], 0.18)

    def test_other_threads(self) -> None:
        self.cc("-fcairn-profile", "-pthread", self.source(THREADS))
        self.profile("./a.out")
        other = self.loops()["turn", 0]
        self.assertEqual((other["kind"], other["site"]), ("never ended", False))
        self.assertIn("thread", other["no_site"])

    def test_a_wait_that_goes_on(self) -> None:
        """A thread that nobody wakes waits all the time."""
        self.cc("-fcairn-profile", "-pthread", self.source(ASLEEP))
        self.profile("./a.out")
        other = self.loops()["sleeper", 0]
        self.assertEqual((other["waits"], other["calls"]), (1, ["pthread_cond_wait"]))
        self.assertGreater(other["waited"], 0.9 * other["seconds"])
        self.assertLessEqual(other["waited"], other["seconds"])

    def test_chain_of_forks_and_exec(self) -> None:
        self.cc("-fcairn-profile", self.source(CHAIN))
        for _ in range(2):  # runs add up
            self.profile("./a.out")
        classes = self.report()["classes"]
        chain = [(c["processes"], c["parent"], bool(c["forked_at"])) for c in classes]
        self.assertEqual(chain, [(2, None, False), (2, 0, True), (2, 1, True), (2, 2, False)])
        (loop,) = classes[3]["loops"]
        self.assertEqual((loop["turns"], loop["entries"]), (40, 2))

    def test_many_processes(self) -> None:
        """More than a new file has room for."""
        self.cc("-O2", "-fcairn-profile", f"{ROOT}/tests/compiler/loop_server.c", "-o", "s")
        self.profile("./s", "150", "quit", "140")
        report = self.report()
        self.assertEqual((report["processes"], report["lost"]), (143, 0))
        helpers = next(c for c in report["classes"] if c["processes"] == 140)
        self.assertEqual(sum(x["turns"] for x in helpers["loops"] if x["function"] == "help"), 420)

    def test_nothing_is_written_unasked(self) -> None:
        self.cc("-fcairn-profile", self.source(LEAVING))
        self.run_in("./a.out")
        self.assertEqual(sorted(p.name for p in self.folder.iterdir()), ["a.out", "program.c"])

    def test_other_files(self) -> None:
        """Another program gets a file beside; an older build's is replaced; no other is touched."""
        self.cc("-fcairn-profile", self.source(LEAVING), "-o", "one")
        self.cc("-fcairn-profile", self.source(CHAIN), "-o", "two")
        self.profile("./one")
        self.profile("./two")
        self.assertTrue(self.report()["program"].endswith("/one"))
        self.assertTrue(self.report("counts.two")["program"].endswith("/two"))
        self.cc("-fcairn-profile", self.source(CHAIN), "-o", "one")
        self.profile("./one")
        self.assertEqual(self.report()["processes"], 4)
        self.file.write_text("mine\n")
        said = self.profile("./one").stderr
        self.assertIn("counts", said)
        self.assertIn("no profile", said)
        self.assertEqual(self.file.read_text(), "mine\n")

    def test_damaged_files(self) -> None:
        self.cc("-g", "-fcairn-profile", self.source(LEAVING))
        self.profile("./a.out")
        whole = self.file.read_bytes()
        report = (self.cairn, "profile", "report")

        def refused(content: bytes, *said: str) -> None:
            self.file.write_bytes(content)
            done = self.run_in(*report, "counts", status=1)
            self.assertEqual(len(done.stderr.splitlines()), 1)
            for one in ("counts", *said):
                self.assertIn(one, done.stderr)
            built = self.cc("-fcairn-sites=counts", "program.c", status=1)
            self.assertIn(said[-1], built.stderr)

        refused(b"", "no profile of loops")
        refused(b"\x7fELF" + whole, "no profile of loops")
        refused(whole[:-4096], "cut short")
        refused(whole[:300], "no profile of loops")
        refused(whole.replace(b"found", b"fount"), "damaged")
        refused(whole[:8] + b"\x63" + whole[9:], "another version")
        self.assertIn("gone", self.run_in(*report, "gone", status=1).stderr)
        self.run_in(*report, status=2)
        seed = random.randrange(1 << 32)
        chance = random.Random(seed)
        for _ in range(30):
            bad = bytearray(whole)
            for _ in range(4):
                bad[chance.randrange(5000)] = chance.randrange(256)
            self.file.write_bytes(bad)
            done = self.run_in(*report, "counts", status=None)
            self.assertIn(done.returncode, (0, 1), f"seed {seed}: {done.stderr}")


class Sites(Folder):
    def counts_of(self, *command: str) -> tuple[str, list[int]]:
        """What the program prints, and how many checkpoints its processes took."""
        done = self.run_in(*command, CAIRN_STATS="json")
        lines = [json.loads(line) for line in done.stderr.splitlines()]
        self.assertFalse(any(one["failed"] for one in lines))
        return done.stdout, sorted(one["checkpoints"] for one in lines)

    def test_a_server_from_start_to_end(self) -> None:
        """A checkpoint per turn in each class, and the same answers; in both kinds of build."""
        source = f"{ROOT}/tests/compiler/loop_server.c"
        self.cc("-O2", "-fcairn-profile", source, "-o", "server")
        plain = self.profile("./server", str(TURNS), "kill").stdout
        self.assertEqual(len(plain.splitlines()), 2 * TURNS)
        # the loop's top is reached once more: in a worker to be told of the end
        want = [TURNS + 1] * 3
        for flags in (["-O2", "-g"], ["-O0", "-fcairn-unit", "-fcairn-tracker=undolog"]):
            self.cc(*flags, "-fcairn-sites=counts", source, "-o", "server")
            self.assertEqual(self.counts_of("./server", str(TURNS), "quit"), (plain, want))
        # forked while the master has a session
        self.assertEqual(self.counts_of("./server", str(TURNS), "quit", "4")[0], plain)

    def test_many_checkpoints_are_kept(self) -> None:
        """The session of a site keeps as many as the program was built for."""
        self.cc("-fcairn-profile", self.source(KEEPS))
        self.profile("./a.out", "1")
        for keep in (1, 5):
            self.cc("-fcairn-sites=counts", f"-fcairn-keep={keep}", "program.c")
            self.assertEqual(self.run_in("./a.out", str(keep)).stdout, f"{keep}\n")
        for words in ("-fcairn-keep=0", "-fcairn-keep=65537", "-fcairn-keep"):
            self.assertIn("-fcairn-keep", self.cc(words, "program.c", status=1).stderr)

    def test_long_intervals(self) -> None:
        """Those of a profile's sites may be marked long."""
        self.cc("-fcairn-profile", self.source(KEEPS))
        self.profile("./a.out", "1")
        for mark in ("", ":long"):
            self.cc(f"-fcairn-sites=counts{mark}", "-fcairn-hybrid", "program.c")
            done = self.run_in("./a.out", "1", CAIRN_STATS="json")
            long = json.loads(done.stderr.splitlines()[-1])["long_intervals"]
            if mark and "no asynchronous write protection" in done.stderr:
                self.skipTest("a tracker of pages for page mode (cairn doctor: async)")
            self.assertEqual(long >= 10, bool(mark), done.stderr)

    # Two loops of one shape, of which the second never ends.
    EDITED = """
    #include <stdlib.h>
    #include <unistd.h>
    static void turn(int i, int n)
    {{
        usleep(1);
        if (i == n)
            exit(0);
    }}
    int used(void)
    {{
    {before}
        for (int i = 0; i < 3; i++)
            turn(i, 9);
        for (int i = 0; i < 1 << 30; i++)
            turn(i{inside}, 300);
        return 0;
    }}
    int main(void)
    {{
        return used();
    }}
    """

    def edit(self, before: str = "", inside: str = "", name: str = "used") -> None:
        text = self.EDITED.format(before=before, inside=inside)
        self.source(text.replace("used", name))

    def test_edited_sources(self) -> None:
        """A loop that has moved, or changed inside, is found; what is not sure is not taken."""
        self.edit()
        self.cc("-g", "-fcairn-profile", "program.c")
        self.profile("./a.out")
        build = ("-g", "-fcairn-sites=counts")
        self.cc(*build, "program.c")
        self.assertEqual(self.counts_of("./a.out")[1], [301])
        self.edit(before="\n\n")
        self.cc(*build, "program.c")
        self.assertEqual(self.counts_of("./a.out")[1], [301])
        self.edit(inside=" + usleep(0)")
        self.cc(*build, "program.c")
        self.assertEqual(self.counts_of("./a.out")[1], [301])
        # which of three is it?
        self.edit(before="for (int i = 0; i < 5; i++) turn(i, 9);\n")
        done = self.cc(*build, "program.c", status=None)
        self.assertIn("used (program.c:15), loop 2 of 2", done.stderr)
        self.assertNotEqual(done.returncode, 0)

    def test_reports_that_do_not_match(self) -> None:
        self.edit()
        self.cc("-g", "-fcairn-profile", "program.c", "-o", "prog")
        self.profile("./prog")
        self.edit(name="renamed")
        for flags in ([], ["-fcairn-unit"]):
            done = self.cc("-fcairn-sites=counts", *flags, "program.c", "-oprog", status=None)
            self.assertNotEqual(done.returncode, 0)
            self.assertRegex(done.stderr, r"no loop of the profile|loop_of_the_profile")
        # what configure scripts build is another program, of one file
        self.cc("-fcairn-sites=counts", "program.c", "-o", "conftest")
        self.source("int more(void) { return 0; }", "more.c")
        # another program of the same project, which takes no checkpoints
        done = self.cc("-fcairn-sites=counts", "program.c", "more.c", "-o", "other")
        self.assertIn("no loop of the profile is in this program", done.stderr)
        self.cc("-fcairn-sites=counts", "-fcairn-unit", "program.c", "more.c", "-o", "other")
        self.assertIn("do not go together",
                      self.cc("-fcairn-sites=counts", "-fcairn-profile", "more.c", status=1).stderr)

    def test_other_programs_of_one_file(self) -> None:
        """Configure's checks get no warning, but the profiled file does, if its loop changes."""
        self.cc("-fcairn-profile", self.source(KEEPS), "-o", "prog")
        self.run_in("./prog", "1", CAIRN_PROFILE="counts")
        text = KEEPS.replace("turn(i, argv[1])", "if (!usleep(0)) turn(i, argv[1])")
        for flags in (["-O2"], ["-O2", "-fcairn-unit"]):
            for name in ("program.c", "conftest.c"):
                self.source(text, name)
                said = self.cc("-fcairn-sites=counts", *flags, name).stderr
                self.assertEqual("main (program.c), loop 1 of 1" in said, name == "program.c")
                self.assertEqual(said == "", name == "conftest.c", said)

    def test_loops_of_a_shared_library(self) -> None:
        """They have their sites there; the program that is linked with it has none, or others."""
        self.edit()
        text = (self.folder / "program.c").read_text()
        self.source(text.replace("int main", "int run"), "lib.c")
        self.source("int run(void); int main(void) { return run(); }", "main.c")
        self.cc("-fcairn-profile", "-fPIC", "-shared", "lib.c", "-o", "librun.so")
        link = ("main.c", "-L.", "-lrun", "-Wl,-rpath,$ORIGIN", "-o", "prog")
        self.cc("-fcairn-profile", *link)
        self.profile("./prog")
        for flags in (["-O2", "-g"], ["-fcairn-unit"]):
            flags = [*flags, "-fcairn-sites=counts"]
            self.cc(*flags, "-fPIC", "-shared", "lib.c", "-o", "librun.so")
            self.run_in("strip", "librun.so")
            self.assertEqual(self.cc(*flags, *link).stderr, "")
            self.assertEqual(self.counts_of("./prog")[1], [301])

    def test_profiles_of_two_programs(self) -> None:
        """Each gets the sites of its own profile, though their main functions look alike."""
        text = KEEPS.replace("i < 12", "i < TURNS").replace("int main", "int shared;\nint main")
        for name in ("one", "two"):
            self.cc("-fcairn-profile", "-DTURNS=12", self.source(text, f"{name}.c"), "-o", name)
            self.run_in(f"./{name}", "1", CAIRN_PROFILE=f"counts.{name}")
        for flags in ([], ["-fcairn-unit"]):
            for name, turns in (("one", 12), ("two", 30)):
                built = self.cc("-fcairn-sites=counts.one", "-fcairn-sites=counts.two", *flags,
                                f"-DTURNS={turns}", f"{name}.c", "-o", name)  # fmt: skip
                self.assertEqual(built.stderr, "")
                self.assertEqual(self.counts_of(f"./{name}", "1"), ("1\n", [turns + 1]))
        # one that is of neither
        self.source(text, "three.c")
        self.cc("-fcairn-sites=counts.one", "-DTURNS=12", "three.c", "-o", "three")
        self.assertEqual(self.counts_of("./three", "1"), ("1\n", []))

    def test_one_of_two_is_gone(self) -> None:
        """Its name is told, and the other has its site."""
        source = f"{ROOT}/tests/compiler/loop_server.c"
        self.cc("-g", "-fcairn-profile", source, "-o", "server")
        self.profile("./server", str(TURNS), "kill")
        text = Path(source).read_text().replace("serve(", "attend(")
        done = self.cc("-fcairn-sites=counts", self.source(text, "loop_server.c"), "-o", "server")
        self.assertRegex(done.stderr, r"no site: not there any more: serve \(.*loop_server.c:\d+\)")
        self.assertEqual(self.counts_of("./server", str(TURNS), "quit")[1], [TURNS + 1] * 2)

    def test_nothing_turned(self) -> None:
        self.cc("-fcairn-profile", self.source("int main(void) { return 0; }"))
        self.profile("./a.out")
        said = self.cc("-fcairn-sites=counts", "program.c", status=1).stderr
        self.assertIn("no loop was seen to turn", said)


if __name__ == "__main__":
    CAIRN_CC, ROOT = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
