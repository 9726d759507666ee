#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Build one program with cairn-cc in this folder and run it: its exit status is ours.

    build_and_run.py CAIRN_CC ROOT SOURCE [FLAG...] -- [ARG...]
"""

import subprocess
import sys
from pathlib import Path


def main() -> int:
    cairn_cc, root, source, *rest = sys.argv[1:]
    split = rest.index("--")
    program = Path(source).stem
    command = [cairn_cc, "-g", "-Wall", f"-I{root}/include", f"-I{root}", "-o", program, source]
    subprocess.run([*command, *rest[:split]], check=True)
    return subprocess.run([f"./{program}", *rest[split + 1 :]]).returncode


if __name__ == "__main__":
    sys.exit(main())
