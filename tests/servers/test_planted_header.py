#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
nginx, lighttpd or Apache httpd with a planted bug (planted_header.c) under `cairn run --recover`:
a request with the magic header crashes the process that serves it. Each crash is survived by that
very process; only the sender is reset, and every other connection gets each of its bytes, also when
its request was half read at the crash. Bare, the same request ends the process.

    test_planted_header.py BUILD MODE     with SERVER=nginx, lighttpd or apache in the environment
"""

from __future__ import annotations

import socket
import time
from pathlib import Path

from under_cairn import PATIENCE, Failed, cairn_run, crash, expect, main, need_program

from servers import Server, ServerError
from test_web import kind_of_server, wait_until_idle
from web_answers import answers, write_files

CRASHES = 40
MAGIC = b"GET /100 HTTP/1.1\r\nHost: x\r\nX-Planted: crash\r\n\r\n"
HALVES = (b"GET /100 HTTP/1.1\r\nHost: x\r\nX-Inno", b"cent: yes\r\nConnection: close\r\n\r\n")


def everything(s: socket.socket) -> bytes:
    data = b""
    while piece := s.recv(65536):
        data += piece
    return data


def bystander(port: int) -> socket.socket:
    s = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
    s.sendall(HALVES[0])
    return s


def crashes(port: int) -> None:
    """Each with other connections in the middle of their requests."""
    content = None
    for turn in range(CRASHES):
        others = [bystander(port) for _ in range(4)]
        if turn % 2:
            time.sleep(0.01)  # so that their first halves have been read, in an earlier interval
        seen = crash(port, MAGIC)
        if seen != "reset":
            raise Failed(f"crash {turn}: its sender saw {seen}")
        for s in others:
            s.sendall(HALVES[1])
            body = everything(s).partition(b"\r\n\r\n")[2]
            content = content or body
            if len(body) != 100 or body != content:
                raise Failed(f"crash {turn}: a bystander got {len(body)} bytes")
            s.close()
    expect(True, f"{CRASHES} senders were reset, {4 * CRASHES} bystanders got their answers")


def expect_fatal_when_bare(server: Server) -> None:
    server.start()
    before = server.family()
    crash(server.port, MAGIC)
    end = time.monotonic() + PATIENCE
    while server.alive() and server.family() == before and time.monotonic() < end:
        time.sleep(0.02)
    expect(server.family() != before or not server.alive(), "bare, the request ends the process")


def test(build: Path, mode: str, folder: Path) -> None:
    kind = kind_of_server()
    need_program(kind.program)
    write_files(folder / "www")
    library = build / "tests" / "servers" / "libplanted_header.so"
    plant = ["env", f"LD_PRELOAD={library}"]
    bare = kind(folder / "bare", plant, folder / "www")
    cairn = kind(folder / "cairn", [*plant, *cairn_run(build, mode)], folder / "www")
    try:
        expect_fatal_when_bare(bare)
        cairn.start()
        before, family = answers(cairn.port), cairn.family()
        crashes(cairn.port)
        count = cairn.await_recoveries(CRASHES)
        expect(count == CRASHES, f"{count} recoveries")
        expect(cairn.family() == family, "by the same processes")
        expect(answers(cairn.port) == before, "the answers are the same as before")
        wait_until_idle(cairn)
        status = cairn.stop()
        expect(status == 0, f"exit status {status}")
    except (Failed, ServerError, OSError) as error:
        raise Failed(f"{error}\n{cairn.tail()}") from error
    finally:
        bare.stop()
        cairn.stop()


if __name__ == "__main__":
    main(test)
