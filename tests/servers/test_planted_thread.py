#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
memcached with a planted bug (planted_header.c) under `cairn run --recover`: one of its threads
crashes. Either that thread alone has run since the checkpoint, and the crash is survived with
every acknowledged write; or the recovery is refused with the reason, and the process ends by its
signal. Nothing in between.

    test_planted_thread.py BUILD MODE
"""

from __future__ import annotations

import signal
import socket
import time
from pathlib import Path

from under_cairn import PATIENCE, Failed, cairn_run, crash, expect, main, need_program

from servers import MemcachedServer, ServerError

CRASHES = 30
MAGIC = b"get X-Planted: crash\r\n"


class Client:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.file = self.socket.makefile("rwb")

    def line(self, command: bytes) -> bytes:
        self.file.write(command)
        self.file.flush()
        return self.file.readline()

    def get(self, key: int) -> bytes:
        if not self.line(b"get k%d\r\n" % key).startswith(b"VALUE"):
            return b""
        value = self.file.readline()
        self.file.readline()
        return value.rstrip()

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def survived(server: MemcachedServer, client: Client, turn: int) -> bool:
    """One write, one crash. False: refused, and ended as it should."""
    known = len(server.recoveries())
    if client.line(b"set k%d 0 0 5\r\n%05d\r\n" % (turn, turn)) != b"STORED\r\n":
        raise Failed(f"turn {turn}: the write was not acknowledged")
    seen = crash(server.port, MAGIC)
    end = time.monotonic() + PATIENCE
    while server.alive() and len(server.recoveries()) == known and time.monotonic() < end:
        time.sleep(0.005)  # the reset reaches its client before the line is written
    if len(server.recoveries()) == known:
        status = server.process.wait(PATIENCE) if server.process else None
        if status != -signal.SIGSEGV or "recovery refused: SIGSEGV" not in server.last_words():
            raise Failed(f"turn {turn}: not recovered, not refused; status {status}, saw {seen}")
        return False
    if seen != "reset":
        raise Failed(f"turn {turn}: recovered, but the sender saw {seen}")
    for key in range(turn + 1):
        if (value := client.get(key)) not in (b"%05d" % key, b""):
            raise Failed(f"turn {turn}: k{key} is {value!r}")
    if client.get(turn) == b"":
        raise Failed(f"turn {turn}: the last write is lost")
    return True


def test(build: Path, mode: str, folder: Path) -> None:
    need_program("memcached")
    library = build / "tests" / "servers" / "libplanted_header.so"
    under = ["env", f"LD_PRELOAD={library}", *cairn_run(build, mode)]
    server, client, refused = None, None, 0
    try:
        for turn in range(CRASHES):
            if not server or not client:
                server = MemcachedServer(folder / str(turn), under)
                server.start()
                client = Client(server.port)
            if not survived(server, client, turn):
                refused += 1
                client.close()
                server.stop()
                server = client = None
        expect(True, f"{CRASHES - refused} crashes survived, {refused} refused")
    except (Failed, ServerError, OSError) as error:
        raise Failed(f"{error}\n{server.tail() if server else ''}") from error
    finally:
        if client:
            client.close()
        if server:
            server.stop()


if __name__ == "__main__":
    main(test)
