# SPDX-License-Identifier: MIT
"""
Real programs with an oracle at their sites (tests/compiler/checked_site.c): now and then an
interval is undone in a copy of the process, and every byte compared with what it was at the
checkpoint. The program itself goes back, too, where the interval begins, and must answer as the
plain one does.

    lmc_checks.py [--build DIR] [PROGRAM...]      fetch and build them, and say what was compared
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
    sys.path[:0] = [str(SCRIPTS), str(SCRIPTS / "servers")]

from debian_source import NotHere
from lmc_programs import BuildError, Refused, asked, built_checked, linked
from lmc_recipes import RECIPES, RECIPES_32
from lmc_runs import WORKS, one_run
from lmc_services import SERVICES
from rounds import RunLog, reason_of
from servers import ServerError
from smc import Settings

EVERY = 60  # checkpoints from one comparison to the next, on average
QUIET = 0.5  # seconds
SKIPPED = 77  # to ctest
MOST = 40  # comparisons, about: each takes tens of milliseconds


def environment(log: Path, every: int) -> dict[str, str]:
    log.write_text("")
    log.chmod(0o666)  # servers change their user
    # Else ld.so writes to the table of functions whenever one is called first.
    return {"CHECKED_LOG": str(log), "CHECKED_EVERY": str(every), "LD_BIND_NOW": "1"}


def settle(log: Path) -> None:
    """
    Until its site is quiet: while that compares, it blocks signals, and the one that ends the
    server would be handled by a thread whose stores nobody tracks (-fcairn-site-threads=one).
    """
    size = -1
    while size < (size := log.stat().st_size):
        time.sleep(QUIET)


def serve(name: str, program: Path, folder: Path, settings: Settings) -> None:
    """Its load looks at the answers."""
    service = SERVICES[name]
    words = [f"{key}={value}" for key, value in environment(folder / "log", EVERY).items()]
    server = service.start(folder / "server", ["env", *words], service.sizes[0])
    server.program = str(program)
    try:
        server.start()
        service.load(server, service.quick)
        settle(folder / "log")
    finally:
        server.stop()


def compute(name: str, program: Path, folder: Path, settings: Settings) -> None:
    work = WORKS[name.removesuffix("-32")]
    arguments = work.arguments(folder, settings)

    def run(path: Path) -> dict[str, Any]:
        return one_run([str(path), *arguments], work.clean, folder / work.typed)

    bare, counted = (run(linked(name, settings.build, row)) for row in ("plain", "shadow"))
    every = max(1, counted["checkpoints"] // MOST)
    os.environ.update(environment(folder / "log", every))
    if run(program)["answer"] != bare["answer"]:
        raise RuntimeError("its output is another than that of the plain program")


def one_check(name: str, tracker: str, settings: Settings) -> dict[str, Any]:
    program = built_checked(name, settings.build, tracker)
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    folder.chmod(0o755)
    try:
        if name in SERVICES:
            serve(name, program, folder, settings)
        else:
            compute(name, program, folder, settings)
        said = [line.split() for line in (folder / "log").read_text().splitlines()]
        if not said:
            raise ServerError("nothing was compared")
        kinds = Counter(words[0] for words in said)
        wrong = [" ".join(words) for words in said if words[0] != "same"]
        return {
            "compared": kinds["same"],
            "bytes": max((int(words[3]) for words in said if words[0] == "same"), default=0),
            "wrong": len(wrong),
            "first": wrong[0] if wrong else "",
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def steps(settings: Settings) -> int:
    return 2 * (len(SERVICES) + len(WORKS) + len(RECIPES_32))


def measure(settings: Settings, log: RunLog, names: list[str]) -> Iterator[dict]:
    for name in names:
        for tracker in ("shadow", "undolog"):
            out = {"table": "lmc.checks", "row": f"{name} {tracker}", "program": name}
            out["tracker"] = tracker
            try:
                linked(name, settings.build, "plain")
            except BuildError as error:
                yield {**out, "missing": str(error)}
                continue
            figures = log.run(
                out["row"], 0, lambda n=name, t=tracker: one_check(n, t, settings)
            )
            if "trouble" in figures:
                yield {**out, "missing": figures["trouble"]}
            else:
                yield {**out, **figures}


def main() -> int:
    build, names = asked(__doc__, [*RECIPES, *RECIPES_32])
    wrong, absent = 0, []
    settings = Settings(build=build, rounds=1, toy=False, quick=True)
    for name in names:
        try:
            linked(name, build, "plain")
        except NotHere as error:
            absent.append(str(error))
            print(name, error, flush=True)
            continue
        except BuildError as error:
            wrong += 1
            print(name, error, flush=True)
            continue
        for tracker in ("shadow", "undolog"):
            try:
                found = one_check(name, tracker, settings)
            except Refused as error:
                print(name, tracker, error, flush=True)
                continue
            except (ServerError, OSError, RuntimeError) as error:
                found = {"wrong": 1, "first": reason_of(error)}
            wrong += found["wrong"]
            print(name, tracker, *(f"{key}={value}" for key, value in found.items()), flush=True)
    if absent and not wrong:
        print(f"SKIP: {'; '.join(absent)}")
        return SKIPPED
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
