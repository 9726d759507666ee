#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Random C programs under the oracle: each restore brings back every byte, and the output is that
of the same program without hooks.

    test_csmith.py [--plant | --switches] [--pauses] [--longs] [--m32]
        [--mode TRACKER:FLAG,...]
        CAIRN_CC ROOT LEVEL SEED...

With --plant one store is left without its hook, and the oracle must say so for some number of it,
with each tracker. With
--switches some of the optimisations are off: which ones depends on the seed. With --mode programs
are built for that tracker with these flags, instead of for both trackers. With --pauses the
session rests now and then. With --longs intervals go on in page mode, at random points and after a
few hooks. With --m32 all are 32-bit programs.
"""

import argparse
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

SKIP = 77
RUN_SECONDS = 200
SWITCHES = ("stack", "fresh", "loops", "segments", "aggregate", "redundant", "calls", "clone")
PLANTS = (1, 2, 3, 5, 8, 13, 21, 34, 55)  # the number of the store that is missed
POINTS: dict[str, str] = {}  # what more the oracle is asked for
MACHINE: list[str] = []  # flags of all compilers


def generate(seed: int, every: int = 1) -> None:
    """program.c, with a call of the oracle at the begin of each block, or every so many-th."""
    text = subprocess.run(
        ["csmith", "--seed", str(seed), "--max-funcs", "6", "--no-packed-struct", "--no-argc"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    text = re.sub(
        r"\{ (/\* block id: (\d+) \*/)",
        lambda m: m[0] if int(m[2]) % every else f"{{ oracle_point(); {m[1]}",
        text,
    )
    Path("program.c").write_text("void oracle_point(void);\n" + text)


def build(compiler: str, level: str, output: str, *words: str) -> None:
    subprocess.run(
        [compiler, f"-{level}", "-w", "-I/usr/include/csmith", "-o", output, "program.c", *words,
         *MACHINE],
        check=True,
    )  # fmt: skip


def run(program: str, seed: int, tracker: str) -> subprocess.CompletedProcess | None:
    # ld.so writes to the table of functions whenever one is called first.
    environment = {"ORACLE_SEED": str(seed), "ORACLE_TRACKER": tracker, "LD_BIND_NOW": "1",
                   **POINTS}  # fmt: skip
    try:
        return subprocess.run([f"./{program}"], env=environment, capture_output=True, text=True,
                              timeout=RUN_SECONDS)  # fmt: skip
    except subprocess.TimeoutExpired:
        return None


def restores(done: subprocess.CompletedProcess) -> int:
    match = re.search(r"(\d+) restores", done.stderr)
    return int(match[1]) if match else 0


def draw_switches(seed: int) -> list[str]:
    draw = random.Random(seed)
    return [f"-fcairn-{name}={draw.choice(('on', 'off'))}" for name in SWITCHES]


def check_seed(cairn_cc: str, level: str, seed: int, points: str, modes: list[str],
               flags: list[str]) -> int:  # fmt: skip
    """How many restores there were; programs that never end count for nothing."""
    # Loops without a point have two versions, between which page mode chooses.
    generate(seed, 3 if "ORACLE_LONGS" in POINTS else 1)
    build("cc", level, "plain", "nothing.c")
    want = run("plain", seed, "")
    if want is None:
        print(f"seed {seed}: does not end")
        return 0
    total = 0
    for mode in modes:
        tracker, _, own = mode.partition(":")
        build(cairn_cc, level, tracker, points, f"-fcairn-tracker={tracker}",
              *filter(None, own.split(",")), *flags)  # fmt: skip
        got = run(tracker, seed, tracker)
        assert got is not None, f"seed {seed} {mode}: does not end, but does without hooks"
        assert got.returncode == 0, f"seed {seed} {mode} {level}: {got.stderr}"
        if "ORACLE_LONGS" in POINTS and " 0 long" in got.stderr:
            print("SKIP: a tracker of pages for page mode (cairn doctor: async)")
            sys.exit(SKIP)
        assert got.stdout == want.stdout, f"seed {seed} {mode} {level}: other output"
        print(f"seed {seed} {mode} {level} {' '.join(flags)}: {got.stderr.strip()}")
        total += restores(got)
    return total


def check_plants(cairn_cc: str, level: str, seed: int, points: str, tracker: str) -> bool:
    generate(seed)
    for miss in PLANTS:
        build(cairn_cc, level, "planted", points, f"-fcairn-tracker={tracker}",
              f"-fcairn-test-miss={miss}", "-fcairn-redundant=off",
              "-fcairn-aggregate=off")  # fmt: skip
        got = run("planted", seed, tracker)
        if got is not None and "MISMATCH" in got.stderr:
            print(f"seed {seed} {tracker}: store {miss} missed, and seen: {got.stderr.strip()}")
            return True
    return False


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plant", action="store_true")
    parser.add_argument("--switches", action="store_true")
    parser.add_argument("--pauses", action="store_true")
    parser.add_argument("--m32", action="store_true")
    parser.add_argument("--longs", action="store_true")
    parser.add_argument("--mode", action="append", metavar="TRACKER:FLAG,...")
    parser.add_argument("cairn_cc")
    parser.add_argument("root")
    parser.add_argument("level")
    parser.add_argument("seeds", type=int, nargs="+")
    args = parser.parse_args()
    if not shutil.which("csmith") or not Path("/usr/include/csmith/csmith.h").exists():
        print("SKIP: csmith and libcsmith-dev")
        return SKIP
    if any("complete" in mode for mode in args.mode or ()):
        question = [args.cairn_cc, "-fcairn-complete", "-E", "-xc", "/dev/null"]
        said = subprocess.run(question, capture_output=True, text=True).stderr
        if "needs a libc with hooks" in said:
            print("SKIP: a libc with hooks (scripts/build_musl.py)")
            return SKIP
    MACHINE.extend(["-m32"] if args.m32 else [])
    Path("nothing.c").write_text("void oracle_point(void) {}\n")
    # The oracle itself has no hooks: what it stores must not come back.
    source = Path(__file__).parent / "csmith_points.c"
    subprocess.run(["cc", "-O1", "-fno-omit-frame-pointer", "-fPIE", f"-I{args.root}/include", "-c",
                    str(source), "-o", "points.o", *MACHINE], check=True)  # fmt: skip
    if args.plant:
        return 0 if all(any(check_plants(args.cairn_cc, args.level, s, "points.o", tracker)
                            for s in args.seeds)
                        for tracker in ("shadow", "undolog")) else 1  # fmt: skip
    if args.pauses:
        POINTS["ORACLE_PAUSES"] = "1"
    if args.longs:
        POINTS.update(ORACLE_LONGS="1", CAIRN_BREAK_EVEN="300")
    modes = args.mode or ["shadow", "undolog"]
    count = sum(check_seed(args.cairn_cc, args.level, s, "points.o", modes,
                           draw_switches(s) if args.switches else [])
                for s in args.seeds)  # fmt: skip
    print(f"{count} restores")
    return 0 if count >= 10 else 1


if __name__ == "__main__":
    sys.exit(main())
