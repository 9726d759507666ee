#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The oracle for programs that have sites (checked_site.c): every byte comes back, the answer is
that of the program without hooks, and a store without a hook is seen.

    test_checked_site.py [--c++|--hybrid] CAIRN_CC ROOT [FLAG...]

The flags (-m32) are for all compilers. --c++: containers, strings and streams of libstdc++, with
cairn-c++. --hybrid: intervals that continue in page mode, soon, late and never.
"""

import os
import subprocess
import sys
from pathlib import Path

TURNS = "400"
HERE = Path(__file__).parent
CXX = sys.argv[1] == "--c++"
HYBRID = sys.argv[1] == "--hybrid"
if CXX or HYBRID:
    sys.argv.pop(1)
FLAGS = sys.argv[3:]
SOURCE = ["turns.c"]
if CXX:
    SOURCE = ["containers.cpp", "-DTURNS", "-D_Noreturn=", f"-I{sys.argv[2]}/include"]


def build(compiler: str, output: str, *words: str) -> None:
    source, *flags = SOURCE
    subprocess.run([compiler, "-O2", "-w", "-o", output, str(HERE / source), *flags, *words,
                    *FLAGS], check=True)  # fmt: skip


def run(program: str, more: dict[str, str]) -> tuple[list[str], str]:
    """The first word of each comparison, and the answer."""
    log = Path("compared")
    log.write_text("")
    names = {"CHECKED_LOG": str(log), "CHECKED_EVERY": "8", "LD_BIND_NOW": "1", **more}
    done = subprocess.run([f"./{program}", TURNS], env={**os.environ, **names},
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, f"{program}: {done}"
    print(program, log.read_text().splitlines()[-3:])
    return [line.split()[0] for line in log.read_text().splitlines()], done.stdout


def compared(program: str, want: str) -> list[str]:
    found, said = run(program, {})
    assert said == want, f"{program}: {said}"
    return found


def check_hybrid(cairn_cc: str, words: list[str], want: str) -> None:
    """Each interval that is compared is had twice, which its shared counter shows."""
    for tracker in ("shadow", "undolog"):
        build(cairn_cc, tracker, f"-fcairn-tracker={tracker}", "-fcairn-hybrid", *words)
        for hooks in ("1", "3000", "100000000"):
            more = {"CHECKED_IN_PLACE": "1", "CAIRN_BREAK_EVEN": hooks}
            found, said = run(tracker, more)
            own, shared, text = want.split()
            assert len(found) >= 20 and set(found) == {"same"}, f"{tracker} {hooks}: {found}"
            assert said.split() == [own, str(int(shared) + len(found)), text], said


def main() -> int:
    cairn_cc, root = sys.argv[1:3]
    subprocess.run(["cc", "-O1", "-fno-omit-frame-pointer", "-fPIE", f"-I{root}/include", "-c",
                    str(HERE / "checked_site.c"), "-o", "checked_site.o", *FLAGS],
                   check=True)  # fmt: skip
    build("c++" if CXX else "cc", "plain")
    want = subprocess.run(["./plain", TURNS], capture_output=True, text=True, check=True).stdout
    words = ["-fcairn-site=turn", "-Wl,checked_site.o"]
    if HYBRID:
        check_hybrid(cairn_cc, words, want)
        return 0
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
