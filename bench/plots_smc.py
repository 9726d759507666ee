# SPDX-License-Identifier: MIT
"""Plots about strategies: SMC's Figures 2 and 3, memory, traces, HBFT's Figures 4 to 6 and 12."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from plots import BLACK, GREY, canvas, headline, legend_beside, look, save
from smc import FED

TRACKERS = ("async", FED, "uffd", "mprotect")
# Perfect by definition, for tests, or too like another one.
UNSHOWN = ("oracle", "oracle-count", "random", "active-fifo")
TICKS = (1, 1.5, 2, 3, 5, 8, 15, 30, 50, 100, 200)


def draw(lines: list[dict], folder: Path) -> set[str]:
    drawn = set()
    for program in _programs(lines, "smc", "ratio"):
        drawn.add(_figure2(lines, folder, program))
    makers: tuple[tuple[str, str, Callable[[list[dict], Path], str]], ...] = (
        ("figure3", "slowdown", _figure3),
        ("smc", "memory_ratio", _memory),
        ("recovery", "microseconds", _recovery),
        ("accuracy", "to_oracle", _cost),
        ("accuracy", "recall", _recall),
        ("sweep", "to_oracle", _sweep),
        ("contexts", "to_oracle", _contexts),
        ("hbft4", "coverage", _reuse),
        ("hbft5", "pages_in_runs", _runs),
        ("hbft6", "delta_stride_at_most", _strides),
    )
    for table, key, make in makers:
        if any(x["table"] == table and key in x for x in lines):
            drawn.add(make(lines, folder))
    return drawn


def _programs(lines: list[dict], table: str, key: str) -> list[str]:
    found = (x["program"] for x in lines if x["table"] == table and key in x and "program" in x)
    return list(dict.fromkeys(found))


def _of(lines: list[dict], table: str, key: str) -> list[dict]:
    return [x for x in lines if x["table"] == table and key in x]


def _names(found: list[dict]) -> list[str]:
    return list(dict.fromkeys(x["strategy"] for x in found))


# ---- servers


def _figure2(lines: list[dict], folder: Path, program: str) -> str:
    """A panel per surface, a group per tracker, a bar per strategy; the bound as a line."""
    found = [x for x in _of(lines, "smc", "ratio") if x["program"] == program]
    surfaces = list(dict.fromkeys(x["surface"] for x in found))
    names = [name for name in _names(found) if name != "oracle-count"]
    figure, all_axes = canvas(5.2 * len(surfaces), 3.8, 1, len(surfaces), sharey=True,
                              squeeze=False)  # fmt: skip
    for axes, surface in zip(all_axes[0], surfaces):
        here = [x for x in found if x["surface"] == surface]
        trackers = [t for t in TRACKERS if any(x["tracker"] == t for x in here)]
        _bars(axes, here, trackers, names)
        for line in here:
            if line["strategy"] == "oracle-count":
                colour = look("oracle-count")[0]
                label = "oracle-count (bound)"
                axes.axhline(100 * (1 - line["ratio"]), color=colour, linestyle="--", label=label)
        axes.set_xticks(range(len(trackers)), trackers)
        axes.grid(axis="x", visible=False)
        axes.set_title(f"surface {surface}")
        axes.set_ylim(-10, 100)  # below is the noise of the machine
    all_axes[0][0].set_ylabel("throughput lost, %")
    legend_beside(all_axes[0][-1], title="strategy")
    rounds = max(x["rounds"] for x in found)
    text = f"SMC Figure 2, {program}: a checkpoint per wake-up (median of {rounds}, least to most)"
    headline(figure, text)
    return save(figure, folder, f"smc_{program}.png")


def _bars(axes: Any, here: list[dict], trackers: list[str], names: list[str]) -> None:
    width = 0.82 / max(1, len(names))
    for number, name in enumerate(names):
        mine = {x["tracker"]: x for x in here if x["strategy"] == name}
        there = [n for n, tracker in enumerate(trackers) if tracker in mine]
        rows = [mine[trackers[n]] for n in there]
        lost = [100 * (1 - x["ratio"]) for x in rows]
        spread = [
            [100 * (x["ratio_most"] - x["ratio"]) for x in rows],
            [100 * (x["ratio"] - x["ratio_least"]) for x in rows],
        ]
        at = [n + (number - (len(names) - 1) / 2) * width for n in there]
        ends = {"ecolor": "#333333", "elinewidth": 1, "capsize": 2}
        colour = look(name, number)[0]
        axes.bar(at, lost, width * 0.92, yerr=spread, color=colour, label=name, error_kw=ends)


def _figure3(lines: list[dict], folder: Path) -> str:
    found = _of(lines, "figure3", "slowdown")
    trackers = list(dict.fromkeys(x["tracker"] for x in found))
    figure, all_axes = canvas(3.8 * len(trackers), 3.8, 1, len(trackers), sharey=True,
                              squeeze=False)  # fmt: skip
    every = sorted({x["every"] for x in found})
    for axes, tracker in zip(all_axes[0], trackers):
        for number, name in enumerate(_names(found)):
            mine = [x for x in found if (x["tracker"], x["strategy"]) == (tracker, name)]
            mine.sort(key=lambda x: x["every"])
            colour, mark = look(name, number)
            spread = [
                [x["slowdown"] - x["slowdown_least"] for x in mine],
                [x["slowdown_most"] - x["slowdown"] for x in mine],
            ]
            axes.errorbar(
                [x["every"] for x in mine], [x["slowdown"] for x in mine], yerr=spread,
                color=colour, marker=mark, capsize=3, label=name,
            )  # fmt: skip
        axes.axhline(1, color=BLACK, linestyle="--", linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set_xticks(every, [str(n) for n in every])
        axes.set(xlabel="sequences per checkpoint", title=tracker)
    all_axes[0][0].set_ylabel("run time beside the bare program, x")
    legend_beside(all_axes[0][-1], title="strategy")
    headline(figure, "SMC Figure 3: hmmsearch (median, least to most)")
    return save(figure, folder, "figure3.png")


def _memory(lines: list[dict], folder: Path) -> str:
    found = [x for x in _of(lines, "smc", "memory_ratio") if x["strategy"] != "oracle-count"]
    found = [x for x in found if x["surface"] == found[-1]["surface"]]
    programs = _programs(found, "smc", "memory_ratio")
    figure, all_axes = canvas(3.8 * len(programs), 3.6, 1, len(programs), sharey=True,
                              squeeze=False)  # fmt: skip
    for axes, program in zip(all_axes[0], programs):
        here = [x for x in found if x["program"] == program]
        trackers = [t for t in TRACKERS if any(x["tracker"] == t for x in here)]
        names = _names(here)
        width = 0.82 / len(names)
        for number, name in enumerate(names):
            mine = {x["tracker"]: x["memory_ratio"] for x in here if x["strategy"] == name}
            there = [n for n, tracker in enumerate(trackers) if tracker in mine]
            at = [n + (number - (len(names) - 1) / 2) * width for n in there]
            heights = [mine[trackers[n]] for n in there]
            axes.bar(at, heights, width * 0.92, color=look(name, number)[0], label=name)
        axes.axhline(1, color=BLACK, linestyle="--", linewidth=1)
        axes.set_xticks(range(len(trackers)), trackers)
        axes.grid(axis="x", visible=False)
        axes.set_title(program)
    all_axes[0][0].set_ylabel("resident memory beside the bare server, x")
    legend_beside(all_axes[0][-1], title="strategy")
    headline(figure, f"SMC 7.4: memory, surface {found[-1]['surface']}")
    return save(figure, folder, "memory.png")


def _recovery(lines: list[dict], folder: Path) -> str:
    found = _of(lines, "recovery", "microseconds")
    figure, axes = canvas(7, 0.42 * len(found) + 1.2)
    times = [x["microseconds"] for x in found]
    spread = [
        [x["microseconds"] - x["least"] for x in found],
        [x["most"] - x["microseconds"] for x in found],
    ]
    colours = [look(x["row"].split()[-1])[0] for x in found]
    ends = {"ecolor": "#333333", "capsize": 3, "elinewidth": 1.2}
    rows = [x["row"] for x in found]
    axes.barh(rows, times, xerr=spread, color=colours, error_kw=ends, height=0.65)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set(xlabel="microseconds (median, least and most)", xscale="log",
             title="SMC 7.5: time of a recovery")  # fmt: skip
    return save(figure, folder, "recovery.png")


# ---- traces


def _cost(lines: list[dict], folder: Path) -> str:
    """The cost of each strategy on each trace, by SMC's weights and by a tracker's own."""
    found = [x for x in _of(lines, "accuracy", "to_oracle") if "program" in x]
    models = [m for m in ("smc", "async", "uffd") if any(x["costs"] == m for x in found)]
    programs = _programs(found, "accuracy", "to_oracle")
    figure, all_axes = canvas(4.3 * len(models), 3.8, 1, len(models), squeeze=False)
    for axes, model in zip(all_axes[0], models):
        here = [x for x in found if x["costs"] == model]
        names = [n for n in _names(here) if n not in UNSHOWN]
        for number, name in enumerate(names):
            mine = {x["program"]: x["to_oracle"] for x in here if x["strategy"] == name}
            at = [n for n, program in enumerate(programs) if program in mine]
            colour, mark = (BLACK, "_") if name == "bound" else look(name, number)
            size = 18 if name == "bound" else 7
            label = "bound: the future known" if name == "bound" else name
            heights = [mine[programs[n]] for n in at]
            axes.plot(at, heights, mark, color=colour, label=label, markersize=size, alpha=0.9)
        axes.axhline(1, color=BLACK, linestyle="--", linewidth=1)
        axes.set_xticks(range(len(programs)), programs)
        axes.set_xlim(-0.6, len(programs) - 0.4)
        axes.set_yscale("log")
        most = max(x["to_oracle"] for x in here)
        axes.set_yticks([tick for tick in TICKS if tick <= 1.3 * most])
        axes.yaxis.set_major_formatter("{x:g}")
        axes.minorticks_off()
        axes.set_title("weights of the SMC paper" if model == "smc" else f"prices of {model}")
    all_axes[0][0].set_ylabel("cost beside copying the written pages, x")
    legend_beside(all_axes[0][-1], title="strategy")
    headline(figure, "SMC Table 4: what each strategy's predictions cost, by trace")
    return save(figure, folder, "accuracy.png")


def _recall(lines: list[dict], folder: Path) -> str:
    found = [x for x in _of(lines, "accuracy", "recall") if x.get("costs") == "smc"]
    found = [x for x in found if "program" in x and "wmp_smc" in x]
    programs = _programs(found, "accuracy", "recall")
    columns = min(3, len(programs))
    rows = -(-len(programs) // columns)
    figure, all_axes = canvas(3.5 * columns, 3.3 * rows, rows, columns, sharex=True, sharey=True,
                              squeeze=False)  # fmt: skip
    for place, axes in enumerate(all_axes.flat):
        axes.set_visible(place < len(programs))
        if place >= len(programs):
            continue
        here = [x for x in found if x["program"] == programs[place]]
        for number, line in enumerate(here):
            name = line["strategy"]
            if name in UNSHOWN or name == "none":
                continue
            colour, mark = look(name, number)
            at = ([line["precision"]], [line["recall"]])
            axes.plot(*at, mark, color=colour, label=name, markersize=9, linestyle="")
        axes.set(xlim=(-0.05, 1.05), ylim=(-0.05, 1.05), title=programs[place])
    for axes in all_axes[-1]:
        axes.set_xlabel("precision")
    for axes in all_axes[:, 0]:
        axes.set_ylabel("recall")
    legend_beside(all_axes[0][columns - 1], title="strategy")
    headline(figure, "HBFT Figure 12: which pages will be written next")
    return save(figure, folder, "recall.png")


def _sweep(lines: list[dict], folder: Path) -> str:
    found = [x for x in _of(lines, "sweep", "to_oracle") if x["strategy"] != "bound"]
    programs = _programs(found, "sweep", "to_oracle")
    sweeps = list(dict.fromkeys(x["row"].split("=")[0] for x in found))
    figure, axes = canvas(7.5, 0.55 * len(sweeps) + 1.6)
    for number, program in enumerate(programs):
        colour, mark = look(program, number)
        shift = (number - (len(programs) - 1) / 2) * 0.12
        for at, sweep in enumerate(sweeps):
            mine = [
                x["to_oracle"]
                for x in found
                if x["program"] == program and x["row"].split("=")[0] == sweep
            ]
            if not mine:
                continue
            axes.plot([min(mine), max(mine)], [at + shift] * 2, color=colour, linewidth=2.5)
            label = program if at == 0 else None
            axes.plot(mine, [at + shift] * len(mine), mark, color=colour, label=label, markersize=5)
    axes.set_yticks(range(len(sweeps)), [sweep.replace(":", ": ") for sweep in sweeps])
    axes.invert_yaxis()
    axes.set(
        xlabel="cost beside copying the written pages, x (weights of the SMC paper)",
        title="Sweeps of the parameters: each mark is one value",
    )
    legend_beside(axes, title="trace")
    return save(figure, folder, "sweep.png")


def _contexts(lines: list[dict], folder: Path) -> str:
    found = _of(lines, "contexts", "to_oracle")
    programs = _programs(found, "contexts", "to_oracle")
    rows = list(dict.fromkeys(x["row"] for x in found))
    columns = min(3, len(programs))
    deep = -(-len(programs) // columns)
    figure, all_axes = canvas(3.6 * columns, (0.3 * len(rows) + 1.1) * deep, deep, columns,
                              sharey=True, squeeze=False)  # fmt: skip
    for place, axes in enumerate(all_axes.flat):
        axes.set_visible(place < len(programs))
        if place >= len(programs):
            continue
        for at, row in enumerate(rows):
            mine = [x for x in found if (x["program"], x["row"]) == (programs[place], row)]
            if not mine:
                continue
            alone, keyed = mine[0]["alone"], mine[0]["to_oracle"]
            colour = look(row.split()[0])[0]
            axes.plot([alone, keyed], [at, at], color=GREY, linewidth=1.5, zorder=1)
            axes.plot([alone], [at], "o", markerfacecolor="white", color=GREY, markersize=7)
            axes.plot([keyed], [at], "o", color=colour, markersize=7)
        axes.set_yticks(range(len(rows)), rows)
        axes.set_title(programs[place])
    all_axes[0][0].invert_yaxis()
    figure.supxlabel("cost beside copying the written pages, x: hollow one working set for all, "
                     "filled one for each key", fontsize=10, y=-0.02)  # fmt: skip
    headline(figure, "Working sets by context (cairn run --context)")
    return save(figure, folder, "contexts.png")


# ---- HBFT


def _reuse(lines: list[dict], folder: Path) -> str:
    figure, axes = canvas(6, 4)
    for number, line in enumerate(x for x in _of(lines, "hbft4", "coverage") if "program" in x):
        points = sorted((float(k) * 100, v * 100) for k, v in line["coverage"].items())
        colour, mark = look(line["program"], number)
        axes.plot(*zip(*points), color=colour, marker=mark, label=line["program"])
    axes.set(
        xlabel="share of the pages, most written first, %", ylabel="share of all writes, %",
        title="HBFT Figure 4: page reuse", ylim=(0, 103),
    )  # fmt: skip
    legend_beside(axes, title="trace")
    return save(figure, folder, "hbft4.png")


def _grouped(found: list[dict], key: str, axes: Any) -> None:
    columns = list(found[0][key])
    width = 0.82 / len(found)
    for number, line in enumerate(found):
        at = [n + (number - (len(found) - 1) / 2) * width for n in range(len(columns))]
        shares = [100 * line[key].get(column, 0) for column in columns]
        colour = look(line["program"], number)[0]
        axes.bar(at, shares, width * 0.92, color=colour, label=line["program"])
    axes.set_xticks(range(len(columns)), ["1" if c == "1-1" else c for c in columns])
    axes.grid(axis="x", visible=False)
    legend_beside(axes, title="trace")


def _runs(lines: list[dict], folder: Path) -> str:
    figure, axes = canvas(7, 3.8)
    _grouped([x for x in _of(lines, "hbft5", "pages_in_runs") if "program" in x],
             "pages_in_runs", axes)  # fmt: skip
    axes.set(xlabel="length of the run of written pages", ylabel="share of the written pages, %",
             title="HBFT Figure 5: run lengths")  # fmt: skip
    return save(figure, folder, "hbft5.png")


def _strides(lines: list[dict], folder: Path) -> str:
    figure, axes = canvas(7, 3.8)
    _grouped([x for x in _of(lines, "hbft6", "delta_stride_at_most") if "program" in x],
             "delta_stride_at_most", axes)  # fmt: skip
    axes.set(
        xlabel="mean run length differs from that of the interval before by at most",
        ylabel="share of the intervals, %", title="HBFT Figure 6: history similarity",
    )  # fmt: skip
    return save(figure, folder, "hbft6.png")
