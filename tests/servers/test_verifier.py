#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
The demo's verifier must be able to fail. Against a bare redis-server: nothing wrong when nothing
is; and each planted wrong (a lost, repeated, reordered, stale write; a restart that forgets
everything) is found and named. Skipped (77) without redis-server.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "servers"))

from resp import Connection  # noqa: E402
from servers import RedisServer  # noqa: E402
from verifier import Verifier, Writer  # noqa: E402


def largest(verifier: Verifier) -> Writer:
    return max(verifier.writers, key=lambda w: min(w.list, w.counter, len(w.unique)))


def lose_string(c: Connection, v: Verifier) -> None:
    c.call("DEL", next(iter(largest(v).unique)))


def stale_string(c: Connection, v: Verifier) -> None:
    c.call("SET", next(iter(largest(v).overwritten)), "an older value")


def lose_increment(c: Connection, v: Verifier) -> None:
    c.call("DECR", f"c:{largest(v).index}")


def repeat_increment(c: Connection, v: Verifier) -> None:
    c.call("INCR", f"c:{largest(v).index}")


def lose_middle(c: Connection, v: Verifier) -> None:
    c.call("LREM", f"l:{largest(v).index}", 1, 1)


def lose_end(c: Connection, v: Verifier) -> None:
    c.call("RPOP", f"l:{largest(v).index}")


def repeat_item(c: Connection, v: Verifier) -> None:
    c.call("RPUSH", f"l:{largest(v).index}", largest(v).list - 1)


def reorder_items(c: Connection, v: Verifier) -> None:
    key = f"l:{largest(v).index}"
    c.pipeline([("LSET", key, 0, 1), ("LSET", key, 1, 0)])


def undo_pop(c: Connection, v: Verifier) -> None:
    writer = next(w for w in v.writers if w.popped > 0)
    c.call("LPUSH", f"q:{writer.index}", writer.popped - 1)


def lose_shared_item(c: Connection, v: Verifier) -> None:
    c.call("LPOP", "shared:l")


def repeat_shared_item(c: Connection, v: Verifier) -> None:
    c.call("RPUSH", "shared:l", "0:0")


def lose_shared_increment(c: Connection, v: Verifier) -> None:
    c.call("DECR", "shared:c")


WRONGS: list[tuple[Callable[[Connection, Verifier], None], str]] = [
    (lose_string, "lost"),
    (stale_string, "lost"),
    (lose_increment, "lost"),
    (repeat_increment, "duplicated"),
    (lose_middle, "lost"),
    (lose_end, "lost"),
    (repeat_item, "duplicated"),
    (reorder_items, "reordered"),
    (undo_pop, "lost"),
    (lose_shared_item, "lost"),
    (repeat_shared_item, "duplicated"),
    (lose_shared_increment, "lost"),
]


def loaded(server: RedisServer, seconds: float = 0.4) -> Verifier:
    with Connection(server.port) as connection:
        connection.call("FLUSHALL")
    verifier = Verifier(server.port, connections=52)
    verifier.step(seconds)
    while verifier.acknowledged < 3000:  # a busy machine
        verifier.step(0.1)
    return verifier


def expect(condition: bool, text: str) -> None:
    print(f"{'ok' if condition else 'FAIL'}  {text}", flush=True)
    if not condition:
        raise SystemExit(1)


def test_nothing_wrong(server: RedisServer) -> None:
    verifier = loaded(server, 1.0)
    verifier.finish()
    audit = verifier.audit()
    expect(not audit.findings, f"nothing wrong is found where nothing is {audit.findings.lines()}")
    expect(audit.acknowledged > 1000, f"{audit.acknowledged} writes were acknowledged")
    expect(audit.present == audit.acknowledged, "all of them are there")


def test_each_wrong(server: RedisServer) -> None:
    for plant, kind in WRONGS:
        verifier = loaded(server)
        verifier.finish()
        with Connection(server.port) as connection:
            plant(connection, verifier)
        audit = verifier.audit()
        expect(kind in audit.findings.counts, f"{plant.__name__}: {audit.findings.lines()}")
        if kind == "lost":
            missing = audit.acknowledged - audit.present
            expect(missing > 0, f"{plant.__name__}: {missing} missing")


def test_wrong_while_running(server: RedisServer) -> None:
    verifier = loaded(server)
    with Connection(server.port) as connection:
        connection.call("DECRBY", f"c:{largest(verifier).index}", 3)
    for _ in range(100):
        verifier.step(0.5)
        if "lost" in verifier.findings.counts:
            break
    expect("lost" in verifier.findings.counts, "a counter that fell shows in the next answers")
    verifier.finish()


def test_restart_without_memory(server: RedisServer) -> None:
    verifier = loaded(server)
    acknowledged = verifier.acknowledged
    server.kill()
    server.start()
    for _ in range(100):
        verifier.step(0.5)
        if verifier.connections_reset >= 52:
            break
    verifier.finish()
    audit = verifier.audit()
    expect(verifier.connections_reset >= 52, f"{verifier.connections_reset} resets were counted")
    missing = audit.acknowledged - audit.present
    # What went into a queue and came out of it again leaves no trace: a quarter of the writes.
    expect(
        missing >= acknowledged * 0.7, f"kill -9: {missing} of {acknowledged} writes reported lost"
    )


def main() -> int:
    if not shutil.which("redis-server"):
        print("SKIP: redis-server is not installed")
        return 77
    with tempfile.TemporaryDirectory(prefix="cairn-test-") as folder:
        server = RedisServer(Path(folder), [])
        server.start()
        try:
            test_nothing_wrong(server)
            test_each_wrong(server)
            test_wrong_while_running(server)
            test_restart_without_memory(server)
        finally:
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
