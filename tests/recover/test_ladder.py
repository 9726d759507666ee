#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
What a recovery refuses and when it gives up: the lines that the agent prints and the way the
program ends.

    test_ladder.py CAIRN LADDER|SUSPECTS|EXPECTED [--tracker TRACKER] [--feed FEED] [CASE...]
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Case:
    """How it ends (as in Popen.returncode), what it says, and how many recoveries there are."""

    status: int
    recovered: int
    output: str = ""
    refused: str = ""  # a pattern; "": no refusal
    warned: str = ""  # among what the agent says


SEGV = -signal.SIGSEGV
ATTEMPTS = 20
# Feed bpf-images refuses where somebody else has looked at the program's mappings meanwhile.
PAST_LOST = "EFAILED"
CASES = {
    "again": Case(SEGV, 2, "pass 1", "crashed again although every connection"),
    "handler": Case(42, 2, "own handler", "crashed again although every connection"),
    "progress": Case(0, 50, "crashed 50 times"),
    "passed": Case(0, 8, "passed 3"),
    "often": Case(SEGV, 100, "", "100 recoveries in the last second"),
    "ran": Case(SEGV, 0, "", r"another thread has run since the checkpoint: \d+ \(spinner\)"),
    "ended": Case(SEGV, 0, "", r"another thread has run since the checkpoint.*: \d+ \(ender\)"),
    "slept": Case(0, 1, "the sleeper read z"),
    "half": Case(0, 1, "the sleeper read all"),
    "none": Case(SEGV, 0, "", "no checkpoint has been taken yet"),
    "sent": Case(SEGV, 0),
    "stack": Case(0, 1, "survived"),
    "read_only": Case(0, 2, "survived both"),
    "jumps": Case(0, 3, "survived all"),
    "signals": Case(0, 2, "survived both"),
    "in_handler": Case(0, 1, "handled 1"),
    "pipe": Case(0, 1, "woken once"),
    "pair": Case(0, 1, "woken once"),
    "event": Case(0, 1, "woken once"),
    "shared_pipe": Case(0, 1, "woken once"),
    "reap": Case(0, 1, "reaped 7"),
    "restarted": Case(0, 0, "woken 3 times"),
    "gone": Case(0, 0, "still there"),
}
# Programs that go on by themselves, and say so once.
EXPECTED = {
    "goes_on": Case(0, 0, "expected 21", "no checkpoint has been taken yet"),
    "leaves": Case(0, 0, "expected 21", "no checkpoint has been taken yet"),
    "generated": Case(0, 0, "expected 20", "generated code raised it"),
}
GOES_ON_LINE = "cairn: the program goes on by itself after SIGSEGV at 0x"
SUSPECTS = {
    "never": Case(0, 1, "served 2"),
    "filter": Case(0, 8, "read s"),
    "unannounced": Case(0, 2, "read s"),
    "announced": Case(0, 2, "read s, 1 times nothing"),
    "only_once": Case(0, 2, "nothing was lost"),
    "in_turn": Case(0, 4, "both are read"),
    "datagrams": Case(0, 4, "read s"),
    "one_of_many": Case(0, 1, "answered ab\n"),
    "at_once": Case(0, 3, "answered ab\n"),
    "later": Case(0, 2, "answered ."),
    "looked_at": Case(0, 1, "served 1"),
    "looked_at_datagrams": Case(0, 2, "answered ab\n"),
    "accepted": Case(0, 1, "served 1"),
    "all_of_them": Case(0, 2, "nothing is left", "", "other input that was read is dropped"),
    "made_since": Case(0, 1, "forgotten"),
    "executed": Case(0, 1, "executed", "", "executed while replayed input is pending"),
    "passed_on": Case(0, 1, "passed on", "", "passed on while replayed input is pending"),
    "asks_kernel": Case(0, 2, "the whole answer"),
    "own_pair": Case(0, 2, "both go on"),
    "own_pair_of_two": Case(0, 2, "parent and child"),
    "own_pair_last": Case(0, 2, "without the client"),
}


def was_slow(said: str) -> bool:
    """A busy machine may have kept it from crashing a hundred times in a second."""
    found = re.search(r"not reached: (\d+) us", said)
    return found is not None and int(found[1]) > 1_000_000


def check(given: argparse.Namespace, name: str) -> list[str]:
    case = {**CASES, **EXPECTED, **SUSPECTS}[name]
    command = [given.cairn, "run", "--recover", "--tracker", given.tracker, "--feed", given.feed]
    command += ["--", given.ladder, name]
    for _ in range(ATTEMPTS):
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        if "cannot run on this host" in done.stderr:
            print(f"SKIP: tracker {given.tracker}, feed {given.feed}")
            sys.exit(77)
        if given.feed == "bpf-images" and PAST_LOST in done.stderr:
            continue
        if not was_slow(done.stdout):
            break
    else:
        if given.feed == "bpf-images":
            return [f"the past could not be kept, {ATTEMPTS} times in a row"]
        print(f"      {name}: 101 recoveries take more than a second here, each time")
        return []
    # a static function: its name is in the file alone
    where = r"overflow[.\w]*\+0x[0-9a-f]+ \(recover_ladder\)" if name == "stack" else ".*"
    pattern = rf"^cairn: recovered \(\d+\): SIG[A-Z]+ at \S+ in {where}; .* \d+ us; suspect "
    recovered = len(re.findall(pattern, done.stderr, re.M))
    refused = re.findall(r"^cairn: recovery refused: .*", done.stderr, re.M)
    wrong = []
    if done.returncode != case.status:
        wrong.append(f"it ended with {done.returncode}, not {case.status}")
    if recovered != case.recovered:
        wrong.append(f"{recovered} recoveries, not {case.recovered}")
    if case.output not in done.stdout:
        wrong.append(f"it did not say {case.output!r}")
    if case.warned not in done.stderr:
        wrong.append(f"the agent did not say {case.warned!r}")
    if not case.warned and "pending" in done.stderr:
        wrong.append("input is still to be given again")
    if bool(case.refused) != (len(refused) == 1) or len(refused) > 1:
        wrong.append(f"{len(refused)} refusals")
    elif case.refused and not re.search(case.refused, refused[0]):
        wrong.append(f"the refusal does not say {case.refused!r}")
    if done.stderr.count(GOES_ON_LINE) != (name in EXPECTED):
        wrong.append("it was not said once who goes on by itself" if name in EXPECTED
                     else "it is said that it goes on by itself")
    if wrong:
        wrong += [f"    | {line}" for line in (done.stdout + done.stderr).splitlines()[-12:]]
    return wrong


def main() -> int:
    bad = 0
    options = argparse.ArgumentParser()
    options.add_argument("cairn")
    options.add_argument("ladder")
    options.add_argument("--tracker", default="auto")
    options.add_argument("--feed", default="auto")
    options.add_argument("cases", nargs="*")
    given = options.parse_intermixed_args()
    program = Path(given.ladder).name
    of_program = {"recover_suspects": SUSPECTS, "recover_expected": EXPECTED}.get(program, CASES)
    for name in given.cases or of_program:
        wrong = check(given, name)
        print(f"{'FAIL' if wrong else 'ok  '}  {name}", flush=True)
        for line in wrong:
            print(f"      {line}")
        bad += bool(wrong)
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
