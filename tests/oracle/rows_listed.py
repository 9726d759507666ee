# SPDX-License-Identifier: MIT
"""Fails when a row of the oracle's table has no ctest, or a ctest has no row."""

import subprocess
import sys


def main() -> int:
    program, *listed = sys.argv[1:]
    table = subprocess.run([program, "--list"], check=True, capture_output=True, text=True)
    rows = set(table.stdout.split())
    for name in sorted(rows ^ set(listed)):
        print(f"row {name}: {'no ctest' if name in rows else 'no such row in the table'}")
    return 1 if rows != set(listed) else 0


if __name__ == "__main__":
    sys.exit(main())
