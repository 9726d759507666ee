#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Measure, and write the report. Without arguments everything, in about a quarter of an hour:

    run.py [--build DIR] [--results DIR] [--toy] [PART...]

    table1 trackers restore empty handover keep backtrack    native, against libcairn
    redis nginx lighttpd    servers at a checkpoint per wake-up
    native, servers                                 all of either
    report FILE                                     only the report, from an earlier run's lines

Each result is one JSON line with the machine, kernel, commit and settings in it. A run gets a
folder of its own under results/: results.jsonl, report.md, report.html and the plots.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent / "scripts" / "demo"))

import report  # noqa: E402
import serving  # noqa: E402
from results import Results, load  # noqa: E402

NATIVE = ("table1", "trackers", "restore", "empty", "handover", "keep", "backtrack")
SERVERS = ("redis", "nginx", "lighttpd")


def native(build: Path, part: str, toy: bool) -> Iterator[dict]:
    """The lines of one native benchmark."""
    if part == "backtrack":
        yield from backtrack(build, toy)
        return
    command = [str(build / "bench" / f"bench_{part}"), *(["--toy"] if toy else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1200)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}")
    for line in done.stdout.splitlines():
        yield json.loads(line)


def backtrack(build: Path, toy: bool) -> Iterator[dict]:
    command = [str(build / "examples" / "backtrack"), "100" if toy else "50000"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}")
    for line in done.stdout.splitlines()[1:]:
        words = line.rsplit(None, 3)
        if len(words) == 4 and words[1].isdigit():
            rewinds, rate = int(words[1]), float(words[2])
            yield {"table": "backtrack", "row": words[0], "rewinds": rewinds, "per_second": rate}


def expand(parts: list[str]) -> list[str]:
    wanted: list[str] = []
    for part in parts or ["native", "servers"]:
        some = {"native": NATIVE, "servers": SERVERS, "all": NATIVE + SERVERS}.get(part, (part,))
        for one in some:
            if one not in NATIVE + SERVERS:
                sys.exit(f"run.py: no such part: {one}; there are {', '.join(NATIVE + SERVERS)}")
            if one not in wanted:
                wanted.append(one)
    return wanted


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--results", type=Path, help="folder (default: results/DATE-COMMIT)")
    parser.add_argument("--toy", action="store_true", help="tiny sizes: does it still work?")
    parser.add_argument("--pairs", type=int, default=7, help="interleaved rounds of a server")
    parser.add_argument("parts", nargs="*")
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    if arguments.parts[:1] == ["report"]:
        lines = Path(arguments.parts[1])
        print(report.write(load(lines), lines.parent))
        return 0
    build = arguments.build.resolve()
    results = Results(arguments.results, build, arguments.toy)
    skipped = []
    for part in expand(arguments.parts):
        begin = time.monotonic()
        print(f"{part} ...", end=" ", flush=True)
        if part in NATIVE:
            lines = native(build, part, arguments.toy)
        elif missing := serving.missing(part, build):
            print(f"skipped: {missing}")
            skipped.append(part)
            continue
        else:
            lines = serving.measure(part, build, arguments.toy, arguments.pairs)
        count = sum(results.add(line) for line in lines)
        print(f"{count} results, {time.monotonic() - begin:.0f} s", flush=True)
        if count == 0:
            raise RuntimeError(f"{part} measured nothing")
    if skipped and not results.lines:
        print(f"SKIP: {', '.join(skipped)}")
        return 77
    print(report.write(results.lines, results.folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
