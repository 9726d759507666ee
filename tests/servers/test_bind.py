#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
BIND (threads, UDP) under `cairn run`: the same answers as the bare one, byte for byte, and dnsperf
loses no query.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from under_cairn import cairn_run, expect, expect_checkpoints, main, need_program, side_by_side

from heavy_servers import BindServer

HOSTS = [f"h{n}.cairn.test" for n in range(0, BindServer.HOSTS + 50, 7)]  # some do not exist


def dnsperf(server: BindServer, rounds: int) -> None:
    queries = server.folder / "queries"
    queries.write_text("".join(f"h{n}.cairn.test A\n" for n in range(BindServer.HOSTS)))
    done = subprocess.run(
        ["dnsperf", "-s", "127.0.0.1", "-p", str(server.port), "-d", str(queries)]
        + ["-c", "20", "-t", "60", "-n", str(rounds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    found = re.search(r"Queries completed:\s+(\d+)", done.stdout)
    completed = int(found[1]) if found else 0
    expect(completed == rounds * BindServer.HOSTS, f"dnsperf: {completed} queries are answered")


def test(build: Path, mode: str, folder: Path) -> None:
    need_program("named", "dnsperf")
    bare = BindServer(folder / "bare", [])
    cairn = BindServer(folder / "cairn", cairn_run(build, mode))
    with side_by_side(bare, cairn):
        for turn in range(2):
            expected = [bare.ask(host) for host in HOSTS]
            expect(expected == [cairn.ask(host) for host in HOSTS], "all answers are the same")
            if turn == 0:
                dnsperf(cairn, 1 if mode == "fork" else 5)
        expect_checkpoints(build, mode, cairn, lambda: dnsperf(cairn, 1))


if __name__ == "__main__":
    main(test)
