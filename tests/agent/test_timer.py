#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Site timer:MS keeps its period by the clock on the wall, in whichever thread runs."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from pathlib import Path

BUILD = Path(sys.argv[1]).resolve()
TRACKER = sys.argv[2]
CAIRN = str(BUILD / "bin" / "cairn")
VICTIM = str(BUILD / "tests" / "agent" / "victim_timer")


def processor_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e3


def checkpoints(period: str, what: str) -> tuple[int, float, float]:
    """How many there were, and milliseconds: of the program, and of processors for it."""
    before = processor_ms()
    done = subprocess.run([CAIRN, "run", "--at", f"timer:{period}", "--tracker", TRACKER,
                           "--stats=json", "--", VICTIM, what, "1"],
                          capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done
    took = float(done.stdout.split("ok, ")[1].split()[0])
    count = json.loads(done.stderr.splitlines()[-1])["checkpoints"]
    return count, took, processor_ms() - before


def main() -> None:
    # On a machine that is busy a thread is interrupted only while it has a processor.
    for period, what, share in (("5", "compute", 0.3), ("2", "compute", 0.15),
                                ("0.5", "compute", 0.03), ("10", "threads", 0.05)):
        count, took, used = checkpoints(period, what)
        most, least = took / float(period), min(used, took) / float(period) * share
        print(f"timer:{period} {what}: {count} checkpoints, {least:.0f} to {most:.0f} expected")
        assert least <= count <= most * 1.02 + 2
    count = checkpoints("1", "idle")[0]
    print(f"asleep: {count} checkpoints")
    assert count <= 4, "a process that sleeps is left alone"


main()
