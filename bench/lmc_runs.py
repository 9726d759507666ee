# SPDX-License-Identifier: MIT
"""
Programs that compute (lmc_works.py), built by cairn-cc with a checkpoint per turn of an inner loop:
hmmsearch per sequence ("Techniques for efficient in-memory checkpointing", Table 4), and others of
which an interval takes from microseconds to seconds ("Lightweight Memory Checkpointing", Figure 7).
Processor time and memory, beside the same program without hooks in the same round. What they print
must be the same in all variants. Like that paper's, the undo log is limited to 4 GiB; in intervals
of half a run some programs need more.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from lmc_programs import built
from lmc_recipes import NOTHING
from lmc_works import WORKS
from results import digest
from rounds import Found, RunLog, spread
from smc import Settings, summaries

TABLE, LONG_TABLE = "lmc.runs", "lmc.long"
PAGES = ("fork", "mprotect", "softdirty", "async")
LIMIT = 4 << 30  # bytes of the undo log
HALVES = {f"{row}, half a run": row for row in ("undolog", "shadow")}
LONG, LEAST = 120, 3  # a row that has taken so many seconds has enough runs, but for so many


def rows(name: str) -> tuple[str, ...]:
    pages = PAGES if WORKS[name].at else ()
    return ("plain", "undolog", "shadow", NOTHING, *pages, *HALVES)


def steps(name: str, settings: Settings) -> int:
    return settings.rounds * len(rows(name))


def peak_kib(pid: int) -> int:
    """The most that it has had in memory so far (ru_maxrss would begin with ours)."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"^VmHWM:\s+(\d+)", text, re.MULTILINE)
    return int(found[1]) if found else 0


def one_run(
    command: list[str], clean: str, typed: Path = Path(os.devnull), every: int = 0
) -> dict[str, Any]:
    """In an empty folder of its own: sjeng learns from run to run."""
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        typed.open() as words,
        tempfile.TemporaryDirectory(prefix="cairn-bench-") as place,
    ):
        environment = {**os.environ, "CAIRN_STATS": "json", "CAIRN_MEMORY_MAX": str(LIMIT)}
        environment["CAIRN_SITE_EVERY"] = str(every)
        process = subprocess.Popen(
            command, stdin=words, stdout=out, stderr=err, env=environment, cwd=place
        )
        peak, (pid, status, used) = 0, os.wait4(process.pid, os.WNOHANG)
        while not pid:
            peak = max(peak, peak_kib(process.pid))
            time.sleep(0.01)
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0), err.seek(0)
        said = err.read().decode(errors="replace")
        if process.returncode:
            raise RuntimeError(f"{command[0]} ended with {process.returncode}: {said[-300:]}")
        if "this interval cannot be restored" in said:
            raise RuntimeError("overflow: an interval needs more than 4 GiB of log")
        stats = next(iter(summaries(said).values()), {})
        answer = out.read().decode(errors="replace")
    return {
        "seconds": used.ru_utime + used.ru_stime,
        "memory_kib": peak,
        "checkpoints": stats.get("checkpoints", 0),
        "failed": stats.get("failed", 0),
        "saved": stats.get("saved", stats.get("pages_saved", 0)),
        "checkpoint_ns": stats.get("checkpoint_ns", 0),
        "answer": digest(re.sub(clean, "", answer) if clean else answer),
    }


def enough(runs: list[dict[str, Any]]) -> bool:
    return len(runs) >= LEAST and sum(one["seconds"] for one in runs) >= LONG


def measure(name: str, settings: Settings, log: RunLog) -> Iterator[dict]:
    recipe, work = built(name, settings.build), WORKS[name]
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    found = Found(rows(name))

    def run(row: str) -> dict[str, Any]:
        variant = "plain" if row in PAGES else HALVES.get(row, row)
        every = 0
        if why := recipe.refused(variant):
            raise RuntimeError(why)
        if row in HALVES:
            if not found["shadow"] or found["shadow"][0]["checkpoints"] < 2:
                raise RuntimeError("how many checkpoints a run takes is not known")
            every = found["shadow"][0]["checkpoints"] // 2
        command = [str(recipe.path(variant)), *arguments]
        if row in PAGES:
            under = [settings.cairn(), "run", "--stats=json", "--at", work.at, "--tracker", row]
            command = [*under, "--strategy", "none", "--", *command]
        figures = one_run(command, work.clean, folder / work.typed, every)
        if row not in ("plain", NOTHING) and (not figures["checkpoints"] or figures["failed"]):
            raise RuntimeError("no checkpoints, or failed ones")
        return figures

    try:
        arguments = work.arguments(folder, settings)
        log.fill(found, settings.rounds, run, enough=enough)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for row in found.rounds:
        yield line(name, row, found)


def line(name: str, row: str, found: Found) -> dict[str, Any]:
    table = LONG_TABLE if row in HALVES else TABLE
    out: dict[str, Any] = {"table": table, "program": name, "row": HALVES.get(row, row)}
    mine, plain = found[row], found["plain"]
    if row in HALVES and plain:
        out["interval_us"] = round(0.5e6 * median(one["seconds"] for one in plain), 1)
    if reason := found.missing(row) or found.missing("plain"):
        return {**out, "missing": reason}
    if any(one["answer"] != plain[0]["answer"] for one in mine):
        return {**out, "missing": "its output is another than that of the plain program"}
    ratios = [a["seconds"] / b["seconds"] for a, b in zip(mine, plain)]
    taken = mine[-1]["checkpoints"]
    seconds = median(one["seconds"] for one in mine)
    seconds_plain = median(one["seconds"] for one in plain)
    memory = median(one["memory_kib"] for one in mine)
    return {
        **out,
        "per": WORKS[name].per,
        "rounds": len(mine),
        "seconds": round(seconds, 4),
        **spread(ratios),
        "memory_kib": memory,
        "memory_ratio": round(memory / median(one["memory_kib"] for one in plain), 3),
        "checkpoints": taken,
        "checkpoints_per_second": round(taken / seconds, 1),
        "saved": round(mine[-1]["saved"] / taken, 1) if taken else 0,
        "interval_us": round(1e6 * seconds_plain / taken, 1) if taken else 0,
        "checkpoint_us": round(mine[-1]["checkpoint_ns"] / taken / 1000, 3) if taken else 0,
    }
