#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
Programs that are no servers, under `cairn run`: output on both channels and the exit status are
the program's own, also when it dies of a signal, is missing, or reads all of its input from a
pipe.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from under_cairn import cairn_run, expect, main, skip

SQL = """
create table t(a integer primary key, b text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
  insert into t select i, hex(i * 7919) from n;
create index tb on t(b);
select count(*), sum(a), min(b), max(b) from t;
update t set b = b || 'x' where a % 3 = 0;
delete from t where a % 5 = 0;
select count(*), sum(length(b)) from t;
pragma integrity_check;
"""

LUA = """
local t = {}
for i = 1, 50000 do t[i] = (i * 7919) % 10007 end
table.sort(t)
io.write(t[1], ' ', t[25000], ' ', t[50000], '\\n')
local s = {}
for line in io.lines() do s[#s + 1] = line:reverse() end
print(table.concat(s, ','))
io.stderr:write('to stderr\\n')
os.exit(7)
"""

PYTHON = "import sys, json; d = json.load(sys.stdin); print(sum(d)); sys.exit(len(d) % 256)"
NUMBERS = "[" + ",".join(map(str, range(3000))) + "]"

# Children, threads and pipes between them: each side sleeps with its buffer in hand.
POOL = """
import multiprocessing, sys

def square(x):
    return x * x, bytes([x % 256]) * 9000

if __name__ == '__main__':
    for _ in range(2):
        with multiprocessing.Pool(4) as pool:
            got = pool.map(square, range(400))
        print(sum(n for n, _ in got), all(b == bytes([i % 256]) * 9000
                                          for i, (_, b) in enumerate(got)))
"""

# name, command, input
ROWS: list[tuple[str, list[str], str]] = [
    ("sqlite3 in memory", ["sqlite3", ":memory:"], SQL),
    ("sqlite3 in a file", ["sqlite3", "{folder}/{which}.db"], SQL),
    ("lua", ["lua5.4", "-e", LUA], "one\ntwo\nthree\n"),
    ("python", ["python3", "-c", PYTHON], NUMBERS),
    ("python with a pool", ["python3", "-c", POOL], ""),
    ("sort with threads", ["sort", "-n", "--parallel=4", "-S", "1M"],
     "\n".join(map(str, range(60000, 0, -1))) + "\n"),
    ("sort", ["sort", "-n"], "\n".join(map(str, range(5000, 0, -1))) + "\n"),
    ("bash", ["bash", "-c", "for i in 1 2 3; do echo $i | cat; done; (exit 3); exit $?"], ""),
    ("status 0", ["true"], ""),
    ("status 1", ["false"], ""),
    ("killed by itself", ["bash", "-c", "kill -KILL $$"], ""),
    ("terminated by itself", ["bash", "-c", "kill -TERM $$"], ""),
    ("own SIGSEGV by kill", ["bash", "-c", "kill -SEGV $$"], ""),
]


def run(command: list[str], text: str) -> tuple[int, str, str]:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=200)
    return done.returncode, done.stdout, done.stderr


def difference(got: tuple[int, str, str]) -> str:
    """What came instead: the ends of both channels, by lines."""
    ends = [["", *text.splitlines()[-20:]] for text in got[1:]]
    return f", and got status {got[0]}" + "".join("\n    ".join(lines) for lines in ends)


def test(build: Path, mode: str, folder: Path) -> None:
    missing = []
    for name, command, text in ROWS:
        if not shutil.which(command[0]):
            missing.append(command[0])
            continue
        results = []
        for which, under in (("bare", []), ("cairn", cairn_run(build, mode))):
            words = [
                w if w == LUA else w.replace("{folder}", str(folder)).replace("{which}", which)
                for w in command
            ]
            results.append(run([*under, *words], text))
        expected, got = results
        text = f"{name}: status {expected[0]}, {len(expected[1])} bytes"
        expect(expected == got, text + ("" if expected == got else difference(got)))
    if missing:
        skip(f"the rest passed; {', '.join(sorted(set(missing)))} not installed")


if __name__ == "__main__":
    main(test)
