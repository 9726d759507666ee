#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
memcached (threads by nature) under `cairn run`: the same answers as the bare one, from several
connections.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path

from under_cairn import cairn_run, expect, expect_checkpoints, main, need_program, side_by_side

from servers import MemcachedServer


def conversation(port: int) -> list[bytes]:
    """Random commands on 20 connections, turn by turn; every answer line in order."""
    chance = random.Random(3)
    connections = [socket.create_connection(("127.0.0.1", port), timeout=100) for _ in range(20)]
    files = [c.makefile("rwb") for c in connections]
    answers = []
    for step in range(3000):
        f = files[step % len(files)]
        key = b"k%d" % chance.randrange(200)
        what = chance.random()
        if what < 0.4:
            value = chance.randbytes(chance.choice((1, 50, 3000))).hex().encode()
            f.write(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
        elif what < 0.5:
            f.write(b"delete %s\r\n" % key)
        elif what < 0.6:
            f.write(b"append %s 0 0 3\r\nabc\r\n" % key)
        else:
            f.write(b"get %s\r\n" % key)
        f.flush()
        line = f.readline()
        answers.append(line)
        while line.startswith(b"VALUE"):
            answers.append(f.read(int(line.split()[3]) + 2))
            line = f.readline()
            answers.append(line)
    for c in connections:
        c.close()
    return answers


def test(build: Path, mode: str, folder: Path) -> None:
    need_program("memcached")
    bare = MemcachedServer(folder / "bare", [])
    cairn = MemcachedServer(folder / "cairn", cairn_run(build, mode))
    with side_by_side(bare, cairn):
        expected, got = conversation(bare.port), conversation(cairn.port)
        expect(len(expected) > 3000 and expected == got, f"{len(got)} answers are the same")
        expect_checkpoints(build, mode, cairn, lambda: conversation(cairn.port))


if __name__ == "__main__":
    main(test)
