#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Build one program with cairn-cc in this folder and run it: its exit status is ours.

    build_and_run.py [--fails] [--preload LIBRARY] CAIRN_CC ROOT SOURCE [FLAG...] -- [ARG...]

--fails: it must not succeed (a planted bug). --preload: with that library ("jemalloc").
"""

import ctypes.util
import os
import subprocess
import sys
from pathlib import Path

SKIP = 77


def main() -> int:
    words = sys.argv[1:]
    environment = dict(os.environ)
    fails = words[0] == "--fails"
    if fails:
        words.pop(0)
    if words[0] == "--preload":
        library = ctypes.util.find_library(words[1])
        if not library:
            print(f"SKIP: lib{words[1]}")
            return SKIP
        environment["LD_PRELOAD"] = library
        words = words[2:]
    cairn_cc, root, source, *rest = words
    split = rest.index("--")
    program = Path(source).stem
    command = [cairn_cc, "-g", "-Wall", f"-I{root}/include", f"-I{root}", "-o", program, source]
    subprocess.run([*command, *rest[:split]], check=True)
    try:
        status = subprocess.run([f"./{program}", *rest[split + 1 :]], env=environment,
                                timeout=60 if fails else None).returncode  # fmt: skip
    except subprocess.TimeoutExpired:
        status = 1
    return int(status == 0) if fails else status


if __name__ == "__main__":
    sys.exit(main())
