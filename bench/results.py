# SPDX-License-Identifier: MIT
"""
Results as JSON lines, each with what is needed to know what it is a figure of. A folder of results
can be gone on with: parts that are whole are not measured again, and of a part that was interrupted
only the runs that it lacks.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAME = ("machine", "kernel", "commit", "toy", "settings")  # else figures are not comparable
WHOLE = "part"  # the table of the line that a finished part ends with


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


def load(path: Path) -> list[dict]:
    """Whole lines: the last one of a run that was killed may be cut."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def append(path: Path, line: dict) -> None:
    with path.open("a") as f:
        f.write(json.dumps(line) + "\n")


def digest(text: str) -> str:
    """To compare long texts that are not kept."""
    return hashlib.sha256(text.encode()).hexdigest()


class Results:
    """Appends lines to results.jsonl as they come, so that an interrupted run loses nothing."""

    def __init__(self, folder: Path | None, toy: bool, settings: str, fresh: bool) -> None:
        self.common = {
            "machine": machine(),
            "kernel": platform.release(),
            "commit": commit(),
            "time": time.strftime("%Y-%m-%dT%H:%M:%S"),
            "toy": toy,
            "settings": settings,
        }
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{self.common['commit'].rstrip('+')}"
        earlier = None if fresh else folder or self._newest()
        self.folder = folder or earlier or ROOT / "results" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "results.jsonl"
        before = load(self.path) if earlier else []
        if not all(map(self._ours, before)):
            raise SystemExit(f"{self.path}: of another commit, machine or settings; see --fresh")
        self.whole = {x["row"] for x in before if x["table"] == WHOLE}
        self.lines = [x for x in before if x.get("part") in self.whole]
        self.path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        self.runs = Runs(self.folder / "runs.jsonl", self, bool(earlier))

    def _ours(self, line: dict) -> bool:
        changed = self.common["commit"].endswith("+") or self.common["commit"] == "unknown"
        return not changed and all(line.get(key) == self.common[key] for key in SAME)

    def _newest(self) -> Path | None:
        """The newest folder with results of this commit, machine and settings."""
        for folder in sorted((ROOT / "results").glob("*/"), reverse=True):
            lines = load(folder / "results.jsonl") or load(folder / "runs.jsonl")
            if lines and self._ours(lines[0]):
                return folder
        return None

    def add(self, part: str, line: dict) -> int:
        """Returns 1, to be summed up."""
        line = {**line, "part": part, **self.common}
        self.lines.append(line)
        append(self.path, line)
        return 1

    def finish(self, part: str) -> None:
        self.add(part, {"table": WHOLE, "row": part})
        self.whole.add(part)


class Runs:
    """What single runs measured, by part, row and round."""

    def __init__(self, path: Path, results: Results, keep: bool) -> None:
        self.path, self.common = path, results.common
        before = [x for x in load(path) if results._ours(x)] if keep else []
        self.found = {(x["part"], x["row"], x["round"]): x["figures"] for x in before}
        path.write_text("".join(json.dumps(line) + "\n" for line in before))

    def get(self, part: str, row: str, number: int) -> dict | None:
        return self.found.get((part, row, number))

    def add(self, part: str, row: str, number: int, figures: dict) -> dict:
        self.found[(part, row, number)] = figures
        line = {"part": part, "row": row, "round": number, "figures": figures, **self.common}
        append(self.path, line)
        return figures
