# SPDX-License-Identifier: MIT
"""
SMC's Figure 3: a checkpoint at every 1, 2, 4, 8 and 16 iterations of hmmsearch's loop over
sequences. It is built with symbols from Debian's source, and the site is what its loop calls for
each sequence. Where it cannot be built (or only small loads are wanted, and it is not built yet)
Debian's own is taken, which has none: `cairn profile` then finds the function that each turn of the
loop calls. Model and sequences are made up, from a seed.
"""

from __future__ import annotations

import json
import random
import re
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import lmc_programs
from lmc_recipes import RECIPES
from recording import Subject
from results import digest
from rounds import Found, RunLog, spread
from servers import ServerError
from smc import Settings, strategies, summaries

NAME = "hmmsearch"
EVERY = (1, 2, 4, 8, 16)
BARE = ("bare",)
AMINO = "ACDEFGHIKLMNPQRSTVWY"
SEQUENCES = 20_000


def missing() -> str | None:
    for program in ("hmmsearch", "hmmbuild"):
        if not shutil.which(program):
            return f"{program} is not installed"
    return None


def prepare(folder: Path, sequences: int) -> list[str]:
    """The command: a model of 400 positions against sequences of which some are its relatives."""
    chance = random.Random(11)
    consensus = "".join(chance.choice(AMINO) for _ in range(400))

    def relative(share: float) -> str:
        return "".join(c if chance.random() < share else chance.choice(AMINO) for c in consensus)

    seed = "".join(f">s{n}\n{relative(0.8)}\n" for n in range(20))
    (folder / "seed.afa").write_text(seed)
    with (folder / "sequences.fa").open("w") as f:
        for n in range(sequences):
            length = chance.randrange(100, 500)
            text = relative(0.5) if n % 50 == 0 else "".join(chance.choices(AMINO, k=length))
            f.write(f">q{n}\n{text}\n")
    build = ["hmmbuild", "--amino", str(folder / "model.hmm"), str(folder / "seed.afa")]
    subprocess.run(build, stdout=subprocess.DEVNULL, check=True, timeout=60)
    files = [str(folder / "model.hmm"), str(folder / "sequences.fa")]
    return ["hmmsearch", "--cpu", "0", "-o", str(folder / "found"), *files]


def with_symbols(settings: Settings) -> str | None:
    """The path of one that has them; None: it is not to be had."""
    path = RECIPES["hmmer"].path("plain")
    if settings.toy or (settings.quick and not path.exists()):
        return None
    try:
        return str(lmc_programs.linked("hmmer", settings.build, "plain"))
    except lmc_programs.BuildError as error:
        print(f"({error}; Debian's hmmsearch is taken)", end=" ", flush=True)
        return None


def find_site(cairn: str, command: list[str]) -> str | None:
    done = subprocess.run(
        [cairn, "profile", "--json", "--", *command], capture_output=True, text=True, timeout=120
    )
    sites = json.loads(done.stdout)["at"] if done.returncode == 0 else []
    sites = [re.sub(r"/\d+$", "", site) for site in sites if site.startswith("func:")]
    return sites[0] if sites else None


def answer(folder: Path) -> str:
    """What it found, without times: its digest."""
    text = (folder / "found").read_text()
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    return digest("\n".join(lines))


def processor_seconds() -> float:
    """Of children that have ended: what a neighbour takes away is not in it."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def one_run(under: list[str], command: list[str]) -> tuple[float, float, str]:
    """Seconds, those of the processor, and what was said on stderr."""
    begin, spent = time.perf_counter(), processor_seconds()
    process = subprocess.Popen([*under, *command], stderr=subprocess.PIPE, text=True)
    err = process.communicate(timeout=600)[1]
    seconds, spent = time.perf_counter() - begin, processor_seconds() - spent
    if process.returncode:
        raise RuntimeError(f"hmmsearch ended with {process.returncode}\n{err[-600:]}")
    return seconds, spent, err


def variants(settings: Settings) -> list[tuple[str, str, int]]:
    return [
        (tracker, strategy, every)
        for tracker in (("async",) if settings.toy else settings.trackers)
        for strategy in strategies(settings)
        for every in EVERY
    ]


def steps(settings: Settings) -> int:
    return settings.rounds * (1 + len(variants(settings)))


def size_of(settings: Settings) -> int:
    return 500 if settings.toy else 5_000 if settings.quick else SEQUENCES


def placed(settings: Settings, folder: Path) -> tuple[list[str], str | None]:
    """The command, and the site at the top of its loop; None: it was not found."""
    command = prepare(folder, size_of(settings))
    binary = with_symbols(settings)
    if binary:
        # Built without threads it has no --cpu.
        return [binary, *command[-4:]], f"func:{RECIPES['hmmer'].sites[0]}"
    long = prepare_long(folder, command, size_of(settings))
    return command, find_site(settings.cairn(), long)


def subject(settings: Settings, folder: Path) -> Subject:
    """To be traced: an interval for each sequence."""
    command, site = placed(settings, folder)
    if not site:
        raise ServerError("its loop was not found")

    def run(_: Path, under: list[str]) -> str:
        try:
            return one_run(under, command)[2]
        except RuntimeError as error:
            raise ServerError(str(error)) from error

    return Subject(NAME, site, run)


def measure(settings: Settings, log: RunLog) -> Iterator[dict]:
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    try:
        command, site = placed(settings, folder)
        if not site:
            yield {"table": "figure3", "row": NAME, "missing": "its loop was not found"}
            return
        yield from rounds(settings, log, folder, command, site)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def prepare_long(folder: Path, command: list[str], sequences: int) -> list[str]:
    """The same search, long enough for the profiler to see it."""
    text = (folder / "sequences.fa").read_text()
    copies = max(1, 3 * SEQUENCES // sequences)
    (folder / "long.fa").write_text(text * copies)
    return [*command[:-1], str(folder / "long.fa")]


def rounds(
    settings: Settings, log: RunLog, folder: Path, command: list[str], site: str
) -> Iterator[dict]:
    names = variants(settings)
    if not names:
        yield {"table": "figure3", "row": NAME, "missing": "no strategy can be used"}
        return
    found = Found([BARE, *names])

    def run(name: tuple) -> dict:
        under = []
        if name != BARE:
            tracker, strategy, every = name
            under = [settings.cairn(), "run", "--stats=json", "--at", f"{site}/{every}"]
            under += ["--tracker", tracker, "--strategy", strategy, "--"]
        seconds, spent, said = one_run(under, command)
        stats = next(iter(summaries(said).values()), {})
        taken = {key: stats.get(key, 0) for key in ("checkpoints", "pages_saved")}
        return {"seconds": seconds, "processor": spent, "answer": answer(folder), **taken}

    try:
        log.fill(found, settings.rounds, run, lambda name: " ".join(map(str, name)))
    except KeyboardInterrupt:
        yield from lines(found, site, size_of(settings))
        raise
    yield from lines(found, site, size_of(settings))


def lines(found: Found, site: str, sequences: int) -> Iterator[dict]:
    bare = found[BARE]
    for name, mine in found.rounds.items():
        if name == BARE:
            continue
        tracker, strategy, every = name
        line = {"table": "figure3", "row": f"{tracker} {strategy}", "every": every}
        reason = found.missing(name) or found.missing(BARE)
        if not reason and any(one["answer"] != bare[0]["answer"] for one in mine):
            reason = "hmmsearch found something else"
        if reason:
            yield {**line, "missing": reason}
            continue
        count, pages = mine[-1]["checkpoints"], mine[-1]["pages_saved"]
        yield {
            **line,
            "tracker": tracker,
            "strategy": strategy,
            "site": site,
            "rounds": len(mine),
            "seconds": round(median(one["seconds"] for one in mine), 4),
            **spread([one["seconds"] / its["seconds"] for one, its in zip(mine, bare)], "slowdown"),
            **spread([one["processor"] / its["processor"] for one, its in zip(mine, bare)],
                     "processor"),
            "checkpoints": count,
            "checkpoints_per_sequence": round(count / sequences, 4),
            "pages_per_checkpoint": round(pages / count, 2) if count else 0,
        }
