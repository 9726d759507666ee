#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
A server that crashes at random instants must look, to each of its peers and in its descriptors,
threads and mappings, like one that never did: every answer once, in order, with the right number.

    test_chaos.py CAIRN SERVER [--tracker NAME] [--commit HOW] [--crashes N] [--seed N] [MODE...]
"""

from __future__ import annotations

import argparse
import mmap
import os
import random
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "runner"))
from process_state import print_process_state  # noqa: E402

MODES = ("stream", "peek", "nested", "splice", "sendfile", "pass", "udp", "clone")
CLIENTS = 6
PATIENCE = 100.0  # seconds: more than any answer takes on a machine that is busy
ANSWERED = 2000  # rounds in which a crash must have come, if PATIENCE is over as well
PROGRAM_FDS = 880  # those of the decoys, and some; Cairn's own lie beyond
FILE = b"".join(struct.pack("<I", i) for i in range(65536))


class Wrong(Exception):
    """A peer saw something that it would not have seen without the crashes."""


def expect(good: bool, what: str) -> None:
    if not good:
        raise Wrong(what)


class Stream:
    """One connection, and what must come on it."""

    def __init__(self, connection: socket.socket, mode: str, rng: random.Random) -> None:
        self.socket, self.mode, self.rng = connection, mode, rng
        self.socket.settimeout(PATIENCE)
        self.number = 0
        self.expected = b""

    def send(self) -> None:
        """A few frames at once, in portions that have nothing to do with them."""
        data = b""
        for _ in range(self.rng.randint(1, 4)):
            body = self.rng.randbytes(self.rng.choice((8, 20, 300, 5000)))
            tail = b""
            if self.mode == "sendfile":
                at, size = self.rng.randrange(60_000), self.rng.choice((1, 100, 70_000))
                body = struct.pack("<II", at, size) + body
                tail = FILE[at : at + size]
            frame = struct.pack("<I", len(body)) + body
            data += frame
            answer = struct.pack("<Q", self.number) + body + tail
            self.expected += frame if self.mode == "splice" else answer
            self.number += 1
        while data:
            n = self.rng.choice((1, 3, 100, len(data)))
            self.socket.sendall(data[:n])
            data = data[n:]

    def receive(self) -> None:
        while self.expected:
            got = self.socket.recv(len(self.expected))
            expect(bool(got), f"the end came instead of frame {self.number}")
            expect(self.expected.startswith(got), f"wrong bytes near frame {self.number}")
            self.expected = self.expected[len(got) :]


class Datagrams:
    def __init__(self, connection: socket.socket, rng: random.Random) -> None:
        self.socket, self.rng = connection, rng
        self.socket.settimeout(PATIENCE)
        self.number = 0
        self.expected: set[bytes] = set()

    def send(self) -> None:
        for _ in range(self.rng.randint(1, 6)):
            self.number += 1
            body = struct.pack("<Q", self.number) + self.rng.randbytes(self.rng.randint(0, 900))
            self.expected.add(body)
            self.socket.send(body)

    def receive(self) -> None:
        while self.expected:
            got = self.socket.recv(2048)
            number = struct.unpack_from("<Q", got)[0]
            expect(got in self.expected, f"datagram {number} of {self.number} came twice")
            self.expected.remove(got)


def pass_connection(control: socket.socket) -> socket.socket:
    ours, theirs = socket.socketpair()
    socket.send_fds(control, [b"d"], [theirs.fileno()])
    theirs.close()
    return ours


def inventory(pid: int) -> tuple[list[str], int, int]:
    """What it has open; how many threads; how many bytes of objects and heap are mapped."""
    fds = []
    for number in (int(name) for name in os.listdir(f"/proc/{pid}/fd")):
        if number < PROGRAM_FDS:
            target = os.readlink(f"/proc/{pid}/fd/{number}")
            fds.append(target.split(":")[0].split("/")[0])
    fds.sort()
    with open(f"/proc/{pid}/maps", encoding="ascii") as maps:
        lines = [line.split() for line in maps]
    mapped = 0
    for words in lines:
        if len(words) == 6 and words[5][0] in "/[" and words[5] != "[stack]":
            begin, end = words[0].split("-")
            mapped += 0 if "cairn" in words[5] else int(end, 16) - int(begin, 16)
    return fds, len(os.listdir(f"/proc/{pid}/task")), mapped


def load(
    port: int | str, mode: str, figures: mmap.mmap, crashes: int, rng: random.Random
) -> list[object]:
    """Until it has crashed often enough; what must not be closed yet."""

    def connect() -> socket.socket:
        if mode == "udp":
            s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            s.connect(("127.0.0.1", int(port)))
            return s
        return socket.create_connection(("127.0.0.1", int(port)), timeout=PATIENCE)

    control = None
    if mode == "pass":
        control = socket.socket(socket.AF_UNIX)
        control.connect("\0" + str(port))
    peers: list[Stream | Datagrams] = []
    for _ in range(CLIENTS):
        s = pass_connection(control) if control else connect()
        peers.append(Datagrams(s, rng) if mode == "udp" else Stream(s, mode, rng))
    rounds, crashed, last_round, last = 0, 0, 0, time.monotonic()
    while crashed < crashes or rounds < 50:
        seen = struct.unpack_from("<I", figures)[0]
        if seen != crashed:
            crashed, last_round, last = seen, rounds, time.monotonic()
        late = time.monotonic() > last + PATIENCE and rounds > last_round + ANSWERED
        expect(crashed >= crashes or not late, f"it has crashed {seen} times, and crashes no more")
        busy = [p for p in peers if rng.random() < 0.7]
        for p in busy:
            p.send()
        for p in busy:
            p.receive()
        rounds += 1
        if mode != "udp" and rounds % 10 == 0:  # the server opens and closes meanwhile
            k = rng.randrange(CLIENTS)
            peers[k].socket.close()
            peers[k] = Stream(pass_connection(control) if control else connect(), mode, rng)
    # All are served, by whatever numbers. The wake-up that answers is over at the next answer, and
    # with it everybody who left before it is gone.
    for p in [*peers, *peers]:
        p.send()
        p.receive()
    last = time.monotonic()
    while mode == "clone" and not struct.unpack_from("<I", figures, 12)[0]:
        expect(time.monotonic() < last + PATIENCE, "the thread by clone is gone")
        time.sleep(0.01)
    return [control, *peers]


def run(command: list[str], mode: str, crashes: int, seed: int) -> tuple[list[str], int, int]:
    with tempfile.NamedTemporaryFile() as shared:
        shared.truncate(4096)
        figures = mmap.mmap(shared.fileno(), 4096)
        process = subprocess.Popen(
            [*command, mode, shared.name, str(crashes)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert process.stdout and process.stderr
        try:
            name = process.stdout.readline().decode().strip()
            expect(bool(name), "it did not start")
            port = int(name) if name.isdigit() else name
            peers = load(port, mode, figures, crashes, random.Random(seed))
            found = inventory(process.pid)
            del peers
            return found
        except (OSError, Wrong) as error:
            print_process_state(process.pid)
            process.kill()
            log = process.stderr.read().decode().splitlines()[-8:]
            raise Wrong("\n".join([f"{error} (status {process.wait()})", *log])) from error
        finally:
            process.kill()
            process.wait()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("cairn")
    parser.add_argument("server")
    parser.add_argument("--tracker", default="auto")
    parser.add_argument("--commit", default="hold")
    parser.add_argument("--crashes", type=int, default=40)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("modes", nargs="*")
    a = parser.parse_args()
    command = [a.cairn, "run", "--at", "wait", "--recover", f"--commit={a.commit}"]
    command += ["--tracker", a.tracker, "--", a.server]
    bad = 0
    print(f"seed {a.seed}")
    for mode in a.modes or MODES:
        try:
            calm = run(command, mode, 0, a.seed)
            wild = run(command, mode, a.crashes, a.seed)
            expect(calm[0] == wild[0], f"descriptors: {calm[0]}, then {wild[0]}")
            expect(calm[1] == wild[1], f"threads: {calm[1]}, then {wild[1]}")
            expect(calm[2] == wild[2], f"bytes mapped: {calm[2]}, then {wild[2]}")
            print(f"ok    {mode}", flush=True)
        except Wrong as error:
            bad += 1
            print(f"FAIL  {mode}", flush=True)
            for line in str(error).splitlines():
                print(f"      {line}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
