# SPDX-License-Identifier: MIT
"""
"Techniques for efficient in-memory checkpointing", Tables 2 and 3, and the servers of "Lightweight
Memory Checkpointing" (Figures 3 and 5, Tables I and II): real servers (lmc_services.py) at a
checkpoint per turn of their loop over requests; what memory they take at one per 1, 10 and 100.

Trackers of pages run the plain program under `cairn run`, at the same function if the site is the
beginning of one, else at `wait`; the others are in programs that cairn-cc has built
(lmc_programs.py). Each run starts the server afresh; ratios are taken to the plain run of the same
round. Last, an oracle at the sites compares restores byte by byte.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from lmc_programs import built
from lmc_recipes import NOTHING, Recipe
from lmc_services import SERVICES, Service
from rounds import Found, RunLog, spread
from servers import Server, ServerError, processor_seconds
from serving import NEVER
from smc import Settings, memory_kib, summaries

TABLE = "lmc.servers"
PAGES = ("fork", "mprotect", "softdirty", "async")
ROWS = ("plain", "undolog", "shadow", NOTHING, *PAGES)
EVERY = (10, 100)  # requests per checkpoint, for the memory (Table II)
KEPT = ("undolog", "shadow", "mprotect")
FIGURES = ("rate", "cpu_us", "memory_kib", "per_request", "saved", "checkpoint_us", "stack_bytes")


@dataclass(frozen=True)
class Point:
    """`program`: the file, if it is not that of the row."""

    row: str
    kib: int
    every: int = 1
    program: Path | None = None

    @property
    def name(self) -> str:
        return f"{self.row} {self.kib}" + (f" /{self.every}" if self.every > 1 else "")


def points(name: str) -> list[Point]:
    sizes = SERVICES[name].sizes
    found = [Point(row, kib) for kib in sizes for row in ROWS]
    found += [Point(row, sizes[0], every) for row in KEPT for every in EVERY]
    return found


def steps(name: str, settings: Settings) -> int:
    return settings.rounds * len(points(name))


def page_site(recipe: Recipe) -> str:
    """What `cairn run` has for the place of the hooks' sites."""
    (site,) = recipe.sites
    return "wait" if site.endswith(":return") else f"func:{site}"


def under(recipe: Recipe, point: Point, settings: Settings) -> list[str]:
    if point.row not in PAGES:
        return ["env", "CAIRN_STATS=json", f"CAIRN_SITE_EVERY={point.every}"]
    site = f"{page_site(recipe)}/{point.every}"
    words = [settings.cairn(), "run", "--stats=json", "--at", site]
    return [*words, "--tracker", point.row, "--strategy", "none", "--"]


def one_run(
    recipe: Recipe, service: Service, point: Point, settings: Settings, folder: Path
) -> dict[str, float]:
    if why := not point.program and recipe.refused(point.row):
        raise ServerError(why)
    requests = service.quick if settings.quick else service.full
    place = folder / f"{point.row}{point.kib}".replace(" ", "-")
    server = service.start(place, under(recipe, point, settings), point.kib)
    program = recipe.path("plain" if point.row in PAGES else point.row)
    server.program = str(point.program or program)
    warm = max(20, requests // 10)
    try:
        server.start()
        service.load(server, warm)
        before = processor_seconds(server.family())
        rate = service.load(server, requests)
        pids = server.family()
        spent = processor_seconds(pids) - before
        figures = {"rate": rate, "cpu_us": 1e6 * spent / requests, "memory_kib": memory_kib(pids)}
        server.stop()
        return figures | sums(server, point, requests + warm)
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


def sums(server: Server, point: Point, requests: int) -> dict[str, float]:
    """Of what all of its processes said when they ended."""
    text = server.errors.read_text(errors="replace")
    if "this interval cannot be restored" in text:
        raise ServerError(f"{point.row}: an interval could not be kept: its limit is reached")
    said = summaries(text).values()
    taken = sum(one["checkpoints"] for one in said)
    takes = point.row not in ("plain", NOTHING) and point.every < NEVER
    if takes and (not taken or any(one["failed"] for one in said)):
        raise ServerError(f"{point.row}: no checkpoints, or failed ones: {server.last_words()}")
    saved = sum(one.get("saved", one.get("pages_saved", 0)) for one in said)
    nanoseconds = sum(one["checkpoint_ns"] for one in said)
    return {
        "per_request": taken / requests,
        "saved": saved / taken if taken else 0,
        "checkpoint_us": nanoseconds / taken / 1000 if taken else 0,
        "stack_bytes": max((one.get("stack_bytes", 0) for one in said), default=0),
    }


def measure(name: str, settings: Settings, log: RunLog) -> Iterator[dict]:
    recipe, service = built(name, settings.build), SERVICES[name]
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    folder.chmod(0o755)
    found = Found(points(name))
    try:
        log.fill(
            found,
            settings.rounds,
            lambda point: one_run(recipe, service, point, settings, folder),
            lambda point: point.name,
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for point in found.rounds:
        yield line(name, point, found)


def line(name: str, point: Point, found: Found) -> dict[str, Any]:
    base = Point("plain", point.kib)
    out: dict[str, Any] = {"table": TABLE, "program": name, "row": point.row}
    out |= {"kib": point.kib, "every": point.every, "unit": SERVICES[name].unit}
    mine, plain = found[point], found[base]
    if reason := found.missing(point) or found.missing(base):
        return {**out, "missing": reason}
    out["rounds"] = len(mine)
    for key in FIGURES:
        out[key] = round(median(figures[key] for figures in mine), 3)
    out["checkpoints_per_second"] = round(out["per_request"] * out["rate"], 1)
    for key in ("rate", "cpu_us", "memory_kib"):
        ratios = [a[key] / b[key] for a, b in zip(mine, plain) if b[key]]
        out |= spread(ratios or [0], f"{key}_ratio")
    return out
