#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Site timer:MS keeps its period by the clock on the wall, in whichever thread runs."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

ATTEMPTS = 10
BUILD = Path(sys.argv[1]).resolve()
TRACKER = sys.argv[2]
CAIRN = str(BUILD / "bin" / "cairn")
VICTIM = str(BUILD / "tests" / "agent" / "victim_timer")


def processor_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e3


def checkpoints(
    period: str, what: str, tracker: str = TRACKER
) -> tuple[int, float, float, float]:
    """
    How many there were, and milliseconds: of the program by itself, with its start and end, and of
    processors for it.
    """
    before, begin = processor_ms(), time.monotonic()
    done = subprocess.run([CAIRN, "run", "--at", f"timer:{period}", "--tracker", tracker,
                           "--stats=json", "--", VICTIM, what, "1"],
                          capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done
    took = float(done.stdout.split("ok, ")[1].split()[0])
    count = json.loads(done.stderr.splitlines()[-1])["checkpoints"]
    return count, took, (time.monotonic() - begin) * 1e3, processor_ms() - before


def main() -> None:
    # On a machine that is busy a thread is interrupted only while it has a processor.
    for period, what, share in (("5", "compute", 0.3), ("2", "compute", 0.15),
                                ("0.5", "compute", 0.03), ("10", "threads", 0.05)):
        for _ in range(ATTEMPTS):
            count, took, whole, used = checkpoints(period, what)
            most, least = whole / float(period), min(used, took) / float(period) * share
            print(f"timer:{period} {what}: {count} checkpoints, {least:.0f} to {most:.0f} expected")
            assert count <= most * 1.02 + 2
            if count >= least:
                break
        else:
            raise AssertionError("too few, each time")
    # A checkpoint that takes longer than that is not followed by the next one at once.
    if TRACKER == "auto":
        count = checkpoints("0.5", "often", "fork")[0]
        print(f"timer:0.5 often: {count} checkpoints")
        assert count < 500, "the program goes on between them"
    # Its start takes a while where it is kept from the processor.
    counts = [checkpoints("1", "idle")[0]]
    while counts[-1] > 4 and len(counts) < ATTEMPTS:
        counts.append(checkpoints("1", "idle")[0])
    print(f"asleep: {counts} checkpoints")
    assert counts[-1] <= 4, "a process that sleeps is left alone"


main()
