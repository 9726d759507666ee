# SPDX-License-Identifier: MIT
"""
Servers at a checkpoint per wake-up: requests per second of redis, nginx and lighttpd under each
tracker, beside the bare server; redis with one connection, with pipelined requests, and with a
single key, where it recovers. All variants of a server run at the same time and are loaded turn by
turn, in an order that rotates, so that each round is one pair per variant with the bare server;
figures are medians over the rounds. The server's processor time per request tells what checkpoints
cost even where the load generator limits the rate. Checkpoints are counted by `cairn stat` before
and after a load.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from rounds import rotated, spread
from servers import (
    LighttpdServer,
    NginxServer,
    RedisServer,
    Server,
    ServerError,
    figures,
    processor_seconds,
    search_path,
    tied,
)
from throughput import KEYS, measured, requests_per_second

NEVER = 1 << 31  # no site comes so often: no session is opened

# Under Cairn, by name: the options of `cairn run`.
VARIANTS: dict[str, list[str]] = {
    "bare": [],
    "async": ["--at", "wait", "--tracker", "async"],
    "async, scan": ["--at", "wait", "--tracker", "async", "--feed", "scan"],
    "uffd": ["--at", "wait", "--tracker", "uffd"],
    "mprotect": ["--at", "wait", "--tracker", "mprotect"],
    "fork": ["--at", "wait", "--tracker", "fork"],
    "recover": ["--at", "wait", "--recover"],
    "recover, each": ["--at", "wait", "--recover", "--commit=each"],
    "no site": ["--at", f"wait/{NEVER}", "--tracker", "async"],
}

# What is compared where recovery is the question: nobody is told what may be undone.
RECOVERY = ("bare", "async", "recover", "recover, each")

# Redis by part: connections, requests sent before the first answer is waited for, and keys, of
# which each request draws one. redis-benchmark, unless told otherwise, always sets the same key.
REDIS_LOADS = {
    "redis": (50, 1, KEYS),
    "redis-1": (1, 1, KEYS),
    "redis-pipeline": (50, 16, KEYS),
    "redis-key": (50, 1, 1),
    "redis-key-1": (1, 1, 1),
    "redis-key-pipeline": (50, 16, 1),
}

PARTS = (*REDIS_LOADS, "nginx", "lighttpd")
PROGRAMS = {
    **dict.fromkeys(REDIS_LOADS, ("redis-server", "redis-benchmark")),
    "nginx": ("nginx", "ab"),
    "lighttpd": ("lighttpd", "ab"),
}
FILE_BYTES = 4096


@dataclass
class Variant:
    name: str
    server: Server
    rates: list[float] = field(default_factory=list)
    checkpoints_per_second: list[float] = field(default_factory=list)
    checkpoints_per_request: list[float] = field(default_factory=list)
    pages_per_checkpoint: list[float] = field(default_factory=list)
    processor_per_request: list[float] = field(default_factory=list)
    requests: int = 0


def missing(part: str, build: Path) -> str | None:
    for program in PROGRAMS[part]:
        if not shutil.which(program, path=search_path()):
            return f"{program} is not installed"
    if not (build / "bin" / "cairn").exists():
        return "cairn is not built"
    return None


def redis_load(part: str) -> Callable[[int, int], float]:
    connections, pipeline, keys = REDIS_LOADS[part]

    def load(port: int, requests: int) -> float:
        return requests_per_second(port, "set", requests, connections, pipeline, keys)

    return load


def web_load(port: int, requests: int) -> float:
    """ab with keep-alive over a file of 4 KiB."""
    command = [shutil.which("ab") or "ab", "-q", "-k", "-c", "20", "-n", str(requests)]
    command = tied([*command, f"http://127.0.0.1:{port}/file"])
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=400)
    lines = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    rate = lines.get("Requests per second", "").split()
    if done.returncode or lines.get("Failed requests", "").strip() != "0" or not rate:
        raise ServerError(f"ab failed: {done.stdout[-400:]}")
    return float(rate[0])


def make(part: str, folder: Path, under: list[str]) -> Server:
    if part in REDIS_LOADS:
        return RedisServer(folder, under)
    www = folder.parent / "www"
    if not www.exists():
        www.mkdir()
        www.chmod(0o755)
        (www / "file").write_bytes(b"x" * FILE_BYTES)
    kind = NginxServer if part == "nginx" else LighttpdServer
    return kind(folder, under, www)


def one_load(
    build: Path, variant: Variant, load: Callable[[int, int], float], seconds: float, keep: bool
) -> None:
    before: dict = {}
    spent = 0.0

    def once(requests: int) -> float:
        nonlocal spent
        before.update(figures(build, variant.server) if variant.name != "bare" else {})
        spent = processor_seconds(variant.server.family())
        rate = load(variant.server.port, requests)
        spent = processor_seconds(variant.server.family()) - spent
        return rate

    rate, variant.requests = measured(once, variant.requests)
    after = figures(build, variant.server) if variant.name != "bare" else {}
    if keep:
        variant.rates.append(rate)
        variant.processor_per_request.append(spent / variant.requests)
        taken = after.get("checkpoints", 0) - before.get("checkpoints", 0)
        pages = after.get("pages_saved", 0) - before.get("pages_saved", 0)
        variant.checkpoints_per_request.append(taken / variant.requests)
        variant.checkpoints_per_second.append(taken * rate / variant.requests)
        variant.pages_per_checkpoint.append(pages / taken if taken else 0)
    variant.requests = max(100, int(rate * seconds))


def takes_checkpoints(build: Path, variant: Variant) -> bool:
    """False if the program runs, but Cairn could not do what was asked for."""
    if "wait" not in VARIANTS[variant.name]:
        return True
    return figures(build, variant.server).get("checkpoints", 0) > 0


def start_all(
    part: str, build: Path, folder: Path, strategy: str | None
) -> tuple[list[Variant], list[dict]]:
    started, failed = [], []
    for name, options in VARIANTS.items():
        if part not in ("redis", "nginx", "lighttpd") and name not in RECOVERY:
            continue
        named = ["--strategy", strategy] if strategy else []
        under = [str(build / "bin" / "cairn"), "run", *options, *named, "--"] if options else []
        variant = Variant(name, make(part, folder / re.sub("[, ]+", "-", name), under))
        try:
            variant.server.start()
            started.append(variant)
        except ServerError as error:
            failed.append({"table": part, "row": name, "missing": str(error)[:400]})
    return started, failed


def measure(
    part: str, build: Path, toy: bool, rounds: int, strategy: str | None = None
) -> Iterator[dict]:
    """`strategy`: of all variants; None: the default."""
    load = redis_load(part) if part in REDIS_LOADS else web_load
    seconds = 0.05 if toy else 1.0
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    folder.chmod(0o755)
    variants: list[Variant] = []
    try:
        variants, failed = start_all(part, build, folder, strategy)
        yield from failed
        for variant in variants:
            variant.requests = 100 if toy else 500
            one_load(build, variant, load, seconds / 2, keep=False)
            one_load(build, variant, load, seconds, keep=False)
        for variant in [v for v in variants if not takes_checkpoints(build, v)]:
            variants.remove(variant)
            variant.server.stop()
            yield {"table": part, "row": variant.name, "missing": variant.server.last_words()}
        for number in range(1 if toy else rounds):
            for variant in rotated(variants, number):
                one_load(build, variant, load, seconds, keep=True)
        yield from lines(part, variants)
    finally:
        for variant in variants:
            variant.server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def lines(part: str, variants: list[Variant]) -> Iterator[dict]:
    bare = next((v for v in variants if v.name == "bare"), None)
    for variant in variants:
        rates = sorted(variant.rates)
        line = {
            "table": part,
            "row": variant.name,
            "per_second": round(median(rates), 1),
            "least": rates[0],
            "most": rates[-1],
            "rounds": len(rates),
            "checkpoints_per_second": round(median(variant.checkpoints_per_second), 1),
            "checkpoints_per_request": round(median(variant.checkpoints_per_request), 4),
            "pages_per_checkpoint": round(median(variant.pages_per_checkpoint), 1),
        }
        if bare and variant is not bare:
            line |= spread([one / other for one, other in zip(variant.rates, bare.rates)])
        if bare and variant is not bare and all(bare.processor_per_request):
            pairs = zip(variant.processor_per_request, bare.processor_per_request)
            line |= spread([one / other for one, other in pairs], "processor")
        yield line
