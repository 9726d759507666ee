# SPDX-License-Identifier: MIT
"""Traces of real programs under their loads: which pages each interval writes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from loads import Program
from servers import ServerError

CANDIDATES = 16
WAIT = "wait"


@dataclass(frozen=True)
class Subject:
    """A program with its load."""

    name: str
    site: str
    # From a folder of its own and `cairn run` with its options to what was said on stderr.
    run: Callable[[Path, list[str]], str]


def served(program: Program, requests: int) -> Subject:
    def run(folder: Path, under: list[str]) -> str:
        server = program.make(folder, under)
        try:
            server.start()
            program.load(server, requests)
        finally:
            server.stop()
        return server.errors.read_text(errors="replace")

    return Subject(program.name, WAIT, run)


def run_at(subject: Subject, build: Path, folder: Path, tracker: str, *options: str) -> str:
    at = ["--at", subject.site, "--tracker", tracker, *options]
    return subject.run(folder, [str(build / "bin" / "cairn"), "run", *at, "--"])


def record(
    subject: Subject, build: Path, folder: Path, key: str = "", surface: str = "all"
) -> list[Path]:
    """Whole traces, the longest first. `key`: of working sets (cairn run --context)."""
    trace = folder / f"trace-{surface}-{key}"
    trace.mkdir(exist_ok=True)
    trace.chmod(0o777)
    options = ["--surface", surface, *(["--context", key] if key else [])]
    place = folder / subject.name
    run_at(subject, build, place, "async", "--trace", str(trace / subject.name), *options)
    found = sorted(trace.glob(f"{subject.name}*"), key=lambda path: -path.stat().st_size)
    return [path for path in found if path.stat().st_size > 0]


def replay(build: Path, words: list[str], trace: Path | None = None) -> Iterator[dict]:
    """What cairn-bench says of a trace, or of a run made up, which `words` then name."""
    command = [str(build / "bin" / "cairn-bench"), *words]
    command += ["--cut", str(trace)] if trace else []
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise ServerError(f"cairn-bench: {done.stderr[-300:]}")
    for line in done.stdout.splitlines():
        yield json.loads(line)


def intervals_of(build: Path, trace: Path) -> int:
    line = next(replay(build, ["-s", "none", "-c", "smc"], trace), {})
    return line.get("intervals", 0)


def most_intervals(build: Path, traces: list[Path]) -> Path:
    """Of a server with several processes the one that stands for all."""
    return max(traces[:CANDIDATES], key=lambda one: intervals_of(build, one))
