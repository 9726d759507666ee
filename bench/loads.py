# SPDX-License-Identifier: MIT
"""
The programs of the SMC paper's evaluation and redis, each with its load: ab with 10 connections and
10 requests on each over a file of 1 KiB, pgbench with 10 clients reading and writing, dnsperf with
20 clients, redis-benchmark with 50.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from heavy_servers import ApacheServer, BindServer, PostgresServer, program_path
from servers import LighttpdServer, NginxServer, RedisServer, Server, ServerError, tied
from throughput import requests_per_second

FILE_BYTES = 1024
CONNECTIONS = 10
PER_CONNECTION = 10
CLIENTS = 10


class Needing:
    """What needs programs of Debian's to be measured."""

    needs: tuple[str, ...]

    def missing(self) -> str | None:
        for program in self.needs:
            if not program_path(program):
                return f"{program} is not installed"
        return None


@dataclass(frozen=True)
class Program(Needing):
    name: str
    needs: tuple[str, ...]
    unit: str
    make: Callable[[Path, list[str]], Server]
    load: Callable[[Server, int], float]  # so many requests; requests per second
    full: int  # requests of a load as in the paper
    quick: int
    privileges_dropped: bool = False  # before it starts: a user of its own runs it


def _run(command: list[str], what: str) -> str:
    done = subprocess.run(
        tied(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600
    )
    if done.returncode:
        raise ServerError(f"{what} failed: {done.stdout[-400:]}")
    return done.stdout


def _number(pattern: str, text: str, what: str) -> float:
    found = re.search(pattern, text)
    if not found:
        raise ServerError(f"{what} gave no figure: {text[-400:]}")
    return float(found[1])


# ---- web servers


def _web(kind: type[NginxServer] | type[LighttpdServer] | type[ApacheServer]) -> Callable:
    def make(folder: Path, under: list[str]) -> Server:
        www = folder.parent / "www"
        if not www.exists():
            www.mkdir(parents=True)
            www.chmod(0o755)
            (www / "file").write_bytes(b"x" * FILE_BYTES)
        server = kind(folder, under, www)
        server.requests_per_connection = PER_CONNECTION
        return server

    return make


def ab_load(server: Server, requests: int) -> float:
    ab = [shutil.which("ab") or "ab", "-q", "-k", "-c", str(CONNECTIONS), "-n", str(requests)]
    said = _run([*ab, f"http://127.0.0.1:{server.port}/file"], "ab")
    if not re.search(r"Failed requests:\s+0\n", said) or "Non-2xx" in said:
        raise ServerError(f"ab: requests failed: {said[-600:]}")
    return _number(r"Requests per second:\s+([0-9.]+)", said, "ab")


# ---- PostgreSQL


def _pgbench(server: Server, *words: str) -> str:
    program = program_path("pgbench") or "pgbench"
    where = ["-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "postgres"]
    return _run([program, *words, *where], "pgbench")


def _transactions(server: Server, requests: int) -> float:
    filled = server.folder / "filled"
    if not filled.exists():
        _pgbench(server, "-i", "-q", "-s", str(CLIENTS if requests >= CLIENTS * 20 else 1))
        filled.touch()
    each = str(max(1, requests // CLIENTS))
    said = _pgbench(server, "-n", "-M", "simple", "-c", str(CLIENTS), "-t", each)
    return _number(r"tps = ([0-9.]+)", said, "pgbench")


# ---- BIND


def _queries(server: Server, requests: int) -> float:
    queries = server.folder / "queries"
    if not queries.exists():
        names = range(BindServer.HOSTS)
        queries.write_text("".join(f"h{n}.cairn.test A\n" for n in names))
    rounds = str(max(1, requests // BindServer.HOSTS))
    command = ["dnsperf", "-s", "127.0.0.1", "-p", str(server.port), "-d", str(queries)]
    said = _run([*command, "-c", "20", "-n", rounds], "dnsperf")
    if _number(r"Queries lost:\s+(\d+)", said, "dnsperf") > 0:
        raise ServerError(f"dnsperf: queries were lost: {said[-600:]}")
    return _number(r"Queries per second:\s+([0-9.]+)", said, "dnsperf")


PROGRAMS = {
    program.name: program
    for program in (
        Program(
            "apache", ("apache2", "ab"), "requests", _web(ApacheServer), ab_load, 25_000, 3_000
        ),
        Program("nginx", ("nginx", "ab"), "requests", _web(NginxServer), ab_load, 25_000, 3_000),
        Program(
            "lighttpd", ("lighttpd", "ab"), "requests", _web(LighttpdServer), ab_load, 25_000, 3_000
        ),
        Program(
            "postgres",
            ("postgres", "initdb", "pgbench"),
            "transactions",
            PostgresServer,
            _transactions,
            5_000,
            500,
            privileges_dropped=True,
        ),
        Program("bind", ("named", "dnsperf"), "queries", BindServer, _queries, 500_000, 20_000),
        Program(
            "redis",
            ("redis-server", "redis-benchmark"),
            "requests",
            RedisServer,
            lambda server, requests: requests_per_second(server.port, "set", requests),
            100_000,
            5_000,
        ),
    )
}
