#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Each function of libc that has a wrapper (wrapped.def) is called by a test of the compiler."""

from __future__ import annotations

import re
import sys
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
TABLE = SOURCE / "src/rt/wrap/wrapped.def"
TESTS = SOURCE / "tests/compiler"

# Of C++ the compiler makes the calls, or a header does: test_wrapped_cxx.py asks those.
CXX = {"containers", "exceptions", "statics", "thrown", "streams"}
EXCEPTIONS = {
    "cfree": "no program can be linked to it since glibc 2.26",
    "chroot": "needs root and a /proc to lose: the program in test_loop_report.py",
    "__cxa_allocate_exception": "each throw calls it (exceptions.cpp)",
    "_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE":
        "std::thread (births.cpp)",
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE": "wait() (pools.cpp)",
    "_ZNSt18condition_variable10notify_oneEv": "notify_one() (pools.cpp)",
    "_ZNSt18condition_variable10notify_allEv": "notify_all() (pools.cpp)",
}


def rows(table: str) -> dict[str, str]:
    """The functions of the table, and their families."""
    pattern = r"^(?:WRAPPED\((\w+), [^,]+,\s*(\w+)|CUSTOM\((\w+),\s(?:\t)?(\w+)\))"
    found = re.findall(pattern, table, re.M)
    return {a[1] or a[3]: a[0] or a[2] for a in found}


def called(text: str) -> set[str]:
    """What C code calls, or has a row of a table for (ROW(name, ...))."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S)
    text = re.sub(r'"(?:\\.|[^"\\\n])*"', '""', text)
    return {*re.findall(r"\b(\w+)\s*\(", text), *re.findall(r"\bROW\((\w+),", text)}


def not_called(table: str, text: str) -> set[str]:
    names = rows(table)
    return {name for name in names if names[name] not in CXX} - called(text)


class Wrapped(unittest.TestCase):
    def test_each_is_called(self) -> None:
        files = sorted(p for p in TESTS.iterdir() if p.suffix in (".c", ".cpp", ".h", ".def"))
        missing = not_called(TABLE.read_text(), "\n".join(p.read_text() for p in files))
        self.assertEqual(missing - EXCEPTIONS.keys(), set(), "no test calls them")
        self.assertEqual(EXCEPTIONS.keys() - missing, set(), "these are no exceptions any more")

    def test_all_rows_are_read(self) -> None:
        lines = re.findall(r"^(?:WRAPPED|CUSTOM)\(", TABLE.read_text(), re.M)
        self.assertEqual(len(rows(TABLE.read_text())), len(lines))

    def test_plants(self) -> None:
        """A name in a comment, in a text, or as a part of another is no call."""
        table = "WRAPPED(file, int, stat, (int a), (a))\nCUSTOM(streams, _Z1)\nCUSTOM(heap, free)\n"
        for text in ("/* stat(1) */ free(0);", 'x = "stat(1)"; free(0);', "my_stat(1); free (0);",
                     "int stat; // stat(1)\nfree(0);"):  # fmt: skip
            self.assertEqual(not_called(table, text), {"stat"}, text)
        self.assertEqual(not_called(table, "stat(1); ROW(free, SAME,, 0)"), set())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
