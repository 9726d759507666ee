#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
PostgreSQL (a process per connection) under `cairn run`: a script of SQL answers as on a bare
server, pgbench with ten clients loses no transaction and its balances add up, and the fast shutdown
ends both with the same status.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from under_cairn import Failed, cairn_run, expect, expect_checkpoints, main, skip, side_by_side

from heavy_servers import PostgresServer, postgres_program
from servers import Server

CLIENTS = 10
TURNS = 250
SCRIPT = """
CREATE TABLE t (n int PRIMARY KEY, s text, v numeric);
INSERT INTO t SELECT i, md5(i::text), i * 1.5 FROM generate_series(1, 5000) i;
SELECT count(*), sum(v), min(s), max(s) FROM t;
CREATE INDEX ON t (s);
SELECT n FROM t WHERE s LIKE 'ab%' ORDER BY s;
BEGIN; UPDATE t SET v = v + 1 WHERE n % 7 = 0; SELECT sum(v) FROM t; ROLLBACK;
SELECT sum(v) FROM t;
SELECT a.n, b.n FROM t a JOIN t b ON a.n * 2 = b.n ORDER BY a.n DESC LIMIT 5;
INSERT INTO t VALUES (1, 'twice', 0);
SELECT 1 / 0;
PREPARE p (int) AS SELECT s FROM t WHERE n = $1; EXECUTE p (42); EXECUTE p (4711);
SELECT string_agg(s, '' ORDER BY n) FROM t WHERE n <= 2000;
CREATE FUNCTION f (n int) RETURNS int LANGUAGE plpgsql AS
  $$ DECLARE r int := 0;
  BEGIN FOR i IN 1..n LOOP r := (r * 31 + i) % 65537; END LOOP; RETURN r; END $$;
SELECT f(10000);
VACUUM FULL t; ANALYZE t; SELECT count(*) FROM t;
"""
BALANCES = """SELECT (SELECT sum(abalance) FROM pgbench_accounts),
  (SELECT sum(tbalance) FROM pgbench_tellers), (SELECT sum(bbalance) FROM pgbench_branches),
  (SELECT coalesce(sum(delta), 0) FROM pgbench_history), (SELECT count(*) FROM pgbench_history);"""


def client(program: str, server: Server, *words: str, stdin: str = "") -> str:
    """What a client program prints, errors of the server included."""
    done = subprocess.run(
        [postgres_program(program) or program, *words]
        + ["-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres", "postgres"],
        input=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )
    if done.returncode:
        raise Failed(f"{program}: {done.stdout[-800:]}")
    return done.stdout


def conversation(server: Server) -> str:
    return client("psql", server, "-X", "-A", "-t", stdin=SCRIPT)


class Session:
    """A connection that stays open, so that its backend's figures can be read."""

    def __init__(self, server: Server) -> None:
        words = ["-X", "-A", "-t", "-h", "127.0.0.1", "-p", str(server.port), "-U", "postgres"]
        self.process = subprocess.Popen(
            [postgres_program("psql") or "psql", *words, "postgres"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, question: str) -> str:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(question + ";\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(100)


def turn_by_turn(build: Path, mode: str, server: Server) -> None:
    """One question per wake-up, answered by memory that the last one changed."""
    session = Session(server)
    try:
        session.ask("SELECT setseed(0)")
        answers = [session.ask(f"SELECT {n} * 3 + count(*) FROM t") for n in range(TURNS)]
        expected = [str(n * 3 + 5000) for n in range(TURNS)]
        expect(answers == expected, f"{TURNS} answers in one session")
        more_than = 5 if mode == "fork" else 20
        expect_checkpoints(build, mode, server, lambda: session.ask("SELECT 1"), more_than)
    finally:
        session.close()


def transactions(server: Server, each: int) -> None:
    client("pgbench", server, "-i", "-q", "-s", "1")
    said = client("pgbench", server, "-n", "-c", str(CLIENTS), "-t", str(each))
    done = re.search(r"actually processed: (\d+)/(\d+)", said)
    expect(done is not None and done[1] == done[2], f"pgbench: {done[0] if done else said}")
    balances = client("psql", server, "-X", "-A", "-t", stdin=BALANCES).strip().split("|")
    expect(len(set(balances[:4])) == 1, f"balances add up: {balances[:4]}")
    expect(balances[4] == str(CLIENTS * each), f"{balances[4]} transactions are there")


def test(build: Path, mode: str, folder: Path) -> None:
    if not all(postgres_program(name) for name in ("postgres", "initdb", "psql", "pgbench")):
        skip("postgresql is not installed")
    bare = PostgresServer(folder / "bare", [])
    cairn = PostgresServer(folder / "cairn", cairn_run(build, mode))
    with side_by_side(bare, cairn):
        expected, got = conversation(bare), conversation(cairn)
        expect(len(expected) > 60_000 and "division by zero" in expected, "the bare one answers")
        expect(expected == got, f"{len(got)} bytes of answers are the same")
        transactions(cairn, 10 if mode == "fork" else 40)
        turn_by_turn(build, mode, cairn)


if __name__ == "__main__":
    main(test)
