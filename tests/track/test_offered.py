#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
    test_offered.py CAIRN ORACLE

What `cairn doctor` says works here does: a tracker or a feed that refuses to open would merely have
its tests skipped.
"""

from __future__ import annotations

import json
import subprocess
import sys


def main() -> int:
    cairn, oracle = sys.argv[1:]
    asked = subprocess.run([cairn, "doctor", "--json"], capture_output=True, text=True, check=True)
    doctor = json.loads(asked.stdout)
    offered = [["--tracker", row["name"]] for row in doctor["trackers"] if row["works"]]
    for row in doctor["feeds"]:
        if row["works"]:
            offered.append(["--tracker", "async", "--feed", row["name"]])
    failures = 0
    for options in offered:
        command = [oracle, "--row", "stores", "--steps", "20", *options]
        done = subprocess.run(command, capture_output=True, text=True)
        print(*options, done.returncode, done.stderr.strip())
        failures += done.returncode != 0
    return 1 if failures or not offered else 0


if __name__ == "__main__":
    sys.exit(main())
