#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""cairn-cc -m32: what it builds, in which layouts of addresses that starts, what is refused.

    test_m32.py CAIRN_CC ROOT [TEST...]
"""

import os
import resource
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from test_cairn_cc import PART, PROGRAM, RESTORED, SITES, SLEEPER

CAIRN_CC = ROOT = ""


class Narrow(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name, text in (("program.c", PROGRAM), ("part.c", PART), ("sites.c", SITES),
                           ("sleeper.c", SLEEPER)):  # fmt: skip
            (self.folder / name).write_text(text)

    def cc(self, *words: str, status: int = 0) -> str:
        done = subprocess.run([CAIRN_CC, "-m32", f"-I{ROOT}/include", *words], cwd=self.folder,
                              capture_output=True, text=True, timeout=250)  # fmt: skip
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr

    def run_built(self, *before: str, limits: tuple[tuple[int, int], ...] = (),
                  status: int = 0) -> subprocess.CompletedProcess:  # fmt: skip
        def limit() -> None:
            for what, most in limits:
                resource.setrlimit(what, (most, resource.getrlimit(what)[1]))

        done = subprocess.run([*before, self.folder / "a.out"], capture_output=True, text=True,
                              timeout=200, preexec_fn=limit)  # fmt: skip
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done

    def test_ways_to_link(self) -> None:
        for steps in (
            ["-O2 program.c part.c"], ["-O2 -fcairn-tracker=undolog program.c part.c"],
            ["-O1 -static program.c part.c"], ["-fno-lto -c part.c", "-O2 program.c part.o"],
            ["-S part.c", "program.c part.s"], ["-O2 -fcairn-clone=on program.c part.c"],
            ["-fPIC -shared part.c -o libpart.so", "program.c -L. -lpart -Wl,-rpath,."],
            ["-m64 -m32 -r part.c -o whole.o", "program.c whole.o"],
        ):  # fmt: skip
            for words in steps:
                self.cc(*words.replace("rpath,.", f"rpath,{self.folder}").split())
            self.assertEqual(self.run_built().stdout, RESTORED, steps)

    def test_layouts(self) -> None:
        """The kernel's other layouts: the program begins anew in its usual one."""
        self.cc("-O1", "program.c", "part.c")
        for before in ([], ["setarch", "-R"], ["setarch", "-L"], ["setarch", "-3"]):
            self.assertEqual(self.run_built(*before).stdout, RESTORED)
        if resource.getrlimit(resource.RLIMIT_STACK)[1] == resource.RLIM_INFINITY:
            for most in (1500 << 20, resource.RLIM_INFINITY):
                limits = ((resource.RLIMIT_STACK, most),)
                self.assertEqual(self.run_built(limits=limits).stdout, RESTORED)

    def test_little_address_space(self) -> None:
        self.cc("-O1", "program.c", "part.c")
        done = self.run_built(limits=((resource.RLIMIT_AS, 1 << 30),), status=127)
        self.assertIn("the upper half of its addresses for the shadow", done.stderr)

    def test_sites(self) -> None:
        for tracker in ("shadow", "undolog"):
            self.cc("-O2", "-fcairn-site=turn", f"-fcairn-tracker={tracker}", "sites.c")
            wide = subprocess.run(
                [CAIRN_CC, f"-I{ROOT}/include", "-O2", "-fcairn-site=turn", "sites.c", "-o",
                 "wide"], cwd=self.folder, capture_output=True, text=True)  # fmt: skip
            self.assertEqual(wide.returncode, 0, wide.stderr)
            want = subprocess.run([self.folder / "wide"], capture_output=True, text=True)
            self.assertEqual(self.run_built().stdout, want.stdout)
            self.assertTrue(want.stdout)

    def test_threads_are_refused(self) -> None:
        self.cc("-O1", "-fcairn-site=turn", "sleeper.c", "-lpthread")
        self.assertIn("no session: ETHREADS", self.run_built().stderr)

    def test_other_trackers_are_refused(self) -> None:
        text = PROGRAM.replace("cairn_t *c;", 'cairn_t *c;\n\to.tracker = "mprotect";')
        (self.folder / "program.c").write_text(text)
        self.cc("-O1", "program.c", "part.c")
        self.assertIn("ENOTRACK", self.run_built(status=3).stdout)

    def test_refusals(self) -> None:
        for words, said in (
            ("-pie", "fixed place"), ("-Wl,-pie", "fixed place"), ("-static-pie", "fixed place"),
            ("-fcairn-region=1", "-fcairn-region=1 is not for -m32"),
            ("-fcairn-threads", "-fcairn-threads is not for -m32"),
            ("-mregparm=3", "-mregparm=3 is not supported"),
            ("-fcairn-profile", "-fcairn-profile is not for -m32"),
            ("-fcairn-complete", "-fcairn-complete is not for -m32"),
            ("-fcairn-hybrid", "-fcairn-hybrid is not for -m32: there is no tracker of pages"),
        ):  # fmt: skip
            self.assertIn(said, self.cc(words, "program.c", status=1))


if __name__ == "__main__":
    CAIRN_CC, ROOT = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
