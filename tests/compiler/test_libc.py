#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Memory that libc and the kernel write comes back, and libc's functions do what they always do.

    test_libc.py [--rows] [--plant OBJECT | --unwrapped | --m32] CAIRN_CC ROOT LEVEL

--rows: each function alone (libc_rows.c). --plant links wrappers that keep one byte less than is
written: it must be seen. --unwrapped: without its wrapper no row may pass. --m32: of 32-bit
programs.
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
         str(source), "-o", output, *words, "-lm", *(["-m32"] if args.m32 else ["-lcrypt"])],
        check=True, stderr=subprocess.PIPE, text=True,
    ).stderr  # fmt: skip


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def check(args: argparse.Namespace) -> None:
    library = Path(args.cairn_cc).parent.parent / "lib"
    # No session is opened, and 32-bit programs have an archive alone.
    build("cc", args, "plain", *(
        [str(library / "cairn-32" / "libcairn.a")] if args.m32 else
        [f"-L{library}", f"-Wl,-rpath,{library}", "-lcairn"]))  # fmt: skip
    want = run("./plain").stdout
    assert want.count("\n") >= 60, want
    for flags in (
        ["-fcairn-tracker=shadow"], ["-fcairn-tracker=shadow", "-fcairn-region=16"],
        ["-fcairn-tracker=undolog"], ["-fcairn-tracker=shadow", "-D_FORTIFY_SOURCE=2"],
    ):  # fmt: skip
        build(args.cairn_cc, args, "hooked", *flags)
        tracker = flags[0].partition("=")[2]
        got = run("./hooked", tracker)
        assert got.returncode == 0, f"{flags}: {got.stderr}"
        assert got.stdout == want, f"{flags}: other results\n{got.stdout}\nfor\n{want}"


def check_rows(args: argparse.Namespace) -> None:
    """Each row calls the function whose name it has, and notices when nothing is kept."""
    said = build(args.cairn_cc, args, "hooked", "-fcairn-report")
    covered = set(re.findall("function is covered: (.*)", said))
    build(args.cairn_cc, args, "unwrapped", "-fcairn-tracker=undolog", "-fcairn-wrap=off",
          "-fcairn-heap=off")  # fmt: skip
    got = run("./unwrapped", "undolog")
    assert got.returncode == 1, got
    rows = dict(re.findall(r"^(\S+) (-?\d+)", got.stdout, re.M))
    failed = {name for name, result in rows.items() if int(result) < 0}
    noticed = set(re.findall(r"^(\S+): .* has not come back$", got.stderr, re.M))
    print(f"{len(noticed)} rows noticed; failed without effect: {sorted(failed - noticed)}")
    assert rows.keys() <= covered, f"not called: {sorted(rows.keys() - covered)}"
    assert rows.keys() <= noticed | failed, f"passed: {sorted(rows.keys() - noticed - failed)}"


def check_plant(args: argparse.Namespace) -> None:
    build(args.cairn_cc, args, "planted", "-fcairn-tracker=undolog", args.plant)
    got = run("./planted", "undolog")
    assert got.returncode == 1 and "has not come back" in got.stderr, got.stderr
    print(got.stderr)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", action="store_true")
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
        check_rows(args)
    else:
        check(args)
    return 0


if __name__ == "__main__":
    sys.exit(main())
