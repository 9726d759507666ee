#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Memory that libc and the kernel write comes back, and libc's functions do what they always do.

    test_libc.py [--rows [--operators]] [--plant OBJECT | --unwrapped | --m32] CAIRN_CC ROOT LEVEL

--rows: each function alone (libc_rows.c); --operators: those of C++, too. --plant links wrappers
that keep one byte less than is written: it must be seen. --unwrapped: without its wrapper no row
may pass. --m32: of 32-bit programs.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path


def build(compiler: str, args: argparse.Namespace, output: str, *words: str) -> str:
    """Returns what the compiler says."""
    source = Path(__file__).parent / ("libc_rows.c" if args.rows else "libc_calls.c")
    return subprocess.run(
        [compiler, f"-{args.level}", "-D_GNU_SOURCE", "-fno-builtin", f"-I{args.root}/include",
         str(source), "-o", output, *words, "-lm", "-lresolv",
         *(["-m32"] if args.m32 else ["-lcrypt"]),
         *(["-lstdc++"] if args.operators else [])],
        check=True, stderr=subprocess.PIPE, text=True,
    ).stderr  # fmt: skip


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


SHADOW, UNDOLOG = "-fcairn-tracker=shadow", "-fcairn-tracker=undolog"
THREADED = ["-fcairn-threads", "-DTHREADS"]  # with rows of their own


def results(args: argparse.Namespace, *words: str) -> str:
    library = Path(args.cairn_cc).parent.parent / "lib"
    # No session is opened, and 32-bit programs have an archive alone.
    build("cc", args, "plain", *words, *(
        [str(library / "cairn-32" / "libcairn.a")] if args.m32 else
        [f"-L{library}", f"-Wl,-rpath,{library}", "-lcairn"]))  # fmt: skip
    got = run("./plain").stdout
    assert got.count("\n") >= (1000 if args.rows else 60), got
    return got


def check(args: argparse.Namespace) -> None:
    want = results(args, *args.operators)
    small, fortified = [SHADOW, "-fcairn-region=16"], [SHADOW, "-D_FORTIFY_SOURCE=2"]
    kinds = [[SHADOW], small, [UNDOLOG], fortified]
    if args.rows and not args.m32:  # a wrapper is the same at each level
        kinds = ([small, [UNDOLOG], [SHADOW, *THREADED]] if args.level == "O0" else
                 [[SHADOW], fortified, [SHADOW, "-static-pie"]])  # fmt: skip
    for flags in kinds:
        if THREADED[0] in flags:
            want = results(args, "-DTHREADS", *args.operators)
        build(args.cairn_cc, args, "hooked", *flags, *args.operators)
        got = run("./hooked", flags[0].partition("=")[2])
        assert got.returncode == 0, f"{flags}: {got.stderr}"
        assert got.stdout == want, f"{flags}: other results\n{got.stdout}\nfor\n{want}"


def check_rows(args: argparse.Namespace, *flags: str) -> None:
    """Each row calls the function whose name it has, and notices when nothing is kept."""
    flags = (*flags, "-DOPERATORS=1")
    said = build(args.cairn_cc, args, "hooked", "-fcairn-report", *flags)
    covered = set(re.findall(r"function is covered: (\S+)", said))
    build(args.cairn_cc, args, "unwrapped", *flags, "-fcairn-wrap=off", "-fcairn-heap=off")
    got = run("./unwrapped", flags[0].partition("=")[2])
    assert got.returncode == 1, got
    rows = dict(re.findall(r"^(\S+) (-?\d+)", got.stdout, re.M))
    quiet = set(re.findall(r"^(\S+) .* quiet$", got.stdout, re.M))
    failed = {name for name, result in rows.items() if int(result) < 0}
    noticed = set(re.findall(r"^(\S+): .* (?:has not come back|before)$", got.stderr, re.M))
    print(f"{len(noticed)} rows noticed; failed without effect: {sorted(failed - noticed)}")
    assert len(rows) > 300, rows
    assert rows.keys() <= covered, f"not called: {sorted(rows.keys() - covered)}"
    passed = rows.keys() - noticed - failed - quiet
    assert not passed, f"passed: {sorted(passed)}"


def check_plant(args: argparse.Namespace) -> None:
    build(args.cairn_cc, args, "planted", "-fcairn-tracker=undolog", args.plant)
    got = run("./planted", "undolog")
    assert got.returncode == 1 and "has not come back" in got.stderr, got.stderr
    print(got.stderr)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", action="store_true")
    parser.add_argument("--operators", action="store_const", const=["-DOPERATORS=2"], default=[])
    parser.add_argument("--plant")
    parser.add_argument("--unwrapped", action="store_true")
    parser.add_argument("--m32", action="store_true")
    parser.add_argument("cairn_cc")
    parser.add_argument("root")
    parser.add_argument("level")
    args = parser.parse_args()
    if args.plant:
        check_plant(args)
    elif args.unwrapped:
        check_rows(args, UNDOLOG)
        check_rows(args, SHADOW, *THREADED)
    else:
        check(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
