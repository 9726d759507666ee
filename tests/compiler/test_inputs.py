#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What cairn-cc reads: inputs of all kinds, and the words that name them.

    test_inputs.py CAIRN_CC ROOT [TEST...]
"""

import os
import sys
import unittest

import test_cairn_cc


class Inputs(test_cairn_cc.Compiling):
    def test_names_behind_two_dashes(self) -> None:
        self.write("-odd.c", test_cairn_cc.PART)
        self.cc("-O1", "-o", "a.out", "--", "program.c", "-odd.c")
        self.assertEqual(self.run_built(), test_cairn_cc.RESTORED)

    def test_headers(self) -> None:
        """What is compiled of them is no program."""
        self.write("some.h", "#define SOME 1\n")
        self.write("uses.c", "#ifndef SOME\n#error\n#endif\nint main(void) { return 0; }")
        for words in (["some.h"], ["-x", "c-header", "some.h", "-o", "some.h.gch"],
                      ["-xc-header", "some.h", "-fcairn-unit"]):  # fmt: skip
            self.cc(*words)
            self.cc("-include", "some.h", "uses.c")
            self.assertEqual(self.run_built(), "")
        self.write("some.cppm", "export module some;\nexport int f() { return 1; }")
        self.cc("-std=c++20", "--precompile", "some.cppm", "-o", "some.pcm")

    def test_no_default_libraries(self) -> None:
        """Those that are named may be less than the run-time needs."""
        self.cc("-nodefaultlibs", "program.c", "part.c", "-lc", "-lgcc")
        self.assertEqual(self.run_built(), test_cairn_cc.RESTORED)
        self.cc("-static-pie", "-nodefaultlibs", "program.c", "part.c", "-lc", "-lgcc")
        self.assertEqual(self.run_built(), test_cairn_cc.RESTORED)

    def test_quote_left_open(self) -> None:
        self.write("words", "-O2 \"program.c")
        self.assertIn("cairn-cc: @words: No closing quotation", self.cc("@words", status=1).stderr)


if __name__ == "__main__":
    test_cairn_cc.CAIRN_CC, test_cairn_cc.ROOT = map(os.path.abspath, sys.argv[1:3])
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
