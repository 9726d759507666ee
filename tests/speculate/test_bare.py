#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The strategies, compiled as a kernel module would, call nothing but each other: also no memcpy that
the compiler put in.

    test_bare.py NM OBJECT:OBJECT...
"""

from __future__ import annotations

import subprocess
import sys

ALLOWED = {"_GLOBAL_OFFSET_TABLE_"}


def main() -> None:
    nm, objects = sys.argv[1], sys.argv[2].split(":")
    done = subprocess.run([nm, "-u", *objects], capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in done.stdout.splitlines() if line.startswith(" ")}
    assert any(name.startswith("crn_strategy_") for name in names), done.stdout
    others = sorted(name for name in names - ALLOWED if not name.startswith("crn_"))
    assert not others, f"these come from elsewhere: {others}"


main()
