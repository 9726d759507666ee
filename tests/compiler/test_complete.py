#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""-fcairn-complete: with a libc that has hooks every byte of the process comes back, libc's too.

    test_complete.py [--plant OBJECT] CAIRN_CC ROOT

--plant links run-time code that keeps one byte less of what system calls write: it must be seen.
"""

import argparse
import subprocess
import sys
from pathlib import Path

SKIP = 77
HERE = Path(__file__).parent
SEEDS = range(1, 5)


def build(args: argparse.Namespace, source: str, output: str, *words: str) -> None:
    subprocess.run(
        [args.cairn_cc, "-fcairn-complete", "-O2", "-w", "-D_GNU_SOURCE", f"-I{args.root}/include",
         str(HERE / source), "-o", output, *words, "-lm"],
        check=True,
    )  # fmt: skip


def run(program: str, *words: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run([f"./{program}", *words], env=environment, capture_output=True,
                          text=True, timeout=120)  # fmt: skip


def check_calls(args: argparse.Namespace, tracker: str) -> None:
    build(args, "libc_calls.c", "calls", f"-fcairn-tracker={tracker}")
    want = run("calls").stdout
    assert want.count("\n") >= 60, want
    got = run("calls", tracker)
    assert got.returncode == 0, f"{tracker}: {got.stderr}"
    assert got.stdout == want, f"{tracker}: other results\n{got.stdout}\nfor\n{want}"


def check_state(args: argparse.Namespace, tracker: str) -> None:
    # The oracle itself has no hooks.
    subprocess.run(["cc", "-O1", "-fno-omit-frame-pointer", "-fPIE", "-D_GNU_SOURCE",
                    f"-I{args.root}/include", "-c", str(HERE / "csmith_points.c"), "-o",
                    "points.o"], check=True)  # fmt: skip
    Path("nothing.c").write_text("void oracle_point(void) {}\n")
    build(args, "libc_state.c", "plain", "nothing.c")
    want = run("plain").stdout
    build(args, "libc_state.c", "state", "points.o", f"-fcairn-tracker={tracker}")
    for seed in SEEDS:
        got = run("state", ORACLE_SEED=str(seed), ORACLE_TRACKER=tracker)
        assert got.returncode == 0 and got.stdout == want, f"seed {seed} {tracker}: {got}"
        print(f"seed {seed} {tracker}: {got.stderr.strip()}")


def check_landings(args: argparse.Namespace, tracker: str) -> None:
    build(args, "landings.c", "landings", f"-fcairn-tracker={tracker}")
    got = run("landings", tracker, "unbounded")
    assert got.returncode == 0, got.stderr


def check_threads(args: argparse.Namespace) -> None:
    build(args, "threads_gone.c", "gone", "-fcairn-threads")
    got = run("gone", "shadow")
    assert got.returncode == 0, got
    build(args, "thread_stores.c", "threads", "-fcairn-threads")
    got = run("threads", "shadow")
    assert got.returncode == 1 and "ETHREADS" in got.stderr, got


def check_plant(args: argparse.Namespace) -> None:
    build(args, "libc_calls.c", "planted", "-fcairn-tracker=undolog", args.plant)
    got = run("planted", "undolog")
    assert got.returncode == 1 and "has not come back" in got.stderr, got.stderr
    print(got.stderr)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--plant")
    parser.add_argument("cairn_cc")
    parser.add_argument("root")
    args = parser.parse_args()
    question = [args.cairn_cc, "-fcairn-complete", "-E", "-xc", "/dev/null"]
    said = subprocess.run(question, capture_output=True, text=True).stderr
    if "needs a libc with hooks" in said:
        print("SKIP: a libc with hooks (scripts/build_musl.py)")
        return SKIP
    if args.plant:
        check_plant(args)
        return 0
    for tracker in ("shadow", "undolog"):
        check_calls(args, tracker)
        check_state(args, tracker)
    check_landings(args, "shadow")
    check_threads(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
