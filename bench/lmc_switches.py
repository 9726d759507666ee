# SPDX-License-Identifier: MIT
"""
"Lightweight Memory Checkpointing", Figures 8 to 10: what each kind of optimisation leaves out of
the hooks, what that is worth in processor time, and what the hooks cost that save nothing
(-fcairn-save=off; those of the undo log without a session), in 64-bit programs and, as PROGRAM-32,
in 32-bit ones. Its Figure 3, too: servers by the size of a region. And section V-B: programs that
take no checkpoints, with hooks alone and with two versions of their code (-fcairn-clone=on).
Tracker: shadow, but for that one row.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import lmc_runs
import lmc_servers
from lmc_programs import BuildError, built, built_with
from lmc_recipes import CLONES, IDLE_LOG, REGIONS, SWITCHED
from lmc_services import SERVICES
from lmc_works import WORKS
from rounds import Found, RunLog, spread
from serving import NEVER
from smc import Settings

KINDS = {"switches": SWITCHED, "regions": REGIONS, "clones": CLONES}


def rows_of(kind: str) -> list[str]:
    return [*KINDS[kind], *([IDLE_LOG] if kind == "switches" else [])]


def steps(kind: str, settings: Settings, names: list[str]) -> int:
    return settings.rounds * (1 + len(rows_of(kind))) * len(names)


def hooks_of(program: Path) -> dict[str, int]:
    """What the compiler said when it linked the program."""
    report = program.with_suffix(".report")
    if not report.exists():
        return {}
    said = report.read_text()
    names = {"functions": "functions,", "split": "functions in two", "checks": "checks",
             "ranges": "range calls"}  # fmt: skip
    found = {key: int(re.search(rf"(\d+) {name}", said)[1]) for key, name in names.items()}
    return {"hooks": found["checks"] + found["ranges"], **found}


def taken(one: dict[str, Any]) -> dict[str, float]:
    """Checkpoints of a run: a server's for each request, too."""
    if "rate" in one:
        each = one["per_request"]
        return {"per_request": each, "checkpoints_per_second": each * one["rate"]}
    return {"checkpoints_per_second": one["checkpoints"] / one["seconds"]}


def measure(kind: str, settings: Settings, log: RunLog, names: list[str]) -> Iterator[dict]:
    for name in names:
        try:
            yield from measure_one(kind, name, settings, log)
        except BuildError as error:
            yield {"table": f"lmc.{kind}", "program": name, "row": name, "missing": str(error)}


def measure_one(kind: str, name: str, settings: Settings, log: RunLog) -> Iterator[dict]:
    recipe = built(name, settings.build)
    work = WORKS.get(name.removesuffix("-32"))
    programs = {"plain": recipe.path("plain"), IDLE_LOG: recipe.path("undolog")}
    programs |= built_with(name, settings.build, KINDS[kind])
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    folder.chmod(0o755)
    found = Found(["plain", *rows_of(kind)])

    def run(row: str) -> dict[str, Any]:
        every = NEVER if kind == "clones" or row == IDLE_LOG else 1
        if work:
            command = [str(programs[row]), *arguments]
            typed, rare = folder / work.typed, every if every > 1 else 0
            figures = lmc_runs.one_run(command, work.clean, typed, rare)
            if every > 1 and figures["checkpoints"]:
                raise RuntimeError("it took checkpoints")
            return figures
        service = SERVICES[name]
        point = lmc_servers.Point(row, service.sizes[0], every, programs[row])
        return lmc_servers.one_run(recipe, service, point, settings, folder)

    try:
        arguments = work.arguments(folder, settings) if work else []
        log.fill(found, settings.rounds, run, lambda row: f"{name} {row}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    key = "seconds" if work else "cpu_us"
    most = hooks_of(programs[next(iter(KINDS[kind]))])
    for row in rows_of(kind):
        hooks = hooks_of(programs[row])
        out = {"table": f"lmc.{kind}", "program": name, "row": row, **hooks}
        out |= {"hooks_at_most": most["hooks"]} if most and hooks else {}
        if reason := found.missing(row) or found.missing("plain"):
            yield {**out, "missing": reason}
            continue
        mine, plain = found[row], found["plain"]
        out["rounds"], out["median"] = len(mine), median(one[key] for one in mine)
        counts = [taken(one) for one in mine]
        out |= {name: round(median(one[name] for one in counts), 2) for name in counts[0]}
        yield out | spread([a[key] / b[key] for a, b in zip(mine, plain)])
