#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The oracle for programs that have sites (checked_site.c): every byte comes back, the answer is
that of the program without hooks, and a store without a hook is seen.

    test_checked_site.py [--c++] CAIRN_CC ROOT [FLAG...]

The flags (-m32) are for all compilers. --c++: containers, strings and streams of libstdc++, with
cairn-c++.
"""

import os
import subprocess
import sys
from pathlib import Path

TURNS = "400"
HERE = Path(__file__).parent
CXX = sys.argv[1] == "--c++"
if CXX:
    sys.argv.pop(1)
FLAGS = sys.argv[3:]
SOURCE = ["turns.c"]
if CXX:
    SOURCE = ["containers.cpp", "-DTURNS", "-D_Noreturn=", f"-I{sys.argv[2]}/include"]


def build(compiler: str, output: str, *words: str) -> None:
    source, *flags = SOURCE
    subprocess.run([compiler, "-O2", "-w", "-o", output, str(HERE / source), *flags, *words,
                    *FLAGS], check=True)  # fmt: skip


def compared(program: str, want: str) -> list[str]:
    """The first word of each comparison."""
    log = Path("compared")
    log.write_text("")
    names = {"CHECKED_LOG": str(log), "CHECKED_EVERY": "8", "LD_BIND_NOW": "1"}
    done = subprocess.run([f"./{program}", TURNS], env={**os.environ, **names},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0 and done.stdout == want, f"{program}: {done}"
    print(program, log.read_text().splitlines()[-3:])
    return [line.split()[0] for line in log.read_text().splitlines()]


def main() -> int:
    cairn_cc, root = sys.argv[1:3]
    subprocess.run(["cc", "-O1", "-fno-omit-frame-pointer", "-fPIE", f"-I{root}/include", "-c",
                    str(HERE / "checked_site.c"), "-o", "checked_site.o", *FLAGS],
                   check=True)  # fmt: skip
    build("c++" if CXX else "cc", "plain")
    want = subprocess.run(["./plain", TURNS], capture_output=True, text=True, check=True).stdout
    words = ["-fcairn-site=turn", "-Wl,checked_site.o"]
    # With fresh=on (the default) free memory is not compared.
    kinds = (("shadow", "on"), ("shadow", "off"), ("undolog", "off"))
    for tracker, fresh in kinds[1:] if CXX else kinds:
        build(cairn_cc, tracker, f"-fcairn-tracker={tracker}", f"-fcairn-fresh={fresh}", *words)
        found = compared(tracker, want)
        assert len(found) >= 20 and set(found) == {"same"}, f"{tracker} {fresh}: {found}"
    build(cairn_cc, "planted", "-fcairn-test-lose=3", "-fcairn-redundant=off", *words)
    assert "MISMATCH" in compared("planted", want), "stores without hooks were not seen"
    return 0


if __name__ == "__main__":
    sys.exit(main())
