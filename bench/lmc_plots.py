# SPDX-License-Identifier: MIT
"""Plots of what lmc.* measured: figures of the HotDep and LMC papers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lmc_recipes import NOTHING
from lmc_report import TITLES, left_out, of
from plots import BLACK, canvas, headline, legend_beside, look, save

# What a page tracker does to a short interval would flatten all else.
SHORT = ("shadow", "undolog", "async", "mprotect", "fork")


def draw(lines: list[dict], folder: Path) -> set[str]:
    drawn = set()
    for key, at, label, name in (
        ("range", {"repeats": 4}, "range R, bytes", "stores_range.png"),
        ("repeats", {"range": 128 * 1024}, "repeats r of each write", "stores_repeats.png"),
    ):
        found = [x for x in of(lines, "lmc.stores", **at) if "ratio" in x]
        if found:
            drawn.add(_curves(found, folder, key, label, name))
    for kib, title in TITLES.items():
        found = of(lines, "lmc.servers", kib=kib, every=1)
        found = [x for x in found if "cpu_us_ratio" in x]
        if found:
            title = f"{title.split(' (')[0]}: processor time per request"
            drawn.add(_bars(found, folder, "cpu_us_ratio", title, f"lmc_servers_{kib}.png"))
    found = of(lines, "lmc.runs")
    if any("ratio" in x for x in found):
        drawn.add(_intervals(found, of(lines, "lmc.long"), folder))
    found = [x for x in of(lines, "lmc.switches") if "ratio" in x]
    if found:
        texts = ("shadow, with more and more optimisations", "time beside the plain program, x")
        drawn.add(_switches(found, folder, lambda x: x["ratio"], texts, "lmc_switches.png"))
    found = [x for x in found if left_out(x) is not None]
    if found:
        texts = ("stores that have no hook", "share of the hooks that are left out")
        drawn.add(_switches(found, folder, left_out, texts, "lmc_left_out.png"))
    found = [x for x in of(lines, "lmc.regions") if "ratio" in x]
    if found:
        drawn.add(_regions(found, folder))
    return drawn


def _curves(found: list[dict], folder: Path, key: str, label: str, name: str) -> str:
    figure, axes = canvas(7, 4.5)
    rows = [row for row in dict.fromkeys(x["row"] for x in found) if not row.startswith("shadow,")]
    for number, row in enumerate(rows):
        mine = sorted((x for x in found if x["row"] == row), key=lambda x: x[key])
        colour, mark = look(row, number)
        at, ratios = [x[key] for x in mine], [x["ratio"] for x in mine]
        style = {"linestyle": "--"} if row == "none" else {"marker": mark}
        axes.plot(at, ratios, label=row, color=colour, **style)
    if key == "range":
        axes.set_xscale("log", base=2)
    axes.set(yscale="log", xlabel=label, ylabel="time beside no hooks and checkpoints, x")
    axes.set_title("1 KB written byte by byte for each checkpoint")
    legend_beside(axes, title="tracker")
    return save(figure, folder, name)


def _bars(found: list[dict], folder: Path, key: str, title: str, name: str) -> str:
    programs = list(dict.fromkeys(x["program"] for x in found))
    figure, all_axes = canvas(3.4 * len(programs), 3.2, 1, len(programs), squeeze=False)
    for axes, program in zip(all_axes[0], programs):
        mine = [x for x in found if x["program"] == program]
        mine = [x for x in mine if x["row"] not in ("plain", NOTHING)]
        colours = [look(x["row"])[0] for x in mine]
        axes.bar([x["row"] for x in mine], [x[key] for x in mine], color=colours, width=0.65)
        for at, x in enumerate(mine):
            axes.text(at, x[key], f"{x[key]:.2f}", ha="center", va="bottom", fontsize=8)
        axes.axhline(1, color=BLACK, linestyle="--", linewidth=1)
        axes.tick_params(axis="x", rotation=45)
        axes.grid(axis="x", visible=False)
        axes.set_title(program)
    all_axes[0][0].set_ylabel("beside the plain program, x")
    figure.subplots_adjust(top=0.86)
    headline(figure, title)
    return save(figure, folder, name)


def _intervals(found: list[dict], halves: list[dict], folder: Path) -> str:
    """
    LMC, Figure 7: a point for each program and tracker; hollow: half a run in an interval; a log
    that overflows stands on top.
    """
    figure, axes = canvas(8.5, 4.8)
    length = {x["program"]: x["interval_us"] for x in found if x.get("interval_us")}
    order = sorted(length, key=lambda program: length[program])
    for row in SHORT:
        mine = {x["program"]: x["ratio"] for x in found if x["row"] == row and "ratio" in x}
        points = [(length[p], mine[p]) for p in order if p in mine]
        if points:
            colour, mark = look(row)
            axes.plot(*zip(*points), label=row, color=colour, marker=mark)
    axes.set(xscale="log", yscale="log", xlabel="length of an interval, microseconds",
             ylabel="time beside the plain program, x")  # fmt: skip
    for x in halves:
        if "ratio" in x:
            colour, mark = look(x["row"])
            axes.plot(x["interval_us"], x["ratio"], color=colour, marker=mark, fillstyle="none",
                      linestyle="")  # fmt: skip
    top = axes.get_ylim()[1]
    lost = [length[x["program"]] for x in found
            if "overflow" in x.get("missing", "") and x["program"] in length]  # fmt: skip
    lost += [x["interval_us"] for x in halves if "overflow" in x.get("missing", "")]
    if lost:
        axes.plot(lost, [top] * len(lost), marker="x", color=look("undolog")[0], linestyle="",
                  markersize=10, label="undolog, overflow")  # fmt: skip
    for number, program in enumerate(order):
        axes.axvline(length[program], color="#dddddd", linewidth=0.7, zorder=0)
        axes.annotate(
            program, (length[program], 1.0), xycoords=("data", "axes fraction"),
            xytext=(0, 4), textcoords="offset points", rotation=35, fontsize=8,
        )  # fmt: skip
    axes.grid(axis="x", visible=False)
    axes.axhline(1, color=BLACK, linestyle="--", linewidth=1)
    legend_beside(axes, title="tracker")
    headline(figure, "Programs that compute: a checkpoint at each turn of an inner loop")
    return save(figure, folder, "lmc_runs.png")


def _switches(
    found: list[dict], folder: Path, value: Callable[[dict], float], texts: tuple[str, str],
    name: str,
) -> str:  # fmt: skip
    programs = list(dict.fromkeys(x["program"] for x in found))
    rows = list(dict.fromkeys(x["row"] for x in found))
    figure, axes = canvas(max(7.0, 1.5 * len(programs)), 4.2)
    width = 0.8 / len(rows)
    for number, row in enumerate(rows):
        mine = {x["program"]: value(x) for x in found if x["row"] == row}
        at = [n + (number - (len(rows) - 1) / 2) * width for n in range(len(programs))]
        heights = [mine.get(program, 0) for program in programs]
        axes.bar(at, heights, width, label=row, color=look(row, number)[0])
    axes.set_xticks(range(len(programs)), programs)
    axes.axhline(1, color=BLACK, linestyle="--", linewidth=1)
    axes.grid(axis="x", visible=False)
    axes.set(title=texts[0], ylabel=texts[1])
    legend_beside(axes)
    return save(figure, folder, name)


def _regions(found: list[dict], folder: Path) -> str:
    figure, axes = canvas(7, 4.2)
    for number, program in enumerate(dict.fromkeys(x["program"] for x in found)):
        mine = [x for x in found if x["program"] == program]
        points = sorted((int(x["row"].split()[0]), x["ratio"]) for x in mine)
        colour, mark = look(program, number)
        axes.plot(*zip(*points), label=program, color=colour, marker=mark)
    axes.set_xscale("log", base=2)
    axes.axhline(1, color=BLACK, linestyle="--", linewidth=1)
    axes.set(xlabel="size of a region, bytes", ylabel="processor time beside the plain server, x")
    axes.set_title("A checkpoint per turn, files of 4 KiB")
    legend_beside(axes)
    return save(figure, folder, "lmc_regions.png")
