#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs whose objects two versions of LLVM have compiled: they work, or are refused.

    test_llvm_mixed.py OLDER_CC NEWER_CC ROOT [TEST...]
"""

import os
import subprocess
import sys
import unittest

import test_cairn_cc
from test_cairn_cc import RESTORED, Compiling

OLDER = NEWER = ""


class Mixed(Compiling):
    def test_older_bitcode_is_linked(self) -> None:
        self.cc("-O2", "-c", "part.c", compiler=OLDER)
        self.cc("-O2", "program.c", "part.o", compiler=NEWER)
        self.assertEqual(self.run_built(), RESTORED)

    def test_newer_bitcode_is_refused(self) -> None:
        self.cc("-O2", "-fPIC", "-c", "part.c", compiler=NEWER)
        for words in (["program.c"], ["-shared"], ["-r"]):
            said = self.cc(*words, "part.o", compiler=OLDER, status=1).stderr
            self.assertRegex(said, r"part.o has bitcode of LLVM \d+; this link is by LLVM \d+: "
                             "compile all with the same")  # fmt: skip

    def test_archives_may_hold_what_is_not_linked(self) -> None:
        self.cc("-O2", "-c", "part.c", compiler=NEWER)
        subprocess.run(["ar", "rc", "libpart.a", "part.o"], cwd=self.folder, check=True,
                       capture_output=True)  # fmt: skip
        self.write("alone.c", "int main(void) { return 0; }")
        said = self.cc("alone.c", "-L.", "-lpart", compiler=OLDER).stderr
        self.assertIn("warning: something in libpart.a has bitcode of LLVM", said)
        self.cc("program.c", "-L.", "-lpart", compiler=OLDER, status=1)

    def test_code_with_hooks_is_linked(self) -> None:
        for compiles, links in ((OLDER, NEWER), (NEWER, OLDER)):
            self.cc("-O2", "-fcairn-unit", "-c", "part.c", compiler=compiles)
            self.cc("-O2", "program.c", "part.o", compiler=links)
            self.assertEqual(self.run_built(), RESTORED)


if __name__ == "__main__":
    OLDER, NEWER, test_cairn_cc.ROOT = map(os.path.abspath, sys.argv[1:4])
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
