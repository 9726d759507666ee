#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Run the ctests of a build folder, name what was skipped and why, and end with one plain line:

N passed, N failed, N skipped

A test that failed is run once more, alone, after all others, for the record: it still counts as
failed, unless it had reached its time limit. Then the second run decides, with three times the
limit. Above the last line stands what failed, with the end of its output: a log may lose its head.
Exit status 0 if nothing failed and at least one test ran.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path

LINES_MAX = 60  # of the output of a test that failed
LINES_MAX_TOGETHER = 400
REPEATS_MAX = 20
REPEAT_SECONDS_MAX = 1200  # after so many no further one is begun
SLOWEST_COUNT = 10
LIMIT_FACTOR = 3  # of the second run's time limit
TIMED_OUT = re.compile(r"^FAILED \S+: no end after", re.MULTILINE)  # words of run_case.py


@dataclass
class Case:
    name: str
    seconds: float
    state: str  # passed, failed or skipped
    output: str
    note: str = ""  # what the second run showed

    def timed_out(self) -> bool:
        return self.state == "failed" and bool(TIMED_OUT.search(self.output))


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("-j", "--jobs", type=int, default=min(4, os.cpu_count() or 1))
    parser.add_argument("-R", "--regex", help="only tests whose name matches")
    parser.add_argument("-E", "--exclude", help="not the tests whose name matches")
    parser.add_argument("-L", "--label", help="only tests with this label")
    return parser.parse_args()


def ctest(
    build: Path, report: Path, jobs: int, selection: list[str], factor: int = 1
) -> list[Case]:
    """Run the selected ones and read the report; [] if there is none."""
    report.unlink(missing_ok=True)
    command = ["ctest", "--test-dir", str(build), "-j", str(jobs), "--no-tests=error",
               "--output-junit", str(report), "--test-output-size-passed", "100000",
               "--test-output-size-failed", "200000", *selection]
    # One line per test is for a person who watches; a log wants only what did not pass.
    if not sys.stdout.isatty():
        command.append("--quiet")
    environment = {**os.environ, "CAIRN_TEST_LIMIT_FACTOR": str(factor)}
    subprocess.run(command, stdin=subprocess.DEVNULL, env=environment, check=False)
    return cases_of(report) if report.exists() else []


def cases_of(report: Path) -> list[Case]:
    cases = []
    for element in ET.parse(report).getroot().iter("testcase"):
        output, status = element.findtext("system-out") or "", element.get("status")
        skipped = element.find("skipped")
        # ctest calls what it could not start skipped as well.
        if status == "run":
            state = "passed"
        elif skipped is not None and "SKIP" in output + (skipped.get("message") or ""):
            state = "skipped"
        else:
            state = "failed"
        cases.append(Case(element.get("name", "?"), float(element.get("time") or 0), state, output))
    return cases


def run_again(build: Path, report: Path, case: Case) -> None:
    """Alone. Only one that had reached its time limit can pass by this."""
    late = case.timed_out()
    only = ["-R", f"^{re.escape(case.name)}$"]
    again = ctest(build, report, 1, only, LIMIT_FACTOR if late else 1)
    state = again[0].state if again else "failed"
    case.note = "failed twice" if state == "failed" else f"failed, then {state} alone"
    if late and state == "passed":
        case.state = state
        case.note = "reached its time limit, then passed alone"
    elif late and state == "failed":
        case.output, case.note = again[0].output if again else case.output, case.note + ", by time"


def repeat_failed(build: Path, report: Path, cases: list[Case]) -> list[Case]:
    """Those that failed at first, each with its note."""
    failed = [case for case in cases if case.state == "failed"]
    begin = time.monotonic()
    for number, case in enumerate(failed):
        if number >= REPEATS_MAX or time.monotonic() - begin > REPEAT_SECONDS_MAX:
            case.note = "not repeated: too many failed"
            continue
        print(f"once more, alone: {case.name}", flush=True)
        run_again(build, report, case)
    return failed


def skip_reason(output: str) -> str:
    reasons = re.findall(r"^SKIP: (.*)$", output, re.MULTILINE)
    return reasons[-1] if reasons else "no feature named"


def last_lines(output: str, count: int = LINES_MAX) -> str:
    """Whole lines, enough of them to understand a failure on a machine that is gone by then."""
    lines = output.rstrip().splitlines()
    before, end = lines[:-count], lines[-count:]
    if before:
        seeds = [line.strip() for line in before if re.search(r"\bseed\b", line)]
        end.insert(0, "; ".join([f"({len(before)} lines before", *seeds[-3:]]) + ")")
    return "\n".join(end)


def print_skipped(cases: list[Case]) -> None:
    skipped: dict[str, list[str]] = {}
    for case in cases:
        if case.state == "skipped":
            skipped.setdefault(skip_reason(case.output), []).append(case.name)
    for feature, names in sorted(skipped.items()):
        print(f"skipped, missing {feature}: {len(names)}")
        for name in names[:4]:
            print(f"  {name}")
        if len(names) > 4:
            print(f"  ... and {len(names) - 4} more")


def print_repeated(repeated: list[Case]) -> None:
    """The end of the log: those that count, and how many do not."""
    failed = [case for case in repeated if case.state == "failed"]
    count = max(5, min(LINES_MAX, LINES_MAX_TOGETHER // max(1, len(failed))))
    for case in repeated:
        print(f"\n==== {case.name}: {case.note}\n{last_lines(case.output, count)}")
    if repeated:
        print()
    late = [case.name for case in repeated if case.state != "failed"]
    if late:
        print(f"reached their time limit, then passed alone: {len(late)} ({' '.join(late)})")
    for case in failed:
        print(f"failed: {case.name} ({case.note})")


def main() -> int:
    args = parse_args()
    if not shutil.which("ctest"):
        sys.exit("ctest is missing (package cmake)")
    started = time.monotonic()
    selection: list[str] = []
    for option, value in (("-R", args.regex), ("-E", args.exclude), ("-L", args.label)):
        selection += [option, value] if value else []
    if not sys.stdout.isatty():
        print(f"running the tests, {args.jobs} at a time; those that fail are shown at the end",
              flush=True)
    cases = ctest(args.build, (args.build / "ctest.xml").resolve(), args.jobs, selection)
    if not cases:
        sys.exit("ctest wrote no report: is the build complete?")
    repeated = repeat_failed(args.build, (args.build / "ctest_again.xml").resolve(), cases)
    print()
    print_skipped(cases)
    slowest = sorted(cases, key=lambda case: -case.seconds)[:SLOWEST_COUNT]
    print("slowest: " + ", ".join(f"{case.name} {case.seconds:.1f} s" for case in slowest))
    print(f"{time.monotonic() - started:.0f} s")
    print_repeated(repeated)
    counts = {state: sum(case.state == state for case in cases)
              for state in ("passed", "failed", "skipped")}
    print(", ".join(f"{count} {state}" for state, count in counts.items()))
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main())
