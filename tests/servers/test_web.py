#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
nginx (master and workers), lighttpd or Apache httpd (prefork) under `cairn run`: every answer is
byte for byte that of the bare server, `ab` sees no failure with and without keep-alive, and the
exit status is the bare one's.

    test_web.py BUILD MODE     with SERVER=nginx, lighttpd or apache in the environment
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from under_cairn import (
    PATIENCE,
    cairn_run,
    expect,
    expect_checkpoints,
    main,
    need_program,
    side_by_side,
)

from heavy_servers import WORKERS, ApacheServer
from servers import LighttpdServer, NginxServer, Server
from web_answers import REQUESTS, answers, apache_bench, write_files

Kind = type[NginxServer] | type[LighttpdServer] | type[ApacheServer]
KINDS: dict[str, Kind] = {
    "nginx": NginxServer,
    "lighttpd": LighttpdServer,
    "apache": ApacheServer,
}


def kind_of_server() -> Kind:
    return KINDS[os.environ.get("SERVER", "nginx")]


def load(server: Server, requests: int) -> None:
    # A worker of Apache's serves one connection: more of them wait for a keep-alive to end.
    connections = WORKERS if isinstance(server, ApacheServer) else 20
    for path in ("/100", "/70000"):
        for keep_alive in (False, True):
            rate = apache_bench(server.port, path, requests, keep_alive, connections)
            how = "keep-alive" if keep_alive else "a connection each"
            print(f"ok    ab {path} {how}: {rate:.0f} requests/s", flush=True)


def open_connections(port: int) -> int:
    """Accepted sockets of this port that some process still holds."""
    count = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        listening, held = fields[3] == "0A", fields[9] != "0"
        count += int(fields[1].split(":")[1], 16) == port and held and not listening
    return count


def wait_until_idle(server: Server) -> None:
    """
    lighttpd ends with status 1 when a signal stops it before it has closed its last connection
    (bare as well), so both are stopped when the clients' closes have arrived.
    """
    end = time.monotonic() + PATIENCE
    while open_connections(server.port) and time.monotonic() < end:
        time.sleep(0.01)
    expect(open_connections(server.port) == 0, "all connections are closed")


def compare(bare: Server, cairn: Server) -> None:
    expected, got = answers(bare.port), answers(cairn.port)
    for request, one, other in zip(REQUESTS, expected, got):
        name = request.split(b"\r\n")[0].decode()
        expect(len(one) > 0, f"{name}: the bare server answers")
        expect(one == other, f"{name}: {len(one)} bytes are the same")


def test(build: Path, mode: str, folder: Path) -> None:
    kind = kind_of_server()
    need_program(kind.program, "ab")
    write_files(folder / "www")
    bare = kind(folder / "bare", [], folder / "www")
    cairn = kind(folder / "cairn", cairn_run(build, mode), folder / "www")
    with side_by_side(bare, cairn):
        compare(bare, cairn)
        load(cairn, 200 if mode == "fork" else 2000)
        more_than = 5 if mode == "fork" else 20
        expect_checkpoints(build, mode, cairn, lambda: load(cairn, 100), more_than)
        compare(bare, cairn)
        wait_until_idle(bare)
        wait_until_idle(cairn)


if __name__ == "__main__":
    main(test)
