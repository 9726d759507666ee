#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The demo, short: it succeeds; it cleans up when it is interrupted; it says what is missing; and
under a `cairn` that does nothing it fails, because the first crash then ends the server.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from under_cairn import ROOT, expect, main, need_program

SHORT = ["--crashes", "3", "--crash-every", "0.5", "--pairs", "1", "--bench-seconds", "0.2"]


def start(build: Path, folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ROOT / "scripts" / "demo.py"), "--build", str(build), *options]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )


def finish(demo: subprocess.Popen[str]) -> tuple[int, str]:
    output = demo.communicate(timeout=250)[0]
    return demo.returncode, output


def servers_in(folder: Path) -> list[str]:
    """Processes that still run in a folder of the demo."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if str(path.readlink()).startswith(str(folder)):
                found.append(path.parent.name)
        except OSError:
            pass
    return found


def test_interrupted(build: Path, folder: Path) -> None:
    demo = start(build, folder, "--crashes", "1000")
    end = time.monotonic() + 100
    while not servers_in(folder) and time.monotonic() < end:
        time.sleep(0.05)
    expect(bool(servers_in(folder)), "its servers run")
    time.sleep(0.5)
    demo.send_signal(signal.SIGINT)
    status, output = finish(demo)
    expect(status == 130, f"interrupted: status {status} {output[-300:] if status != 130 else ''}")
    expect(not servers_in(folder), "no server is left behind")
    expect(not list(folder.iterdir()), "no folder is left behind")


def test_useless_cairn(folder: Path) -> None:
    build, temporary = folder / "useless", folder / "tmp"
    (build / "bin").mkdir(parents=True)
    temporary.mkdir()
    cairn = build / "bin" / "cairn"
    cairn.write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec "$@"\n')
    cairn.chmod(0o755)
    status, output = finish(start(build, temporary, *SHORT))
    expect(status == 1 and "FAILED" in output, f"without Cairn it fails: status {status}")
    expect(not servers_in(temporary), "and leaves no server behind")


def test(build: Path, mode: str, folder: Path) -> None:
    need_program("redis-server", "redis-benchmark")
    status, output = finish(start(folder / "nothing", folder))
    expect(status == 2 and "run `make` first" in output, f"says what is missing: {output.strip()}")
    test_useless_cairn(folder)
    temporary = folder / "interrupted"
    temporary.mkdir()
    test_interrupted(build, temporary)
    status, output = finish(start(build, folder, *SHORT))
    print(output)
    expect(status == 0, f"it succeeds: status {status}")


if __name__ == "__main__":
    main(test)
