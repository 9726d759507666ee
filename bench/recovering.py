# SPDX-License-Identifier: MIT
"""
SMC 7.5, the time of a restore, in servers that crash: DEBUG SEGFAULT in redis, a planted bug in the
web servers (tests/servers/planted_header.c). Microseconds are what the agent logs: from the signal
to the program's next instruction.
"""

from __future__ import annotations

import shutil
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from loads import PROGRAMS
from servers import Server, ServerError
from smc import Settings

MAGIC = b"GET /file HTTP/1.1\r\nHost: x\r\nX-Planted: crash\r\n\r\n"
SEGFAULT = b"DEBUG SEGFAULT\r\n"
NAMES = ("redis", "apache", "nginx", "lighttpd")


def crash(server: Server, text: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=100) as s:
        s.sendall(text)
        try:
            if s.recv(100):
                raise ServerError("the request that should crash was answered")
        except ConnectionResetError:
            pass


def crashes(server: Server, text: bytes, count: int) -> None:
    for number in range(count):
        crash(server, text)
        end = time.monotonic() + 100
        while len(server.recoveries()) <= number:
            if time.monotonic() > end or not server.alive():
                raise ServerError(f"crash {number} was not recovered: {server.last_words()}")
            time.sleep(0.002)


def one(settings: Settings, name: str, tracker: str, folder: Path) -> dict:
    under = [settings.cairn(), "run", "--at", "wait", "--recover", "--tracker", tracker, "--"]
    if name != "redis":
        library = settings.build / "tests" / "servers" / "libplanted_header.so"
        if not library.exists():
            raise ServerError("libplanted_header.so is not built")
        under = ["env", f"LD_PRELOAD={library}", *under]
    program = PROGRAMS[name]
    server = program.make(folder / f"{name}-{tracker}", under)
    try:
        server.start()
        program.load(server, max(100, program.quick // 10))
        count = 3 if settings.toy else 40
        crashes(server, SEGFAULT if name == "redis" else MAGIC, count)
        times = sorted(one.microseconds for one in server.recoveries())
    finally:
        server.stop()
    return {
        "crashes": len(times),
        "microseconds": round(median(times), 1),
        "least": times[0],
        "most": times[-1],
    }


def measure(settings: Settings) -> Iterator[dict]:
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    folder.chmod(0o755)
    try:
        for name in ("redis",) if settings.toy else NAMES:
            for tracker in ("async",) if settings.toy else settings.trackers:
                line = {"table": "recovery", "row": f"{name} {tracker}", "program": name}
                line["tracker"] = tracker
                reason = PROGRAMS[name].missing()
                try:
                    if reason:
                        raise ServerError(reason)
                    yield {**line, **one(settings, name, tracker, folder)}
                except (ServerError, OSError) as error:
                    yield {**line, "missing": str(error)[:300]}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
