# SPDX-License-Identifier: MIT
"""
The evaluation of the SMC paper (Figure 2, Figure 3, memory, restore time), redone: what a
checkpoint per wake-up costs Apache httpd, nginx, lighttpd, PostgreSQL, BIND and redis, for each
tracker, surface and strategy.

Each run starts the server afresh, warms it up and loads it once. A round is one run of each
variant, in an order that rotates; ratios are taken to the bare run of the same round. Checkpoints
are counted by the processes themselves and summed over all of them, those that have ended
included. A variant that cannot be run is a line with its reason.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from loads import PROGRAMS, Program
from recording import most_intervals, record, served
from rounds import Found, RunLog, spread
from servers import Server, ServerError, processor_seconds
from throughput import measured

TRACKERS = ("async", "uffd", "mprotect")
FED = "async+caps"  # async, where the processes would have no feed for want of capabilities
CAPABILITIES = ("bpf", "perfmon", "sys_admin")
SURFACES = ("program", "all")
STRATEGIES = ("none", "last", "active-rnd", "active-fifo", "active-cks", "gspec", "histase",
              "decay")  # fmt: skip
BOUND = "oracle-count"  # no strategy could cost less; the same whatever the tracker
PRICES = tuple(f"price_{name}" for name in ("fault", "copy", "protect", "open"))
WARM_SHARE = 10  # a tenth of the load before it


@dataclass(frozen=True)
class Settings:
    build: Path
    rounds: int
    toy: bool
    quick: bool
    trackers: tuple[str, ...] = TRACKERS
    surfaces: tuple[str, ...] = SURFACES
    strategies: tuple[str, ...] | None = None  # None: all that this build knows

    def cairn(self) -> str:
        return str(self.build / "bin" / "cairn")


@dataclass(frozen=True)
class Variant:
    surface: str
    tracker: str
    strategy: str

    @property
    def bare(self) -> bool:
        return not self.tracker

    @property
    def name(self) -> str:
        return "bare" if self.bare else f"{self.tracker} {self.surface} {self.strategy}"

    def profile(self, folder: Path) -> Path:
        """What the bound copies on this surface."""
        return folder / f"profile-{self.surface}"

    def under(self, cairn: str, folder: Path) -> list[str]:
        if self.bare:
            return []
        tracker = "auto" if self.tracker == "any" else self.tracker.split("+")[0]
        options = ["--at", "wait", "--tracker", tracker, "--surface", self.surface]
        bound = self.strategy == BOUND
        strategy = self.strategy + (f":profile={self.profile(folder)}" if bound else "")
        return [cairn, "run", "--stats=json", *options, "--strategy", strategy, "--"]


def strategies(settings: Settings) -> list[str]:
    """Those asked for that `cairn run` takes; the others are left out with a word."""
    wanted = settings.strategies or (("none",) if settings.toy else STRATEGIES)
    known = []
    for name in wanted:
        command = [settings.cairn(), "run", "--strategy", name, "--", "true"]
        if subprocess.run(command, capture_output=True, timeout=100).returncode == 0:
            known.append(name)
        elif settings.strategies:
            print(f"(no strategy {name})", end=" ", flush=True)
    return known


def trackers(settings: Settings, program: Program) -> tuple[str, ...]:
    if settings.toy:
        return ("async",)
    feed = program.privileges_dropped and os.geteuid() == 0 and "async" in settings.trackers
    return (*settings.trackers, FED) if feed else settings.trackers


def variants(settings: Settings, program: Program) -> list[Variant]:
    found = [Variant("", "", "")]
    names = strategies(settings)
    for surface in ("all",) if settings.toy else settings.surfaces:
        for tracker in trackers(settings, program):
            found += [Variant(surface, tracker, name) for name in names]
        found.append(Variant(surface, "any", BOUND))
    return found


def steps(name: str, settings: Settings) -> int:
    return settings.rounds * len(variants(settings, PROGRAMS[name]))


# ---- one run


def memory_kib(pids: list[int]) -> float:
    """Proportional set size: pages that processes share count once."""
    total = 0.0
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        found = re.search(r"^Pss:\s+(\d+)", text, re.MULTILINE)
        total += float(found[1]) if found else 0
    return total


def stat(cairn: str, pid: int) -> dict[str, Any]:
    done = subprocess.run(
        [cairn, "stat", "--json", str(pid)], capture_output=True, text=True, timeout=1000
    )
    return json.loads(done.stdout) if done.returncode == 0 else {}


def summaries(text: str) -> dict[int, dict[str, Any]]:
    """What --stats=json printed at the exit of each process, by process."""
    found = {}
    for line in text.splitlines():
        if line.startswith('{"pid": ') and line.endswith("}"):
            one = json.loads(line)
            found[one["pid"]] = one
    return found


def one_run(
    program: Program, variant: Variant, settings: Settings, folder: Path, requests: int
) -> dict[str, Any]:
    cairn = settings.cairn()
    # One folder for all: a database is filled once, by the bare server, which comes first.
    server = program.make(folder / "server", variant.under(cairn, folder))
    if variant.tracker == FED:
        server.capabilities = CAPABILITIES
    made: list[int] = []

    def once(count: int) -> float:
        made.append(count)
        return program.load(server, count)

    try:
        if server.errors.exists():
            server.errors.unlink()
        server.start()
        warm = max(20, requests // WARM_SHARE)
        program.load(server, warm)
        before = processor_seconds(server.family())
        rate, _ = measured(once, requests)
        pids = server.family()
        spent = processor_seconds(pids) - before
        live = {} if variant.bare else {pid: stat(cairn, pid) for pid in pids}
        figure = {
            "memory_kib": memory_kib(pids),
            "processor_us_per_request": 1e6 * spent / sum(made),
        }
        server.stop()
        if not variant.bare:
            figure.update(sums(server, live, sum(made) + warm, rate))
        return {"rate": rate, **figure}
    finally:
        server.stop()


def sums(
    server: Server, live: dict[int, dict[str, Any]], requests: int, rate: float
) -> dict[str, float]:
    """Over all processes: a summary at exit is newer than what `cairn stat` said."""
    processes = {pid: one for pid, one in live.items() if one}
    processes.update(summaries(server.errors.read_text(errors="replace")))

    def total(key: str) -> float:
        return sum(one.get(key, 0) for one in processes.values())

    taken = total("checkpoints")
    if not taken:
        raise ServerError(server.last_words())
    if total("failed"):
        raise ServerError(f"{total('failed'):.0f} checkpoints failed: {server.last_words()}")
    main = max(processes.values(), key=lambda one: one.get("checkpoints", 0))
    eager = sum(one.get("pages_eager", 0) for one in live.values())
    seen = sum(one.get("checkpoints", 0) for one in live.values())
    return {
        "checkpoints_per_request": taken / requests,
        "checkpoints_per_second": taken * rate / requests,
        "pages_per_checkpoint": total("pages_saved") / taken,
        "eager_per_checkpoint": eager / seen if seen else 0,
        "checkpoint_us": total("checkpoint_ns") / taken / 1000,
        "engine_kib": total("engine_bytes_max") / 1024,
        **{key: main.get(key, 0) for key in PRICES},
    }


def write_profile(
    program: Program, settings: Settings, folder: Path, variant: Variant, requests: int
) -> None:
    """What the bound copies: as many pages of the surface as this load wrote when recorded."""
    traces = record(served(program, requests), settings.build, folder, surface=variant.surface)
    if not traces:
        raise ServerError("no trace was written")
    profile = variant.profile(folder)
    shutil.copy(most_intervals(settings.build, traces), profile)
    profile.chmod(0o644)


def measure(name: str, settings: Settings, log: RunLog) -> Iterator[dict]:
    """Figure 2 and the memory of one program. Interrupted, it says what there is."""
    program = PROGRAMS[name]
    requests = program.quick // 10 if settings.toy else program.quick
    requests = requests if settings.toy or settings.quick else program.full
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    folder.chmod(0o755)
    found = Found(variants(settings, program))

    def make(variant: Variant) -> dict[str, Any]:
        if variant.strategy == BOUND and not variant.profile(folder).exists():
            recorded = min(requests, 5 * program.quick)
            write_profile(program, settings, folder, variant, recorded)
        return one_run(program, variant, settings, folder, requests)

    try:
        log.fill(found, settings.rounds, make, lambda one: one.name)
    except KeyboardInterrupt:
        yield from lines(program, found, requests)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    yield from lines(program, found, requests)


def lines(program: Program, found: Found, requests: int) -> Iterator[dict]:
    bare = found[next(iter(found.rounds))]
    for variant, mine in found.rounds.items():
        line: dict[str, Any] = {
            "table": "smc",
            "program": program.name,
            "row": variant.name,
            "surface": variant.surface,
            "tracker": variant.tracker,
            "strategy": variant.strategy,
        }
        if reason := found.missing(variant):
            yield {**line, "missing": reason}
            continue
        rates = sorted(one["rate"] for one in mine)
        line.update(
            requests=requests,
            unit=program.unit,
            rounds=len(rates),
            per_second=round(median(rates), 1),
            least=rates[0],
            most=rates[-1],
        )
        for key in mine[0].keys() - {"rate"}:
            line[key] = round(median(one[key] for one in mine), 4)
        if not variant.bare and bare:
            line |= spread([one["rate"] / its["rate"] for one, its in zip(mine, bare)])
            for name in ("memory_kib", "processor_us_per_request"):
                its = median(one[name] for one in bare)
                short = name.split("_")[0]
                line[f"{short}_ratio"] = round(line[name] / its, 3) if its else 0
        yield line
