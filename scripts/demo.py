#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The main job, live: Debian's redis-server, unmodified, under Cairn. It is crashed again and again
while some dozens of clients write to it, and goes on serving. At the end every write that a
client was told was done must be there; nobody but the clients that sent the crash may have lost a
connection. The throughput beside a bare server is measured in the same run. Exits with 0 only if
all of that held.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from dataclasses import dataclass
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parent / "servers"))

from audit import Audit  # noqa: E402
from resp import Connection, Parser, ReplyError, command  # noqa: E402
from servers import NO_BG_THREAD, Recovery, RedisServer, ServerError  # noqa: E402
from throughput import BackgroundLoad, BenchmarkError, Comparison  # noqa: E402
from verifier import Verifier  # noqa: E402


class DemoFailed(Exception):
    """Something that must hold did not."""


def say(text: str = "") -> None:
    print(text, flush=True)


def progress(text: str) -> None:
    """A line that the next one overwrites, on a terminal only."""
    if sys.stdout.isatty():
        print(f"\r\033[K  {text}", end="", flush=True)


def progress_end() -> None:
    progress("")
    if sys.stdout.isatty():
        print("\r", end="", flush=True)


@dataclass
class Crash:
    """One crash that was sent: from which port, and how long until that connection was reset."""

    sender: str
    seconds: float


def crash(port: int, number: int, patience: float = 60.0) -> Crash:
    """
    Send DEBUG SEGFAULT on a connection of its own and wait for the reset. A write acknowledged just
    before it, on the same connection, must survive (the end of the demo looks).
    """
    client = socket.create_connection(("127.0.0.1", port), timeout=patience)
    sender = "{}:{}".format(*client.getsockname())
    with client:
        client.sendall(command("SET", f"crash:{number}", number))
        parser = Parser()
        while (reply := parser.next()) is Parser.INCOMPLETE:
            data = client.recv(4096)
            if not data:
                raise DemoFailed(f"crash {number}: connection closed before the crash was sent")
            parser.feed(data)
        if reply != b"OK":
            raise DemoFailed(f"crash {number}: SET said {reply!r}")
        begin = time.monotonic()
        client.sendall(command("DEBUG", "SEGFAULT"))
        try:
            answer = client.recv(4096)
        except ConnectionResetError:
            answer = b""
        except TimeoutError:
            raise DemoFailed(f"crash {number}: the connection that sent it was not reset") from None
        if answer:
            raise DemoFailed(f"crash {number}: DEBUG SEGFAULT was answered: {answer[:80]!r}")
        return Crash(sender, time.monotonic() - begin)


class Demo:
    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self.arguments = arguments
        self.cairn = RedisServer(folder / "cairn", self.under())
        self.bare = RedisServer(folder / "bare", [])
        self.background: BackgroundLoad | None = None

    def under(self) -> list[str]:
        cairn = str(Path(self.arguments.build) / "bin" / "cairn")
        options = ["--at", "wait", "--recover"]
        if self.arguments.tracker:
            options += ["--tracker", self.arguments.tracker]
        return [cairn, "run", *options, "--"]

    def stop(self) -> None:
        if self.background:
            self.background.kill()
        self.cairn.stop()
        self.bare.stop()

    def run(self) -> None:
        begin = time.monotonic()
        say(f"starting  {' '.join([*self.under(), 'redis-server', '...'])}")
        say(f"          with {NO_BG_THREAD}")
        self.cairn.start()
        self.bare.start()
        self.compare()
        self.crash_under_load()
        say(f"all of it held ({time.monotonic() - begin:.0f} s)")

    # ---- Throughput

    def compare(self) -> None:
        pairs = self.arguments.pairs
        comparison = Comparison(self.bare.port, self.cairn.port, self.arguments.bench_seconds)
        tests = ("set", "get")
        for number in range(pairs + 1):
            for test in tests:
                progress(f"throughput: pair {number} of {pairs}, {test}")
                comparison.pair(test, number)
        progress_end()
        say()
        say(f"throughput, redis-benchmark -c 50, medians of {pairs} interleaved pairs, requests/s")
        say("          bare         cairn        ratio")
        for test in tests:
            bare, cairn = comparison.medians(test)
            say(f"  {test:<6}{bare:>10,.0f}    {cairn:>10,.0f}      {cairn / bare:8.2f}")

    # ---- Crashes

    def crash_under_load(self) -> None:
        crashes = self.arguments.crashes
        verifier = Verifier(self.cairn.port, self.arguments.connections, self.arguments.seed)
        self.background = BackgroundLoad(self.cairn.port)
        verifier.step(0.2)
        while not all(writer.answered for writer in verifier.writers):  # each has been accepted
            verifier.step(0.05)
        descriptors = self.cairn.descriptor_count() - len(verifier.writers)
        sent: list[Crash] = []
        say()
        say(
            f"crashing it {crashes} times under {self.arguments.connections} verifying connections"
            " and redis-benchmark"
        )
        for number in range(1, crashes + 1):
            self.load(verifier, self.arguments.crash_every)
            progress(f"crash {number} of {crashes}: {verifier.acknowledged:,} writes acknowledged")
            sent.append(self.crash_during(verifier, number))
        self.load(verifier, self.arguments.crash_every)
        progress("waiting for the last answers")
        while self.background.draining():
            self.load(verifier, 0.05)
        verifier.finish()
        progress_end()
        self.report(verifier, sent, descriptors)

    def load(self, verifier: Verifier, seconds: float) -> None:
        assert self.background
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            verifier.step(0.05)
            self.background.poll()
            if not self.cairn.alive():
                raise DemoFailed("redis-server is dead:")
            if verifier.connections_reset:
                raise DemoFailed("a connection that did not send the crash was reset")

    def crash_during(self, verifier: Verifier, number: int) -> Crash:
        # The verifier's requests are on their way while the crash arrives.
        verifier.step(0.002)
        try:
            return crash(self.cairn.port, number)
        except OSError as error:
            raise DemoFailed(f"crash {number}: {error}") from error

    def report(self, verifier: Verifier, sent: list[Crash], descriptors_before: int) -> None:
        if not self.cairn.alive():
            raise DemoFailed("redis-server is dead:")
        audit = verifier.audit()
        self.audit_crashes(audit, len(sent))
        recoveries = self.cairn.recoveries()
        descriptors = self.cairn.descriptor_count()
        self.show_recoveries(recoveries, sent)
        assert self.background
        others = verifier.connections_reset
        say(f"  connections reset       {len(sent)} that sent a crash, {others} others")
        say(f"  redis-benchmark         {self.background.requests:,} requests, no error")
        say(f"  answers checked         {verifier.answered:,}")
        say(f"  acknowledged writes     {audit.acknowledged:,}")
        say(f"  of these there          {audit.present:,}")
        say(f"  descriptors             {descriptors_before} before, {descriptors} after")
        say()
        for line in audit.findings.lines():
            say(f"  WRONG  {line}")
        if audit.findings or audit.present != audit.acknowledged:
            raise DemoFailed(f"{audit.acknowledged - audit.present} acknowledged writes are gone")
        senders = {crash.sender for crash in sent}
        innocent = [r.line for r in recoveries if r.suspect not in senders]
        if others or innocent:
            raise DemoFailed(f"somebody who sent no crash was reset: {others} {innocent}")
        if descriptors > descriptors_before + 2:
            raise DemoFailed(f"descriptors leak: {descriptors_before} before, {descriptors} after")
        if len(recoveries) < len(sent):
            raise DemoFailed(f"only {len(recoveries)} recoveries are logged")

    def audit_crashes(self, audit: Audit, count: int) -> None:
        """What was acknowledged to the connections that then sent a crash."""
        with Connection(self.cairn.port) as connection:
            kept = connection.pipeline([("GET", f"crash:{n}") for n in range(1, count + 1)])
        for number, value in enumerate(kept, 1):
            audit.acknowledged += 1
            if value == b"%d" % number:
                audit.present += 1
            else:
                audit.findings.add("lost", f"crash:{number} is {value!r}")

    def show_recoveries(self, recoveries: list[Recovery], sent: list[Crash]) -> None:
        for recovery in recoveries[:3]:
            say(f"  {recovery.line.strip()}")
        if len(recoveries) > 3:
            say(f"  ... {len(recoveries) - 3} more")
        say()
        say(f"  recoveries              {len(recoveries)} of {len(sent)} crashes")
        if recoveries:
            times = sorted(r.microseconds for r in recoveries)
            seen = median(crash.seconds for crash in sent) * 1e3
            say(f"  microseconds each       {' '.join(f'{t:.0f}' for t in times)}")
            say(f"                          median {median(times):.0f}, most {times[-1]:.0f}")
            say(f"  until the reset         median {seen:.1f} ms, for the sender")


def missing(build: Path) -> str | None:
    """What this needs and does not find, as a message."""
    for program, package in (("redis-server", "redis-server"), ("redis-benchmark", "redis-tools")):
        if not shutil.which(program):
            return f"{program} is missing: apt-get install {package} (or `make demo`, as root)"
    if not (build / "bin" / "cairn").exists():
        return f"{build / 'bin' / 'cairn'} is missing: run `make` first"
    return None


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", type=Path, default=Path("build"), help="build tree")
    parser.add_argument("--tracker", help="as in cairn run (default: what auto takes)")
    parser.add_argument("--crashes", type=int, default=12, help="DEBUG SEGFAULTs (default 12)")
    parser.add_argument("--crash-every", type=float, default=1.0, help="seconds between them")
    parser.add_argument("--connections", type=int, default=60, help="verifying connections")
    parser.add_argument("--pairs", type=int, default=5, help="interleaved throughput pairs")
    parser.add_argument("--bench-seconds", type=float, default=1.0, help="per throughput run")
    parser.add_argument("--seed", type=int, default=1, help="of the verifying clients")
    parser.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    return parser.parse_args()


def on_terminate(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    arguments = parse_arguments()
    arguments.build = arguments.build.resolve()
    if problem := missing(arguments.build):
        print(f"demo: {problem}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, on_terminate)
    folder = Path(tempfile.mkdtemp(prefix="cairn-demo-"))
    demo = Demo(arguments, folder)
    keep = arguments.keep
    try:
        demo.run()
        return 0
    except (DemoFailed, ServerError, BenchmarkError, ReplyError, OSError) as error:
        progress_end()
        print(f"demo: FAILED: {error}\n{demo.cairn.tail()}", file=sys.stderr)
        keep = True
        return 1
    except KeyboardInterrupt:
        progress_end()
        print("demo: stopped", file=sys.stderr)
        return 130
    finally:
        demo.stop()
        if keep:
            print(f"demo: logs are in {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
