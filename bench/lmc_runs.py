# SPDX-License-Identifier: MIT
"""
Programs that compute, built by cairn-cc (lmc_programs.py): hmmsearch with a checkpoint per sequence
("Techniques for efficient in-memory checkpointing", Table 4), sqlite's speedtest1 with one per
statement, a Lua script with one per turn of its loop. Processor time and memory, beside the same
program without hooks in the same round. What they print must be the same in all variants.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import hmmsearch
from lmc_programs import built
from results import digest
from rounds import Found, RunLog, spread
from smc import Settings, summaries

PAGES = ("fork", "mprotect", "softdirty", "async")

SCRIPT = """
-- Tables, strings and closures; os.clock is where checkpoints are taken.
local turns, seed = tonumber(arg[1]), 1
local function random(n)
	seed = (seed * 1103515245 + 12345) % 2147483648
	return seed % n + 1
end
local words, count, sum = {}, 0, 0
for turn = 1, turns do
	os.clock()
	for i = 1, 40 do
		local key = "k" .. random(400)
		words[key] = (words[key] or 0) + i
		if random(10) == 1 then
			words[key] = nil
		end
	end
	local sorted = {}
	for key, value in pairs(words) do
		sorted[#sorted + 1] = key .. "=" .. value
	end
	table.sort(sorted)
	sum = (sum * 31 + #table.concat(sorted, ",")) % 1000000007
end
print(turns, sum)
"""


@dataclass(frozen=True)
class Work:
    """A program's arguments, made in a folder; `at`: the site under `cairn run`, if it has one."""

    arguments: Callable[[Path, Settings], list[str]]
    at: str
    per: str
    clean: str = ""  # what differs from run to run in its output


def _hmmer(folder: Path, settings: Settings) -> list[str]:
    command = hmmsearch.prepare(folder, 1_000 if settings.quick else hmmsearch.SEQUENCES)
    return ["-o", "/dev/stdout", *command[-2:]]


def _sqlite(folder: Path, settings: Settings) -> list[str]:
    return ["--verify", "--size", "10" if settings.quick else "50", ":memory:"]


def _lua(folder: Path, settings: Settings) -> list[str]:
    (folder / "turns.lua").write_text(SCRIPT)
    return [str(folder / "turns.lua"), "1000" if settings.quick else "8000"]


WORKS = {
    "hmmer": Work(_hmmer, "func:p7_pli_NewSeq", "sequence", r"#.*"),
    "sqlite": Work(_sqlite, "", "statement", r"\d+\.\d+s"),
    "lua": Work(_lua, "func:os_clock", "turn"),
}


def rows(name: str) -> tuple[str, ...]:
    return ("plain", "undolog", "shadow", *(PAGES if WORKS[name].at else ()))


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


def one_run(command: list[str], clean: str) -> dict[str, Any]:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        environment = {**os.environ, "CAIRN_STATS": "json"}
        process = subprocess.Popen(command, stdout=out, stderr=err, env=environment)
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


def measure(name: str, settings: Settings, log: RunLog) -> Iterator[dict]:
    recipe, work = built(name, settings.build), WORKS[name]
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    found = Found(rows(name))

    def run(row: str) -> dict[str, Any]:
        command = [str(recipe.path("plain" if row in PAGES else row)), *arguments]
        if row in PAGES:
            under = [settings.cairn(), "run", "--stats=json", "--at", work.at, "--tracker", row]
            command = [*under, "--strategy", "none", "--", *command]
        figures = one_run(command, work.clean)
        if row != "plain" and (not figures["checkpoints"] or figures["failed"]):
            raise RuntimeError("no checkpoints, or failed ones")
        return figures

    try:
        arguments = work.arguments(folder, settings)
        log.fill(found, settings.rounds, run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for row in found.rounds:
        yield line(name, row, found)


def line(name: str, row: str, found: Found) -> dict[str, Any]:
    out: dict[str, Any] = {"table": "lmc.runs", "program": name, "row": row}
    mine, plain = found[row], found["plain"]
    if reason := found.missing(row) or found.missing("plain"):
        return {**out, "missing": reason}
    if any(one["answer"] != plain[0]["answer"] for one in mine):
        return {**out, "missing": "its output is another than that of the plain program"}
    ratios = [a["seconds"] / b["seconds"] for a, b in zip(mine, plain)]
    taken = mine[-1]["checkpoints"]
    seconds = median(one["seconds"] for one in mine)
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
        "checkpoint_us": round(mine[-1]["checkpoint_ns"] / taken / 1000, 3) if taken else 0,
    }
