# SPDX-License-Identifier: MIT
"""Starting and stopping redis-server, bare or under Cairn, in a folder of its own."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from resp import Connection

# Recoveries are refused when another thread of the program has run since the checkpoint, until
# threads are restored as well. jemalloc's background thread wakes up by itself; without it, a Redis that
# frees nothing lazily has one thread that runs.
NO_BG_THREAD = "--jemalloc-bg-thread no (a recovery is refused if another thread has run since)"


class ServerError(Exception):
    """The server did not start, or is gone."""


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@dataclass
class Recovery:
    """One line of the agent's log about a crash that was survived."""

    microseconds: float
    line: str


class RedisServer:
    """One redis-server. `under` is the command that it is started with, [] for a bare one."""

    def __init__(self, folder: Path, under: list[str], port: int | None = None) -> None:
        self.folder = folder
        self.under = under
        self.port = port or free_port()
        self.log = folder / "server.log"  # what redis says
        self.errors = folder / "agent.log"  # what the agent says
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        options += ["--save", "", "--appendonly", "no", "--enable-debug-command", "yes"]
        options += ["--jemalloc-bg-thread", "no"]
        return [*self.under, "redis-server", *options]

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out, self.errors.open("ab") as err:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )
        end = time.monotonic() + 10
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                with Connection(self.port, timeout=2) as connection:
                    if connection.call("PING") == b"PONG":
                        return
            except OSError:
                time.sleep(0.02)
        self.stop()
        raise ServerError(f"{' '.join(self.command()[:6])} ... did not start:\n{self.tail()}")

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """As if the power failed."""
        if self.process:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def stop(self) -> None:
        if not self.process:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process = None

    def descriptor_count(self) -> int:
        return len(os.listdir(f"/proc/{self.process.pid}/fd")) if self.process else 0

    def recoveries(self) -> list[Recovery]:
        found = []
        for line in self.errors.read_text(errors="replace").splitlines():
            match = re.search(r"\brecovered\b.*?([0-9.]+) us\b", line)
            if match:
                found.append(Recovery(float(match.group(1)), line))
        return found

    def tail(self) -> str:
        """The last lines of both logs, for a message."""
        lines = []
        for path in (self.errors, self.log):
            if path.exists():
                lines += path.read_text(errors="replace").splitlines()[-12:]
        return "\n".join(f"    {line}" for line in lines)
