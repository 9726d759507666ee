# SPDX-License-Identifier: MIT
"""
The goals of this version, as ratios of figures of one run.
"""

from __future__ import annotations

import lmc_report
from report_smc import BOUNDS, DEFAULT
from serving import PARTS as SERVER_PARTS


def _cycles(lines: list[dict], table: str, row: str, **wanted: object) -> float | None:
    for line in lines:
        if line["table"] == table and line["row"] == row and "cycles" in line:
            if all(line.get(k) == v for k, v in wanted.items()):
                return line["cycles"]
    return None


def _ratio(
    name: str, one: float | None, other: float | None, limit: float, least: bool
) -> list[list[str]]:
    if one is None or not other:
        return []
    ratio = one / other
    met = ratio >= limit if least else ratio <= limit
    sign = "at least" if least else "at most"
    return [[name, f"{sign} {limit:.4g}x", f"{ratio:.2f}x", "met" if met else "missed"]]


def _beside_bare(lines: list[dict], row: str, name: str) -> list[list[str]]:
    """By the median over rounds in which both ran, one behind the other; cycles are for the eye."""
    for line in lines:
        if line["table"] == "trackers" and line["row"] == row and "ratio" in line:
            if line["mib"] == 64 and line["pages"] == 15:
                bare = _cycles(lines, "trackers", line["bare"], mib=64, pages=15)
                name += f", beside a {line['bare'].replace('bare', 'bare loop of')}"
                goal = _ratio(name, line["ratio"], 1, 1.3, False)
                goal[0][2] += (
                    f" ({line['ratio_p10']:.2f} to {line['ratio_p90']:.2f};"
                    f" {line['cycles']:,.0f} and {bare or 0:,.0f} cycles)"
                )
                return goal
    return []


def _hot(lines: list[dict]) -> list[list[str]]:
    found = []
    for line in lines:
        # The aims are of the best feed that async has here; its others are in the table.
        if line["table"] != "hot" or line.get("strategy") != DEFAULT or "+" in line["row"]:
            continue
        one, what, cold = line["cycles"], line["what"], line["cold"]
        if what == "checkpoint" and cold == 0:
            limit = 2.5 if line["keep"] > 16 else 1.25
            name = f"15 hot pages, K = {line['keep']}, {line['row']}, beside memcpy"
            goal = _ratio(name, one, line["floor"], limit, False)
            for other in lines:
                if other["table"] == "hot_in_turn" and other["keep"] == line["keep"]:
                    ratio = other["cycles"] / other["floor"]
                    goal[0][2] += f" (memcpy to {line['keep']} buffers in turn: {ratio:.2f}x)"
            found += goal
        if what == "interval" and cold < 0:
            name = f"mixed workload, {line['row']}, beside memcpy of what was written"
            goal = _ratio(name, one, line["floor"], 6, False)
            notes = [
                f"bound: {bound['chances']:.2f}x" for bound in lines
                if bound["table"] == "hot_bound" and bound["row"] == line["row"]
            ]
            if line.get("buffer"):
                notes.append(f"beside one to a buffer in the cache: {one / line['buffer']:.2f}x")
            goal[0][2] += f" ({'; '.join(notes)})"
            found += goal
    return found


def _default(lines: list[dict], table: str, place: tuple[str, ...], key: str) -> list[tuple]:
    """Where strategies stand beside each other: the place, the default's figure, the best one's."""
    found: dict[tuple, dict[str, float]] = {}
    for line in lines:
        if line["table"] == table and key in line:
            found.setdefault(tuple(line[x] for x in place), {})[line["strategy"]] = line[key]
    best = []
    for at, by in found.items():
        others = [value for name, value in by.items() if name not in (*BOUNDS, DEFAULT)]
        if DEFAULT in by and others:
            best.append((at, by[DEFAULT], min(others)))
    return best


def _strategies(lines: list[dict]) -> list[list[str]]:
    found = []
    for (program, costs), mine, best in _default(lines, "accuracy", ("program", "costs"), "cycles"):
        if costs == "smc":
            name = f"{program}, {DEFAULT} beside the best strategy, by the paper's weights"
            found += _ratio(name, mine, best, 1, False)
    worst: dict[str, tuple] = {}
    for (tracker, every), *two in _default(lines, "figure3", ("tracker", "every"), "processor"):
        worst[tracker] = max(worst.get(tracker, (0,)), (two[0] / two[1], *two, every))
    for tracker, (_, mine, best, every) in worst.items():
        name = f"hmmsearch, {tracker}, {DEFAULT} beside the best strategy, at worst (N = {every})"
        found += _ratio(name, mine, best, 1, False)
    used = [x for x in lines if x["table"] == "smc" and "processor_ratio" in x]
    for line in used:
        for bound in used:
            if line["strategy"] == DEFAULT and bound["strategy"] in BOUNDS:
                if (line["program"], line["surface"]) == (bound["program"], bound["surface"]):
                    name = f"{line['program']}, {line['tracker']}, {line['surface']}"
                    name += ": processor time beside the bound"
                    two = line["processor_ratio"], bound["processor_ratio"]
                    found += _ratio(name, *two, 1.5, False)
    return found


def rows(lines: list[dict]) -> list[list[str]]:
    """Goal, limit, measured, met or missed: for those whose figures are there."""
    if not lines or lines[0]["toy"]:
        return []
    at = {"mib": 64, "pages": 15}
    found = []
    for row, name in (
        ("async+4k", "async in 4 KiB pages"),
        ("async+bpf", "async fed by BPF"),
        ("async+perf", "async fed by perf"),
        ("async+images", "async with images"),
    ):
        found += _beside_bare(lines, row, f"{name}, 15 pages of 64 MiB")
    for scan, name in (("async", "async"), ("async+4k", "async in 4 KiB pages")):
        cycles = _cycles(lines, "trackers", scan, **at)
        for row, limit in (("mprotect", 4), ("fork", 50)):
            other = _cycles(lines, "trackers", row, **at)
            if cycles and other:
                what = f"{row} beside {name}, 15 pages of 64 MiB"
                found += _ratio(what, other, cycles, limit, True)
    for keep, limit in ((1, 1.25), (10, 1.25), (1000, 2.5)):
        at = {"keep": keep, "pages": 15}
        copy = _cycles(lines, "hand_over", "copy (floor)", **at)
        ours = _cycles(lines, "hand_over", f"K = {keep}", **at)
        found += _ratio(f"handing 15 pages to a journal of {keep}", ours, copy, limit, False)
    found += _hot(lines)
    found += _strategies(lines)
    floor = _cycles(lines, "empty", "memcpy", what="rewind")
    for row in ("uffd", "mprotect"):
        for line in lines:
            if line["table"] == "empty" and line["row"] == row and line.get("what") == "checkpoint":
                met = "met" if line["ns"] < 400 else "missed"
                found.append(
                    [f"empty checkpoint, {row}", "under 400 ns", f"{line['ns']:.0f} ns", met]
                )
        rewind = _cycles(lines, "empty", row, what="rewind")
        found += _ratio(f"rewind of 28 open pages, {row}, beside memcpy", rewind, floor, 1.2, False)
    for row in ("async", "uffd", "mprotect"):
        rewind = _cycles(lines, "empty", row, what="rewind, hot")
        found += _ratio(f"rewind of 28 hot pages, {row}, beside memcpy", rewind, floor, 1.2, False)
    for line in lines:  # a checkpoint per wake-up, with the defaults
        if line["row"] == "async" and line["table"] in SERVER_PARTS and "ratio" in line:
            found += _ratio(f"{line['table']}, async, beside bare", line["ratio"], 1, 0.95, True)
    recovering = (("", 1 / 1.35), ("-pipeline", 1 / 1.08))
    parts = ("redis", "redis-key")
    for part, limit in [(part + load, limit) for part in parts for load, limit in recovering]:
        for line in lines:
            if line["table"] == part and line["row"] == "recover" and "ratio" in line:
                found += _ratio(f"{part}, recovering, beside bare", line["ratio"], 1, limit, True)
    return found + lmc_report.goals(lines)
