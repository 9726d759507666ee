# SPDX-License-Identifier: MIT
"""
"Techniques for efficient in-memory checkpointing", Figures 1 to 3: 1 KB written byte by byte in
each iteration of a checkpointed loop, by range, by repeats and by the size of a region. A round
runs each variant once; ratios are taken to the run without checkpoints of the same round. And what
kept checkpoints take of memory, once: that does not vary.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from lmc_programs import plain_cc
from rounds import Found, RunLog, spread
from smc import Settings

HERE = Path(__file__).resolve().parent
REGIONS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
MODES = ("tags=bzero", "tags=mmap", "tags=dontneed", "tags=epoch", "guard=on", "threads")
PAGES = ("fork", "mprotect", "softdirty", "uffd", "async")


def variants(settings: Settings) -> dict[str, tuple[str, str]]:
    """The program (by its region; "": without hooks) and tracker of each row."""
    found = {"none": ("", "none"), "shadow": ("128", "shadow"), "undolog": ("undolog", "undolog")}
    if settings.toy:
        return found
    found |= {tracker: ("", tracker) for tracker in PAGES}
    found |= {f"shadow {mode}": (mode, "shadow") for mode in MODES}
    found["undolog guard=on"] = ("undolog guard=on", "undolog")
    found["shadow hybrid"] = ("hybrid", "shadow")
    found["undolog hybrid"] = ("undolog hybrid", "undolog")
    regions = (16, 1024) if settings.quick else REGIONS
    return found | {f"shadow, {n}": (str(n), "shadow") for n in regions if n != 128}


def steps(settings: Settings) -> int:
    return settings.rounds * len(variants(settings))


def missing(build: Path) -> str | None:
    if not (build / "bin" / "cairn-cc").exists():
        return "cairn-cc is not built (scripts/install_deps.sh compiler)"
    return None


def own_flags(kind: str) -> list[str]:
    """A size of regions, a tracker, or options without their -fcairn-."""
    words = [f"region={kind}"] if kind.isdigit() else kind.split()
    return ["-fcairn-" + (f"tracker={word}" if word == "undolog" else word) for word in words]


def program(folder: Path, kind: str) -> Path:
    return folder / f"stores-{kind.replace(' ', '-') or 'plain'}"


def compile_all(settings: Settings, folder: Path) -> None:
    """One program for each kind of hooks; what measures has none."""
    build, root = settings.build, HERE.parent
    words = ["-O2", "-D_GNU_SOURCE", f"-I{root}/include", f"-I{HERE}/native"]
    measure = folder / "measure.o"
    native = [plain_cc(build / "bin" / "cairn-cc", folder), *words, "-fno-lto"]
    subprocess.run([*native, "-c", HERE / "native" / "measure.c", "-o", measure], check=True)
    source = HERE / "native" / "bench_stores.c"
    for kind in {kind for kind, _ in variants(settings).values()}:
        command = [str(build / "bin" / "cairn-cc"), *own_flags(kind)]
        libraries: list[str] = []
        if not kind:
            command, libraries = native[:1], [str(build / "lib" / "libcairn.a")]
        out = program(folder, kind)
        subprocess.run([*command, *words, source, measure, *libraries, "-o", out], check=True)


def one_run(folder: Path, kind: str, tracker: str, toy: bool) -> dict[str, Any]:
    """Cycles of each point, by "range repeats"."""
    command = [program(folder, kind), tracker, *(["--toy"] if toy else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"bench_stores {tracker}: {done.stderr[-300:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for line in lines:
        if "missing" in line:
            raise RuntimeError(line["missing"])
    return {f"{line['range']} {line['repeats']}": line["cycles"] for line in lines}


def memory(folder: Path, rows: dict[str, tuple[str, str]]) -> Iterator[dict]:
    """Of the trackers with hooks, in their usual form."""
    for row in ("shadow", "undolog"):
        kind, tracker = rows[row]
        command = [program(folder, kind), tracker, "--memory"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if done.returncode:
            yield {"table": "lmc.memory", "row": row, "missing": done.stderr[-300:]}
        for line in done.stdout.splitlines():
            yield {**json.loads(line), "table": "lmc.memory"}


def measure(settings: Settings, log: RunLog) -> Iterator[dict]:
    rows = variants(settings)
    found = Found(list(rows))
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as name:
        folder = Path(name)
        compile_all(settings, folder)
        log.fill(found, settings.rounds, lambda row: one_run(folder, *rows[row], settings.toy))
        memories = list(memory(folder, rows))
    yield from lines(found)
    yield from memories


def lines(found: Found) -> Iterator[dict]:
    for row, rounds in found.rounds.items():
        if reason := found.missing(row):
            yield {"table": "lmc.stores", "row": row, "missing": reason}
            continue
        for point in rounds[0]:
            written_range, repeats = map(int, point.split())
            ratios = [mine[point] / its[point] for mine, its in zip(rounds, found["none"])]
            yield {
                "table": "lmc.stores",
                "row": row,
                "range": written_range,
                "repeats": repeats,
                "cycles": round(median(one[point] for one in rounds)),
                **spread(ratios),
                "rounds": len(rounds),
            }
