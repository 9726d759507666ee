#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
No strategy costs less than the bound that cairn-bench prints beside it, also where the first
intervals do not count, unless it opens pages beside a fault; which is done only by the prices of
trackers that see one.

    test_replay_bound.py CAIRN_BENCH
"""

from __future__ import annotations

import json
import subprocess
import sys

RUNS = ("mixed", "zipf:pages=400", "alternate", "phases", "stride:pages=512", "periods:longest=60")
# fault, copy, protect, open; the third opens pages for nothing
COSTS = ("smc", "async", "900,100,500,0", "8000,100,4000,4000")


def replay(run: str, skip: int, costs: str, *more: str) -> list[dict]:
    command = [sys.argv[1], f"--synthetic={run}", "-n", "400", "-k", str(skip), "-c", costs, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_late_models() -> None:
    for costs, late in (("async", True), ("scan", True), ("uffd", False), ("mprotect", False)):
        lines = replay("stride:pages=512", 40, costs)
        histase = next(x for x in lines if x["strategy"] == "histase")
        assert (histase["hot"] > 0) == late and (histase["granted"] == 0) == late, histase


def check_nothing_left() -> None:
    for skip in (400, 401):
        command = [sys.argv[1], "--synthetic=mixed", "-n", "400", "-k", str(skip)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        assert done.returncode == 2 and not done.stdout and "--skip" in done.stderr, done


def check(run: str, skip: int, costs: str, *more: str) -> None:
    lines = replay(run, skip, costs, *more)
    bound = next(x for x in lines if x["strategy"] == "bound")
    alone = [x for x in lines if not x.get("granted")]
    assert len(alone) == len(lines) or not more, lines
    for line in alone:
        assert bound["cycles"] <= line["cycles"], (run, skip, bound, line)
    least = min(x["to_oracle"] for x in lines if x["strategy"] != "bound")
    print(f"{run} from {skip}, {costs}: {bound['to_oracle']}, least {least}")


def main() -> None:
    check_late_models()
    check_nothing_left()
    for run in RUNS:
        for skip in (0, 1, 40, 200):
            for costs in COSTS:
                check(run, skip, costs)
                check(run, skip, costs, "--late")


main()
