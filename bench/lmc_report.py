# SPDX-License-Identifier: MIT
"""Sections and goals of what lmc.* measured: tables and figures of the HotDep and LMC papers."""

from __future__ import annotations

from math import exp, log
from typing import Any

TABLE = "lmc.stores"


def of(lines: list[dict], table: str, **wanted: object) -> list[dict]:
    found = [x for x in lines if x["table"] == table]
    return [x for x in found if all(x.get(k) == v for k, v in wanted.items())]


def _spread(line: dict, name: str = "ratio") -> str:
    middle, least, most = (line[name + end] for end in ("", "_least", "_most"))
    return f"{middle:.2f} ({least:.2f}-{most:.2f})"


def _missing(line: dict, columns: int) -> list[str]:
    return [line["row"], f"not here: {line['missing'].splitlines()[0]}", *[""] * (columns - 2)]


def _points(lines: list[dict], key: str, **wanted: object) -> list[Any]:
    return sorted({x[key] for x in of(lines, TABLE, **wanted) if key in x})


def _size(count: int) -> str:
    for unit, size in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count // size} {unit}"
    return f"{count} B"


def _figure(
    lines: list[dict], section: type, title: str, key: str, plot: str, **at: object
) -> Any:
    points = _points(lines, key, **at)
    if not points:
        return None
    heads = [_size(p) if key == "range" else f"r = {p}" for p in points]
    text = (
        "1 KB written byte by byte in each iteration of a checkpointed loop; time beside the same "
        "loop without hooks and checkpoints. Regions of 128 bytes."
    )
    out = section(title, text, ["tracker", *heads], plot=plot)
    for row in dict.fromkeys(x["row"] for x in of(lines, TABLE)):
        mine = {x[key]: x for x in of(lines, TABLE, row=row, **at) if key in x}
        if mine and not row.startswith("shadow,"):
            cells = [f"{mine[p]['ratio']:.2f}" if p in mine else "" for p in points]
            out.rows.append([row, *cells])
    out.rows += [_missing(x, len(out.head)) for x in of(lines, TABLE) if "missing" in x]
    return out


def _regions(lines: list[dict], section: type) -> Any:
    at = {"repeats": 4, "range": 128 * 1024}
    found = of(lines, TABLE, **at)
    sized = {128: x for x in found if x["row"] == "shadow"}
    sized |= {int(x["row"].split()[1]): x for x in found if x["row"].startswith("shadow,")}
    if len(sized) < 2:
        return None
    out = section(
        "Size of a region (HotDep'13, Figure 1)",
        "The same loop, R = 128 KiB, r = 4.",
        ["region", "beside no hooks and checkpoints"],
    )
    out.rows = [[_size(n), _spread(sized[n])] for n in sorted(sized)]
    return out


def _servers(lines: list[dict], section: type, kib: int) -> Any:
    found = of(lines, "lmc.servers", kib=kib)
    if not found:
        return None
    number = "Table 2" if kib == 4 else "Table 3"
    out = section(
        f"Web servers, files of {kib} KiB (HotDep'13, {number}; LMC, Figure 5 and Table II)",
        "A checkpoint per turn of the event loop, K = 1. Beside the plain program: processor time "
        "per request, requests per second, and memory (PSS), with their least and most in "
        "brackets. Saved: regions, entries of the log, or pages of one checkpoint.",
        ["server", "tracker", "CPU per request", "requests/s", "memory", "checkpoints/s",
         "per request", "saved", "us each"],
        plot=f"lmc_servers_{kib}.png",
    )  # fmt: skip
    for x in found:
        if "missing" in x:
            out.rows.append([x["program"], *_missing(x, 8)])
            continue
        plain = x["row"] == "plain"
        cells = (
            [f"{x['cpu_us']:.1f} us", f"{x['rate']:,.0f}", f"{x['memory_kib']:,.0f} KiB"]
            if plain
            else [_spread(x, f"{key}_ratio") for key in ("cpu_us", "rate", "memory_kib")]
        )
        out.rows.append(
            [x["program"], x["row"], *cells, f"{x['checkpoints_per_second']:,.0f}",
             f"{x['per_request']:.2f}", f"{x['saved']:.0f}", f"{x['checkpoint_us']:.1f}"]
        )  # fmt: skip
    return out


def _runs(lines: list[dict], section: type) -> Any:
    found = of(lines, "lmc.runs")
    if not found:
        return None
    out = section(
        "Programs that compute (HotDep'13, Table 4)",
        "hmmsearch with a checkpoint per sequence, sqlite's speedtest1 with one per statement, a "
        "Lua script with one per turn. Processor time and greatest memory beside the plain "
        "program.",
        ["program", "tracker", "time", "memory", "checkpoints", "per second", "saved", "us each"],
        plot="lmc_runs.png",
    )
    for x in found:
        if "missing" in x:
            out.rows.append([x["program"], *_missing(x, 7)])
            continue
        plain = x["row"] == "plain"
        time = f"{x['seconds']:.2f} s" if plain else _spread(x)
        memory = f"{x['memory_kib']:,} KiB" if plain else f"{x['memory_ratio']:.2f}"
        out.rows.append(
            [x["program"], x["row"], time, memory, f"{x['checkpoints']:,}",
             f"{x['checkpoints_per_second']:,.0f}", f"{x['saved']:.0f}",
             f"{x['checkpoint_us']:.2f}"]
        )  # fmt: skip
    return out


def _sites(lines: list[dict], section: type) -> Any:
    found = of(lines, "lmc.sites")
    if not found:
        return None
    out = section(
        "Sites that a profile has found (SMC, section 6)",
        "Built to count its loops, put under a load, and built with a checkpoint at the top of "
        "each loop that never ended; then beside the program without hooks, files of 4 KiB. "
        "Answers: compared byte by byte.",
        ["server", "program", "loops", "answers", "CPU per request", "requests/s",
         "checkpoints/s", "per request"],
    )  # fmt: skip
    for x in found:
        if "missing" in x:
            out.rows.append([x["program"], *_missing(x, 7)])
            continue
        plain = x["row"] == "plain"
        cells = (
            ["", "", f"{x['cpu_us']:.1f} us", f"{x['rate']:,.0f}"]
            if plain
            else [", ".join(x["sites"]), f"{x['answers']} the same",
                  *(_spread(x, f"{key}_ratio") for key in ("cpu_us", "rate"))]
        )  # fmt: skip
        out.rows.append([x["program"], x["row"], *cells, f"{x['checkpoints_per_second']:,.0f}",
                         f"{x['per_request']:.2f}"])  # fmt: skip
    return out


def sections(lines: list[dict], section: type) -> list[Any]:
    made = [
        _regions(lines, section),
        _figure(lines, section, "Locality (HotDep'13, Figure 2): r = 4, R from 32 B to 32 MiB",
                "range", "stores_range.png", repeats=4),
        _figure(lines, section, "Redundancy (HotDep'13, Figure 3): R = 128 KiB, r from 0 to 16",
                "repeats", "stores_repeats.png", range=128 * 1024),
        *(_servers(lines, section, kib) for kib in (4, 64)),
        _runs(lines, section),
        _sites(lines, section),
    ]  # fmt: skip
    return [one for one in made if one]


def goals(lines: list[dict]) -> list[list[str]]:
    """Goal, limit, measured, met or missed."""
    out = []
    servers = [x for x in of(lines, "lmc.servers", row="shadow") if "rate_ratio" in x]
    if servers:
        mean = exp(sum(log(x["rate_ratio"]) for x in servers) / len(servers))
        out.append(_goal("throughput lost by servers, shadow, geometric mean", 0.05, 1 - mean))
        cpu = exp(sum(log(x["cpu_us_ratio"]) for x in servers) / len(servers))
        out.append(_goal("processor time per request, shadow, geometric mean", 0.05, cpu - 1))
    for name, limit in (("hmmer", 0.25), ("sqlite", 0.15)):
        for x in of(lines, "lmc.runs", program=name, row="shadow"):
            if "ratio" in x:
                out.append(_goal(f"{name} beside the plain program, shadow", limit, x["ratio"] - 1))
    return out


def _goal(name: str, limit: float, measured: float) -> list[str]:
    met = "met" if measured <= limit else "missed"
    return [name, f"at most {limit:.0%}", f"{measured:.1%}", met]
