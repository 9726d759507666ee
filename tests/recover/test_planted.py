#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Plant a bug in the agent (leave one step of a recovery out) and see that the row that tests this
step fails, while it passes without the bug.

    test_planted.py CAIRN ROWS      CAIRN: a copy that finds the agent built with CRN_PLANTED
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ATTEMPTS = 10  # where the row shows the bug only if its timer runs out at the right moment
EFFECTS = Path(__file__).resolve().parents[2] / "preload" / "effects"

# The step that is left out: the row that must notice. INV_BREAK is not here: the session itself
# puts the heap's mapping back, so that leaving the inverse out shows nowhere.
ROWS = {
    "INV_CLOSE": "open",
    "INV_REOPEN": "close",
    "INV_UNACCEPT": "accept",
    "INV_SEEK": "lseek",
    "INV_STATUS": "fcntl_setfl",
    "INV_CLOEXEC": "fcntl_setfd",
    "INV_EPOLL": "epoll_add",
    "INV_UNMAP": "mmap_file",
    "INV_KEEP": "munmap",
    "INV_PROTECT": "mprotect_shared",
    "INV_ACTION": "sigaction",
    "INV_ITIMER": "setitimer",
    "INV_TIMERFD": "timerfd_settime",
    "INV_OPTION": "setsockopt",
    "INV_UMASK": "umask",
    "INV_FOLDER": "chdir",
    "INV_APPEND": "log",
    "INV_UNLOCK": "lock_read",
    "PLANT_STREAMS": "read_pipe",
    "PLANT_EPOLL": "epoll_edge_only",
    "PLANT_SIGNALS": "signal_delivered",
    "PLANT_OUTPUTS": "write_pipe",
    "PLANT_HELD": "own_pipe",
    "PLANT_REAPED": "waitpid",
    "PLANT_RULES": "own_pipe_read",
}


def numbers() -> dict[str, int]:
    """The enumerators of both headers with their values."""
    found = {}
    for header, enum in (("effects.h", "crn_inverse_kind"), ("planted.h", "crn_plant")):
        text = (EFFECTS / header).read_text()
        body = re.search(rf"enum {enum} {{(.*?)\n}};", text, re.S)
        if not body:
            raise SystemExit(f"no enum {enum} in {header}")
        value = -1
        for match in re.finditer(r"^\tCRN_(\w+)(?: = (\d+))?,", body.group(1), re.M):
            value = int(match.group(2)) if match.group(2) else value + 1
            found[match.group(1)] = value
    return found


def passes(command: list[str], plant: int | None) -> bool:
    environment = {**os.environ, "CAIRN_PLANT": "" if plant is None else str(plant)}
    done = subprocess.run(command, env=environment, capture_output=True, timeout=200, check=False)
    return done.returncode == 0


def main() -> int:
    cairn, rows = sys.argv[1:3]
    values, bad = numbers(), 0
    for name, row in ROWS.items():
        command = [cairn, "run", "--at", "wait/1000000", "--recover", "--", rows, "libc", row]
        sound = passes(command, None)
        caught = any(not passes(command, values[name]) for _ in range(ATTEMPTS))
        print(f"{'ok  ' if sound and caught else 'FAIL'}  {name}: {row}", flush=True)
        if not sound:
            print("      fails without the bug as well")
        if not caught:
            print("      does not notice the bug")
        bad += not (sound and caught)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
