# SPDX-License-Identifier: MIT
"""Plots of what lmc.* measured: Figures 2 and 3 of the HotDep paper, and a bar for each program."""

from __future__ import annotations

from pathlib import Path

from lmc_report import of
from plots import BLACK, canvas, headline, legend_beside, look, save


def draw(lines: list[dict], folder: Path) -> set[str]:
    drawn = set()
    for key, at, label, name in (
        ("range", {"repeats": 4}, "range R, bytes", "stores_range.png"),
        ("repeats", {"range": 128 * 1024}, "repeats r of each write", "stores_repeats.png"),
    ):
        found = [x for x in of(lines, "lmc.stores", **at) if "ratio" in x]
        if found:
            drawn.add(_curves(found, folder, key, label, name))
    for kib in (4, 64):
        found = [x for x in of(lines, "lmc.servers", kib=kib) if "cpu_us_ratio" in x]
        if found:
            title = f"Web servers, {kib} KiB: processor time per request"
            drawn.add(_bars(found, folder, "cpu_us_ratio", title, f"lmc_servers_{kib}.png"))
    found = [x for x in of(lines, "lmc.runs") if "ratio" in x]
    if found:
        title = "Programs that compute: processor time"
        drawn.add(_bars(found, folder, "ratio", title, "lmc_runs.png"))
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
        mine = [x for x in found if x["program"] == program and x["row"] != "plain"]
        colours = [look(x["row"])[0] for x in mine]
        axes.bar([x["row"] for x in mine], [x[key] for x in mine], color=colours, width=0.65)
        for at, x in enumerate(mine):
            axes.text(at, x[key], f"{x[key]:.2f}", ha="center", va="bottom", fontsize=8)
        axes.axhline(1, color=BLACK, linestyle="--", linewidth=1)
        axes.tick_params(axis="x", rotation=45)
        axes.grid(axis="x", visible=False)
        axes.set_title(program)
    all_axes[0][0].set_ylabel("beside the plain program, x")
    headline(figure, title)
    return save(figure, folder, name)
