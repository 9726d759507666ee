#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the oracle on all rows and trackers with new seeds until the time is up.

Each failure prints the command that repeats it. Exit status 1 if there was one.
"""

import argparse
import concurrent.futures
import itertools
import os
import random
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TRACKERS = ("async", "uffd", "mprotect", "fork", "softdirty")
HOT_TRACKERS = ("async", "uffd", "mprotect")
STRATEGIES = ("none", "random", "decay", "last", "gspec", "histase", "active-rnd", "active-fifo",
              "active-cks", "meta", "random", "none")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--tracker", action="append", choices=TRACKERS, help="repeatable")
    parser.add_argument("--row", action="append", help="repeatable")
    parser.add_argument("-j", "--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="the first seed (default: random)")
    return parser.parse_args()


def strategy_for(tracker: str, seed: int) -> str:
    return STRATEGIES[seed % len(STRATEGIES)] if tracker in HOT_TRACKERS else "none"


def run_one(command: list[str]) -> tuple[list[str], int, str]:
    with tempfile.TemporaryDirectory(prefix="cairn-fuzz-") as folder:
        try:
            result = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                    errors="replace", timeout=120, check=False)
        except subprocess.TimeoutExpired:
            return command, -1, "no end after 120 s"
    return command, result.returncode, result.stdout


def main() -> int:
    args = parse_args()
    program = str((args.build / "tests/oracle/oracle").resolve())
    listed = subprocess.run([program, "--list"], check=True, capture_output=True, text=True)
    rows = args.row or listed.stdout.split()
    seed = args.seed if args.seed is not None else random.randrange(1 << 32)
    end = time.monotonic() + args.minutes * 60
    counts = {0: 0, 77: 0}
    failures = 0
    endless = ((s, r, t) for s in itertools.count(seed) for r in rows
               for t in args.tracker or TRACKERS)
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        while time.monotonic() < end:
            batch = [[program, "--row", row, "--tracker", tracker, "--seed", str(s),
                      "--strategy", strategy_for(tracker, s)]
                     for s, row, tracker in itertools.islice(endless, args.jobs * 8)]
            for command, status, output in pool.map(run_one, batch):
                if status in counts:
                    counts[status] += 1
                    continue
                failures += 1
                print(f"FAILED ({status}): {shlex.join(command)}\n{output[-2000:]}", flush=True)
    print(f"{counts[0]} passed, {failures} failed, {counts[77]} skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
