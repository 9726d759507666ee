#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The example of hybrid intervals: with hooks, and with pages for its long turns, it ends with the
table that it has without cairn-cc.

    test_long_turns.py CAIRN_CC ROOT EXAMPLE
"""

import os
import subprocess
import sys

SKIP = 77
TURNS = "64"


def said(*command: str) -> str:
    # A break-even of its own: what a machine measures is no matter of this test.
    environment = {**os.environ, "CAIRN_BREAK_EVEN": "20000"}
    done = subprocess.run([*command, TURNS], env=environment, capture_output=True, text=True,
                          check=True)  # fmt: skip
    return done.stdout


def main() -> int:
    cairn_cc, root, example = sys.argv[1:]
    want, _ = said(example).split(";")
    for tracker in ("shadow", "undolog"):
        subprocess.run([cairn_cc, "-O2", "-fcairn-hybrid", f"-fcairn-tracker={tracker}",
                        f"-I{root}/include", f"{root}/examples/long_turns.c", "-o", "long_turns"],
                       check=True)  # fmt: skip
        got, long = said("./long_turns").split(";")
        assert got == want, f"{tracker}: {got}, not {want}"
        if long.split()[0] == "0":
            print("SKIP: a tracker of pages for page mode (cairn doctor: async)")
            return SKIP
        # One turn in eight sorts.
        assert long.split()[0] == "8", f"{tracker}:{long}"
    return 0


if __name__ == "__main__":
    sys.exit(main())
