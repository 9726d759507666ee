# SPDX-License-Identifier: MIT
"""
Rows measured turn by turn: a round is one run of each, in an order that rotates, so that a noisy
neighbour or a change of clock speed meets all. Ratios are taken to a run of the same round.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

from progress import Meter
from results import Runs
from servers import ServerError

Row = TypeVar("Row")
Figures = dict[str, Any]


def rotated(rows: Sequence[Row], number: int) -> list[Row]:
    """All rows, in the order of the round of that number."""
    turn = number % max(1, len(rows))
    return [*rows[turn:], *rows[:turn]]


def spread(ratios: Sequence[float], name: str = "ratio") -> dict[str, float]:
    """Median, least and most, as a line of the results has them."""
    return {
        name: round(median(ratios), 4),
        f"{name}_least": round(min(ratios), 4),
        f"{name}_most": round(max(ratios), 4),
    }


def reason_of(error: Exception) -> str:
    """The line that says why, of an error with a log behind it."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in said if line.startswith(("cairn run:", "cairn:"))]
    return (ours or said or [type(error).__name__])[0][:300]


class Found:
    """The figures of each row, round by round; why, of rows that cannot be run."""

    def __init__(self, rows: Sequence[Hashable]) -> None:
        self.rounds: dict[Any, list[Figures]] = {row: [] for row in rows}
        self.trouble: dict[Any, str] = {}

    def __getitem__(self, row: Hashable) -> list[Figures]:
        return self.rounds[row]

    def add(self, row: Hashable, figures: Figures) -> None:
        if "trouble" in figures:
            self.trouble[row] = figures["trouble"]
        else:
            self.rounds[row].append(figures)

    def missing(self, row: Hashable) -> str | None:
        """Why the row has no figures; None if it has some."""
        if row in self.trouble:
            return self.trouble[row]
        return None if self.rounds[row] else "no round was finished"


@dataclass
class RunLog:
    """Runs of one part: those that an interrupted measurement has left are not made again."""

    part: str
    runs: Runs
    meter: Meter

    def run(self, row: str, number: int, make: Callable[[], Figures]) -> Figures:
        """The figures of the row's run in this round; {"trouble": why} if it cannot be had."""
        known = self.runs.get(self.part, row, number)
        if known is not None:
            self.meter.skip()
            return known
        try:
            figures = make()
        except (ServerError, OSError, RuntimeError, subprocess.SubprocessError) as error:
            figures = {"trouble": reason_of(error)}
        self.meter.step(f"{row}, round {number + 1}")
        return self.runs.add(self.part, row, number, figures)

    def fill(
        self,
        found: Found,
        rounds: int,
        make: Callable[[Any], Figures],
        name: Callable[[Any], str] = str,
        enough: Callable[[list[Figures]], bool] = lambda runs: False,
    ) -> Found:
        """
        So many rounds of its rows, but those that are in trouble, or have `enough` runs.
        Interrupted, `found` has what there is. `name` is what a row is known by when the
        measurement is gone on with.
        """
        rows = list(found.rounds)
        for number in range(rounds):
            for row in rotated(rows, number):
                if row in found.trouble or enough(found[row]):
                    self.meter.skip()
                else:
                    found.add(row, self.run(name(row), number, lambda one=row: make(one)))
        return found
