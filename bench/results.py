# SPDX-License-Identifier: MIT
"""Results as JSON lines, each with what is needed to know what it is a figure of."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def machine() -> dict:
    cpu = "unknown"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                cpu = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": cpu, "cpus": os.cpu_count(), "memory_gib": round(memory / 2**30, 1)}


def commit() -> str:
    """The short commit, with a + if the tree has changes; "unknown" outside a repository."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return done.stdout.strip()

    try:
        changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
        return (git("rev-parse", "--short=10", "HEAD") or "unknown") + changed
    except OSError:
        return "unknown"


class Results:
    """Appends lines to results.jsonl as they come, so that an interrupted run loses nothing."""

    def __init__(self, folder: Path | None, build: Path, toy: bool) -> None:
        self.common = {
            "machine": machine(),
            "kernel": platform.release(),
            "commit": commit(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "toy": toy,
        }
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{self.common['commit'].rstrip('+')}"
        self.folder = folder or ROOT / "results" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "results.jsonl"
        self.lines: list[dict] = []

    def add(self, line: dict) -> int:
        """Returns 1, to be summed up."""
        line = {**line, **self.common}
        self.lines.append(line)
        with self.path.open("a") as f:
            f.write(json.dumps(line) + "\n")
        return 1


def load(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
