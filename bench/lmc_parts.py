# SPDX-License-Identifier: MIT
"""The parts of `make bench BENCH=lmc`, and whether they can be measured here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import hmmsearch
import lmc_checks
import lmc_programs
import lmc_runs
import lmc_servers
import lmc_sites
import lmc_stores
import lmc_switches
from lmc_programs import BuildError
from lmc_recipes import RECIPES, RECIPES_32
from lmc_services import SERVICES
from lmc_works import WORKS
from rounds import RunLog
from smc import Settings

PARTS = ("lmc.stores", *(f"lmc.{name}" for name in RECIPES))
PARTS += ("lmc.sites", "lmc.switches", "lmc.regions", "lmc.clones", "lmc.checks")
SERVED = ("nginx", "lighttpd", "httpd")
SWITCHED = (*SERVED, "lua", "sqlite", "hmmer", "bzip2", "libquantum", "x264", "gnugo", "perl")
SWITCHED += tuple(RECIPES_32)
NAMES = {"switches": SWITCHED, "regions": SERVED, "clones": SWITCHED}


def _lacks(name: str) -> str | None:
    """What its load needs and is not here."""
    if name == "hmmer":
        return hmmsearch.missing()  # its model is made by Debian's hmmbuild
    return SERVICES[name].missing() if name in SERVICES else None


def missing(part: str, build: Path, toy: bool, wanted: bool) -> str | None:
    """Why it is left out; what was not asked for by name is not built either."""
    name = part.split(".")[1]
    if name == "stores":
        return lmc_stores.missing(build)
    if toy:
        return "not at toy size"
    if not (build / "bin" / "cairn-cc").exists():
        return "cairn-cc is not built (scripts/install_deps.sh compiler)"
    if not wanted and not (name in RECIPES and RECIPES[name].built()):
        return f"not asked for (BENCH={part} fetches and builds programs)"
    return None


def steps(part: str, settings: Settings) -> int:
    name = part.split(".")[1]
    if name == "stores":
        return lmc_stores.steps(settings)
    if name == "sites":
        return lmc_sites.steps(settings)
    if name in NAMES:
        return lmc_switches.steps(name, settings, NAMES[name])
    if name == "checks":
        return lmc_checks.steps(settings)
    kind = lmc_runs if name in WORKS else lmc_servers
    return kind.steps(name, settings)


def measure(part: str, settings: Settings, log: RunLog) -> Iterator[dict]:
    name = part.split(".")[1]
    if name == "stores":
        yield from lmc_stores.measure(settings, log)
    elif name == "sites":
        yield from lmc_sites.measure(settings, log)
    elif name in NAMES:
        names = [n for n in NAMES[name] if not _lacks(n)]
        yield from lmc_switches.measure(name, settings, log, names)
    elif name == "checks":
        names = [n for n in (*RECIPES, *RECIPES_32) if not _lacks(n)]
        yield from lmc_checks.measure(settings, log, names)
    else:
        kind = lmc_runs if name in WORKS else lmc_servers
        try:
            if why := _lacks(name):
                raise BuildError(why)
            lmc_programs.built(name, settings.build)
        except BuildError as error:
            out = {"table": kind.TABLE, "program": name, "row": "all", "missing": str(error)}
            yield out | ({} if name in WORKS else {"kib": SERVICES[name].sizes[0], "every": 1})
            return
        yield from kind.measure(name, settings, log)
