# SPDX-License-Identifier: MIT
"""
"Techniques for efficient in-memory checkpointing", Tables 2 and 3, and the servers of "Lightweight
Memory Checkpointing" (Figure 5, Table II): web servers at a checkpoint per turn of their event
loop, with files of 4 and 64 KiB. ab sends 25,000 requests over 10 connections at a time, 10 on
each.

Trackers of pages run the plain program under `cairn run --at wait`; the others are in programs that
cairn-cc has built (lmc_programs.py), with a checkpoint at the return of epoll_wait. Each run starts
the server afresh; ratios are taken to the plain run of the same round.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from lmc_programs import Recipe, built
from loads import PER_CONNECTION, ab_load
from servers import LighttpdServer, NginxServer, Server, ServerError
from rounds import Found, RunLog, spread
from smc import Settings, memory_kib, processor_seconds, summaries

PAGES = ("fork", "mprotect", "softdirty", "async")
ROWS = ("plain", "undolog", "shadow", *PAGES)
SIZES = (4, 64)  # KiB
REQUESTS, QUICK = 25_000, 3_000
FIGURES = ("rate", "cpu_us", "memory_kib", "per_request", "saved", "checkpoint_us")


class BuiltNginx(NginxServer):
    """Without the module that `return` is from, which needs a library."""

    CONFIGURATION = re.sub(r"\n *location .*return.*", "", NginxServer.CONFIGURATION)


class BuiltLighttpd(LighttpdServer):
    """From its source: none of the modules that it would load by default are there."""

    def prepare(self) -> None:
        super().prepare()
        with (self.folder / "lighttpd.conf").open("a") as f:
            f.write('server.compat-module-load = "disable"\nserver.modules = ("mod_staticfile")\n')


KINDS: dict[str, type[NginxServer] | type[LighttpdServer]] = {
    "nginx": BuiltNginx,
    "lighttpd": BuiltLighttpd,
}


def make(recipe: Recipe, row: str, settings: Settings, folder: Path, kib: int) -> Server:
    www = folder / f"www{kib}"
    if not www.exists():
        www.mkdir()
        www.chmod(0o755)
        (www / "file").write_bytes(b"x" * kib * 1024)
    under = ["env", "CAIRN_STATS=json"]
    if row in PAGES:
        under = [settings.cairn(), "run", "--stats=json", "--at", "wait", "--tracker", row]
        under += ["--strategy", "none", "--"]
    server = KINDS[recipe.name](folder / f"{row}{kib}", under, www)
    server.program = str(recipe.path("plain" if row in PAGES else row))
    server.requests_per_connection = PER_CONNECTION
    return server


def one_run(
    recipe: Recipe, row: str, kib: int, settings: Settings, folder: Path
) -> dict[str, float]:
    requests = QUICK if settings.quick else REQUESTS
    server = make(recipe, row, settings, folder, kib)
    warm = requests // 10
    try:
        server.start()
        ab_load(server, warm)
        before = processor_seconds(server.family())
        rate = ab_load(server, requests)
        pids = server.family()
        spent = processor_seconds(pids) - before
        figures = {
            "rate": rate,
            "cpu_us": 1e6 * spent / requests,
            "memory_kib": memory_kib(pids),
        }
        server.stop()
        said = summaries(server.errors.read_text(errors="replace")).values()
        taken = sum(one["checkpoints"] for one in said)
        if row != "plain" and (not taken or any(one["failed"] for one in said)):
            raise ServerError(f"{row}: no checkpoints, or failed ones: {server.last_words()}")
        saved = sum(one.get("saved", one.get("pages_saved", 0)) for one in said)
        figures["per_request"] = taken / (requests + warm)
        figures["saved"] = saved / taken if taken else 0
        nanoseconds = sum(one["checkpoint_ns"] for one in said)
        figures["checkpoint_us"] = nanoseconds / taken / 1000 if taken else 0
        return figures
    finally:
        server.stop()
        shutil.rmtree(server.folder, ignore_errors=True)


def rows(settings: Settings) -> list[tuple[str, int]]:
    return [(row, kib) for kib in SIZES for row in ROWS]


def steps(settings: Settings) -> int:
    return settings.rounds * len(rows(settings))


def measure(name: str, settings: Settings, log: RunLog) -> Iterator[dict]:
    recipe = built(name, settings.build)
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    folder.chmod(0o755)
    every = rows(settings)
    found = Found(every)
    try:
        log.fill(
            found,
            settings.rounds,
            lambda one: one_run(recipe, *one, settings, folder),
            lambda one: f"{one[0]} {one[1]}",
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for one in every:
        yield line(name, one, found)


def line(name: str, one: tuple[str, int], found: Found) -> dict[str, Any]:
    row, kib = one
    out: dict[str, Any] = {"table": "lmc.servers", "program": name, "row": row, "kib": kib}
    mine, plain = found[one], found[("plain", kib)]
    if reason := found.missing(one) or found.missing(("plain", kib)):
        return {**out, "missing": reason}
    out["rounds"] = len(mine)
    for key in FIGURES:
        out[key] = round(median(figures[key] for figures in mine), 3)
    out["checkpoints_per_second"] = round(out["per_request"] * out["rate"], 1)
    for key in ("rate", "cpu_us", "memory_kib"):
        ratios = [a[key] / b[key] for a, b in zip(mine, plain) if b[key]]
        out |= spread(ratios or [0], f"{key}_ratio")
    return out
