#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Streams of libstdc++ that cairn-c++ compiles with the program answer what the library's do.

    test_streams.py CAIRN_CXX [FLAG...]
"""

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("streams.cpp")


def said(compiler: str, *flags: str) -> list[str]:
    subprocess.run([compiler, "-O1", "-w", *flags, str(SOURCE), "-o", "streams"], check=True)
    done = subprocess.run(["./streams"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def main() -> int:
    cairn_cxx, *flags = sys.argv[1:]
    for standard in ("-std=c++98", "-std=c++20"):
        want = said("c++", standard, *flags)
        got = said(cairn_cxx, standard, *flags)
        different = [(w, g) for w, g in zip(want, got, strict=True) if w != g]
        assert not different, f"{standard}: {different[:3]}"
        print(standard, len(want), "lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
