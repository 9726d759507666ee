# SPDX-License-Identifier: MIT
"""
redis-benchmark: once for its figures, or again and again as load beside the verifier. And what is
done about a load that is over too soon for a figure.
"""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Callable
from statistics import median

from servers import ServerError, tied


class BenchmarkError(ServerError):
    """redis-benchmark was told an error or lost a connection."""


KEYS = 10000  # each request draws one of them


def benchmark_command(
    port: int, tests: str, requests: int, connections: int, pipeline: int = 1, keys: int = KEYS
) -> list[str]:
    sizes = ["-n", str(requests), "-c", str(connections), "-d", "64", "-P", str(pipeline)]
    if keys > 1:
        sizes += ["-r", str(keys)]
    command = ["redis-benchmark", "-h", "127.0.0.1", "-p", str(port), "-t", tests, "--csv", *sizes]
    return tied(command)


def check_benchmark(status: int, output: str) -> None:
    """It says "Error from server" on stdout and goes on, and exits with 1 on a lost connection."""
    if status != 0 or "rror" in output.replace("errors", ""):
        raise BenchmarkError(
            output.strip().splitlines()[-1] if output.strip() else f"status {status}"
        )


def requests_per_second(
    port: int, test: str, requests: int, connections: int = 50, pipeline: int = 1, keys: int = KEYS
) -> float:
    command = benchmark_command(port, test, requests, connections, pipeline, keys)
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=200
    )
    check_benchmark(done.returncode, done.stdout)
    # A row per part, its name and its rate; tests that need data first (lrange) have a row for
    # that before. A run that is over within the same millisecond has a rate of "inf".
    rates = re.findall(r'^"[^"]*","([0-9.]+|-?inf|-?nan)"', done.stdout, re.MULTILINE)
    if not rates:
        raise BenchmarkError(f"no figure for {test} in {done.stdout[-400:]!r}")
    return float(rates[-1])


REQUESTS_MAX = 10_000_000


def measured(load: Callable[[int], float], requests: int) -> tuple[float, int]:
    """
    The rate of a load, and how many requests it took: one that was over before the client's clock
    had moved has no rate, and is made again with ten times as many.
    """
    while True:
        rate = load(requests)
        if math.isfinite(rate) and rate > 0:
            return rate, requests
        if requests >= REQUESTS_MAX:
            raise BenchmarkError(f"{requests} requests gave a rate of {rate}")
        requests *= 10


class Comparison:
    """Pairs of runs, bare and under Cairn turn by turn, so that a noisy neighbour meets both."""

    def __init__(self, bare_port: int, cairn_port: int, seconds: float) -> None:
        self.ports = {"bare": bare_port, "cairn": cairn_port}
        self.seconds = seconds
        self.rates: dict[tuple[str, str], list[float]] = {}

    def pair(self, test: str, number: int) -> None:
        order = ("bare", "cairn") if number % 2 == 0 else ("cairn", "bare")
        for which in order:
            rates = self.rates.setdefault((which, test), [])
            guess = rates[-1] if rates else 2000 / self.seconds  # the first is a warm-up
            requests = max(1000, int(guess * self.seconds))
            port = self.ports[which]
            rates.append(measured(lambda n: requests_per_second(port, test, n), requests)[0])

    def medians(self, test: str) -> tuple[float, float]:
        """Requests per second: bare, under Cairn. The first run of each only found the size."""
        bare, cairn = (median(self.rates[(which, test)][1:]) for which in ("bare", "cairn"))
        return bare, cairn


class BackgroundLoad:
    """redis-benchmark started again whenever it has ended. Call poll() now and then."""

    TESTS = "set,get,incr,lpush,rpush,lpop,sadd,hset"

    def __init__(self, port: int) -> None:
        self.port = port
        self.runs = 0
        self.requests = 0
        self._stopping = False
        self._process: subprocess.Popen[str] | None = None

    def poll(self) -> None:
        if self._process and self._process.poll() is not None:
            self._finished()
        if not self._process and not self._stopping:
            self._process = subprocess.Popen(
                benchmark_command(self.port, self.TESTS, 1500, 20),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def draining(self) -> bool:
        """Start no more runs. False once the last has ended by itself: a lost one would show."""
        self._stopping = True
        self.poll()
        return self._process is not None

    def kill(self) -> None:
        if self._process:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _finished(self) -> None:
        assert self._process
        output = self._process.communicate()[0]
        status = self._process.returncode
        self._process = None
        check_benchmark(status, output)
        self.runs += 1
        self.requests += 1500 * len(self.TESTS.split(","))
