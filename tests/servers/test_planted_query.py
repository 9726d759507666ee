#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
PostgreSQL with a planted bug (planted_header.c) under `cairn run --at wait --recover`: clients that
send a whole session at once, so that their process finds the poisoned query without ever having
waited. It is reset, and nobody else is: had its process died, the server would have ended the
processes of all connections.

    test_planted_query.py BUILD MODE
"""

from __future__ import annotations

import shutil
import socket
import struct
from pathlib import Path

from under_cairn import PATIENCE, Failed, cairn_run, crash, expect, main, skip

from heavy_servers import PostgresServer, postgres_program
from servers import ServerError

CRASHES = 8
STARTUP = b"user\0postgres\0database\0postgres\0\0"


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def query(text: str) -> bytes:
    return message(b"Q", text.encode() + b"\0")


GREETING = message(b"", struct.pack("!I", 3 << 16) + STARTUP)
POISON = GREETING + query("SELECT 'X-Planted: crash'")


class Session:
    """A connection that goes on, spoken by hand."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.file = self.socket.makefile("rb")
        self.socket.sendall(GREETING)
        self.answer()

    def answer(self) -> list[bytes]:
        """The rows of one column up to the next prompt."""
        rows = []
        while True:
            kind = self.file.read(1)
            body = self.file.read(struct.unpack("!I", self.file.read(4))[0] - 4)
            if kind == b"D":
                rows.append(body[6:])
            elif kind == b"E":
                raise Failed(f"an error: {body!r}")
            elif kind == b"Z":
                return rows

    def ask(self, text: str) -> list[bytes]:
        self.socket.sendall(query(text))
        return self.answer()


def crashes(port: int, session: Session) -> None:
    session.ask("CREATE TEMP TABLE t (n int)")
    for turn in range(CRASHES):
        seen = crash(port, POISON)
        if seen == "reset":
            pass
        elif not seen.endswith(" bytes"):  # the answer to its greeting may come first
            raise Failed(f"crash {turn}: its sender saw {seen}")
        session.ask(f"INSERT INTO t VALUES ({turn})")
    rows = session.ask("SELECT n FROM t ORDER BY n")
    expect(rows == [b"%d" % n for n in range(CRASHES)], f"after {CRASHES} all is there: {rows}")


def for_the_user(library: Path, server: PostgresServer) -> str:
    """The planted library where the server's user can read it."""
    copy = server.folder.parent / library.name
    shutil.copy2(library, copy)
    return str(copy)


def test(build: Path, mode: str, folder: Path) -> None:
    if not postgres_program("postgres"):
        skip("postgres is not installed")
    server = PostgresServer(folder / "cairn", cairn_run(build, mode))
    library = for_the_user(build / "tests" / "servers" / "libplanted_header.so", server)
    server.under = ["env", f"LD_PRELOAD={library}", *server.under]
    try:
        server.start()
        crashes(server.port, Session(server.port))
        count = server.await_recoveries(CRASHES)
        expect(count == CRASHES, f"{count} recoveries")
        status = server.stop()
        expect(status == 0, f"exit status {status}")
    except (Failed, ServerError, OSError) as error:
        raise Failed(f"{error}\n{server.tail()}") from error
    finally:
        server.stop()


if __name__ == "__main__":
    main(test)
