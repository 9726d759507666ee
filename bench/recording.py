# SPDX-License-Identifier: MIT
"""Traces of a server's processes under its load: which pages each interval writes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from loads import Program
from servers import ServerError

CANDIDATES = 16


def record(
    program: Program, build: Path, folder: Path, requests: int, key: str = ""
) -> list[Path]:
    """Whole traces, the longest first. `key`: of working sets (cairn run --context)."""
    trace = folder / f"trace-{key}"
    trace.mkdir(exist_ok=True)
    trace.chmod(0o777)
    options = ["--at", "wait", "--tracker", "async", "--trace", str(trace / program.name)]
    options += ["--context", key] if key else []
    under = [str(build / "bin" / "cairn"), "run", *options, "--"]
    server = program.make(folder / program.name, under)
    try:
        server.start()
        program.load(server, requests)
    finally:
        server.stop()
    found = sorted(trace.glob(f"{program.name}*"), key=lambda path: -path.stat().st_size)
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
