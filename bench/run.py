#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Measure, and write the report. Without arguments everything, smc, traces and lmc in their quick
form, in about an hour:

    run.py [--build DIR] [--results DIR] [--toy] [PART...]

    table1 trackers restore empty handover keep hot protect tax backtrack alternate
                                                    native, against libcairn
    redis nginx lighttpd redis-1 redis-pipeline redis-key redis-key-1 redis-key-pipeline
                                                    servers at a checkpoint per wake-up
    smc             the SMC paper's evaluation: smc.PROGRAM, hmmsearch, recovery
    traces          recorded runs through every strategy: traces.PROGRAM
    lmc             programs built by cairn-cc: lmc.stores, lmc.PROGRAM (fetches and builds them),
                    lmc.sites, lmc.switches, lmc.regions, lmc.clones, lmc.checks
    native, servers                                 all of either
    report FILE                                     only the report, from an earlier run's lines

Each result is one JSON line with the machine, kernel, commit and settings in it. A run gets a
folder of its own under results/: results.jsonl, report.md, report.html and the plots. Ctrl-C ends
it with a report of what there is; the same command at the same commit then goes on from there.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path[:0] = [str(HERE.parent / "scripts"), str(HERE.parent / "scripts" / "servers")]

import bounds  # noqa: E402
import hmmsearch  # noqa: E402
import lmc_parts  # noqa: E402
import recording  # noqa: E402
import recovering  # noqa: E402
import report  # noqa: E402
import serving  # noqa: E402
import smc  # noqa: E402
import tracing  # noqa: E402
from loads import PROGRAMS  # noqa: E402
from progress import Estimate, Meter  # noqa: E402
from results import Results, load  # noqa: E402
from rounds import RunLog  # noqa: E402

NATIVE = ("table1", "trackers", "restore", "empty", "handover", "keep", "hot", "protect",
          "tax", "backtrack", "alternate")
SERVERS = serving.PARTS
SMC = (*(f"smc.{name}" for name in PROGRAMS), hmmsearch.NAME, "recovery")
TRACES = tuple(f"traces.{name}" for name in (*PROGRAMS, hmmsearch.NAME))
LMC = lmc_parts.PARTS
GROUPS = {"native": NATIVE, "servers": SERVERS, "smc": SMC, "traces": TRACES, "lmc": LMC}
GROUPS["all"] = tuple(part for group in GROUPS.values() for part in group)


def native(build: Path, part: str, toy: bool) -> Iterator[dict]:
    """The lines of one native benchmark."""
    if part == "backtrack":
        yield from backtrack(build, toy)
        return
    command = [str(build / "bench" / f"bench_{part}"), *(["--toy"] if toy else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=1200)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    yield from lines
    if part == "hot":
        yield from bounds.mixed(build, lines, toy)


def backtrack(build: Path, toy: bool) -> Iterator[dict]:
    command = [str(build / "examples" / "backtrack"), "100" if toy else "50000"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=600)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed with {done.returncode}")
    for line in done.stdout.splitlines()[1:]:
        words = line.rsplit(None, 3)
        if len(words) == 4 and words[1].isdigit():
            rewinds, rate = int(words[1]), float(words[2])
            yield {"table": "backtrack", "row": words[0], "rewinds": rewinds, "per_second": rate}


def expand(parts: list[str]) -> list[str]:
    wanted: list[str] = []
    for part in parts or ["all"]:
        for one in GROUPS.get(part, (part,)):
            if one not in GROUPS["all"]:
                there = ", ".join((*GROUPS, *GROUPS["all"]))
                sys.exit(f"run.py: no such part: {one}; there are {there}")
            if one not in wanted:
                wanted.append(one)
    return wanted


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--results", type=Path, help="folder (default: results/DATE-COMMIT)")
    parser.add_argument("--toy", action="store_true", help="tiny sizes: does it still work?")
    parser.add_argument(
        "--fresh", action="store_true", help="measure again what results/ has of this commit"
    )
    parser.add_argument(
        "--rounds", type=int, help="interleaved rounds of a server (7; 3 if quick)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller loads for smc and traces (default for all)"
    )
    parser.add_argument(
        "--strategies", help="for smc: names with commas (all); for servers: the first (auto)"
    )
    parser.add_argument("--trackers", help="for smc: names with commas (async,uffd,mprotect)")
    parser.add_argument("--surfaces", help="for smc: names with commas (program,all)")
    parser.add_argument("--keep-traces", type=Path, help="folder to leave recorded traces in")
    parser.add_argument("parts", nargs="*")
    return parser.parse_args()


def smc_settings(arguments: argparse.Namespace) -> smc.Settings:
    quick = arguments.quick or not arguments.parts

    def names(text: str | None) -> tuple[str, ...] | None:
        return tuple(text.split(",")) if text else None

    return smc.Settings(
        build=arguments.build.resolve(),
        rounds=1 if arguments.toy else arguments.rounds or (3 if quick else 7),
        toy=arguments.toy,
        quick=quick,
        trackers=names(arguments.trackers) or smc.TRACKERS,
        surfaces=names(arguments.surfaces) or smc.SURFACES,
        strategies=names(arguments.strategies),
    )


def missing(part: str, arguments: argparse.Namespace) -> str | None:
    build = arguments.build.resolve()
    if part in NATIVE:
        return None
    if part in LMC:
        return lmc_parts.missing(part, build, arguments.toy, bool(arguments.parts))
    if part in SERVERS:
        return serving.missing(part, build)
    if not (build / "bin" / "cairn").exists():
        return "cairn is not built"
    if part in (hmmsearch.NAME, f"traces.{hmmsearch.NAME}"):
        return hmmsearch.missing()
    return PROGRAMS[part.split(".")[1]].missing() if "." in part else None


def group_of(part: str) -> str:
    return next(name for name, parts in GROUPS.items() if part in parts)


def steps_of(part: str, settings: smc.Settings) -> int:
    """How many runs it will report, for the estimate of the time that is left."""
    if part.startswith("smc."):
        return smc.steps(part.removeprefix("smc."), settings)
    if part in LMC:
        return lmc_parts.steps(part, settings)
    return hmmsearch.steps(settings) if part == hmmsearch.NAME else 1


def measure(
    part: str, arguments: argparse.Namespace, settings: smc.Settings, log: RunLog
) -> Iterator[dict]:
    build = settings.build
    if part == "alternate":
        return tracing.alternate(build, settings.toy)
    if part in NATIVE:
        return native(build, part, arguments.toy)
    if part in SERVERS:
        strategy = settings.strategies[0] if settings.strategies else None
        return serving.measure(part, build, arguments.toy, arguments.rounds or 7, strategy)
    if part == hmmsearch.NAME:
        return hmmsearch.measure(settings, log)
    if part == "recovery":
        return recovering.measure(settings)
    if part in LMC:
        return lmc_parts.measure(part, settings, log)
    group, name = part.split(".")
    if group == "smc":
        return smc.measure(name, settings, log)
    return tracing.measure(name, settings, arguments.keep_traces)


def measure_all(
    parts: list[str], arguments: argparse.Namespace, results: Results, meter: Meter
) -> None:
    settings = smc_settings(arguments)
    for part in parts:
        meter.start(part)
        log = RunLog(part, results.runs, meter)
        count = sum(results.add(part, line) for line in measure(part, arguments, settings, log))
        if count == 0:
            raise RuntimeError(f"{part} measured nothing")
        meter.end(count)
        results.finish(part)


def wanted_parts(arguments: argparse.Namespace, results: Results) -> list[str]:
    """Those that can be measured here and have not been."""
    wanted = []
    for part in expand(arguments.parts):
        if part in results.whole:
            print(f"{part}: is there already")
        elif reason := missing(part, arguments):
            print(f"{part}: skipped: {reason}")
        else:
            wanted.append(part)
    return wanted


def settings_text(arguments: argparse.Namespace) -> str:
    settings = smc_settings(arguments)
    names = (settings.strategies or ("all",), settings.trackers, settings.surfaces)
    size = "quick" if settings.quick else "full"
    return " ".join([size, f"rounds={arguments.rounds}", *(",".join(one) for one in names)])


def main() -> int:
    arguments = parse_arguments()
    if arguments.parts[:1] == ["report"]:
        lines = Path(arguments.parts[1])
        print(report.write(load(lines), lines.parent))
        return 0
    fresh = arguments.fresh or arguments.toy
    results = Results(arguments.results, arguments.toy, settings_text(arguments), fresh)
    parts = wanted_parts(arguments, results)
    if not parts and not results.lines:
        print("SKIP: nothing that could be measured here")
        return 77
    settings = smc_settings(arguments)
    steps = {part: steps_of(part, settings) for part in parts}
    meter = Meter(Estimate(steps, {part: group_of(part) for part in parts}))
    status = 0
    try:
        with meter:
            measure_all(parts, arguments, results, meter)
    except KeyboardInterrupt:
        print(f"interrupted: the same command goes on; what there is: {results.folder}")
        status = 130
    print(report.write(results.lines, results.folder))
    return status


if __name__ == "__main__":
    sys.exit(main())
