# SPDX-License-Identifier: MIT
"""
What the mixed workload of `hot` must cost, by the prices that the same run has measured:

    future     of who knows which pages each interval will write
    chances    of who knows how likely each page is to be written, but not when

Writes there are drawn anew in each interval, so no strategy can do better than `chances`: a page is
worth keeping hot if a copy costs less than its chance times its way out and back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import recording

# As bench_hot.c draws them.
HOT, PICK, TAIL, TAIL_PICK = 20, 12, 4000, 3


@dataclass
class Prices:
    """Cycles per page: a first store with its fault, a hot page, protecting it again."""

    fault: float
    copy: float
    protect: float


def measured(lines: list[dict], tracker: str) -> Prices | None:
    """
    From 15 pages that all fault, and the same with five that come once: no strategy waits for them,
    or copies them in vain. The way of a store to memory is no price of its fault.
    """
    mine = [x for x in lines if x.get("row") == tracker and x.get("strategy") == "none"]
    at = {(x["what"], x["cold"]): x["cycles"] for x in mine if x["keep"] == 1}
    floors = {x["cold"]: x["floor"] for x in mine if x["keep"] == 1}
    stores = {x["cold"]: x["stores"] for x in mine if x["keep"] == 1}
    if ("interval", 5) not in at or ("interval", 0) not in at:
        return None
    more = {what: at[what, 5] - at[what, 0] for what in ("interval", "checkpoint")}
    return Prices(
        fault=max(1, (more["interval"] - more["checkpoint"] - stores[5] + stores[0]) / 5),
        copy=max(1, floors[0] / 15),
        protect=max(1, more["checkpoint"] / 5),
    )


def chances(prices: Prices) -> float:
    """Cycles beyond copying what is written, of the best set of pages to keep hot."""
    sums = sum(1 / i for i in range(1, TAIL + 1))
    written = [1 - (1 - 1 / i / sums) ** TAIL_PICK for i in range(1, TAIL + 1)]
    idle = accumulate((1 - p for p in written), initial=HOT - PICK)
    cold = accumulate(written, lambda left, p: left - p, initial=sum(written))
    pair = prices.fault + prices.protect
    return min(prices.copy * i + pair * c for i, c in zip(idle, cold, strict=True))


def future(build: Path, prices: Prices, toy: bool) -> float:
    """
    The same by cairn-bench: the cheaper of staying and going, for each gap between two writes.
    To open a page in time takes a call, as to protect it.
    """
    length = ["-n", "500", "--skip", "100"] if toy else ["-n", "20000", "--skip", "2000"]
    fault, copy, protect = (round(x) for x in (prices.fault, prices.copy, prices.protect))
    words = ["--synthetic=mixed", *length, "-s", "none"]
    words += ["-c", f"{fault},{copy},{protect},{protect}"]
    bound = next(x for x in recording.replay(build, words) if x["strategy"] == "bound")
    return bound["cycles"] - bound["written"] * copy


def mixed(build: Path, lines: list[dict], toy: bool) -> Iterator[dict]:
    for line in lines:
        if line.get("strategy") != "decay" or line["cold"] >= 0 or line["what"] != "interval":
            continue
        prices = measured(lines, line["row"])
        if prices:
            floor = line["floor"]
            yield {
                "table": "hot_bound",
                "row": line["row"],
                "fault": round(prices.fault),
                "copy": round(prices.copy),
                "protect": round(prices.protect),
                "future": 1 + future(build, prices, toy) / floor,
                "chances": 1 + chances(prices) / floor,
            }
