# SPDX-License-Identifier: MIT
"""The report: results as tables in Markdown and HTML, with plots if matplotlib is there."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import goals
import lmc_report
import report_smc
from plots import draw
from serving import PARTS as SERVER_PARTS


@dataclass
class Section:
    title: str
    text: str
    head: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    plot: str = ""
    below: str = ""  # the table


def number(value: float) -> str:
    """Three digits that matter, thousands separated."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def times(one: float, other: float) -> str:
    """As a multiple of the other, which may be less than the clock can tell."""
    return f"{number(one / other)}x" if other else "-"


def of(lines: list[dict], table: str, **wanted: object) -> list[dict]:
    return [
        line
        for line in lines
        if line["table"] == table and all(line.get(k) == v for k, v in wanted.items())
    ]


def missing_rows(lines: list[dict], table: str, columns: int) -> list[list[str]]:
    """One row for each that is missing, however many parts of the table say so."""
    found = dict.fromkeys((x["row"], x["missing"]) for x in of(lines, table) if "missing" in x)
    return [[row, f"not here: {why}", *[""] * (columns - 2)] for row, why in found]


def table1(lines: list[dict]) -> Section | None:
    found = [line for line in of(lines, "table1") if "cycles" in line]
    if not found:
        return None
    section = Section(
        "SMC's Table 1, redone",
        "What the kernel's mechanisms cost, without the library. `line` is the line in the paper.",
        ["operation", "line", "setting", "cycles", "ns"],
    )
    for line in found:
        setting = (
            f"{line['kib'] // 1024 or line['kib']} {'MiB' if line['kib'] >= 1024 else 'KiB'}"
            if "kib" in line
            else f"batches of {line['batch']}"
            if "batch" in line
            else ""
        )
        cells = [line["row"], str(line.get("line", "new")), setting]
        section.rows.append([*cells, number(line["cycles"]), number(line["ns"])])
    section.rows += missing_rows(lines, "table1", 5)
    return section


def by_pages(
    lines: list[dict], table: str, title: str, text: str, **wanted: object
) -> Section | None:
    """One row per tracker, one column per number of pages; cycles, and as multiples of memcpy."""
    found = [line for line in of(lines, table) if "cycles" in line]
    found = [
        line
        for line in found
        if all(
            line.get(k, v) == v if line["row"] == "memcpy" else line.get(k) == v
            for k, v in wanted.items()
        )
    ]
    if not found:
        return None
    counts = sorted({line["pages"] for line in found})
    floor = {line["pages"]: line["cycles"] for line in found if line["row"] == "memcpy"}
    section = Section(title, text, ["tracker", *(f"{count} pages" for count in counts)])
    for row in dict.fromkeys(line["row"] for line in found):
        cells = {line["pages"]: line for line in found if line["row"] == row}
        texts = []
        for count in counts:
            cycles = cells[count]["cycles"] if count in cells else None
            if cycles is None:
                texts.append("")
            elif row == "memcpy":
                texts.append(number(cycles))
            else:
                texts.append(f"{number(cycles)} ({times(cycles, floor.get(count, 0))})")
        section.rows.append([row, *texts])
    section.rows += missing_rows(lines, table, len(section.head))
    return section


def trackers(lines: list[dict], mib: int) -> Section | None:
    section = by_pages(
        lines,
        "trackers",
        f"A checkpoint with n pages written, area of {mib} MiB",
        "Cycles for the stores with their faults and the checkpoint; in brackets as a multiple of "
        "copying the same pages, which no checkpoint can beat.",
        mib=mib,
    )
    if section:
        section.plot = f"trackers_{mib}.png"
    return section


def held(lines: list[dict]) -> Section | None:
    """What a tracker keeps beside the area: a mirror, images, what it knows of pages."""
    found = [line for line in of(lines, "trackers") if line.get("bytes")]
    if not found:
        return None
    most = max(line["pages"] for line in found)
    sizes = sorted({line["mib"] for line in found})
    section = Section(
        "What the engine holds",
        f"KiB after checkpoints with {most} pages written; in brackets as a share of the area.",
        ["tracker", *(f"{mib} MiB" for mib in sizes)],
    )
    for row in dict.fromkeys(line["row"] for line in found):
        kib = {
            line["mib"]: line["bytes"] / 1024
            for line in found
            if line["row"] == row and line["pages"] == most
        }
        share = {mib: f"{number(n)} ({n / mib / 10.24:.0f} %)" for mib, n in kib.items()}
        section.rows.append([row, *(share.get(mib, "") for mib in sizes)])
    return section


def restores(lines: list[dict], how: str) -> Section | None:
    return by_pages(
        lines,
        "restore",
        f"Going back: cairn_{how}, n pages written",
        "Cycles from the call until the program runs again; the floor copies the pages back.",
        how=how,
    )


def empty(lines: list[dict]) -> Section | None:
    found = [line for line in of(lines, "empty") if "cycles" in line]
    if not found:
        return None
    section = Section(
        "Fixed costs",
        "A checkpoint of 64 MiB with nothing written; a rewind of 28 pages that are open, or hot.",
        ["tracker", "what", "cycles", "ns"],
    )
    for line in found:
        section.rows.append([line["row"], line["what"], number(line["cycles"]), number(line["ns"])])
    section.rows += missing_rows(lines, "empty", 4)
    return section


def tax(lines: list[dict]) -> Section | None:
    found = [line for line in of(lines, "tax") if "cycles" in line]
    if not found:
        return None
    section = Section(
        "What a feed costs others",
        "A first store to a page of new anonymous memory that nobody tracks.",
        ["while there is", "where", "cycles"],
    )
    for line in found:
        section.rows.append([line["row"], line["where"], number(line["cycles"])])
    section.rows += missing_rows(lines, "tax", 3)
    return section


def keep(lines: list[dict]) -> Section | None:
    found = [line for line in of(lines, "keep") if "keep" in line]
    if not found:
        return None
    counts = sorted({line["keep"] for line in found})
    section = Section(
        "Keeping K checkpoints",
        "Cycles of cairn_checkpoint alone, without the faults before it; 15 pages written.",
        ["tracker", *(f"K = {count}" for count in counts)],
    )
    for row in dict.fromkeys(line["row"] for line in found):
        cells = {line["keep"]: line["cycles"] for line in found if line["row"] == row}
        section.rows.append([row, *(number(cells[c]) if c in cells else "" for c in counts)])
    for line in of(lines, "keep", row="memcpy"):
        section.rows.append(["memcpy of 15 pages", number(line["cycles"])])
    return section


def handover(lines: list[dict]) -> Section | None:
    found = of(lines, "hand_over", pages=15)
    if not found:
        return None
    floors = {line["keep"]: line["cycles"] for line in found if line["row"].startswith("copy")}
    section = Section(
        "Handing 15 pages to a journal of K",
        "The journal alone, from inside: pages copied and handed over, beside copying them.",
        ["K", "copy", "copy and hand over", "ratio"],
    )
    for line in found:
        if not line["row"].startswith("copy"):
            floor = floors[line["keep"]]
            ratio = times(line["cycles"], floor)
            section.rows.append([str(line["keep"]), number(floor), number(line["cycles"]), ratio])
    return section


def hot(lines: list[dict]) -> Section | None:
    found = [line for line in of(lines, "hot") if line.get("what") == "interval"]
    if not found:
        return None
    priced = of(lines, "hot_bound")
    prices = " ".join(
        f"{x['row']}: a fault {x['fault']:,}, a protection {x['protect']:,}, a copy {x['copy']:,} "
        "cycles." for x in priced
    )
    in_turn = " ".join(
        f"A memcpy to the buffers of {x['keep']} in turn takes {times(x['cycles'], x['floor'])} of "
        "one to the same buffer." for x in of(lines, "hot_in_turn") if "cycles" in x
    )
    in_buffer = [x["buffer"] / x["floor"] for x in found if x["cold"] < 0 and "buffer" in x]
    one_place = (
        "A memcpy of the mixed workload's pages to one buffer, which the caches hold, takes "
        f"{median(in_buffer):.2f}x of one to their own places." if in_buffer else ""
    )
    section = Section(
        "Hot pages",
        "15 pages that every interval writes and n that come once, or the mixed workload (12 of 20 "
        "hot pages, 3 of 4000 by Zipf's law), in 64 MiB. Cycles of the checkpoint alone and of the "
        "interval (stores, faults, checkpoint) beside a memcpy of the pages written, in the mixed "
        "workload each to where its own copy is; intervals of the mixed workload without what the "
        "stores take untracked. Medians of the means of blocks of intervals. Wrong: overcopied and "
        "undercopied pages. What an interval would cost by the prices that this run measured: "
        "future, who knows what each interval will write; chances, who knows how likely each page "
        "is written, but not when, which no strategy can beat there. async+FEED: async told by "
        "that feed. "
        f"{one_place} {in_turn} {report_smc.HISTASE} {prices}",
        ["tracker", "strategy", "K", "pages", "memcpy", "checkpoint", "ratio", "interval", "ratio",
         "future", "chances", "wrong"],
        plot="hot.png",
    )
    bounds = {x["row"]: [f"{x[k]:.1f}x" for k in ("future", "chances")] for x in priced}
    for line in found:
        same = {k: line[k] for k in ("row", "strategy", "keep", "cold")}
        alone = of(lines, "hot", what="checkpoint", **same)[0]["cycles"]
        pages = "mixed" if line["cold"] < 0 else f"15 + {line['cold']}"
        section.rows.append(
            [line["row"], line["strategy"], str(line["keep"]), pages, number(line["floor"])]
            + [number(alone), times(alone, line["floor"]), number(line["cycles"])]
            + [times(line["cycles"], line["floor"])]
            + (bounds.get(line["row"], ["", ""]) if line["cold"] < 0 else ["", ""])
            + [f"{line['overcopied']:.1f} + {line['undercopied']:.1f}"]
        )
    section.rows += missing_rows(lines, "hot", len(section.head))
    return section


def protect(lines: list[dict]) -> Section | None:
    found = [line for line in of(lines, "protect") if "cycles" in line]
    if not found:
        return None
    section = Section(
        "CAIRN_PROTECT: the engine's memory closed between calls",
        "Cycles for 15 stores with their faults and a checkpoint, without and with it. The price "
        "grows with the pages that are written, not with the area. The floor copies the pages.",
        ["tracker", "area", "without", "with", "ratio"],
    )
    floors = [line for line in found if line["row"] == "memcpy"]
    found = [line for line in found if line["row"] != "memcpy"]
    for line in floors:
        area = f"{line['kib'] // 1024} MiB"
        section.rows.append(["memcpy", area, number(line["cycles"]), "", ""])
    for without, closed in zip(found[::2], found[1::2], strict=True):
        section.rows.append(
            [without["row"], f"{without['kib'] // 1024} MiB"]
            + [number(line["cycles"]) for line in (without, closed)]
            + [times(closed["cycles"], without["cycles"])]
        )
    section.rows += missing_rows(lines, "protect", len(section.head))
    return section


def backtrack(lines: list[dict]) -> Section | None:
    found = of(lines, "backtrack")
    if not found:
        return None
    section = Section(
        "Backtracking (examples/backtrack)",
        "The same search; a wrong guess is undone by a rewind, by copying the arena, by a fork.",
        ["method", "rewinds/s"],
    )
    section.rows = [[line["row"], number(line["per_second"])] for line in found]
    return section


def beside(line: dict, name: str) -> list[str]:
    """Median and spread of the line's ratios; the bare server itself has none."""
    if name not in line:
        return ["1", ""]
    return [f"{line[name]:.2f}", f"{line[name + '_least']:.2f} to {line[name + '_most']:.2f}"]


def serving(lines: list[dict], part: str) -> Section | None:
    found = of(lines, part)
    if not found:
        return None
    section = Section(
        f"{part} at a checkpoint per wake-up",
        "Medians of interleaved rounds; ratio to the bare server, with its spread. Processor: the "
        "server's own time per request, beside the bare server's.",
        ["variant", "requests/s", "ratio", "spread", "processor", "spread", "checkpoints/s",
         "per request", "pages each"],
        plot=f"{part}.png",
    )
    for line in found:
        if "missing" in line:
            why = report_smc.first_line(line["missing"])
            section.rows.append([line["row"], f"not here: {why}"])
            continue
        section.rows.append(
            [line["row"], number(line["per_second"])]
            + [cell for name in ("ratio", "processor") for cell in beside(line, name)]
            + [number(line[f"checkpoints_{per}"]) for per in ("per_second", "per_request")]
            + [number(line["pages_per_checkpoint"])]
        )
    return section


def sections(lines: list[dict]) -> list[Section]:
    makers: list[Callable[[], Section | None]] = [
        lambda: goals_section(lines),
        lambda: table1(lines),
        *(lambda mib=mib: trackers(lines, mib) for mib in (8, 64, 1024)),
        lambda: held(lines),
        lambda: restores(lines, "restore"),
        lambda: restores(lines, "rewind"),
        lambda: empty(lines),
        lambda: handover(lines),
        lambda: tax(lines),
        lambda: keep(lines),
        lambda: hot(lines),
        lambda: protect(lines),
        lambda: backtrack(lines),
        *(lambda part=part: serving(lines, part) for part in SERVER_PARTS),
    ]
    found = [section for make in makers if (section := make())]
    return found + report_smc.sections(lines, Section) + lmc_report.sections(lines, Section)


def goals_section(lines: list[dict]) -> Section | None:
    rows = goals.rows(lines)
    if not rows:
        return None
    text = "What this version set out to reach, and what this run measured. Losing rows stay in."
    return Section("Goals", text, ["goal", "limit", "measured", ""], rows)


def heading(lines: list[dict]) -> str:
    first = lines[0]
    machine = first["machine"]
    toy = " TOY SIZES: these figures mean nothing." if first["toy"] else ""
    return (
        f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['memory_gib']} GiB; "
        f"Linux {first['kernel']}; commit {first['commit']}; {first['time']}. "
        f"Cycles are those of the time stamp counter.{toy}"
    )


def markdown(title: str, intro: str, parts: list[Section], plots: set[str]) -> str:
    out = [f"# {title}", "", intro, ""]
    for part in parts:
        out += [f"## {part.title}", "", part.text, ""]
        if part.head:
            out += ["| " + " | ".join(part.head) + " |", "|" + "---|" * len(part.head)]
        for row in part.rows:
            cells = row + [""] * (len(part.head) - len(row))
            out.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        out += ["", part.below, ""] if part.below else [""]
        if part.plot in plots:
            out += [f"![{part.title}]({part.plot})", ""]
    return "\n".join(out)


STYLE = (
    "body{font:16px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "table{border-collapse:collapse}"
    "td,th{padding:.2em .8em;border-bottom:1px solid #ccc;text-align:right}"
    "td:first-child,th:first-child{text-align:left}img{max-width:100%}"
)


def page(title: str, intro: str, parts: list[Section], plots: set[str]) -> str:
    def row(cells: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(c)}</{tag}>" for c in cells) + "</tr>"

    out = [f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{STYLE}</style>"]
    out += [f"<h1>{title}</h1><p>{html.escape(intro)}</p>"]
    for part in parts:
        out += [f"<h2>{html.escape(part.title)}</h2><p>{html.escape(part.text)}</p><table>"]
        out += [row(part.head, "th"), *(row(r, "td") for r in part.rows), "</table>"]
        out += [f"<p>{html.escape(part.below)}</p>"] if part.below else []
        if part.plot in plots:
            out.append(f'<p><img src="{part.plot}" alt="{html.escape(part.title)}"></p>')
    return "\n".join(out) + "\n"


def write(lines: list[dict], folder: Path) -> str:
    """report.md, report.html and plots beside the lines; returns what to tell the user."""
    if not lines:
        return "nothing was measured"
    plots, note = draw(lines, folder)
    parts = sections(lines)
    intro = heading(lines)
    (folder / "report.md").write_text(markdown("Cairn: measured", intro, parts, plots))
    (folder / "report.html").write_text(page("Cairn: measured", intro, parts, plots))
    missed = [row for row in goals.rows(lines) if row[3] == "missed"]
    summary = [f"goal missed: {row[0]}: {row[2]} (limit {row[1]})" for row in missed]
    return "\n".join([*summary, *([note] if note else []), f"report: {folder / 'report.md'}"])
