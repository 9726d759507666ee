# SPDX-License-Identifier: MIT
"""Sections and goals of what lmc.* measured: tables and figures of the HotDep and LMC papers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import exp, log
from typing import Any

from lmc_recipes import NOTHING, RECIPES

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
        "1 KB written byte by byte in each of 5,000 iterations of a checkpointed loop (fewer where "
        "they take long); time beside the same loop without hooks and checkpoints. Regions of 128 "
        "bytes."
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


def _kept(lines: list[dict], section: type) -> Any:
    found = of(lines, "lmc.memory")
    if not found:
        return None
    out = section(
        "Memory of kept checkpoints",
        "4 MiB written word by word in each interval, the same each time. What the tracker holds, "
        "and how much the process has grown, for each of K kept checkpoints beside what one "
        "interval wrote; and what a session takes before anything is written.",
        ["tracker", "K", "held", "grown", "fixed"],
    )
    for x in found:
        if "missing" in x:
            out.rows.append(_missing(x, 5))
            continue
        out.rows.append([x["row"], str(x["keep"]), f"{x['held']:.2f}", f"{x['resident']:.2f}",
                         f"{x['fixed_kib']:,} KiB"])  # fmt: skip
    return out


TITLES = {
    4: "Web servers, files of 4 KiB (HotDep'13, Table 2; LMC, Figure 5)",
    64: "Web servers, files of 64 KiB (HotDep'13, Table 3)",
    0: "Other servers (LMC, Figure 5)",
}


def _stand_ins(programs: set[str]) -> str:
    """Which of these are measured in place of what the papers have."""
    pairs = [
        f"{name} for {RECIPES[name].stands_for}"
        for name in sorted(programs & RECIPES.keys())
        if RECIPES[name].stands_for
    ]
    if not pairs:
        return ""
    return f" Sources that Debian's archive lists and does not give out: {', '.join(pairs)}."


def _servers(lines: list[dict], section: type, kib: int) -> Any:
    found = of(lines, "lmc.servers", kib=kib, every=1)
    if not found:
        return None
    out = section(
        TITLES[kib],
        "K = 1. A checkpoint per turn of the loop over requests, which may serve several; httpd "
        "and bind per request: see the column `per request`. Beside the plain program: processor "
        "time per request, requests per second, and memory (PSS), with their least and most in "
        "brackets. Saved: regions, entries of the log, or pages of one checkpoint."
        + _stand_ins({x["program"] for x in found}),
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


def _stacks(lines: list[dict], section: type) -> Any:
    found = of(lines, "lmc.servers", row="shadow", every=1)
    found = [x for x in found if "stack_bytes" in x]
    if not found:
        return None
    out = section(
        "Long-lived stack of servers (LMC, Table I)",
        "The most that a checkpoint copied of the stack. (The paper's numbers are bytes, too.) It "
        "is known of the main thread, which in bind takes none.",
        ["server", "bytes"],
    )
    most = {x["program"]: 0 for x in found}
    for x in found:
        most[x["program"]] = max(most[x["program"]], round(x["stack_bytes"]))
    out.rows = [[name, f"{count:,}" if count else "not known"] for name, count in most.items()]
    return out


AIMS = {"hmmer": 0.25, "sqlite": 0.15}
AIM_SERVERS = 0.05
AIM_CLONES = 0.03
AIM_MEMORY = 2.1


def _spent(lines: list[dict]) -> Iterator[tuple[str, float, float, dict, dict]]:
    """What missed its aim: its name, the aim, the plain program's us per checkpoint, its lines."""
    for table, key, time in (("lmc.servers", "cpu_us_ratio", "cpu_us"),
                             ("lmc.runs", "ratio", "seconds")):  # fmt: skip
        for x in of(lines, table, row="shadow"):
            same = {k: x[k] for k in ("program", "kib", "every") if k in x}
            aim = AIM_SERVERS if table == "lmc.servers" else AIMS.get(x["program"])
            others = [of(lines, table, row=row, **same) for row in ("plain", NOTHING)]
            if aim is None or x.get(key, 0) - 1 <= aim or x.get("every", 1) > 1:
                continue
            if not all(found and key in found[0] for found in others):
                continue
            plain, nothing = (found[0] for found in others)
            if table == "lmc.servers":
                name, each = f"{x['program']} {x['kib']} KiB", plain[time] / x["per_request"]
            else:
                name, each = x["program"], 1e6 * plain[time] / x["checkpoints"]
            yield name, aim, each, *(
                {**one, "ratio": one[key], "least": one[f"{key}_least"],
                 "most": one[f"{key}_most"]} for one in (x, nothing)
            )  # fmt: skip


def _missed(lines: list[dict], section: type) -> Any:
    out = section(
        "Where the time goes, where an aim is missed",
        "Tracker shadow: what the hooks cost (-fcairn-save=off: they save nothing, and there is no "
        "session), what calls of cairn_checkpoint take (registers, stack, tags), and the rest: "
        "copies of regions at their first stores, and what those push out of the caches. Percent "
        "of the plain program's processor time; the rest also for each region that is saved. Rows "
        "are medians of runs that differ, and the time of checkpoints is the clock's, whoever has "
        "the processor: what is less than the spread of `all` says nothing, negative or not.",
        ["program", "aim", "missed by", "all", "hooks", "checkpoints", "copies and the rest",
         "regions each", "ns per region"],
    )  # fmt: skip
    for name, aim, each, x, nothing in _spent(lines):
        over, hooks = x["ratio"] - 1, nothing["ratio"] - 1
        taken = x["checkpoint_us"] / each
        rest = over - hooks - taken
        share = [f"{part:.1%}" for part in (aim, over - aim, over, hooks, taken, rest)]
        share[2] += f" ({x['least'] - 1:.0%} to {x['most'] - 1:.0%})"
        ns = f"{1000 * rest * each / x['saved']:.0f}" if x["saved"] else ""
        out.rows.append([name, *share, f"{x['saved']:.0f}", ns])
    return out if out.rows else None


def _memory(lines: list[dict], section: type) -> Any:
    """Table II: of each server the file size with which it was measured at all frequencies."""
    rare = [x for x in of(lines, "lmc.servers") if x.get("every", 1) > 1]
    if not rare:
        return None
    frequencies = (1, *sorted({x["every"] for x in rare}))
    out = section(
        "Memory of servers by the checkpoints they take (LMC, Table II)",
        "PSS beside the plain server's, with a checkpoint at every so many-th turn of its loop.",
        ["server", "plain", "tracker", *(f"every {n}" for n in frequencies)],
    )
    for program, row in dict.fromkeys((x["program"], x["row"]) for x in rare):
        kib = next(x["kib"] for x in rare if x["program"] == program)
        at = {"program": program, "kib": kib}
        plain = of(lines, "lmc.servers", row="plain", every=1, **at)
        mine = {x["every"]: x for x in of(lines, "lmc.servers", row=row, **at)}
        have = [mine.get(n, {}).get("memory_kib_ratio") for n in frequencies]
        cells = ["" if ratio is None else f"{ratio - 1:+.0%}" for ratio in have]
        size = f"{plain[0]['memory_kib']:,.0f} KiB" if plain and "memory_kib" in plain[0] else ""
        out.rows.append([program, size, row, *cells])
    return out


def interval(line: dict) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if line["interval_us"] >= size:
            return f"{line['interval_us'] / size:.3g} {unit}"
    return f"{line['interval_us']:.3g} us"


def _runs(lines: list[dict], section: type) -> Any:
    found = of(lines, "lmc.runs")
    if not found:
        return None
    out = section(
        "Programs that compute, by length of an interval (HotDep'13, Table 4; LMC, Figure 7)",
        "One site at an inner loop of each: hmmsearch per sequence, sqlite's speedtest1 per "
        "statement, libquantum per gate, bzip2 per block, and so on. Processor time and greatest "
        "memory beside the plain program. An interval is what the plain program computes from one "
        "checkpoint to the next. The undo log is limited to 4 GiB; an overflow is a failure. Rows "
        "that have taken two minutes, in three rounds or more, have no further ones.",
        ["program", "interval", "tracker", "rounds", "time", "memory", "checkpoints", "per second",
         "saved", "us each"],
        plot="lmc_runs.png",
    )  # fmt: skip
    length = {x["program"]: x["interval_us"] for x in found if x.get("interval_us")}
    for x in sorted(found, key=lambda x: length.get(x["program"], 0)):
        if "missing" in x:
            out.rows.append([x["program"], "", *_missing(x, 8)])
            continue
        plain = x["row"] == "plain"
        time = f"{x['seconds']:.2f} s" if plain else _spread(x)
        memory = f"{x['memory_kib']:,} KiB" if plain else f"{x['memory_ratio']:.2f}"
        out.rows.append(
            [x["program"], "" if plain else interval(x), x["row"], x["rounds"], time, memory,
             f"{x['checkpoints']:,}", f"{x['checkpoints_per_second']:,.0f}", f"{x['saved']:.0f}",
             f"{x['checkpoint_us']:.2f}"]
        )  # fmt: skip
    return out


def _halves(lines: list[dict], section: type) -> Any:
    found = of(lines, "lmc.long")
    if not found:
        return None
    out = section(
        "Half a run in one interval (LMC, Figure 7: the undo log overflows)",
        "The same programs and sites, with two checkpoints for each run. What the shadow keeps "
        "ends with what the program writes at all; the undo log grows with each store, and is "
        "limited to 4 GiB: an interval that needs more cannot be restored.",
        ["program", "interval", "tracker", "rounds", "time", "memory"],
    )
    for x in sorted(found, key=lambda x: x.get("interval_us", 0)):
        length = interval(x) if "interval_us" in x else ""
        if "missing" in x:
            out.rows.append([x["program"], length, *_missing(x, 4)])
            continue
        out.rows.append([x["program"], length, x["row"], x["rounds"], _spread(x),
                         f"{x['memory_ratio']:.2f}"])  # fmt: skip
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


PER_SECOND = "In a second, and in brackets for each request; none where nothing is saved."


def _table(lines: list[dict], table: str, cell: Callable[[dict], str]) -> list[list[str]]:
    """A row for each program, a column for each of its rows; what is missing last."""
    found = of(lines, table)
    cells = {(x["program"], x["row"]): cell(x) for x in found if "ratio" in x}
    rows = dict.fromkeys(x["row"] for x in found)
    columns = [row for row in rows if any(cells[at] for at in cells if at[1] == row)]
    out = []
    for program in dict.fromkeys(program for program, _ in cells):
        out.append([program, *(cells.get((program, column), "") for column in columns)])
    out += [[x["program"], *_missing(x, len(columns))] for x in found if "missing" in x]
    return [["program", *columns], *out] if columns else []


def left_out(line: dict) -> float | None:
    """Of the hooks without optimisations, the share that is not there. None: nothing is saved."""
    if line["row"] == NOTHING or not line.get("hooks_at_most"):
        return None
    return 1 - line["hooks"] / line["hooks_at_most"]


def _left_out(line: dict) -> str:
    share = left_out(line)
    return "" if share is None else f"{share:.0%}"


def _taken(line: dict) -> str:
    if not line.get("checkpoints_per_second"):
        return ""
    each = f" ({line['per_request']:.2f})" if "per_request" in line else ""
    return f"{line['checkpoints_per_second']:,.0f}{each}"


def _split(line: dict) -> str:
    return f"{line['split']:,} of {line['functions']:,}" if "split" in line else ""


def _switches(lines: list[dict], section: type) -> list[Any]:
    made = []
    for title, text, table, cell, plot in (
        ("Stores without a hook (LMC, Figure 8)",
         "Share of the hooks that are left out, the more is switched on: redundant stores, "
         "those to the stack and to fresh memory, those that one check covers, whole loops.",
         "lmc.switches", _left_out, "lmc_left_out.png"),
        ("What the optimisations are worth (LMC, Figures 9 and 10)",
         "Processor time beside the plain program, with a checkpoint per turn. Nothing saved: the "
         "same hooks, and no session (-fcairn-save=off). The undo log without a session: its hooks "
         "append to a page that nobody reads. PROGRAM-32: as a 32-bit program.",
         "lmc.switches", _spread, "lmc_switches.png"),
        ("Checkpoints of these programs", PER_SECOND, "lmc.switches", _taken, ""),
        ("Servers by the size of a region (LMC, Figure 3; HotDep'13, Figure 1)",
         "Processor time per request beside the plain server, files of 4 KiB.",
         "lmc.regions", _spread, "lmc_regions.png"),
        ("Checkpoints of these servers", PER_SECOND, "lmc.regions", _taken, ""),
        ("Programs that take no checkpoints (LMC, section V-B)",
         "Processor time beside the plain program: hooks alone, which find no session, "
         "and two versions of the code with a switch (-fcairn-clone=on). What is left is the cost "
         "of looking at the switch, where functions begin and behind calls that can reach a site.",
         "lmc.clones", _spread, ""),
        ("Functions in two versions (LMC, section V-B)",
         "Of all that store to memory; the others are very large, or hold what cannot be there "
         f"twice. Time lost beyond the aim of {AIM_CLONES:.0%} goes into the switches, and into "
         "the wrappers of libc and the heap, which have one version.",
         "lmc.clones", _split, ""),
    ):  # fmt: skip
        rows = _table(lines, table, cell)
        if rows:
            made.append(section(title, text, rows[0], rows[1:], plot))
    return made


def _checks(lines: list[dict], section: type) -> Any:
    found = of(lines, "lmc.checks")
    if not found:
        return None
    out = section(
        "Restores of real programs, compared byte by byte",
        "Under load an interval is undone in a copy of the process now and then, and all of its "
        "memory compared with the checkpoint; answers and output must be those of the plain "
        "program.",
        ["program", "tracker", "intervals undone", "bytes each", "that differ"],
    )
    for x in found:
        if "missing" in x:
            out.rows.append([x["program"], x["tracker"], f"not here: {x['missing']}", "", ""])
            continue
        wrong = f"{x['wrong']}: {x['first']}" if x["wrong"] else "0"
        count = x["compared"] + x["wrong"]
        out.rows.append([x["program"], x["tracker"], str(count), f"{x['bytes']:,}", wrong])
    return out


def _mean(found: list[dict], key: str) -> str:
    ratios = [x[key] for x in found if x.get(key)]
    return f"{exp(sum(map(log, ratios)) / len(ratios)):.2f}" if ratios else ""


STRAY = {
    "fork": "nothing: it is in another process",
    "shadow": "nothing: stopped at its hook",
    "undolog": "nothing with -fcairn-guard=on",
}


def _techniques(lines: list[dict], section: type) -> Any:
    """HotDep'13, Table 1, with numbers in place of plus and minus."""
    rows = [x["row"] for table in ("lmc.servers", "lmc.runs") for x in of(lines, table)]
    rows = [row for row in dict.fromkeys(rows) if row not in ("plain", "all", NOTHING)]
    if not rows:
        return None
    out = section(
        "Techniques compared (HotDep'13, Table 1)",
        "Geometric means over all programs that were measured, beside the plain program. That "
        "table's fourth column, integrity: what a stray store of the program can change. (Its "
        "third, virtual memory, is the same for all: 6 TiB of addresses for the shadow, and as "
        "much as is held for the others.)",
        ["tracker", "servers: CPU per request", "requests/s", "memory", "computing: time",
         "memory", "a stray store"],
    )  # fmt: skip
    for row in rows:
        served = of(lines, "lmc.servers", row=row, every=1)
        ran = of(lines, "lmc.runs", row=row)
        means = [_mean(served, f"{key}_ratio") for key in ("cpu_us", "rate", "memory_kib")]
        means += [_mean(ran, "ratio"), _mean(ran, "memory_ratio")]
        out.rows.append([row, *means, STRAY.get(row, "the engine's memory (--protect: stopped)")])
    return out


def sections(lines: list[dict], section: type) -> list[Any]:
    made = [
        _regions(lines, section),
        _figure(lines, section, "Locality (HotDep'13, Figure 2): r = 4, R from 32 B to 32 MiB",
                "range", "stores_range.png", repeats=4),
        _figure(lines, section,
                "Redundancy (HotDep'13, Figure 3; LMC, Figure 6; beyond r = 16 long intervals): "
                "R = 128 KiB",
                "repeats", "stores_repeats.png", range=128 * 1024),
        _kept(lines, section),
        *(_servers(lines, section, kib) for kib in TITLES),
        _stacks(lines, section),
        _memory(lines, section),
        _runs(lines, section),
        _halves(lines, section),
        _sites(lines, section),
        *_switches(lines, section),
        _techniques(lines, section),
        _missed(lines, section),
        _checks(lines, section),
    ]  # fmt: skip
    return [one for one in made if one]


def goals(lines: list[dict]) -> list[list[str]]:
    """Goal, limit, measured, met or missed."""
    out = []
    servers = of(lines, "lmc.servers", row="shadow", every=1)
    servers = [x for x in servers if "rate_ratio" in x]
    if servers:
        of_whom = "geometric mean of " + ", ".join(dict.fromkeys(x["program"] for x in servers))
        mean = exp(sum(log(x["rate_ratio"]) for x in servers) / len(servers))
        out.append(_goal(f"throughput lost, shadow, {of_whom}", AIM_SERVERS, 1 - mean))
        cpu = exp(sum(log(x["cpu_us_ratio"]) for x in servers) / len(servers))
        out.append(_goal(f"processor time per request, shadow, {of_whom}", AIM_SERVERS, cpu - 1))
    idle = [x["ratio"] for x in of(lines, "lmc.clones", row="two versions") if "ratio" in x]
    if idle:
        mean = exp(sum(map(log, idle)) / len(idle))
        out.append(_goal("two versions, no checkpoints, geometric mean", AIM_CLONES, mean - 1))
        out.append(_goal("two versions, no checkpoints, worst program", AIM_CLONES, max(idle) - 1))
    kept = [x for x in of(lines, "lmc.memory") if "held" in x]
    for row in dict.fromkeys(x["row"] for x in kept):
        out.append(_most(f"memory of each kept checkpoint beside what was written, {row}",
                         AIM_MEMORY, max(max(x["held"], x["resident"]) for x in kept
                                         if x["row"] == row)))  # fmt: skip
    for x in of(lines, "lmc.checks"):
        if "wrong" in x:
            out.append(_count(f"{x['row']}: restores with a byte that differs", x["wrong"]))
    for name, limit in AIMS.items():
        for x in of(lines, "lmc.runs", program=name, row="shadow"):
            if "ratio" in x:
                out.append(_goal(f"{name} beside the plain program, shadow", limit, x["ratio"] - 1))
    return out


def _goal(name: str, limit: float, measured: float) -> list[str]:
    met = "met" if measured <= limit else "missed"
    return [name, f"at most {limit:.0%}", f"{measured:.1%}", met]


def _most(name: str, limit: float, measured: float) -> list[str]:
    met = "met" if measured <= limit else "missed"
    return [name, f"at most {limit:g}x", f"{measured:.2f}x", met]


def _count(name: str, measured: int) -> list[str]:
    return [name, "0", str(measured), "missed" if measured else "met"]
