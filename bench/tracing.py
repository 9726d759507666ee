# SPDX-License-Identifier: MIT
"""
Traces of real programs, replayed through every strategy: which pages each interval writes is
recorded once (`cairn run --trace`), and cairn-bench plays it without the program. Overcopied and
undercopied pages and their weighted sums (SMC's Tables 2 to 4), recall and precision (HBFT's
Figure 12), page reuse, run lengths and history similarity (its Figures 4 to 6), and sweeps of the
strategies' parameters. A server with several processes gives a trace per process; the one with the
most intervals stands for all. hmmsearch, the paper's other program, has an interval for each turn
of its loop.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hmmsearch
from loads import PROGRAMS
from recording import (
    WAIT,
    Subject,
    intervals_of,
    most_intervals,
    record,
    replay,
    run_at,
    served,
)
from servers import ServerError
from smc import PRICES, TRACKERS, Settings

# Sweeps as in SMC 7.3: does a strategy depend on the choice of its parameters?
SWEEPS = (
    "active-rnd:every=5/10/30/100/300",
    "active-rnd:window=1/2/4/8/16/32",
    "active-fifo:every=5/10/30/100/300",
    "active-fifo:window=1/2/4/8/16/32",
    "active-cks:n=1/2/5/10/20",
    "gspec:individuals=3/5/8",
    "gspec:enter=0.1/0.25/0.5/0.75/1",
    "gspec:crossover=0.1/0.3/0.5/0.7/0.9",
    "gspec:mutation=0.001/0.005/0.01/0.05",
    "gspec:eager=1/2/4/8",
    "gspec:lazy=2/4/8/16/32",
    "histase:alpha=0.5/0.7/0.9",
    "histase:back=1/2/3/5/10",
    "histase:own=0/1",
    "decay",  # has none: what the others' spread is to be compared with
)
COSTS = ("smc", "async", "uffd", "mprotect")
SKIP_SHARE = 10  # the first tenth of the intervals teaches, and does not count
INTERVALS_MIN = 50


# Keys of working sets (cairn run --context) that may help a server, and strategies to try them on.
KEYS = ("events", "fd", "result")
KEYED = ("last", "gspec", "decay")
CONTEXTUAL = ("none", "last", "active-cks", "gspec", "decay")


def subject_of(name: str, settings: Settings, folder: Path) -> Subject:
    if name == hmmsearch.NAME:
        return hmmsearch.subject(settings, folder)
    program = PROGRAMS[name]
    if settings.toy:
        return served(program, program.quick // 10)
    return served(program, program.quick if settings.quick else 5 * program.quick)


def measure(name: str, settings: Settings, keep: Path | None = None) -> Iterator[dict]:
    """`keep`: a folder where the trace is left."""
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    folder.chmod(0o755)
    try:
        subject = subject_of(name, settings, folder)
        traces = record(subject, settings.build, folder)
        if not traces:
            yield {"table": "traces", "row": name, "missing": "no trace was written"}
            return
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            for trace in traces[:4]:
                shutil.copy(trace, keep)
        yield from of_trace(name, settings, most_intervals(settings.build, traces))
        for key in KEYS if subject.site == WAIT and not settings.toy else ():
            keyed = record(subject, settings.build, folder, key)
            if keyed:
                yield from of_key(name, settings, most_intervals(settings.build, keyed), key)
        yield from scored(subject, settings, folder)
    except ServerError as error:
        yield {"table": "traces", "row": name, "missing": str(error)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def scored(subject: Subject, settings: Settings, folder: Path) -> Iterator[dict]:
    """All strategies in one live run of each tracker, by the process with the most intervals."""
    for tracker in TRACKERS:
        line = {"table": "meta", "program": subject.name, "row": f"{tracker} meta"}
        line["tracker"] = tracker
        place = folder / f"meta-{tracker}"
        options = ("--stats=json", "--strategy", "meta")
        try:
            said = run_at(subject, settings.build, place, tracker, *options)
        except ServerError as error:
            yield {**line, "strategy": "meta", "missing": str(error)}
            continue
        yield from rivals(said, line)


def rivals(text: str, line: dict) -> Iterator[dict]:
    """What the processes said at their ends: their rivals, then the prices that these go by."""
    found: dict[int, list[dict]] = {}
    costs: dict[int, dict] = {}
    for said in text.splitlines():
        if not (said.startswith('{"pid": ') and said.endswith("}")):
            continue
        one = json.loads(said)
        if "rival" in one:
            found.setdefault(one["pid"], []).append(one)
        elif one.get("price_copy"):
            costs[one["pid"]] = {key: one[key] for key in PRICES}
    found = {pid: mine for pid, mine in found.items() if pid in costs}
    if not found:
        yield {**line, "strategy": "meta", "missing": "no process has said how strategies fared"}
        return
    main = max(found, key=lambda pid: found[pid][0]["intervals"])
    for one in found[main]:
        row = f"{line['tracker']} {one['rival']}"
        yield {**line, **one, **costs[main], "row": row, "strategy": one["rival"]}


def of_key(name: str, settings: Settings, trace: Path, key: str) -> Iterator[dict]:
    """The same run with a working set per key, and with one for all."""
    words = [word for strategy in KEYED for word in ("-s", strategy)]
    words += ["-c", "smc", "--skip", str(intervals_of(settings.build, trace) // SKIP_SHARE)]
    single = {
        line["strategy"]: line for line in replay(settings.build, [*words, "--ignore-keys"], trace)
    }
    for line in replay(settings.build, words, trace):
        if line["strategy"] in KEYED:
            row = {**line, "table": "contexts", "row": f"{line['strategy']} {key}"}
            row.update(program=name, key=key, alone=single[line["strategy"]]["to_oracle"])
            yield row


def of_trace(name: str, settings: Settings, trace: Path) -> Iterator[dict]:
    total = intervals_of(settings.build, trace)
    if total < INTERVALS_MIN and not settings.toy:
        yield {"table": "accuracy", "row": name, "missing": f"a trace of {total} intervals"}
        return
    skip = ["--skip", str(total // SKIP_SHARE)]
    costs = [word for model in COSTS for word in ("-c", model)]
    for line in replay(settings.build, [*skip, *costs], trace):
        yield {**line, "row": line["strategy"], "program": name}
    for line in replay(settings.build, ["--figures"], trace):
        yield {**line, "row": name, "program": name}
    for sweep in SWEEPS:
        for line in replay(settings.build, [*skip, "-s", sweep, "-c", "smc"], trace):
            yield {**line, "table": "sweep", "row": line["strategy"], "program": name}


def alternate(build: Path, toy: bool) -> Iterator[dict]:
    """
    Two types of requests by turns, or drawn, whose pages have little in common: with a working set
    for each type and with one for both.
    """
    names = [word for strategy in CONTEXTUAL for word in ("-s", strategy)]
    for chance, title in (("0", "by turns"), ("0.5", "drawn")):
        made = [f"--synthetic=alternate:p={chance}", "-n", "500" if toy else "20000"]
        made += ["--skip", "100", *(word for model in COSTS for word in ("-c", model)), *names]
        single = {(x["strategy"], x["costs"]): x for x in replay(build, [*made, "--ignore-keys"])}
        for line in replay(build, made):
            row = {**line, "table": "alternate", "row": line["strategy"], "order": title}
            alone = single[line["strategy"], line["costs"]]
            row.update({f"alone_{key}": alone.get(key) for key in ("op", "up", "to_oracle")})
            yield row
