# SPDX-License-Identifier: MIT
"""Plots of the report. matplotlib is optional: without it the report has its tables alone."""

from __future__ import annotations

from pathlib import Path


def draw(lines: list[dict], folder: Path) -> tuple[set[str], str]:
    """The names of the files that were drawn, and a note if none could be."""
    try:
        import matplotlib
    except ImportError:
        return set(), "plots are left out: matplotlib is not installed"
    matplotlib.use("Agg")
    drawn = set()
    for mib in sorted(
        {line["mib"] for line in lines if line["table"] == "trackers" and "mib" in line}
    ):
        drawn.add(_trackers(lines, folder, mib))
    for part in ("redis", "nginx", "lighttpd"):
        if any(line["table"] == part and "per_second" in line for line in lines):
            drawn.add(_servers(lines, folder, part))
    return drawn, ""


def _trackers(lines: list[dict], folder: Path, mib: int) -> str:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    found = [line for line in lines if line["table"] == "trackers" and line.get("mib") == mib]
    for row in dict.fromkeys(line["row"] for line in found):
        points = sorted((line["pages"], line["ns"] / 1000) for line in found if line["row"] == row)
        style = {"linestyle": "--", "color": "black"} if row == "memcpy" else {"marker": "o"}
        axes.plot(*zip(*points), label=row, **style)
    axes.set(
        xscale="log", yscale="log", xlabel="pages written per checkpoint", ylabel="microseconds"
    )
    axes.set_title(f"Cost of a checkpoint, area of {mib} MiB")
    axes.grid(alpha=0.3)
    axes.legend()
    return _save(figure, folder, f"trackers_{mib}.png")


def _servers(lines: list[dict], folder: Path, part: str) -> str:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.5))
    found = [line for line in lines if line["table"] == part and "per_second" in line]
    names = [line["row"] for line in found]
    rates = [line["per_second"] for line in found]
    spread = [
        [line["per_second"] - line["least"] for line in found],
        [line["most"] - line["per_second"] for line in found],
    ]
    axes.barh(names, rates, xerr=spread, capsize=3)
    axes.invert_yaxis()
    axes.set(xlabel="requests per second", title=f"{part}: a checkpoint per wake-up")
    axes.grid(axis="x", alpha=0.3)
    return _save(figure, folder, f"{part}.png")


def _save(figure: object, folder: Path, name: str) -> str:
    figure.tight_layout()  # type: ignore[attr-defined]
    figure.savefig(folder / name, dpi=120)  # type: ignore[attr-defined]
    from matplotlib import pyplot

    pyplot.close(figure)  # type: ignore[arg-type]
    return name
