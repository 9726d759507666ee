#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
A process that gives up its rights keeps the feed that it could have had with them, whichever call
takes them; and neither a file that is mapped for an answer, one that is sent by its offset, nor own
copies of a file's pages are a reason to look at every page. Workers in any number share one feed.
Where that may not be had a few have one each.

    test_rights.py BUILD
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

BUILD = Path(sys.argv[1]).resolve()
CAIRN = str(BUILD / "bin" / "cairn")
VICTIM = str(BUILD / "tests" / "agent" / "victim_rights")
TURNS = 60
PLACES = 4  # of the host's network namespace
FAMILY = 14
# Nobody can be found by number without that right.
APART = ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"]


def family(
    how: str, what: str, *options: str, workers: int = 1, under: list[str] | None = None
) -> list[dict]:
    """What the workers say at their ends."""
    command = [CAIRN, "run", "--at=wait", "--tracker=async", "--stats=json", *options, "--", VICTIM]
    done = subprocess.run(
        [*(under or []), *command, how, what, str(workers)],
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0 and done.stdout == "rights: ok\n", done
    lines = [json.loads(x) for x in done.stderr.splitlines() if x.startswith("{")]
    assert len(lines) == workers, done.stderr
    for line in lines:
        print(how, what, *options, line["feed"], line["scans"], "scans")
    return lines


def run(how: str, what: str, *options: str, under: list[str] | None = None) -> dict:
    return family(how, what, *options, under=under)[0]


def main() -> None:
    feeds = json.loads(
        subprocess.run([CAIRN, "doctor", "--json"], capture_output=True, timeout=100).stdout
    )["feeds"]
    works = {feed["name"] for feed in feeds if feed["works"]}
    if os.geteuid() or not works & {"bpf", "perf"}:
        print("skip: no feed that needs rights, or not root")
        sys.exit(77)
    for how in ("setuid", "setreuid", "setresuid", "capset", "chroot"):
        for what, *options in (
            ("plain",), ("crash", "--recover"), ("files",), ("sent", "--recover"), ("copy",)
        ):
            if (how, what) == ("chroot", "files"):
                continue  # there are none
            stats = run(how, what, *options)
            assert stats["feed"] in works & {"bpf", "perf"}, stats
            assert stats["checkpoints"] >= TURNS and not stats["failed"], stats
            assert stats["recoveries"] == (TURNS if what == "crash" else 0), stats
            assert what != "sent" or stats["held"] >= TURNS - 1, stats
            if what != "crash" and stats["feed"] == "bpf":
                assert stats["scans"] < TURNS / 2, stats
    # What was asked for is had, or no session at all; and nothing is opened too soon.
    if "perf" in works:
        assert run("setuid", "plain", "--feed=perf")["feed"] == "perf"
    assert run("setuid", "plain", "--feed=scan")["feed"] == "scan"
    if "bpf" in works:
        for what, *options in (("plain",), ("crash", "--recover")):
            for stats in family("setuid", what, *options, workers=FAMILY):
                assert stats["feed"] == "bpf" and not stats["failed"], stats
                assert stats["recoveries"] == (TURNS if what == "crash" else 0), stats
                assert what == "crash" or stats["scans"] < TURNS / 2, stats
    # A few workers at a time where each has its own: that costs every fault of the host something.
    taken = [socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) for _ in range(PLACES)]
    for number, one in enumerate(taken):
        one.bind(f"\0cairn-rights-{number}")
    assert run("setuid", "plain", under=APART)["feed"] == "scan"
    for feed in works & {"bpf", "perf"}:
        assert run("setuid", "plain", f"--feed={feed}")["feed"] == feed
    if "bpf" in works:
        assert run("setuid", "plain")["feed"] == "bpf"  # which needs no place
    taken[2].close()
    assert run("setuid", "plain", under=APART)["feed"] in works & {"bpf", "perf"}


if "--inside" in sys.argv or subprocess.run(["unshare", "--net", "true"]).returncode:
    main()
else:
    # Others on this host may have all places.
    os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv, "--inside"])
