#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The report of the SMC benchmark: which strategy is marked as the best, what stands below a table
where the default is not, the spread of sweeps, which parameters are swept, the host's prices.

argv: the build tree.
"""

from __future__ import annotations

import subprocess
import sys
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(sys.argv[1] if len(sys.argv) > 1 else SOURCE / "build")
SCRIPTS = SOURCE / "scripts"
sys.path[:0] = map(str, (SOURCE / "bench", SCRIPTS, SCRIPTS / "servers"))

import report  # noqa: E402
import report_smc  # noqa: E402
import tracing  # noqa: E402

PRICES = {"price_fault": 4000, "price_copy": 200, "price_protect": 1000, "price_open": 3000}


def served(program: str, tracker: str, strategy: str, ratio: float, **more: object) -> dict:
    line = {
        "table": "smc", "program": program, "row": f"{tracker} all {strategy}", "surface": "all",
        "tracker": tracker, "strategy": strategy, "unit": "requests", "per_second": 1000 * ratio,
        "ratio": ratio, "ratio_least": ratio - 0.01, "ratio_most": ratio + 0.01,
        "processor_ratio": 1, "checkpoints_per_second": 1, "checkpoints_per_request": 1,
        "pages_per_checkpoint": 1, "checkpoint_us": 1, "memory_ratio": 1, "memory_kib": 1024,
        "engine_kib": 1,
    }  # fmt: skip
    return {**line, **more}


BARE = {"table": "smc", "program": "redis", "row": "bare", "surface": "", "tracker": "",
        "strategy": "", "unit": "requests", "per_second": 1000}  # fmt: skip
SERVED = [
    BARE,
    served("redis", "async", "none", 0.6),
    served("redis", "async", "gspec", 0.80, **PRICES),
    served("redis", "async", "decay", 0.9, **PRICES),
    served("redis", "uffd", "gspec", 0.9),
    served("redis", "uffd", "decay", 0.7),
    served("redis", "mprotect", "gspec", 0.9),
    served("redis", "mprotect", "decay", 0.895),
    served("redis", "any", "oracle-count", 0.99),
]


def scored(tracker: str, strategy: str, smc: float, host: float) -> dict:
    return {
        "table": "meta", "program": "redis", "row": f"{tracker} {strategy}", "tracker": tracker,
        "strategy": strategy, "op": 1, "up": 2, "mp": 3, "wmp_smc": smc, "wmp_host": host,
        "cycles": 12345, "own_cycles": 678, **PRICES,
    }  # fmt: skip


def replayed(strategy: str, costs: str, wmp: float, cost: float) -> dict:
    return {
        "table": "accuracy", "program": "redis", "row": strategy, "strategy": strategy,
        "costs": costs, "intervals": 9, "written": 3, "op": 1, "up": 2, "mp": 3, "wmp_smc": wmp,
        "wmp_host": wmp, "recall": 1, "precision": 1, "to_oracle": cost, "own_cycles": 4321,
    }  # fmt: skip


def swept(program: str, row: str, cost: float) -> dict:
    return {"table": "sweep", "program": program, "row": row, "strategy": row, "to_oracle": cost}


def titled(lines: list[dict], title: str) -> report.Section:
    return next(x for x in report_smc.sections(lines, report.Section) if x.title.startswith(title))


class Marks(unittest.TestCase):
    def marked(self, part: report.Section) -> dict[str, list[str]]:
        """The columns in which a row is marked."""
        found = {}
        for row in part.rows:
            found[row[0]] = [h for h, cell in zip(part.head[1:], row[1:]) if cell.endswith(" *")]
        return {name: heads for name, heads in found.items() if heads}

    def test_figure2(self) -> None:
        for title, head in (("SMC Figure 2: redis", "lost"), ("SMC Figure 2, Tables", "redis")):
            part = titled(SERVED, title)
            best = {"async all decay": [head], "uffd all gspec": [head],
                    "mprotect all gspec": [head]}  # fmt: skip
            self.assertEqual(self.marked(part), best)
            self.assertIn("is not the best", part.below)
            self.assertIn("uffd all: gspec loses 10.0 %, decay 30.0 %;", part.below)
            self.assertIn("mprotect all: gspec loses 10.0 %, decay 10.5 % (their", part.below)
            self.assertNotIn("async", part.below)

    def test_prices(self) -> None:
        text = titled(SERVED, "SMC Figure 2: redis").text
        self.assertIn("async: a fault 4,000, a copy 200, a protection 1,000", text)
        self.assertIn("an undercopied page 25.0", text)

    def test_default_is_best(self) -> None:
        part = titled(SERVED[:4], "SMC Figure 2: redis")
        self.assertIn("is the best everywhere", part.below)
        part = titled(SERVED[:3], "SMC Figure 2: redis")
        self.assertIn("was not measured", part.below)

    def test_scored(self) -> None:
        lines = [scored("async", "decay", 5, 9), scored("async", "active-cks", 7, 8)]
        part = titled(lines, "SMC Table 4: redis")
        self.assertEqual(
            self.marked(part), {"async decay": ["WMP (SMC)"], "async active-cks": ["WMP (here)"]}
        )
        self.assertIn("async, by the prices here: active-cks 8.00, decay 9.00", part.below)
        self.assertNotIn("SMC's", part.below)
        self.assertEqual(part.rows[0][-2:], ["12,345", "678"])

    def test_replayed(self) -> None:
        lines = [replayed("decay", "smc", 4, 1.5), replayed("last", "smc", 6, 1.2)]
        lines += [replayed("decay", "uffd", 4, 1.1), replayed("last", "uffd", 6, 2)]
        lines += [replayed("oracle", "smc", 0, 1)]
        part = titled(lines, "Strategies on the trace of redis")
        best = {"decay": ["WMP", "uffd", "WMP (uffd)"], "last": ["cost (SMC)"]}
        self.assertEqual(self.marked(part), best)
        self.assertIn("cost (smc): last 1.20x, decay 1.50x", part.below)
        self.assertNotIn("uffd", part.below)
        self.assertEqual(part.rows[0][-1], "4,321")
        part = titled(lines, "Strategies on traces")
        self.assertIn("redis: last 1.20x, decay 1.50x", part.below)

    def test_figure3(self) -> None:
        lines = [
            {"table": "figure3", "row": f"async {name}", "tracker": "async", "strategy": name,
             "site": "func:loop", "every": 4, "slowdown": value, "processor": value,
             "pages_per_checkpoint": 3}
            for name, value in (("none", 1.9), ("last", 1.2), ("decay", 1.3))
        ]  # fmt: skip
        part = titled(lines, "SMC Figure 3")
        self.assertEqual(self.marked(part), {"async last": ["n = 4"]})
        self.assertIn("async, n = 4: last 1.20x, decay 1.30x", part.below)

    def test_below_is_in_both_reports(self) -> None:
        part = report.Section("t", "x", ["a"], [["b"]], "", "what is below")
        for write in (report.markdown, report.page):
            text = write("m", "i", [part], set())
            self.assertLess(text.index("b"), text.index("what is below"))


class Sweeps(unittest.TestCase):
    def test_spread(self) -> None:
        lines = [swept("redis", f"gspec:lazy={n}", n) for n in (2, 4)]
        lines += [swept("redis", "gspec:enter=1", 8), swept("nginx", "gspec:lazy=2", 3)]
        lines += [swept("redis", "decay", 2)]
        rows = {row[0]: row[1:] for row in titled(lines, "Sweeps").rows}
        self.assertEqual(rows["gspec: lazy"][0], "2.00 to 4.00x")
        self.assertEqual(rows["gspec"][0], "2.00 to 8.00x")
        self.assertEqual(rows["gspec"][-2:], ["2.00x", "4.00x"])  # of 4 and 1
        self.assertEqual(rows["decay"][-2:], ["1.00x", "1.00x"])

    def test_every_parameter_is_swept(self) -> None:
        said = subprocess.check_output([BUILD / "bin" / "cairn-bench", "--list"], text=True)
        wanted, strategy = set(), ""
        for line in said.partition("Strategies:")[2].partition("Runs that")[0].splitlines():
            if line.startswith("      "):
                wanted.add(f"{strategy}:{line.split('=')[0].strip()}")
            elif line.strip():
                strategy = line.split()[0]
        wanted = {x for x in wanted if not x.startswith(("oracle", "random"))}
        self.assertGreater(len(wanted), 10)
        self.assertEqual({x.split("=")[0] for x in tracing.SWEEPS if ":" in x}, wanted)


class Said(unittest.TestCase):
    def test_rivals(self) -> None:
        """Of the process with the most intervals, with its own prices."""
        said = ""
        for pid, intervals, copy in ((7, 3, 100), (8, 30, 200)):
            said += f'{{"pid": {pid}, "rival": "last", "intervals": {intervals}, "up": 1}}\n'
            said += f'{{"pid": {pid}, "price_fault": 1, "price_copy": {copy}, '
            said += '"price_protect": 1, "price_open": 1}\n'
        line = {"table": "meta", "program": "redis", "tracker": "uffd"}
        (one,) = tracing.rivals(f"noise\n{said}", line)
        self.assertEqual((one["intervals"], one["price_copy"], one["row"]), (30, 200, "uffd last"))
        (one,) = tracing.rivals("noise\n", line)
        self.assertIn("missing", one)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
