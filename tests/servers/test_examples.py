#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The example servers survive each of their planted bugs under `cairn run --at wait --recover`, on
every kind of event loop: the connection that sent the bug is reset, everybody else's conversation
goes on without a gap, what the bug scribbled over is as before, and a signal that was merely sent
still kills.

    test_examples.py BUILD MODE     with LOOP=epoll, edge, poll or select in the environment
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

from under_cairn import PATIENCE, Failed, cairn_run, expect, main

BUGS = "null wild readonly stack div overflow jump data ill bus".split()
BYSTANDERS = 8


class Line:
    """A connection that talks in lines."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.file = self.socket.makefile("rwb")

    def send(self, text: str) -> None:
        self.socket.sendall(text.encode() + b"\n")

    def receive(self) -> str:
        line = self.file.readline()
        if not line.endswith(b"\n"):
            raise Failed(f"the connection ended in {line!r}")
        return line.decode().strip()

    def ask(self, text: str) -> str:
        self.send(text)
        return self.receive()

    def was_reset(self) -> bool:
        """The next thing that comes is a reset, not an answer and not an orderly end."""
        try:
            data = self.socket.recv(100)
        except ConnectionResetError:
            return True
        print(f"      received {data!r}")
        return False


class Example:
    """One example server under Cairn."""

    def __init__(self, build: Path, mode: str, name: str, folder: Path) -> None:
        loop = os.environ.get("LOOP", "epoll")
        command = [*cairn_run(build, mode), str(build / "examples" / name), "--loop", loop]
        self.log = folder / f"{name}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
            )
        assert self.process.stdout
        first = self.process.stdout.readline().decode()
        match = re.search(r":(\d+)$", first.strip())
        if not match:
            raise Failed(f"{name} did not start: {first!r}\n{self.log.read_text()}")
        self.port = int(match.group(1))

    def stop(self) -> int | None:
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                return None
        return self.process.returncode


def test_echo(server: Example) -> None:
    bystanders = [Line(server.port) for _ in range(BYSTANDERS)]
    spoken, total = 0, 0
    for bug in BUGS:
        for verb in ("crash", "scribble"):
            spoken += 1
            culprit = Line(server.port)
            for number, line in enumerate(bystanders):
                line.send(f"before {bug} {number}")
            culprit.send(f"{verb} {bug}")
            answers = [line.receive() for line in bystanders]
            for number, answer in enumerate(answers):
                here, _, text = answer.split(" ", 2)
                if (int(here), text) != (spoken, f"before {bug} {number}"):
                    raise Failed(f"{verb} {bug}: bystander {number} was told {answer!r}")
            expect(culprit.was_reset(), f"{verb} {bug}: its sender was reset")
            totals = sorted(int(answer.split(" ", 2)[1]) for answer in answers)
            expected = list(range(total + 1, total + 1 + BYSTANDERS))
            expect(
                totals == expected, f"{verb} {bug}: {BYSTANDERS} bystanders, each line counted once"
            )
            total += BYSTANDERS


def test_ledger(server: Example) -> None:
    customer = Line(server.port)
    names = ["anna", "bert", *(f"other{i}" for i in range(30))]
    expect({customer.ask(f"open {name}") for name in names} == {"ok"}, "32 accounts")
    moved = 0
    for bug in BUGS:
        sequence = int(customer.ask("move anna bert 5").split()[1])
        moved += 5
        culprit = Line(server.port)
        culprit.send(f"torn anna bert 1000 {bug}")
        expect(culprit.was_reset(), f"torn {bug}: its sender was reset")
        answers = [customer.ask(question) for question in ("audit", "balance anna", "balance bert")]
        expect(answers[0] == f"ok 32 {sequence + 1}", f"torn {bug}: {answers[0]}")
        expected = [f"ok {-moved} {sequence}", f"ok {moved} {sequence}"]
        expect(answers[1:] == expected, f"torn {bug}: the half transfer never happened")


def test_web(server: Example) -> None:
    for number, bug in enumerate(BUGS, 1):
        culprit = Line(server.port)
        culprit.send(f"GET /crash/{bug} HTTP/1.1\r\nHost: x\r\n\r")
        expect(culprit.was_reset(), f"GET /crash/{bug}: its sender was reset")
        reader = Line(server.port)
        reader.send("GET / HTTP/1.0\r\n\r")
        body = reader.file.read().split(b"\r\n\r\n", 1)[1]
        expect(body == b"request %d\n" % number, f"GET / after {bug}: {body!r}")


def test_sent_signal(server: Example) -> None:
    server.process.send_signal(signal.SIGSEGV)
    end = time.monotonic() + PATIENCE
    while server.process.poll() is None and time.monotonic() < end:
        time.sleep(0.01)
    expect(server.process.returncode == -signal.SIGSEGV, "a SIGSEGV that was sent kills it")


def test(build: Path, mode: str, folder: Path) -> None:
    if mode != "recover":
        raise Failed("recovery needs the mode recover")
    for name, run in (
        ("echo_server", test_echo),
        ("ledger_server", test_ledger),
        ("web_server", test_web),
    ):
        server = Example(build, mode, name, folder)
        try:
            run(server)
            status = server.stop()
            expect(status == 0, f"{name}: exit status {status} on SIGTERM")
        except Exception as error:
            raise Failed(f"{name}: {error}\n{server.log.read_text()[-2000:]}") from error
        finally:
            server.stop()
    server = Example(build, mode, "echo_server", folder)
    try:
        test_sent_signal(server)
    finally:
        server.stop()


if __name__ == "__main__":
    main(test)
