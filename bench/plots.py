# SPDX-License-Identifier: MIT
"""
Plots of the report. matplotlib is optional: without it the report has its tables alone. Colours are
those of Okabe and Ito, which colour-blind people can tell apart; each series has a mark of its own
as well, and a colour means the same tracker or strategy everywhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from serving import PARTS

BLACK, GREY = "#000000", "#8c8c8c"
ORANGE, SKY, GREEN, YELLOW = "#e69f00", "#56b4e9", "#009e73", "#f0e442"
BLUE, RED, PINK = "#0072b2", "#d55e00", "#cc79a7"

# Colour and mark of each tracker and strategy.
LOOKS = {
    "memcpy": (BLACK, ""),
    "async+bpf": (BLUE, "o"),
    "async+perf": (ORANGE, "X"),
    "async": (SKY, "s"),
    "uffd": (GREEN, "^"),
    "mprotect": (RED, "D"),
    "fork": (PINK, "v"),
    "softdirty": (YELLOW, "P"),
    "shadow": (BLACK, "*"),
    "undolog": (ORANGE, "X"),
    "none": (GREY, "o"),
    "last": (YELLOW, "v"),
    "active-rnd": (PINK, "s"),
    "active-fifo": (BLACK, "P"),
    "active-cks": (ORANGE, "D"),
    "gspec": (SKY, "^"),
    "histase": (RED, "X"),
    "decay": (BLUE, "o"),
    "oracle-count": (GREEN, "*"),
    "bare": (BLACK, ""),
}
STYLE = {
    "figure.dpi": 110,
    "savefig.dpi": 130,
    "font.size": 10,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.linewidth": 1.8,
    "lines.markersize": 5.5,
}
FALLBACK = (BLUE, ORANGE, GREEN, RED, PINK, SKY, BLACK, YELLOW)


def look(name: str, number: int = 0) -> tuple[str, str]:
    return LOOKS.get(name, (FALLBACK[number % len(FALLBACK)], "osD^vPX*"[number % 8]))


def draw(lines: list[dict], folder: Path) -> tuple[set[str], str]:
    """The names of the files that were drawn, and a note if none could be."""
    try:
        import matplotlib
    except ImportError:
        return set(), "plots are left out: matplotlib is not installed"
    matplotlib.use("Agg")
    import lmc_plots
    import plots_smc

    drawn: set[str] = set()
    with matplotlib.rc_context(STYLE):
        mibs = {x["mib"] for x in lines if x["table"] == "trackers" and "mib" in x}
        for mib in sorted(mibs):
            drawn.add(_trackers(lines, folder, mib))
        if any(x["table"] == "hot" and x.get("what") == "interval" for x in lines):
            drawn.add(_hot(lines, folder))
        for part in PARTS:
            if any(x["table"] == part and "ratio" in x for x in lines):
                drawn.add(_servers(lines, folder, part))
        drawn |= plots_smc.draw(lines, folder) | lmc_plots.draw(lines, folder)
    return drawn, ""


def canvas(width: float, height: float, rows: int = 1, columns: int = 1, **more: Any) -> Any:
    from matplotlib import pyplot

    return pyplot.subplots(rows, columns, figsize=(width, height), **more)


def save(figure: Any, folder: Path, name: str) -> str:
    from matplotlib import pyplot

    figure.savefig(folder / name, bbox_inches="tight", facecolor="white")
    pyplot.close(figure)
    return name


def headline(figure: Any, text: str) -> None:
    """Of a figure with several panels, each of which has a title of its own."""
    figure.suptitle(text, x=0.06, y=1.03, ha="left", fontweight="bold")


def legend_beside(axes: Any, **more: Any) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0, **more)


def _trackers(lines: list[dict], folder: Path, mib: int) -> str:
    figure, axes = canvas(7, 4.5)
    found = [x for x in lines if x["table"] == "trackers" and x.get("mib") == mib and "ns" in x]
    for number, row in enumerate(dict.fromkeys(x["row"] for x in found)):
        mine = sorted((x for x in found if x["row"] == row), key=lambda x: x["pages"])
        colour, mark = look(row, number)
        pages = [x["pages"] for x in mine]
        style = {"linestyle": "--"} if row == "memcpy" else {"marker": mark}
        axes.plot(pages, [x["ns"] / 1e3 for x in mine], label=row, color=colour, **style)
        if all("p10" in x for x in mine):
            per_ns = [x["cycles"] / x["ns"] for x in mine]
            low, high = (
                [x[key] / rate / 1e3 for x, rate in zip(mine, per_ns)] for key in ("p10", "p90")
            )
            axes.fill_between(pages, low, high, color=colour, alpha=0.15, linewidth=0)
    axes.set(
        xscale="log", yscale="log", xlabel="pages written in the interval", ylabel="microseconds"
    )
    axes.set_title(f"A checkpoint with its faults, area of {mib} MiB (median, 10 to 90 %)")
    legend_beside(axes, title="tracker")
    return save(figure, folder, f"trackers_{mib}.png")


def _hot(lines: list[dict], folder: Path) -> str:
    """Intervals of the mixed workload and of 15 hot pages, beside a memcpy, by the best feeds."""
    found = [x for x in lines if x["table"] == "hot" and x.get("what") == "interval"]
    found = [x for x in found if x["keep"] == 1 and "+" not in x["row"]]
    kinds = [(cold, "mixed" if cold < 0 else f"15 + {cold}") for cold in (0, 1, 2, 5, -1)]
    rows = list(dict.fromkeys(x["row"] for x in found))
    names = list(dict.fromkeys(x["strategy"] for x in found))
    figure, all_axes = canvas(3.6 * len(rows), 4, 1, len(rows), sharey=True, squeeze=False)
    for axes, row in zip(all_axes[0], rows):
        for number, name in enumerate(names):
            mine = {x["cold"]: x for x in found if (x["row"], x["strategy"]) == (row, name)}
            at = [n for n, (cold, _) in enumerate(kinds) if cold in mine]
            ratios = [mine[kinds[n][0]]["cycles"] / mine[kinds[n][0]]["floor"] for n in at]
            colour, mark = look(name, number)
            axes.plot(at, ratios, mark, color=colour, label=name, markersize=8)
        axes.axhline(1, color=BLACK, linestyle="--", linewidth=1)
        axes.set_xticks(range(len(kinds)), [label for _, label in kinds])
        axes.set(yscale="log", xlabel="pages written: hot + cold", title=row)
    all_axes[0][0].set_ylabel("interval beside a memcpy of the same pages, x")
    legend_beside(all_axes[0][-1], title="strategy")
    headline(figure, "Hot pages: stores, faults and checkpoint, K = 1")
    return save(figure, folder, "hot.png")


def _servers(lines: list[dict], folder: Path, part: str) -> str:
    found = [x for x in lines if x["table"] == part and "ratio" in x]
    names = [x["row"] for x in found]
    figure, axes = canvas(7, 0.42 * len(found) + 1.3)
    ratios = [x["ratio"] for x in found]
    spread = [
        [x["ratio"] - x["ratio_least"] for x in found],
        [x["ratio_most"] - x["ratio"] for x in found],
    ]
    colours = [look(name.split(",")[0], 0)[0] for name in names]
    ends = {"ecolor": "#333333", "capsize": 3, "elinewidth": 1.2}
    axes.barh(names, ratios, xerr=spread, color=colours, error_kw=ends, height=0.65)
    for at, line in enumerate(found):
        axes.text(line["ratio_most"] + 0.02, at, f"{line['ratio']:.2f}", va="center", fontsize=9)
    axes.axvline(1, color=BLACK, linestyle="--", linewidth=1)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    bare = next((x["per_second"] for x in lines if x["table"] == part and x["row"] == "bare"), 0)
    axes.set(
        xlabel=f"requests per second beside the bare server ({bare:,.0f}); median, least and most",
        title=f"{part}: a checkpoint per wake-up",
        xlim=(0, max(1.15, max(x["ratio_most"] for x in found) + 0.12)),
    )
    return save(figure, folder, f"{part}.png")
