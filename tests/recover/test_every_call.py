# SPDX-License-Identifier: MIT
"""Every call of the table answers a program under `cairn run --recover` as it does alone."""

from __future__ import annotations

import subprocess
import sys

ENOSYS = 38
# Trackers that close pages themselves could not open a sealed one.
REFUSED_BY = {"mprotect": {"mseal"}, "uffd": {"mseal"}}


def answers(command: list[str]) -> dict[str, tuple[str, str, int]]:
    """What each call answered: its effect in the table, `errno` or `signal`, and which."""
    run = subprocess.run(command, capture_output=True, text=True, timeout=280)
    if run.returncode:
        sys.exit(f"FAIL {' '.join(command)}: status {run.returncode}\n{run.stderr}")
    lines = [line.split() for line in run.stdout.splitlines()]
    return {name: (effect, kind, int(which)) for name, effect, kind, which in lines}


def main() -> int:
    cairn, program, tracker = sys.argv[1:]
    alone = answers([program])
    recovering = answers([cairn, "run", "--at", "wait", "--recover", "--tracker", tracker,
                          "--", program])
    # A table that was not read at all would find nothing wrong.
    failures = [] if len(alone) > 300 and alone.keys() == recovering.keys() else [
        f"{len(alone)} calls alone, {len(recovering)} recovering"]
    for name, answer in alone.items():
        refused = answer[0] == "REFUSE" or name in REFUSED_BY.get(tracker, ())
        wanted = (answer[0], "errno", ENOSYS) if refused else answer
        if recovering.get(name, wanted) != wanted:
            failures.append(f"{name}: {recovering[name]} in place of {wanted}")
    print("\n".join(f"FAIL {failure}" for failure in failures) or f"{len(alone)} calls")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
