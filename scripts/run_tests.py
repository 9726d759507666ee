#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the ctests of a build folder, name what was skipped and why, and end with one plain line:

N passed, N failed, N skipped

Exit status 0 if nothing failed and at least one test ran.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path


LINES_MAX = 60  # of the output of a test that failed


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("-j", "--jobs", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("-R", "--regex", help="only tests whose name matches")
    parser.add_argument("-E", "--exclude", help="not the tests whose name matches")
    parser.add_argument("-L", "--label", help="only tests with this label")
    return parser.parse_args()


def ctest(args: argparse.Namespace, report: Path) -> None:
    command = ["ctest", "--test-dir", str(args.build), "-j", str(args.jobs), "--no-tests=error",
               "--output-junit", str(report), "--test-output-size-passed", "100000",
               "--test-output-size-failed", "200000"]
    for option, value in (("-R", args.regex), ("-E", args.exclude), ("-L", args.label)):
        if value:
            command += [option, value]
    # One line per test is for a person who watches; a log wants only what did not pass.
    quiet = not sys.stdout.isatty()
    if quiet:
        command.append("--quiet")
        print(f"running the tests, {args.jobs} at a time; those that fail are shown at the end",
              flush=True)
    subprocess.run(command, stdin=subprocess.DEVNULL, check=False)


def skip_reason(output: str) -> str:
    reasons = re.findall(r"^SKIP: (.*)$", output, re.MULTILINE)
    return reasons[-1] if reasons else "no feature named"


def last_lines(output: str) -> str:
    """Whole lines, enough of them to understand a failure on a machine that is gone by then."""
    lines = output.rstrip().splitlines()
    left_out = len(lines) - LINES_MAX
    return "\n".join([f"({left_out} lines before)"] * (left_out > 0) + lines[-LINES_MAX:])


def print_skipped(skipped: dict[str, list[str]]) -> None:
    for feature, names in sorted(skipped.items()):
        print(f"skipped, missing {feature}: {len(names)}")
        for name in names[:4]:
            print(f"  {name}")
        if len(names) > 4:
            print(f"  ... and {len(names) - 4} more")


def main() -> int:
    args = parse_args()
    if not shutil.which("ctest"):
        sys.exit("ctest is missing (package cmake)")
    report = (args.build / "ctest.xml").resolve()
    report.unlink(missing_ok=True)
    started = time.monotonic()
    ctest(args, report)
    if not report.exists():
        sys.exit("ctest wrote no report: is the build complete?")
    passed, failed = 0, []
    skipped: dict[str, list[str]] = {}
    slowest: list[tuple[float, str]] = []
    for case in ET.parse(report).getroot().iter("testcase"):
        name, output = case.get("name", "?"), case.findtext("system-out") or ""
        slowest.append((float(case.get("time") or 0), name))
        status = case.get("status")
        if status == "run":
            passed += 1
        elif status in ("notrun", "disabled") and "SKIP" in output + str(case.find("skipped")):
            skipped.setdefault(skip_reason(output), []).append(name)
        elif case.find("skipped") is not None:
            skipped.setdefault(skip_reason(output), []).append(name)
        else:
            failed.append((name, output))
    for name, output in failed:
        print(f"\n==== FAILED {name}\n{last_lines(output)}")
    print()
    print_skipped(skipped)
    print("slowest: " + ", ".join(f"{n} {t:.1f} s" for t, n in sorted(slowest, reverse=True)[:5]))
    print(f"{time.monotonic() - started:.0f} s")
    if failed:
        print("failed: " + " ".join(name for name, _ in failed))
    count = sum(len(names) for names in skipped.values())
    print(f"{passed} passed, {len(failed)} failed, {count} skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
