# SPDX-License-Identifier: MIT
"""
Traces of real servers, replayed through every strategy: which pages each interval writes is
recorded once (`cairn run --trace`), and cairn-bench plays it without the program. Overcopied and
undercopied pages and their weighted sums (SMC's Tables 2 to 4), recall and precision (HBFT's
Figure 12), page reuse, run lengths and history similarity (its Figures 4 to 6), and sweeps of the
strategies' parameters. A server with several processes gives a trace per process; the one with the
most intervals stands for all.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from loads import PROGRAMS
from recording import intervals_of, most_intervals, record, replay
from smc import Settings

# Sweeps as in SMC 7.3: does a strategy depend on the choice of its parameters?
SWEEPS = (
    "active-rnd:every=5/10/30/100/300",
    "active-fifo:every=5/10/30/100/300",
    "active-cks:n=1/2/5/10/20",
    "gspec:individuals=3/5/8",
    "gspec:mutation=0.001/0.005/0.01/0.05",
    "histase:alpha=0.5/0.7/0.9",
    "histase:own=0/1",
)
COSTS = ("smc", "async", "uffd", "mprotect")
SKIP_SHARE = 10  # the first tenth of the intervals teaches, and does not count
INTERVALS_MIN = 50


# Keys of working sets (cairn run --context) that may help a server, and strategies to try them on.
KEYS = ("events", "fd", "result")
KEYED = ("last", "gspec", "decay")
CONTEXTUAL = ("none", "last", "active-cks", "gspec", "decay")


def recorded(name: str, settings: Settings, folder: Path, key: str = "") -> list[Path]:
    program = PROGRAMS[name]
    requests = program.quick // 10 if settings.toy else program.quick
    if not settings.toy and not settings.quick:
        requests *= 5
    return record(program, settings.build, folder, requests, key)


def measure(name: str, settings: Settings, keep: Path | None = None) -> Iterator[dict]:
    """`keep`: a folder where the trace is left."""
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    folder.chmod(0o755)
    try:
        traces = recorded(name, settings, folder)
        if not traces:
            yield {"table": "traces", "row": name, "missing": "no trace was written"}
            return
        if keep:
            keep.mkdir(parents=True, exist_ok=True)
            for trace in traces[:4]:
                shutil.copy(trace, keep)
        yield from of_trace(name, settings, most_intervals(settings.build, traces))
        for key in () if settings.toy else KEYS:
            keyed = recorded(name, settings, folder, key)
            if keyed:
                yield from of_key(name, settings, most_intervals(settings.build, keyed), key)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
