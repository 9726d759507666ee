#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Redis under `cairn run`: the demo's verifier finds nothing, redis-benchmark sees no error, Lua
scripts and a transaction answer as in a bare one, and SHUTDOWN ends both with the same status.
"""

from __future__ import annotations

from pathlib import Path

from under_cairn import cairn_run, expect, expect_checkpoints, main, need_program, side_by_side

from resp import Connection
from servers import RedisServer
from throughput import requests_per_second
from verifier import Verifier

SCRIPT = """
local t = {}
for i = 1, ARGV[1] do t[i] = i * i end
redis.call('RPUSH', 'sq', unpack(t))
return t
"""


def conversation(port: int) -> list:
    with Connection(port) as c:
        replies = [
            c.call("EVAL", SCRIPT, 0, 50),
            c.call("LRANGE", "sq", 0, -1),
            c.call("SET", "big", b"x" * 2_000_000),
            c.call("GETRANGE", "big", 1_999_990, -1),
            *c.pipeline([("MULTI",), ("INCR", "n"), ("APPEND", "s", "abc"), ("EXEC",)]),
            c.call("ZADD", "z", 3, "c", 1, "a", 2, "b"),
            c.call("ZRANGE", "z", 0, -1, "WITHSCORES"),
            c.call("SETRANGE", "sparse", 100_000, "end"),
            c.call("STRLEN", "sparse"),
            c.call("DEL", "big", "sparse"),
        ]
    return replies


def test(build: Path, mode: str, folder: Path) -> None:
    need_program("redis-server", "redis-benchmark")
    bare = RedisServer(folder / "bare", [])
    cairn = RedisServer(folder / "cairn", cairn_run(build, mode))
    with side_by_side(bare, cairn):
        expect(conversation(bare.port) == conversation(cairn.port), "the same conversation")
        for name in ("set", "get", "lrange_100", "mset"):
            requests = 500 if mode == "fork" else 5000
            rate = requests_per_second(cairn.port, name, requests)
            print(f"ok    redis-benchmark {name}: {rate:.0f} requests/s", flush=True)
        verifier = Verifier(cairn.port, connections=52)
        verifier.step(2.0)
        verifier.finish()
        audit = verifier.audit()
        expect(not audit.findings, f"nothing is wrong {audit.findings.lines()}")
        expect(audit.present == audit.acknowledged > 0, f"{audit.acknowledged} writes are there")
        expect(verifier.connections_reset == 0, "no connection was reset")
        expect_checkpoints(build, mode, cairn, lambda: requests_per_second(cairn.port, "set", 500))


if __name__ == "__main__":
    main(test)
