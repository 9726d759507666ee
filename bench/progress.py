# SPDX-License-Identifier: MIT
"""
How far a measurement is and how long it will still take: a bar by rich on a terminal, else a line
for each part.
"""

from __future__ import annotations

import sys
import time

try:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
except ImportError:
    Progress = None  # type: ignore[assignment, misc]

# Seconds of one step, until there are figures of this run.
GUESSES = {"native": 30.0, "servers": 90.0, "smc": 6.0, "traces": 15.0, "lmc": 3.0}


def hours(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


class Estimate:
    """Parts of so many steps, each of a group whose steps take about the same time."""

    def __init__(self, steps: dict[str, int], groups: dict[str, str]) -> None:
        self.total, self.groups = steps, groups
        self.done = dict.fromkeys(steps, 0)
        self.seconds = dict.fromkeys(steps, 0.0)

    def add(self, part: str, seconds: float) -> None:
        self.done[part] = min(self.done[part] + 1, self.total[part])
        self.seconds[part] += seconds

    def finish(self, part: str) -> None:
        self.total[part] = self.done[part]

    def each(self, part: str) -> float:
        """Seconds of one step: as measured in the part, or in its group, or as guessed."""
        alike = [p for p in self.total if self.groups[p] == self.groups[part]]
        for parts in ([part], alike):
            done = sum(self.done[p] for p in parts)
            if done:
                return sum(self.seconds[p] for p in parts) / done
        return GUESSES[self.groups[part]]

    def left(self) -> float:
        return sum((n - self.done[p]) * self.each(p) for p, n in self.total.items())

    def share(self) -> float:
        spent = sum(self.seconds.values())
        return spent / (spent + self.left()) if spent + self.left() else 1.0


class Meter:
    """What the user sees. Use it as a context."""

    def __init__(self, estimate: Estimate) -> None:
        self.estimate, self.part, self.begin = estimate, "", time.monotonic()
        self.bar = None
        if Progress and sys.stdout.isatty():
            columns = ("{task.description}", "{task.percentage:>3.0f} %  {task.fields[left]}")
            texts = [TextColumn(text) for text in columns]
            self.bar = Progress(SpinnerColumn(), texts[0], BarColumn(), texts[1])
            self.task = self.bar.add_task("", total=1.0, left="")

    def __enter__(self) -> Meter:
        if self.bar:
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def say(self, text: str) -> None:
        self.bar.console.print(text, highlight=False) if self.bar else print(text, flush=True)

    def show(self, what: str = "") -> None:
        if self.bar:
            left = f"{hours(self.estimate.left())} left"
            text = f"{self.part} {what}".strip()
            self.bar.update(
                self.task, completed=self.estimate.share(), description=text, left=left
            )

    def start(self, part: str) -> None:
        self.part, self.begin, self.step_begin = part, time.monotonic(), time.monotonic()
        self.show()

    def step(self, what: str = "") -> None:
        """One step of the part is done; `what` it was."""
        now = time.monotonic()
        self.estimate.add(self.part, now - self.step_begin)
        self.step_begin = now
        self.show(what)

    def skip(self) -> None:
        """A step that is not made: an interrupted run has done it, or nobody needs it."""
        self.estimate.total[self.part] = max(
            self.estimate.total[self.part] - 1, self.estimate.done[self.part]
        )
        self.step_begin = time.monotonic()

    def end(self, count: int) -> None:
        took = time.monotonic() - self.begin
        if not self.estimate.done[self.part]:
            self.step()
        self.estimate.finish(self.part)
        left = self.estimate.left()
        more = f"; about {hours(left)} left" if left >= 1 else ""
        self.say(f"{self.part}: {count} results, {took:.0f} s{more}")
        self.show()
